"""A call at a handshake server waits, parked, while its stateless client is away; it is never made twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import trunkline.types as t
from tests.host.gateway.support import OLD, PAIRS, UPSTREAMS, again, asked, fronted, on_stage, server, until
from trunkline import Context, RequestFailed, Server
from trunkline.errors import InvalidParams
from trunkline.protocol.limits import Limits


class Clerk:
    """A handshake server that asks, and remembers what became of its calls."""

    def __init__(self, revision: str = OLD) -> None:
        self.ran = 0
        self.ended: list[str] = []
        self.go_on = asyncio.Event()
        self.server: Server = server("clerk", revision)
        self.server.add_tool(self.ask)
        self.server.add_tool(self.ask_twice)
        self.server.add_tool(self.lose_patience)
        self.server.add_tool(self.ask_and_work)

    async def ask(self, ctx: Context) -> str:
        """Ask once."""
        self.ran += 1
        try:
            return str((await ctx.elicit("Name?", str)).data)
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise

    async def ask_twice(self, ctx: Context) -> str:
        """Ask twice."""
        self.ran += 1
        first = (await ctx.elicit("First?", str)).data
        return f"{first} {(await ctx.elicit('Second?', str)).data}"

    async def lose_patience(self, ctx: Context) -> str:
        """Ask, but not for long."""
        self.ran += 1
        asking = asyncio.ensure_future(ctx.elicit("Name?", str))
        await self.go_on.wait()
        asking.cancel()
        return "nobody came"

    async def ask_and_work(self, ctx: Context) -> str:
        """Ask, then work until told to stop."""
        self.ran += 1
        try:
            await ctx.elicit("Name?", str)
            self.ended.append("working")
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        return "done"


def _never(question: t.ElicitRequestParams) -> Any:
    raise AssertionError("the test answers by hand")


async def test_a_parked_call_is_taken_up_where_it_was_left(tmp_path: Path) -> None:
    clerk = Clerk()
    async with on_stage({"c": clerk.server}, tmp_path) as stage, stage.client(elicitation=_never) as client:
        params, first = await asked(client, "c__ask_twice")
        assert stage.parked == 1
        second, _ = await client.forward("tools/call", again(params, first, "Ada"))
        assert stage.parked == 1
        result, _ = await client.forward("tools/call", again(params, second, "Lovelace"))
        assert stage.parked == 0
    assert result.content[0].text == "Ada Lovelace"
    assert clerk.ran == 1


async def test_a_parked_call_whose_time_is_over_is_cancelled_and_never_repeated(tmp_path: Path) -> None:
    clerk = Clerk()
    limits = Limits(state_seconds=0.1)
    async with (
        on_stage({"c": clerk.server}, tmp_path, limits=limits) as stage,
        stage.client(elicitation=_never) as client,
    ):
        params, question = await asked(client, "c__ask")
        await until(lambda: clerk.ended)
        assert (clerk.ended, stage.parked) == (["cancelled"], 0)
        with pytest.raises(InvalidParams):
            await client.forward("tools/call", again(params, question, "Ada"))
    assert clerk.ran == 1


async def test_the_same_state_does_not_serve_twice_nor_two_at_once(tmp_path: Path) -> None:
    clerk = Clerk()
    async with fronted({"c": clerk.server}, tmp_path, elicitation=_never) as client:
        params, question = await asked(client, "c__ask_and_work")
        retry = again(params, question, "Ada")
        first = asyncio.create_task(client.forward("tools/call", retry))
        await until(lambda: clerk.ended)
        with pytest.raises(InvalidParams, match="is no longer waiting for an answer"):
            await client.forward("tools/call", retry)
        clerk.go_on.set()
        result, _ = await first
        with pytest.raises(InvalidParams, match="is no longer waiting for an answer"):
            await client.forward("tools/call", retry)
    assert result.content[0].text == "done"
    assert (clerk.ran, clerk.ended) == (1, ["working"])


async def test_an_answer_is_not_spent_on_another_question(tmp_path: Path) -> None:
    clerk = Clerk()
    async with fronted({"c": clerk.server}, tmp_path, elicitation=_never) as client:
        params, first = await asked(client, "c__ask_twice")
        retry = again(params, first, "Ada")
        await client.forward("tools/call", retry)
        replayed, _ = await client.forward("tools/call", retry)
        assert [each.params for each in replayed.input_requests.values()] != [
            each.params for each in (first.input_requests or {}).values()
        ]
        result, _ = await client.forward("tools/call", again(params, replayed, "Lovelace"))
    assert result.content[0].text == "Ada Lovelace"


@pytest.mark.parametrize("state", ["", "x" * 100, "AQ" * 60], ids=["empty", "letters", "forged"])
async def test_made_up_state_is_refused(state: str, tmp_path: Path) -> None:
    clerk = Clerk()
    async with fronted({"c": clerk.server}, tmp_path, elicitation=_never) as client:
        params = t.CallToolRequestParams(name="c__ask", request_state=state)
        with pytest.raises(InvalidParams):
            await client.forward("tools/call", params)
    assert clerk.ran == 0


@UPSTREAMS
async def test_state_is_good_for_its_own_call_alone(upstream: str, tmp_path: Path) -> None:
    clerk = Clerk(upstream)
    async with fronted({"c": clerk.server}, tmp_path, elicitation=_never) as client:
        params, question = await asked(client, "c__ask")
        retry = again(params, question, "Ada")
        with pytest.raises(InvalidParams):
            await client.forward("tools/call", replace(retry, name="c__ask_twice"))


async def test_there_is_a_limit_to_how_many_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.host.core._MOST_PARKED", 1)
    clerk = Clerk()
    async with fronted({"c": clerk.server}, tmp_path, elicitation=_never) as client:
        params, question = await asked(client, "c__ask")
        with pytest.raises(RequestFailed, match="Too many calls wait"):
            await asked(client, "c__ask")
        await until(lambda: clerk.ended)
        result, _ = await client.forward("tools/call", again(params, question, "Ada"))
    assert clerk.ended == ["cancelled"]
    assert result.content[0].text == "Ada"


async def test_a_result_that_comes_while_the_client_is_away_is_kept_for_it(tmp_path: Path) -> None:
    clerk = Clerk()
    async with on_stage({"c": clerk.server}, tmp_path) as stage, stage.client(elicitation=_never) as client:
        params, question = await asked(client, "c__lose_patience")
        clerk.go_on.set()
        result, _ = await client.forward("tools/call", again(params, question, "too late"))
        assert stage.parked == 0
    assert result.content[0].text == "nobody came"


async def test_a_client_that_gives_up_after_its_return_cancels_the_call(tmp_path: Path) -> None:
    clerk = Clerk()
    async with on_stage({"c": clerk.server}, tmp_path) as stage, stage.client(elicitation=_never) as client:
        params, question = await asked(client, "c__ask_and_work")
        retry = asyncio.create_task(client.forward("tools/call", again(params, question, "Ada")))
        await until(lambda: clerk.ended)
        retry.cancel()
        await until(lambda: clerk.ended[-1] == "cancelled")
        assert stage.parked == 0


async def test_a_client_that_leaves_while_its_call_is_parked_does_not_end_it(tmp_path: Path) -> None:
    clerk = Clerk()
    async with on_stage({"c": clerk.server}, tmp_path) as stage:
        async with stage.client(elicitation=_never) as client:
            params, question = await asked(client, "c__ask")
        async with stage.client(elicitation=_never) as client:
            result, _ = await client.forward("tools/call", again(params, question, "Ada"))
    assert result.content[0].text == "Ada"


async def test_a_server_that_is_restarted_loses_its_parked_calls(tmp_path: Path) -> None:
    clerk = Clerk()
    async with on_stage({"c": clerk.server}, tmp_path) as stage, stage.client(elicitation=_never) as client:
        params, question = await asked(client, "c__ask")
        await stage.host.restart("c")
        with pytest.raises(RequestFailed):
            await client.forward("tools/call", again(params, question, "Ada"))
        assert stage.parked == 0
        (await asked(client, "c__ask"))[1]
    assert clerk.ran == 2


async def test_a_server_that_is_removed_takes_its_parked_calls_with_it(tmp_path: Path) -> None:
    clerk = Clerk()
    async with on_stage({"c": clerk.server}, tmp_path) as stage, stage.client(elicitation=_never) as client:
        params, question = await asked(client, "c__ask")
        await stage.host.remove_server("c")
        await until(lambda: clerk.ended)
        with pytest.raises(RequestFailed):
            await client.forward("tools/call", again(params, question, "Ada"))
    assert (clerk.ran, clerk.ended) == (1, ["cancelled"])


@PAIRS
async def test_a_server_that_is_removed_while_it_works_fails_the_call(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    clerk = Clerk(upstream)
    async with (
        on_stage({"c": clerk.server}, tmp_path) as stage,
        stage.client(channel, elicitation=lambda _: "Ada") as client,
    ):
        call = asyncio.create_task(client.call_tool("c__ask_and_work"))
        await until(lambda: "working" in clerk.ended)
        await stage.host.remove_server("c")
        with pytest.raises(RequestFailed, match="'c'"):
            await call
