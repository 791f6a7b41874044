"""The four questions, from typed arguments to typed answers, and when they may not be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import trunkline.types as t
from tests.server.talk import ERAS, FORMS, HANDSHAKE, STATELESS, accept, reach, serving, text
from trunkline import Client, Context, Server
from trunkline.errors import LocalProtocolError
from trunkline.protocol.limits import Limits
from trunkline.server import AcceptedElicitation, CancelledElicitation, DeclinedElicitation, client_requests

ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
PAGES: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "four"}, "model": "m", "stopReason": "endTurn"}


# --- forms -----------------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("word", ["response_type", "schema", "type"])
async def test_elicit_accepts_the_parameter_names_of_other_frameworks(revision: str, word: str) -> None:
    async def f(ctx: Context) -> str:
        given: dict[str, Any] = {word: int}
        answer = await ctx.elicit("a", **given)
        return f"{answer.content + 1} {answer.accepted}"

    async with reach(serving(f), revision, FORMS) as peer:
        assert (await peer.converse_tool("f", {ELICIT: accept(1)})).text == "2 True"


@ERAS
@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
async def test_an_elicitation_result_can_be_matched_by_class(revision: str, action: str) -> None:
    async def f(ctx: Context) -> str:
        answer = await ctx.elicit("a", int)
        match answer:
            case AcceptedElicitation(data=number):
                return f"accept {number + 1} {answer.accepted} {answer.content}"
            case DeclinedElicitation() | CancelledElicitation():
                return f"{answer.action} {answer.accepted} {answer.content}"

    reply = accept(1) if action == "accept" else {"action": action}
    async with reach(serving(f), revision, FORMS) as peer:
        assert (await peer.converse_tool("f", {ELICIT: reply})).text == {"accept": "accept 2 True 1"}.get(
            action, f"{action} False None"
        )


# --- pages -----------------------------------------------------------------------------------------------------------


def visiting(**options: Any) -> Callable[..., Any]:
    """Return a tool that sends its caller to a page."""

    async def f(ctx: Context) -> str:
        return (await ctx.elicit_url("Pay", **{"url": "https://example.com/a", **options})).action

    return f


@ERAS
async def test_elicit_url_is_accepted_once_done_returns_true(revision: str) -> None:
    looks = iter([False, True])

    async def done() -> bool:
        return next(looks)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_requests, "_POLL_SECONDS", 0.001)
        async with reach(serving(visiting(done=done)), revision, PAGES) as peer:
            talk = await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    assert talk.text == "accept"


async def test_an_unfinished_url_elicitation_is_sent_again_in_the_stateless_era() -> None:
    looks: list[int] = []

    def done() -> bool:
        looks.append(1)
        return len(looks) > 10

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_requests, "_POLL_SECONDS", 0.0)
        async with reach(serving(visiting(done=done)), STATELESS, PAGES) as peer:
            talk = await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    assert (talk.text, len(talk.questions)) == ("accept", 2)


async def test_a_url_elicitation_that_is_never_finished_is_cancelled_in_the_handshake_era() -> None:
    server = serving(visiting(done=lambda: False), limits=Limits(ask_seconds=0.1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_requests, "_POLL_SECONDS", 0.05)
        async with reach(server, HANDSHAKE, PAGES) as peer:
            assert (await peer.converse_tool("f", {ELICIT: {"action": "accept"}})).text == "cancel"


async def test_elicitation_ids_are_random() -> None:
    async with reach(serving(visiting()), HANDSHAKE, PAGES) as peer:
        talks = [await peer.converse_tool("f", {ELICIT: {"action": "accept"}}) for _ in range(2)]
    ids = {talk.questions[0]["params"]["elicitationId"] for talk in talks}
    assert (len(ids), {len(each) for each in ids}) == (2, {32})


async def test_a_given_elicitation_id_is_used_for_request_and_completion() -> None:
    paying = visiting(done=lambda: True, elicitation_id="order-7 ü")
    async with reach(serving(paying), HANDSHAKE, PAGES) as peer:
        talk = await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    assert (talk.text, talk.questions[0]["params"]["elicitationId"]) == ("accept", "order-7 ü")
    assert peer.notices("notifications/elicitation/complete") == [{"elicitationId": "order-7 ü"}]


async def test_a_declined_url_elicitation_has_no_completion_notification() -> None:
    async with reach(serving(visiting(done=lambda: True, elicitation_id="a")), HANDSHAKE, PAGES) as peer:
        assert (await peer.converse_tool("f", {ELICIT: {"action": "decline"}})).text == "decline"
    assert peer.notices("notifications/elicitation/complete") == []


async def test_an_elicitation_id_is_not_sent_in_revisions_without_ids() -> None:
    async with reach(serving(visiting(done=lambda: True, elicitation_id="a")), STATELESS, PAGES) as peer:
        talk = await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    assert (talk.text, "elicitationId" in talk.questions[0]["params"]) == ("accept", False)
    assert peer.notices("notifications/elicitation/complete") == []


@pytest.mark.parametrize("name", ["", "x" * 257, "a\nb", "a\x00", "a\u202eb", "a\ud800"], ids=ascii)
@ERAS
async def test_an_invalid_elicitation_id_is_rejected(revision: str, name: str) -> None:
    async def f(ctx: Context) -> str:
        try:
            return (await ctx.elicit_url("Look", "https://example.com/a", elicitation_id=name)).action
        except LocalProtocolError as error:
            return str(error).partition(",")[0]

    async with reach(serving(f), revision, PAGES) as peer:
        assert text(await peer.call("f")) == "an elicitation_id needs 1 to 256 printable characters"


@ERAS
async def test_the_scheme_of_an_elicited_url_may_be_upper_case(revision: str) -> None:
    async with reach(serving(visiting(url="HTTPS://example.com/a")), revision, PAGES) as peer:
        assert (await peer.converse_tool("f", {ELICIT: {"action": "accept"}})).text == "accept"


# --- models ----------------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize(
    ("preferences", "hints"),
    [
        pytest.param("fast", [{"name": "fast"}], id="one-name"),
        pytest.param({"hints": [{"name": "fast"}]}, [{"name": "fast"}], id="as-json"),
        pytest.param(["a", t.ModelHint(name="b")], [{"name": "a"}, {"name": "b"}], id="several"),
        pytest.param(t.ModelPreferences(hints=[t.ModelHint(name="c")]), [{"name": "c"}], id="whole"),
    ],
)
async def test_sampling_sends_model_preferences(revision: str, preferences: Any, hints: Any) -> None:
    async def f(ctx: Context) -> str:
        turns: list[str | t.SamplingMessage] = [
            "a",
            t.SamplingMessage(role="assistant", content=t.TextContent(text="b")),
        ]
        return (await ctx.sample(turns, model_preferences=preferences)).text

    async with reach(serving(f), revision, {"sampling": {}}) as peer:
        talk = await peer.converse_tool("f", {SAMPLE: SAID})
    params = talk.questions[0]["params"]
    assert (params["modelPreferences"]["hints"], [turn["role"] for turn in params["messages"]]) == (
        hints,
        ["user", "assistant"],
    )


async def _with_tools(ctx: Context) -> str:
    tool = t.Tool(name="add", input_schema={"type": "object"})
    said = await ctx.sample("2+2?", tools=[tool], tool_choice="required")
    return ",".join(use.name for use in said.tool_uses)


@ERAS
async def test_sampling_sends_tools(revision: str) -> None:
    use = {"type": "tool_use", "id": "1", "name": "add", "input": {}}
    said = {"role": "assistant", "content": [use], "model": "m", "stopReason": "toolUse"}
    async with reach(serving(_with_tools), revision, {"sampling": {"tools": {}}}) as peer:
        talk = await peer.converse_tool("f", {SAMPLE: said})
    assert (talk.text, talk.questions[0]["params"]["toolChoice"]) == ("add", {"mode": "required"})


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_sampling_with_tools_fails_in_a_revision_without_it(revision: str) -> None:
    # The model would be asked without its tools, and the handler would not learn of it.
    async with reach(serving(_with_tools), revision, {"sampling": {"tools": {}}}) as peer:
        talk = await peer.converse_tool("f", {SAMPLE: SAID})
    assert (talk.questions, talk.text) == ([], f"Protocol revision {revision} has no sampling with tools")


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_a_handler_can_check_for_a_capability_that_the_revision_does_not_have(revision: str) -> None:
    async def f(ctx: Context) -> str:
        return ",".join(name for name in ("elicitation.url", "sampling.tools") if ctx.client.supports(name))

    async with reach(serving(f), revision, {**PAGES, "sampling": {"tools": {}}}) as peer:
        assert text(await peer.call("f")) == ""


def _turn(role: Any, *blocks: Any) -> t.SamplingMessage:
    return t.SamplingMessage(role=role, content=list(blocks))


USE = t.ToolUseContent(id="1", name="add", input={})
RESULT = t.ToolResultContent(tool_use_id="1", content=[])
TEXT = t.TextContent(text="x")


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param([_turn("assistant", USE), _turn("user", RESULT, TEXT)], id="result-with-text"),
        pytest.param([_turn("user", RESULT)], id="result-of-no-call"),
        pytest.param([_turn("assistant", USE), _turn("user", TEXT)], id="call-without-result"),
    ],
)
@ERAS
async def test_tool_results_must_answer_the_calls_before_them(revision: str, turns: list[t.SamplingMessage]) -> None:
    async def f(ctx: Context) -> str:
        return (await ctx.sample(turns, tools=[])).text

    async with reach(serving(f), revision, {"sampling": {"tools": {}}}) as peer:
        talk = await peer.converse_tool("f", {SAMPLE: SAID})
    assert (talk.questions, talk.result["isError"]) == ([], True)


@ERAS
async def test_a_handler_of_a_method_may_ask_the_client(revision: str) -> None:
    async def ask(ctx: Context, params: t.CallToolRequestParams) -> t.CallToolResult:
        answer = await ctx.elicit("Sure?", bool)
        return t.CallToolResult(content=[t.TextContent(text=answer.action)])

    server = Server("s")
    server.answer("tools/call", ask)
    async with Client(server, revision=revision, elicitation=lambda _: True) as client:
        assert (await client.call_tool("any")).text == "accept"
