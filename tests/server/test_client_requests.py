"""The four questions, from typed arguments to typed answers, and when they may not be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import trunkline.types as t
from tests.server.talk import ERAS, FORMS, HANDSHAKE, STATELESS, accept, reach, text
from trunkline import Context, Server
from trunkline.errors import LocalProtocolError, MissingCapability
from trunkline.protocol.limits import Limits
from trunkline.server import AcceptedElicitation, CancelledElicitation, DeclinedElicitation, client_requests

ELICIT, SAMPLE, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
PAGES: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "four"}, "model": "m", "stopReason": "endTurn"}


def serving(function: Callable[..., Any], **options: Any) -> Server:
    server = Server("s", **options)
    server.add_tool(function, name="f")
    return server


# --- forms -----------------------------------------------------------------------------------------------------------


@ERAS
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_form_can_be_declined(revision: str, action: str) -> None:
    async def f(ctx: Context) -> str:
        answer = await ctx.elicit("a", str)
        return f"{answer.action} {answer.accepted} {answer.data}"

    async with reach(serving(f), revision, FORMS) as peer:
        assert (await peer.converse_tool("f", {ELICIT: {"action": action}})).text == f"{action} False None"


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
        match await ctx.elicit("a", int):
            case AcceptedElicitation(data=number):
                return f"accept {number + 1}"
            case DeclinedElicitation():
                return "decline"
            case CancelledElicitation():
                return "cancel"

    reply = accept(1) if action == "accept" else {"action": action}
    async with reach(serving(f), revision, FORMS) as peer:
        assert (await peer.converse_tool("f", {ELICIT: reply})).text == {"accept": "accept 2"}.get(action, action)


# --- what was not declared -------------------------------------------------------------------------------------------


async def _caught(ctx: Context) -> str:
    try:
        await ctx.elicit("a", str)
    except MissingCapability as error:
        return f"without {error.capability}"
    return "asked"


@ERAS
async def test_a_handler_can_check_for_a_capability(revision: str) -> None:
    async with reach(serving(_caught), revision) as peer:
        assert text(await peer.call("f")) == "without elicitation.form"


async def _uncaught(ctx: Context) -> str:
    return str((await ctx.elicit("a", str)).data)


async def test_a_missing_capability_is_an_error_with_its_name_in_the_stateless_era() -> None:
    async with reach(serving(_uncaught), STATELESS) as peer:
        error = await peer.error("tools/call", {"name": "f"})
    assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": {"elicitation": {"form": {}}}})


async def test_a_missing_capability_is_a_failed_call_in_the_handshake_era() -> None:
    async with reach(serving(_uncaught), HANDSHAKE) as peer:
        result = await peer.call("f")
    assert (result["isError"], "'elicitation.form'" in text(result)) == (True, True)


async def test_a_missing_capability_of_a_prompt_is_an_error_in_the_handshake_era() -> None:
    server = Server("s")
    server.add_prompt(_uncaught, name="p")
    async with reach(server, HANDSHAKE) as peer:
        error = await peer.error("prompts/get", {"name": "p"})
    assert (error["code"], "'elicitation.form'" in error["message"]) == (-32603, True)


async def test_elicit_fails_in_a_revision_without_elicitation() -> None:
    async with reach(serving(_caught), "2024-11-05", FORMS) as peer:
        assert text(await peer.call("f")) == "without elicitation.form"


@ERAS
async def test_a_completion_cannot_send_requests_to_the_caller(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    server.add_resource("x://{name}", lambda name: name)

    @server.completion("x://{name}", "name")
    async def complete(value: str, ctx: Context) -> list[str]:
        await ctx.elicit("a", str)
        return []

    ref = {"ref": {"type": "ref/resource", "uri": "x://{name}"}, "argument": {"name": "name", "value": ""}}
    async with reach(server, revision, FORMS) as peer:
        assert (await peer.error("completion/complete", ref))["code"] == -32603
    assert LocalProtocolError.__name__ in caplog.text


# --- pages -----------------------------------------------------------------------------------------------------------


@ERAS
async def test_elicit_url_without_done_returns_at_once(revision: str) -> None:
    async def f(ctx: Context) -> str:
        return (await ctx.elicit_url("Look", "https://example.com/a")).action

    async with reach(serving(f), revision, PAGES) as peer:
        talk = await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    asked = talk.questions[0]["params"]
    assert (talk.text, asked["mode"], asked["url"]) == ("accept", "url", "https://example.com/a")
    assert ("elicitationId" in asked) == (revision == HANDSHAKE)


@ERAS
async def test_elicit_url_is_accepted_once_done_returns_true(revision: str) -> None:
    looks = iter([False, True])

    async def done() -> bool:
        return next(looks)

    async def f(ctx: Context) -> str:
        return (await ctx.elicit_url("Pay", "https://example.com/a", done=done)).action

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_requests, "_POLL_SECONDS", 0.001)
        async with reach(serving(f), revision, PAGES) as peer:
            talk = await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    assert talk.text == "accept"


async def test_the_completion_of_a_url_elicitation_is_notified_in_the_handshake_era() -> None:
    async def f(ctx: Context) -> str:
        return (await ctx.elicit_url("Pay", "https://example.com/a", done=lambda: True)).action

    async with reach(serving(f), HANDSHAKE, PAGES) as peer:
        talk = await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    told = peer.notices("notifications/elicitation/complete")
    assert told == [{"elicitationId": talk.questions[0]["params"]["elicitationId"]}]


async def test_an_unfinished_url_elicitation_is_sent_again_in_the_stateless_era() -> None:
    looks: list[int] = []

    def done() -> bool:
        looks.append(1)
        return len(looks) > 10

    async def f(ctx: Context) -> str:
        return (await ctx.elicit_url("Pay", "https://example.com/a", done=done)).action

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_requests, "_POLL_SECONDS", 0.0)
        async with reach(serving(f), STATELESS, PAGES) as peer:
            talk = await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    assert (talk.text, len(talk.questions)) == ("accept", 2)


async def test_a_url_elicitation_that_is_never_finished_is_cancelled_in_the_handshake_era() -> None:
    async def f(ctx: Context) -> str:
        return (await ctx.elicit_url("Pay", "https://example.com/a", done=lambda: False)).action

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client_requests, "_POLL_SECONDS", 0.05)
        async with reach(serving(f, limits=Limits(ask_seconds=0.1)), HANDSHAKE, PAGES) as peer:
            assert (await peer.converse_tool("f", {ELICIT: {"action": "accept"}})).text == "cancel"


async def test_elicitation_ids_are_random() -> None:
    async def f(ctx: Context) -> str:
        return (await ctx.elicit_url("Look", "https://example.com/a")).action

    async with reach(serving(f), HANDSHAKE, PAGES) as peer:
        talks = [await peer.converse_tool("f", {ELICIT: {"action": "accept"}}) for _ in range(2)]
    ids = {talk.questions[0]["params"]["elicitationId"] for talk in talks}
    assert (len(ids), {len(each) for each in ids}) == (2, {32})


async def test_a_given_elicitation_id_is_used_for_request_and_completion() -> None:
    async def f(ctx: Context) -> str:
        answer = await ctx.elicit_url("Pay", "https://example.com/a", done=lambda: True, elicitation_id="order-7 ü")
        return answer.action

    async with reach(serving(f), HANDSHAKE, PAGES) as peer:
        talk = await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    assert (talk.text, talk.questions[0]["params"]["elicitationId"]) == ("accept", "order-7 ü")
    assert peer.notices("notifications/elicitation/complete") == [{"elicitationId": "order-7 ü"}]


async def test_completion_is_notified_once_per_elicitation_id() -> None:
    async def f(ctx: Context) -> str:
        for name in ("a", "b"):
            await ctx.elicit_url("Pay", "https://example.com/a", done=lambda: True, elicitation_id=name, key=name)
        return "both"

    async with reach(serving(f), HANDSHAKE, PAGES) as peer:
        await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    assert peer.notices("notifications/elicitation/complete") == [{"elicitationId": "a"}, {"elicitationId": "b"}]


async def test_a_declined_url_elicitation_has_no_completion_notification() -> None:
    async def f(ctx: Context) -> str:
        answer = await ctx.elicit_url("Pay", "https://example.com/a", done=lambda: True, elicitation_id="a")
        return answer.action

    async with reach(serving(f), HANDSHAKE, PAGES) as peer:
        assert (await peer.converse_tool("f", {ELICIT: {"action": "decline"}})).text == "decline"
    assert peer.notices("notifications/elicitation/complete") == []


async def test_an_elicitation_id_is_not_sent_in_revisions_without_ids() -> None:
    async def f(ctx: Context) -> str:
        answer = await ctx.elicit_url("Pay", "https://example.com/a", done=lambda: True, elicitation_id="a")
        return answer.action

    async with reach(serving(f), STATELESS, PAGES) as peer:
        talk = await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    assert (talk.text, "elicitationId" in talk.questions[0]["params"]) == ("accept", False)
    assert peer.notices("notifications/elicitation/complete") == []


async def test_a_sync_function_can_pass_an_elicitation_id() -> None:
    def f(ctx: Context) -> Any:
        return ctx.elicit_url("Pay", "https://example.com/a", elicitation_id="a").action  # type: ignore[attr-defined]

    async with reach(serving(f), HANDSHAKE, PAGES) as peer:
        talk = await peer.converse_tool("f", {ELICIT: {"action": "accept"}})
    assert (talk.text, talk.questions[0]["params"]["elicitationId"]) == ("accept", "a")


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
    async def f(ctx: Context) -> str:
        return (await ctx.elicit_url("Look", "HTTPS://example.com/a")).action

    async with reach(serving(f), revision, PAGES) as peer:
        assert (await peer.converse_tool("f", {ELICIT: {"action": "accept"}})).text == "accept"


@ERAS
async def test_elicit_url_needs_the_client_capability(revision: str) -> None:
    async def f(ctx: Context) -> str:
        try:
            return (await ctx.elicit_url("Look", "https://example.com/a")).action
        except MissingCapability as error:
            return error.capability

    async with reach(serving(f), revision, FORMS) as peer:
        assert text(await peer.call("f")) == "elicitation.url"


async def test_elicit_url_fails_in_a_revision_without_url_elicitation() -> None:
    async def f(ctx: Context) -> str:
        try:
            return (await ctx.elicit_url("Look", "https://example.com/a")).action
        except MissingCapability as error:
            return str(error)

    async with reach(serving(f), "2025-06-18", PAGES) as peer:
        assert text(await peer.call("f")) == "Protocol revision 2025-06-18 has no URL elicitation"


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "ftp://example.com"])
async def test_elicit_url_accepts_only_http_and_https(url: str) -> None:
    async def f(ctx: Context) -> str:
        return (await ctx.elicit_url("Look", url)).action

    async with reach(serving(f), STATELESS, PAGES) as peer:
        assert (await peer.call("f"))["isError"] is True


# --- models ----------------------------------------------------------------------------------------------------------


@ERAS
async def test_sampling_returns_text(revision: str) -> None:
    async def f(ctx: Context) -> str:
        said = await ctx.sample("2+2?", max_tokens=5, system_prompt="Be short.", temperature=0.5)
        return f"{said.text} {said.model} {said.stop_reason} {len(said.content)} {said.tool_uses}"

    async with reach(serving(f), revision, {"sampling": {}}) as peer:
        talk = await peer.converse_tool("f", {SAMPLE: SAID})
    params = talk.questions[0]["params"]
    assert talk.text == "four m endTurn 1 []"
    assert (params["maxTokens"], params["systemPrompt"], params["temperature"]) == (5, "Be short.", 0.5)
    assert params["messages"] == [{"role": "user", "content": {"type": "text", "text": "2+2?"}}]


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


async def test_sampling_with_tools_needs_the_client_capability() -> None:
    async with reach(serving(_with_tools), STATELESS, {"sampling": {}}) as peer:
        error = await peer.error("tools/call", {"name": "f"})
    assert error["data"] == {"requiredCapabilities": {"sampling": {"tools": {}}}}


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


# --- folders ---------------------------------------------------------------------------------------------------------


async def _folders(ctx: Context) -> str:
    return ",".join(root.uri for root in await ctx.list_roots())


@ERAS
async def test_roots_are_listed(revision: str) -> None:
    async with reach(serving(_folders), revision, {"roots": {}}) as peer:
        talk = await peer.converse_tool("f", {ROOTS: {"roots": [{"uri": "file:///a"}]}})
    assert talk.text == "file:///a"


@ERAS
async def test_a_root_without_a_file_uri_is_rejected(revision: str) -> None:
    async with reach(serving(_folders), revision, {"roots": {}}) as peer:
        talk = await peer.converse_tool("f", {ROOTS: {"roots": [{"uri": "https://example.com"}]}})
    assert talk.answer["error"]["code"] == -32602
