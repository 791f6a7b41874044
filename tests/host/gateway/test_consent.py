"""Questions of servers reach the client in front, whatever the eras of the two, and the answers come back."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.support import CELLS, PAIRS, UPSTREAMS, fronted, on_stage, server
from trunkline import Context, RequestFailed, Server, ToolError
from trunkline.host.config.model import ServerEntry, ServerSettings, Source


def inquirer(revision: str) -> Server:
    """Make a server whose tools ask."""
    made = server("inquirer", revision)

    @made.tool
    async def order(ctx: Context, size: int = 2) -> str:
        """Ask for a name, then for each topping."""
        name = (await ctx.elicit("Name?", str)).data
        toppings = [str((await ctx.elicit(f"Topping {number}?", str)).data) for number in range(size)]
        return f"{name}: {' '.join(toppings)}"

    @made.tool
    async def think(ctx: Context, about: str) -> str:
        """Ask a model."""
        sampled = await ctx.sample(about, max_tokens=17, system_prompt="Short.")
        return f"{sampled.model}: {sampled.text}"

    @made.tool
    async def folders(ctx: Context) -> list[str]:
        """Ask for the roots."""
        return [root.uri for root in await ctx.list_roots()]

    @made.tool
    async def tell(ctx: Context, who: str) -> str:
        """Ask one question with the caller's name in it."""
        return f"{who}={(await ctx.elicit(f'I am {who}', str)).data}"

    @made.prompt
    async def letter(ctx: Context) -> str:
        """Ask while a prompt is filled in."""
        return f"Dear {(await ctx.elicit('To whom?', str)).data}"

    @made.resource("form://{name}")
    async def form(name: str, ctx: Context) -> str:
        return f"{name} is {(await ctx.elicit('How?', str)).data}"

    return made


def _asked(question: t.ElicitRequestParams) -> str:
    """Return what a server asked, which comes after its own name and nothing else."""
    label = "[a] "
    assert question.message.startswith(label)
    return question.message.removeprefix(label)


def _first_word(question: t.ElicitRequestParams) -> str:
    return _asked(question).split()[0].rstrip("?")


@CELLS
async def test_questions_in_a_loop_are_all_answered(channel: str, upstream: str, tmp_path: Path) -> None:
    heard: list[str] = []

    def answer(question: t.ElicitRequestParams) -> str:
        heard.append(question.message)
        return _asked(question).upper()

    async with on_stage({"a": inquirer(upstream)}, tmp_path) as stage:
        async with stage.client(channel, elicitation=answer) as client:
            result = await client.call_tool("a__order", {"size": 3})
        assert stage.parked == 0
    assert result.data == "NAME?: TOPPING 0? TOPPING 1? TOPPING 2?"
    assert heard == ["[a] Name?", "[a] Topping 0?", "[a] Topping 1?", "[a] Topping 2?"]


@PAIRS
async def test_a_model_in_front_is_asked_as_the_server_asks_it(channel: str, upstream: str, tmp_path: Path) -> None:
    heard: list[t.CreateMessageRequestParams] = []

    def sample(params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        heard.append(params)
        return t.CreateMessageResult(role="assistant", content=t.TextContent(text="42"), model="m")

    async with fronted({"a": inquirer(upstream)}, tmp_path, channel, sampling=sample) as client:
        assert (await client.call_tool("a__think", {"about": "life"})).data == "m: 42"
    (asked,) = heard
    label = "[a] This request is made by the MCP server a."
    assert (asked.max_tokens, asked.system_prompt) == (17, f"{label}\n\nShort.")
    assert asked.messages[0].content == t.TextContent(text="life")


@CELLS
async def test_a_later_call_with_other_roots_reaches_the_server_with_these(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    # A handshake server asks once a connection; by the second call the gateway knows that it does.
    async with on_stage({"a": inquirer(upstream)}, tmp_path) as stage:
        async with stage.client(channel, roots=["file:///first"]) as client:
            assert (await client.call_tool("a__folders")).data == ["file:///first"]
            assert (await client.call_tool("a__folders")).data == ["file:///first"]
        async with stage.client(channel, roots=["file:///second"]) as client:
            assert (await client.call_tool("a__folders")).data == ["file:///second"]


def _unasked() -> Any:
    raise AssertionError("the client was asked")


@PAIRS
@pytest.mark.parametrize("client_roots", [{"roots": _unasked}, {}], ids=["client with roots", "client without roots"])
async def test_configured_roots_hold_whatever_the_client_has(
    channel: str, upstream: str, client_roots: dict[str, Any], tmp_path: Path
) -> None:
    settings = ServerSettings(roots=("file:///given",))
    entry = ServerEntry(name="a", source=Source("given"), target=inquirer(upstream), settings=settings)
    async with fronted({"a": entry}, tmp_path, channel, **client_roots) as client:
        assert (await client.call_tool("a__folders")).data == ["file:///given"]


@CELLS
async def test_a_prompt_and_a_resource_may_ask_too(channel: str, upstream: str, tmp_path: Path) -> None:
    async with fronted({"a": inquirer(upstream)}, tmp_path, channel, elicitation=_first_word) as client:
        prompt = await client.get_prompt("a__letter")
        (read,) = await client.read_resource("form://a/sky")
    assert prompt.messages[0].content == t.TextContent(text="Dear To")
    assert read.text == "sky is How"


@CELLS
async def test_each_call_and_each_session_receives_its_own_question(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    heard: Counter[tuple[str, str]] = Counter()

    async def session(stage: Any, name: str) -> list[str]:
        async def answer(question: t.ElicitRequestParams) -> str:
            heard[name, _asked(question)] += 1
            await asyncio.sleep(0)
            return f"to {_asked(question)}"

        async with stage.client(channel, elicitation=answer) as client:
            calls = (client.call_tool("a__tell", {"who": f"{name}.{number}"}) for number in range(3))
            return [result.data for result in await asyncio.gather(*calls)]

    async with on_stage({"a": inquirer(upstream)}, tmp_path) as stage:
        names = ["one", "two", "three", "four"]
        results = await asyncio.gather(*(session(stage, name) for name in names))
    callers = [[f"{name}.{number}" for number in range(3)] for name in names]
    assert results == [[f"{who}=to I am {who}" for who in group] for group in callers]
    assert heard == Counter((who.split(".")[0], f"I am {who}") for group in callers for who in group)


@UPSTREAMS
async def test_a_program_answers_by_callbacks(upstream: str, tmp_path: Path) -> None:
    async with on_stage(
        {"a": inquirer(upstream)},
        tmp_path,
        # A program is told the server beside the question, so the text has no label.
        elicitation=lambda question: question.message.split()[0].rstrip("?"),
        sampling=lambda _: "yes",
        roots=["file:///r"],
    ) as stage:
        host = stage.host
        assert (await host.call_tool("a/order", {"size": 1})).data == "Name: Topping"
        assert (await host.call_tool("a/think", {"about": "x"})).data == "trunkline: yes"
        assert (await host.call_tool("a/folders")).data == ["file:///r"]


@PAIRS
async def test_a_callback_that_fails_fails_its_call_alone(channel: str, upstream: str, tmp_path: Path) -> None:
    def broken(question: t.ElicitRequestParams) -> str:
        raise ValueError("no")

    async with on_stage({"a": inquirer(upstream)}, tmp_path) as stage:
        async with stage.client(channel, elicitation=broken) as client:
            with pytest.raises((ToolError, RequestFailed, ValueError)):
                await client.call_tool("a__order")
        async with stage.client(channel, elicitation=_first_word) as client:
            assert (await client.call_tool("a__order", {"size": 0})).text == "Name: "
