"""The official Python client, asked by our server: requests in the handshake era, rounds in the stateless one."""

from __future__ import annotations

from typing import Any

import mcp
import mcp_types as theirs
import pytest
from mcp.client import ClientRequestContext

from tests.interop.peers import ALL, ASKING, BOTH_ERAS, NEWEST, NEWEST_HANDSHAKE
from tests.interop.test_official_client import Heard, only_text, refusal, with_client

pytestmark = pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning")

EACH_ERA = pytest.mark.parametrize("revision", BOTH_ERAS)


async def accept(context: ClientRequestContext, params: theirs.ElicitRequestParams) -> theirs.ElicitResult:
    """Fill in the form with the last word of the question, or open the page."""
    if isinstance(params, theirs.ElicitRequestURLParams):
        return theirs.ElicitResult(action="accept")
    return theirs.ElicitResult(action="accept", content={"name": params.message.split()[-1], "age": 7})


async def decline(context: ClientRequestContext, params: theirs.ElicitRequestParams) -> theirs.ElicitResult:
    return theirs.ElicitResult(action="decline")


async def model(context: ClientRequestContext, params: theirs.CreateMessageRequestParams) -> theirs.CreateMessageResult:
    [message] = params.messages
    assert isinstance(message.content, theirs.TextContent)
    text = theirs.TextContent(text=f"[{params.system_prompt}] {message.content.text}")
    return theirs.CreateMessageResult(role="assistant", content=text, model="parrot", stop_reason="endTurn")


async def choose(
    context: ClientRequestContext, params: theirs.CreateMessageRequestParams
) -> theirs.CreateMessageResultWithTools:
    [tool] = params.tools or []
    use = theirs.ToolUseContent(id="1", name=tool.name, input={})
    return theirs.CreateMessageResultWithTools(role="assistant", content=[use], model="parrot", stop_reason="toolUse")


async def folders(context: ClientRequestContext) -> theirs.ListRootsResult:
    return theirs.ListRootsResult(roots=[theirs.Root.model_validate({"uri": "file:///home/ann", "name": "ann"})])


def called(revision: str, tool: str, **callbacks: Any) -> theirs.CallToolResult:
    result: theirs.CallToolResult = with_client(revision, lambda client: client.call_tool(tool), **callbacks)
    return result


ABLE_TO_CHOOSE = {
    "sampling_callback": choose,
    "sampling_capabilities": theirs.SamplingCapability(tools=theirs.SamplingToolsCapability()),
}
ABLE = {"elicitation_callback": accept, "sampling_callback": model}
#: In which revisions a tool asks, who answers, and what the tool makes of it.
QUESTIONS: list[tuple[list[str], str, dict[str, Any], str]] = [
    (ASKING, "ask_person", {"elicitation_callback": accept}, "you?, 7"),
    (BOTH_ERAS, "ask_person", {"elicitation_callback": decline}, "decline"),
    (BOTH_ERAS, "ask_page", {"elicitation_callback": accept}, "accept"),
    (ALL, "ask_model", {"sampling_callback": model}, "parrot: [Be brief.] Say hello."),
    (BOTH_ERAS, "ask_model_with_tools", ABLE_TO_CHOOSE, "toolUse: clock"),
    (ASKING, "ask_in_turn", ABLE, "[None] Greet 1? and 2?.: 1?, 2?"),
    (BOTH_ERAS, "ask_at_once", ABLE, "[None] Say hello.: you?"),
]


@pytest.mark.parametrize(
    ("revision", "tool", "callbacks", "answer"),
    [(revision, *question) for revisions, *question in QUESTIONS for revision in revisions],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_tool_is_answered(revision: str, tool: str, callbacks: dict[str, Any], answer: str) -> None:
    assert only_text(called(revision, tool, **callbacks)) == answer


@pytest.mark.parametrize("revision", ALL)
def test_the_roots_are_asked_for(revision: str) -> None:
    assert "file:///home/ann" in only_text(called(revision, "ask_roots", list_roots_callback=folders))


def test_a_session_hears_that_the_page_was_finished() -> None:
    heard = Heard()

    async def work(client: mcp.Client) -> list[Any]:
        await client.call_tool("ask_page")
        return await heard.until(lambda items: len(items) == 1)

    [notice] = with_client(NEWEST_HANDSHAKE, work, elicitation_callback=accept, message_handler=heard)
    assert notice.method == "notifications/elicitation/complete"


@EACH_ERA
def test_a_prompt_may_ask(revision: str) -> None:
    prompt = with_client(revision, lambda client: client.get_prompt("personal"), elicitation_callback=accept)
    assert prompt.messages[0].content.text == "Write to whom?."


@EACH_ERA
def test_a_resource_may_ask(revision: str) -> None:
    read = with_client(revision, lambda client: client.read_resource("secret://door"), elicitation_callback=accept)
    assert only_text(read) == "opened for knocks?"


@pytest.mark.parametrize("revision", ALL[:2])
def test_revisions_without_elicitation_are_not_asked(revision: str) -> None:
    assert called(revision, "ask_person", elicitation_callback=accept).is_error


def test_a_session_that_cannot_answer_is_not_asked() -> None:
    assert called(NEWEST_HANDSHAKE, "ask_person").is_error


def test_a_stateless_client_that_cannot_answer_is_told_which_capability_is_missing() -> None:
    error = with_client(NEWEST, lambda client: refusal(client.call_tool("ask_person")))
    assert error.code == theirs.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert error.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


def test_a_round_can_be_answered_by_hand() -> None:
    async def work(client: mcp.Client) -> theirs.CallToolResult | theirs.InputRequiredResult:
        asked = await client.session.call_tool("ask_person", allow_input_required=True)
        assert isinstance(asked, theirs.InputRequiredResult)
        [key] = asked.input_requests or {}
        answer = theirs.ElicitResult(action="accept", content={"name": "Ann", "age": 9})
        return await client.call_tool("ask_person", input_responses={key: answer}, request_state=asked.request_state)

    assert only_text(with_client(NEWEST, work, elicitation_callback=accept)) == "Ann, 9"


def test_a_tampered_state_is_refused() -> None:
    async def work(client: mcp.Client) -> theirs.ErrorData:
        asked = await client.session.call_tool("ask_person", allow_input_required=True)
        assert isinstance(asked, theirs.InputRequiredResult)
        state = (asked.request_state or "")[:-4] + "AAAA"
        return await refusal(client.call_tool("ask_person", input_responses={}, request_state=state))

    assert with_client(NEWEST, work, elicitation_callback=accept).code == theirs.INVALID_PARAMS
