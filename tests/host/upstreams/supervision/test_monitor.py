"""What is heard of a server that runs: changes of its lists, streams that close, connections that renew themselves."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.client.scripted_server import Scripted, handshake_server, settle, stateless
from tests.host.supervised import Stage, kept_in, program, scripted, supervising
from tests.support import run_async
from tests.transports.http.scripted_http import (
    LISTENING,
    TOOLS,
    Got,
    HttpScript,
    Status,
    Writer,
    handshake_script,
    stateless_script,
)
from trunkline import Client
from trunkline.auth.credential_store import MemoryStore
from trunkline.auth.discovery import AuthorizationServerMetadata
from trunkline.auth.oauth import OAuth
from trunkline.auth.token_store import LoginStore
from trunkline.auth.tokens import Login, RegisteredClient, TokenSet
from trunkline.errors import ServerUnavailable, TrunklineError
from trunkline.host.config.model import ServerEntry, ServerSettings, Source
from trunkline.host.upstreams.supervision.monitor import RunOutcome, ServerMonitor
from trunkline.host.upstreams.supervision.state import UpstreamState
from trunkline.protocol.jsonrpc import Response
from trunkline.timers import Timers
from trunkline.types import META_SUBSCRIPTION_ID

CHANGED = "notifications/tools/list_changed"
HOUR = 3600.0


def changing() -> Scripted:
    """Make a server whose list of tools is another each time."""
    server = handshake_server({}, tools={"listChanged": True}, prompts={"listChanged": True})
    tool = {"inputSchema": {"type": "object"}}
    server.table["tools/list"] = lambda params: {
        "tools": [{"name": f"tool-{server.methods.count('tools/list')}", **tool}]
    }
    server.table["prompts/list"] = {"prompts": []}
    return server


def tool_names(stage: Stage) -> list[str]:
    offering = stage.upstream().offering
    return [] if offering is None else [tool.name for tool in offering.tools]


async def test_a_list_that_changed_is_listed_again_after_a_moment() -> None:
    server = changing()
    async with supervising({"a": scripted("a", server)}) as stage:
        await stage.upstream().connected_client()
        await settle()
        server.stage.say(CHANGED)
        await stage.pass_time(0.05)
        assert tool_names(stage) == ["tool-1"]
        await stage.pass_time(0.06)
        assert tool_names(stage) == ["tool-2"]
        assert server.methods.count("prompts/list") == 1
        assert stage.offered == ["a", "a"]


async def test_a_list_that_is_the_same_as_before_is_no_news() -> None:
    server = handshake_server({"tools/list": TOOLS}, tools={"listChanged": True})
    async with supervising({"a": scripted("a", server)}) as stage:
        await stage.upstream().connected_client()
        await settle()
        server.stage.say(CHANGED)
        await stage.pass_time(0.2)
        assert server.methods.count("tools/list") == 2
        assert stage.offered == ["a"]


async def test_a_list_that_cannot_be_read_again_stays_as_it_was() -> None:
    server = changing()
    async with supervising({"a": scripted("a", server)}) as stage:
        await stage.upstream().connected_client()
        await settle()
        server.table["tools/list"] = {"tools": 3}
        server.stage.say(CHANGED)
        await stage.pass_time(0.2)
        assert stage.upstream().state == "partial"
        assert tool_names(stage) == ["tool-1"]


async def test_a_server_without_a_change_stream_is_ready_anyway() -> None:
    server = stateless({"tools/list": TOOLS}, tools={"listChanged": True})
    async with supervising({"a": scripted("a", server)}) as stage:
        await stage.upstream().connected_client()
        await stage.pass_time(HOUR, steps=720)
        assert server.methods.count("subscriptions/listen") == 4
        assert stage.states() == ["known", "starting", "ready"]
        await stage.pass_time(6 * HOUR, steps=720)
        assert server.methods.count("subscriptions/listen") == 5


async def test_a_stream_that_closes_after_a_while_is_opened_five_times_an_hour() -> None:
    server = stateless({"tools/list": TOOLS, "subscriptions/listen": None}, tools={"listChanged": True})
    async with supervising({"a": scripted("a", server)}) as stage:
        await stage.upstream().connected_client()
        for count in range(1, 8):
            await stage.pass_time(1.5)
            await _acknowledge(server, count)
            await stage.pass_time(60.0)
            _end_listening(server)
        await stage.pass_time(HOUR)
        assert server.methods.count("subscriptions/listen") == 6
        assert stage.upstream().state == "ready"


async def _acknowledge(server: Scripted, count: int) -> None:
    """Say that a subscription is heard, if there is a new one."""
    ids = [id for id, (method, _) in zip(server.ids, server.received, strict=False) if method == "subscriptions/listen"]
    if len(ids) == count:
        meta = {META_SUBSCRIPTION_ID: ids[-1]}
        server.stage.say("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": {}})
    await settle()


def _end_listening(server: Scripted) -> None:
    ids = [id for id, (method, _) in zip(server.ids, server.received, strict=False) if method == "subscriptions/listen"]
    server.stage.put(Response(ids[-1], {"resultType": "complete"}))


async def test_a_stream_that_broke_off_is_opened_again_and_the_lists_are_read_again() -> None:
    async def listen(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.event(_acknowledgement(got.id))
        await writer.flush()
        breaking = asyncio.ensure_future(broken.wait())
        await asyncio.wait([breaking, asyncio.ensure_future(writer.until_left())], return_when="FIRST_COMPLETED")
        writer.break_off()

    broken = asyncio.Event()
    async with modern({"subscriptions/listen": listen}) as script, supervising({"a": at(script)}) as stage:
        await stage.upstream().connected_client()
        await script.until(lambda: script.names.count("subscriptions/listen") == 1)
        await stage.pass_time(60.0)
        broken.set()
        await script.until(lambda: script.names.count("subscriptions/listen") == 2)
        assert stage.states() == ["known", "starting", "ready"]


def _acknowledgement(id: Any) -> Any:
    params = {"_meta": {META_SUBSCRIPTION_ID: id}, "notifications": {"toolsListChanged": True}}
    return {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}


# --- what cannot be kept or read


async def test_an_item_that_cannot_be_read_is_reported() -> None:
    server = handshake_server({"tools/list": {"tools": [*TOOLS["tools"], {"name": "bad"}]}}, tools={})
    async with supervising({"a": scripted("a", server)}) as stage:
        await stage.upstream().connected_client()
        assert stage.upstream().state == "ready"
        assert "1 items cannot be read; tools/list: item 1 ('bad')" in (stage.upstream().status.reason or "")


async def test_a_catalog_that_cannot_be_cached_does_not_stop_the_server(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    async with supervising({"a": program("a", "plain")}, cache=kept_in(tmp_path / "file")) as stage:
        await stage.upstream().connected_client()
        await stage.pass_time(1.0)
        assert stage.upstream().state == "ready"


# --- servers at URLs

OTHERS: Mapping[str, Any] = {
    "prompts/list": {"prompts": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
}


def modern(table: dict[str, Any] | None = None) -> HttpScript:
    """Make a stateless server that has all its lists."""
    return stateless_script({**OTHERS, **(table or {})})


def older(table: dict[str, Any] | None = None) -> HttpScript:
    """Make a handshake server that has all its lists."""
    return handshake_script({**OTHERS, **(table or {})})


def at(script: HttpScript, **more: Any) -> ServerEntry:
    settings = ServerSettings(**more.pop("settings", {}))
    return ServerEntry(name="a", source=Source("given"), url=script.url, settings=settings, **more)


async def test_a_server_that_is_not_there_is_waited_for_and_never_broken() -> None:
    async with modern() as script:
        pass
    async with supervising({"a": at(script)}) as stage:
        for count in range(1, 8):
            await stage.until_count("waiting", count)
            await stage.pass_time(31.0)
        async with script:
            await stage.until(lambda: stage.upstream().state in ("waiting", "ready"))
            await stage.pass_time(31.0)
            await stage.until_state("ready")
        assert "broken" not in stage.states()


async def test_a_session_that_ended_is_renewed_and_the_lists_are_read_again() -> None:
    ended = iter([Status(404)])

    async def call(got: Got, writer: Writer) -> None:
        answer = next(ended, None)
        if answer is None:
            writer.result(got, {"content": []})
        else:
            writer.status(answer)

    async with older({"tools/call": call}) as script, supervising({"a": at(script)}) as stage:
        client = await stage.upstream().connected_client()
        await client.call_tool("add")
        await stage.pass_time(0.2)
        await script.until(lambda: script.names.count("tools/list") == 2)
        assert script.names.count("initialize") == 2
        assert await stage.upstream().connected_client() is client
        assert stage.states() == ["known", "starting", "ready"]


async def test_a_request_that_fails_is_no_reason_to_end_anything() -> None:
    script = modern({"tools/call": Status(500, b"oops")})
    async with script, supervising({"a": at(script)}) as stage:
        client = await stage.upstream().connected_client()
        with stage.upstream().track_call(), pytest.raises(TrunklineError):
            await client.call_tool("add")
        assert await stage.upstream().connected_client() is client


async def test_a_url_that_stops_answering_is_tried_again() -> None:
    async def silence(got: Got, writer: Writer) -> None:
        await writer.until_left()

    table = {"GET": LISTENING}
    async with older(table) as script, supervising({"a": at(script)}) as stage:
        await stage.upstream().connected_client()
        script.table["ping"] = silence
        await stage.pass_time(30.0)
        await script.until(lambda: script.names.count("ping") == 1)
        await stage.pass_time(10.0)
        await script.until(lambda: script.names.count("ping") == 2)
        await stage.pass_time(10.0)
        await stage.until_state("waiting")
        await stage.pass_time(1.0)
        await stage.until_count("ready", 2)


# --- logins


REFUSAL = Status(401, b"who are you?", {"WWW-Authenticate": "Bearer"})


@pytest.mark.parametrize("refusal", [REFUSAL, Status(403)], ids=["401 with a challenge", "403 without one"])
async def test_a_refusal_at_the_door_means_a_login_and_no_failure(refusal: Status) -> None:
    script = modern({"server/discover": refusal, "initialize": refusal})
    async with script, supervising({"a": at(script)}, logins=MemoryStore()) as stage:
        await stage.until_state("needs login")
        assert "run: trunkline auth login a" in (stage.upstream().status.reason or "")
        requests = len(script.requests)
        await stage.pass_time(HOUR, steps=240)
        assert len(script.requests) == requests
        with pytest.raises(ServerUnavailable, match=r"a needs a login: .*trunkline auth login a"):
            await stage.upstream().connected_client()


async def test_a_header_that_is_refused_is_never_replaced_by_a_login() -> None:
    async with modern({"server/discover": REFUSAL, "initialize": REFUSAL}) as script:
        entry = at(script, headers={"authorization": "Bearer old"})
        async with supervising({"a": entry}, logins=await _logins(script.url)) as stage:
            await stage.until_state("needs login")
            assert "the Authorization header of its entry is not accepted" in (stage.upstream().status.reason or "")
            assert {got.headers.get("authorization") for got in script.requests} == {"Bearer old"}


def _door(got: Got) -> bool:
    return got.headers.get("authorization") == "Bearer good"


def guarded() -> HttpScript:
    """Make a server that lets in whoever shows the right token."""
    script = modern()

    def behind(answer: Any) -> Any:
        async def reply(got: Got, writer: Writer) -> None:
            if _door(got):
                writer.result(got, answer)
            else:
                writer.status(REFUSAL)

        return reply

    for method, answer in list(script.table.items()):
        script.table[method] = behind(answer)
    script.table["initialize"] = REFUSAL
    return script


async def test_a_login_that_is_kept_is_used() -> None:
    async with guarded() as script, supervising({"a": at(script)}, logins=await _logins(script.url)) as stage:
        client = await stage.upstream().connected_client()
        assert (await client.call_tool("add")).text == "3"


async def test_a_login_that_is_made_meanwhile_is_found_within_half_a_minute() -> None:
    store = MemoryStore()
    async with guarded() as script, supervising({"a": at(script)}, logins=store) as stage:
        await stage.until_state("needs login")
        await settle()
        await _keep_login(store, script.url)
        await stage.pass_time(29.0)
        assert stage.upstream().state == "needs login"
        await stage.pass_time(1.0)
        await stage.until_state("ready")


async def test_a_login_that_ends_while_the_server_runs_is_noticed() -> None:
    async with modern() as script, supervising({"a": at(script)}, logins=MemoryStore()) as stage:
        client = await stage.upstream().connected_client()
        script.table |= dict.fromkeys(("server/discover", "tools/call", "initialize"), REFUSAL)
        with pytest.raises(TrunklineError), stage.upstream().track_call():
            await client.call_tool("add")
        await stage.until_state("needs login")


async def _logins(url: str) -> MemoryStore:
    store = MemoryStore()
    await _keep_login(store, url)
    return store


async def _keep_login(store: MemoryStore, url: str) -> None:
    issuer = "http://127.0.0.1:1"
    tokens = TokenSet(access_token="good", issuer=issuer, resource=url, client_id="me")
    server = AuthorizationServerMetadata(
        issuer=issuer, authorization_endpoint=f"{issuer}/authorize", token_endpoint=f"{issuer}/token"
    )
    login = Login(tokens=tokens, client=RegisteredClient(issuer=issuer, client_id="me"), server=server)
    await LoginStore(store, url, OAuth()).save(login)


async def test_no_task_is_left_behind() -> None:
    before = asyncio.all_tasks()
    async with supervising({"a": scripted("a", changing()), "b": program("b", "plain")}) as stage:
        await stage.upstream("a").connected_client()
        await stage.upstream("b").connected_client()
    await settle()
    assert asyncio.all_tasks() == before


def test_a_server_that_is_lost_before_it_is_looked_after_leaves_nothing_unfinished() -> None:
    async def main() -> RunOutcome:
        timers = Timers()
        condition = UpstreamState(
            program("a", "plain"), now=timers.clock.now, on_move=lambda _: None, on_offering=lambda: None
        )
        serving = ServerMonitor(condition, Client(["true"]), timers=timers, spread=lambda: 0.0, cache=None)
        serving.finish(RunOutcome("lost", "it died"))
        return await serving.run()

    assert run_async(main()) == RunOutcome("lost", "it died")
    # What was never begun would complain here.
    gc.collect()
