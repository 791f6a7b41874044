"""Questions of servers reach the client in front, whatever the eras of the two, and the answers come back."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from tests.host.gateway.support import CELLS, UPSTREAMS, allow, on_stage, server
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
    async def both(ctx: Context) -> str:
        """Ask two things side by side."""
        first, second = await asyncio.gather(ctx.elicit("First?", str), ctx.elicit("Second?", str))
        return f"{first.data} {second.data}"

    @made.tool
    async def confirm(ctx: Context) -> str:
        """Ask yes or no."""
        return (await ctx.elicit("Sure?", bool)).action

    @made.tool
    async def pay(ctx: Context) -> str:
        """Send the user to a page."""
        return (await ctx.elicit_url("Pay", "https://pay.example/1", done=lambda: True)).action

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


def _said(question: t.ElicitRequestParams) -> str:
    """Give what a server says, which comes after its own name and nothing else."""
    label = "[a] "
    assert question.message.startswith(label)
    return question.message.removeprefix(label)


def _word(question: t.ElicitRequestParams) -> str:
    """Answer with the first word of the question."""
    return _said(question).split()[0].rstrip("?")


@CELLS
async def test_questions_in_a_loop_are_all_answered(channel: str, upstream: str, tmp_path: Path) -> None:
    heard: list[str] = []

    def answer(question: t.ElicitRequestParams) -> str:
        heard.append(question.message)
        return _said(question).upper()

    async with (
        on_stage({"a": inquirer(upstream)}, tmp_path) as stage,
        stage.client(channel, elicitation=answer) as client,
    ):
        result = await client.call_tool("a__order", {"size": 3})
        assert stage.parked == 0
    assert result.data == "NAME?: TOPPING 0? TOPPING 1? TOPPING 2?"
    assert heard == ["[a] Name?", "[a] Topping 0?", "[a] Topping 1?", "[a] Topping 2?"]


@CELLS
async def test_questions_side_by_side_are_all_answered(channel: str, upstream: str, tmp_path: Path) -> None:
    async with (
        on_stage({"a": inquirer(upstream)}, tmp_path) as stage,
        stage.client(channel, elicitation=_word) as client,
    ):
        assert (await client.call_tool("a__both")).data == "First Second"


@CELLS
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        pytest.param(t.ElicitResult(action="accept", content={"value": True}), "accept", id="accept"),
        pytest.param(t.ElicitResult(action="decline"), "decline", id="decline"),
        pytest.param(t.ElicitResult(action="cancel"), "cancel", id="cancel"),
    ],
)
async def test_what_the_user_did_with_a_form_reaches_the_server(
    channel: str, upstream: str, answer: t.ElicitResult, expected: str, tmp_path: Path
) -> None:
    async with (
        on_stage({"a": inquirer(upstream)}, tmp_path) as stage,
        stage.client(channel, elicitation=lambda _: answer) as client,
    ):
        assert (await client.call_tool("a__confirm")).data == expected


@CELLS
async def test_a_page_is_opened_where_both_sides_can(channel: str, upstream: str, tmp_path: Path) -> None:
    opened: list[str | None] = []

    def open_page(question: t.ElicitRequestParams) -> bool:
        opened.append(question.url)
        return True

    async with (
        on_stage({"a": inquirer(upstream)}, tmp_path) as stage,
        stage.client(channel, elicitation=open_page, elicitation_urls=True) as client,
    ):
        assert (await client.call_tool("a__pay")).data == "accept"
    assert opened == ["https://pay.example/1"]


@CELLS
async def test_a_client_that_opens_no_pages_is_not_asked_to(channel: str, upstream: str, tmp_path: Path) -> None:
    async with (
        on_stage({"a": inquirer(upstream)}, tmp_path) as stage,
        stage.client(channel, elicitation=lambda _: pytest.fail("asked")) as client,
    ):
        with pytest.raises((ToolError, RequestFailed), match="elicitation"):
            await client.call_tool("a__pay")


@CELLS
async def test_a_model_in_front_is_asked_as_the_server_asks_it(channel: str, upstream: str, tmp_path: Path) -> None:
    heard: list[t.CreateMessageRequestParams] = []

    def sample(params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        heard.append(params)
        return t.CreateMessageResult(role="assistant", content=t.TextContent(text="42"), model="m")

    async with (
        on_stage({"a": inquirer(upstream)}, tmp_path) as stage,
        stage.client(channel, sampling=sample) as client,
    ):
        result = await client.call_tool("a__think", {"about": "life"})
    assert result.data == "m: 42"
    (asked,) = heard
    label = "[a] This request is made by the MCP server a."
    assert (asked.max_tokens, asked.system_prompt) == (17, f"{label}\n\nShort.")
    assert asked.messages[0].content == t.TextContent(text="life")


@CELLS
async def test_the_roots_of_the_client_reach_the_server(channel: str, upstream: str, tmp_path: Path) -> None:
    async with (
        on_stage({"a": inquirer(upstream)}, tmp_path) as stage,
        stage.client(channel, roots=["file:///work"]) as client,
    ):
        assert (await client.call_tool("a__folders")).data == ["file:///work"]


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


def _with_roots(made: Server, *roots: str) -> ServerEntry:
    return ServerEntry(name="a", source=Source("given"), target=made, settings=ServerSettings(roots=roots))


@CELLS
async def test_configured_roots_replace_the_roots_of_the_client(channel: str, upstream: str, tmp_path: Path) -> None:
    def never() -> Any:
        raise AssertionError("the client was asked")

    async with (
        on_stage({"a": _with_roots(inquirer(upstream), "file:///given")}, tmp_path) as stage,
        stage.client(channel, roots=never) as client,
    ):
        assert (await client.call_tool("a__folders")).data == ["file:///given"]


@CELLS
async def test_configured_roots_hold_for_a_client_that_has_none(channel: str, upstream: str, tmp_path: Path) -> None:
    async with (
        on_stage({"a": _with_roots(inquirer(upstream), "file:///given")}, tmp_path) as stage,
        stage.client(channel) as client,
    ):
        assert (await client.call_tool("a__folders")).data == ["file:///given"]


@CELLS
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("a__confirm", {}, id="elicitation"),
        pytest.param("a__think", {"about": "x"}, id="sampling"),
        pytest.param("a__folders", {}, id="roots"),
    ],
)
async def test_a_client_without_elicitation_gets_an_error_that_names_the_missing_rule(
    channel: str, upstream: str, name: str, arguments: dict[str, Any], tmp_path: Path
) -> None:
    async with on_stage({"a": inquirer(upstream)}, tmp_path) as stage, stage.client(channel) as client:
        with pytest.raises((ToolError, RequestFailed), match=r"elicitation|sampling|roots"):
            await client.call_tool(name, arguments)


@CELLS
async def test_a_prompt_and_a_resource_may_ask_too(channel: str, upstream: str, tmp_path: Path) -> None:
    async with (
        on_stage({"a": inquirer(upstream)}, tmp_path) as stage,
        stage.client(channel, elicitation=_word) as client,
    ):
        prompt = await client.get_prompt("a__letter")
        (read,) = await client.read_resource("form://a/sky")
    assert prompt.messages[0].content == t.TextContent(text="Dear To")
    assert read.text == "sky is How"


@CELLS
async def test_two_calls_of_one_client_are_answered_each_its_own(channel: str, upstream: str, tmp_path: Path) -> None:
    async with (
        on_stage({"a": inquirer(upstream)}, tmp_path) as stage,
        stage.client(channel, elicitation=_said) as client,
    ):
        results = await asyncio.gather(*(client.call_tool("a__tell", {"who": f"w{number}"}) for number in range(6)))
    assert [result.data for result in results] == [f"w{number}=I am w{number}" for number in range(6)]


@CELLS
@pytest.mark.parametrize("sessions", [8])
async def test_no_session_receives_the_question_of_another(
    channel: str, upstream: str, sessions: int, tmp_path: Path
) -> None:
    heard: Counter[tuple[str, str]] = Counter()

    async def session(stage: Any, name: str) -> list[str]:
        async def answer(question: t.ElicitRequestParams) -> str:
            heard[name, _said(question)] += 1
            await asyncio.sleep(0)
            return f"to {name}"

        async with stage.client(channel, elicitation=answer) as client:
            return [(await client.call_tool("a__tell", {"who": name})).data for _ in range(3)]

    async with on_stage({"a": inquirer(upstream)}, tmp_path) as stage:
        names = [f"s{number}" for number in range(sessions)]
        results = await asyncio.gather(*(session(stage, name) for name in names))
    assert results == [[f"{name}=to {name}"] * 3 for name in names]
    assert set(heard) == {(name, f"I am {name}") for name in names}


@CELLS
async def test_a_question_that_the_policy_denies_is_declined_without_asking(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    policy = allow("a", more='[[rule]]\neffect = "deny"\nkind = "elicitation"\n')
    async with (
        on_stage({"a": inquirer(upstream)}, tmp_path, policy=policy) as stage,
        stage.client(channel, elicitation=lambda _: pytest.fail("asked")) as client,
    ):
        assert (await client.call_tool("a__confirm")).data == "decline"


@CELLS
async def test_sampling_that_the_policy_denies_fails_without_a_word_to_the_model(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    policy = allow("a", more='[[rule]]\nname = "no models"\neffect = "deny"\nkind = "sampling"\n')
    async with (
        on_stage({"a": inquirer(upstream)}, tmp_path, policy=policy) as stage,
        stage.client(channel, sampling=lambda _: pytest.fail("asked")) as client,
    ):
        with pytest.raises((ToolError, RequestFailed), match="not allow"):
            await client.call_tool("a__think", {"about": "x"})


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


@CELLS
async def test_a_callback_that_fails_fails_its_call_alone(channel: str, upstream: str, tmp_path: Path) -> None:
    def broken(question: t.ElicitRequestParams) -> str:
        raise ValueError("no")

    async with on_stage({"a": inquirer(upstream)}, tmp_path) as stage:
        async with stage.client(channel, elicitation=broken) as client:
            with pytest.raises((ToolError, RequestFailed, ValueError)):
                await client.call_tool("a__confirm")
        async with stage.client(channel, elicitation=_word) as client:
            assert (await client.call_tool("a__order", {"size": 0})).text == "Name: "
