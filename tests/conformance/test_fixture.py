"""What the conformance suite is shown, looked at in memory in both eras: a fixture that lies would prove nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from tests.conformance.server import ENUMS, server
from tests.support import run_async
from trunkline import Client, RequestFailed, ToolError, TrunklineError
from trunkline.types import (
    ElicitRequestParams,
    EmbeddedResource,
    ImageContent,
    TextContent,
)

T = TypeVar("T")

each_era = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])

#: What somebody answers to the fields of every form here.
ANSWERS: dict[str, Any] = {
    "username": "ada",
    "email": "ada@example.com",
    "name": "Ada",
    "color": "blue",
    "ok": True,
    "confirm": True,
    "context": "the engine",
    "untitledSingle": "option1",
    "titledSingle": "value1",
    "legacyEnum": "opt1",
    "untitledMulti": ["option1", "option2"],
    "titledMulti": ["value1", "value2"],
}


def answer(question: ElicitRequestParams) -> dict[str, Any]:
    fields = (question.requested_schema or {}).get("properties", {})
    return {name: ANSWERS[name] for name, field in fields.items() if "default" not in field}


def ask(revision: str, work: Callable[[Client], Awaitable[T]], **options: Any) -> T:
    """Do something with a client that can answer every question."""

    async def main() -> T:
        asked = {"elicitation": answer, "sampling": lambda question: "Paris", "roots": ["file:///project"], **options}
        async with Client(server, revision=revision, **asked) as client:
            return await work(client)

    return run_async(main())


def call(revision: str, name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
    return ask(revision, lambda client: client.call_tool(name, arguments), **options)


TEXTS = {
    "test_simple_text": "This is a simple text response for testing.",
    "test_tool_with_progress": "Progress told three times.",
    "test_tool_with_logging": "Tool with logging executed successfully",
    "test_logging_tool": "Logged, if a level was set.",
    "test_reconnection": "Reconnection test completed successfully",
    "test_trigger_tool_change": "Told of changed tools.",
    "test_trigger_prompt_change": "Told of changed prompts.",
    "test_elicitation_sep1034_defaults": "Elicitation completed: action=accept, content=Filled(name='John Doe', "
    "age=30, score=95.5, status='active', verified=True)",
    "test_streaming_elicitation": "The user said: accept",
    "test_missing_capability": "The client can sample.",
    "test_input_required_result_elicitation": "Hello, Ada!",
    "test_input_required_result_sampling": "The model says: Paris",
    "test_input_required_result_list_roots": "Roots: file:///project",
    "test_input_required_result_multiple_inputs": "Paris Ada, 1 roots",
    "test_input_required_result_tampered_state": "The state was not touched: accept",
    "test_input_required_result_capabilities": "The model says: Paris",
    "multi_input": "first: Signature(name='Ada', confirm=True), second: Signature(name='Ada', confirm=True)",
    "test_tool_with_task": "Hello from a task, Ada!",
}


@each_era
@pytest.mark.parametrize("tool", TEXTS)
def test_a_tool_without_arguments_answers_with_its_text(tool: str, revision: str) -> None:
    assert call(revision, tool).text == TEXTS[tool]


@each_era
@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("test_sampling", {"prompt": "Capital?"}, "LLM response: Paris"),
        (
            "test_elicitation",
            {"message": "Who?"},
            "User response: action=accept, content=Account(username='ada', email='ada@example.com')",
        ),
        ("test_x_mcp_header", {"region": "eu"}, "Region: eu"),
        ("json_schema_2020_12_tool", {"email": "a@b.c"}, 'JSON Schema 2020-12 tool called with: {"email": "a@b.c"}'),
        ("greet", {"name": "World"}, "Hello, World!"),
        ("slow_compute", {"seconds": 0, "label": "sum"}, "sum: computed for 0 s"),
        ("confirm_delete", {"filename": "a.txt"}, "a.txt was deleted"),
    ],
    ids=["sampling", "elicitation", "header", "schema", "greeting", "task", "task that asks"],
)
def test_a_tool_with_arguments_uses_them(tool: str, arguments: dict[str, Any], text: str, revision: str) -> None:
    assert call(revision, tool, arguments).text == text


@each_era
def test_the_form_with_every_kind_of_choice_leaves_as_it_was_written(revision: str) -> None:
    seen: list[Any] = []

    def look(question: ElicitRequestParams) -> dict[str, Any]:
        seen.append(question.requested_schema)
        return answer(question)

    text = call(revision, "test_elicitation_sep1330_enums", elicitation=look).text
    assert (seen, "'titledMulti': ['value1', 'value2']" in text) == ([ENUMS], True)


def test_rounds_are_counted_where_questions_travel_inside_results() -> None:
    assert call("2026-07-28", "test_input_required_result_request_state").text == "state-ok after 1 round: accept"


def test_two_questions_one_after_another_take_two_rounds() -> None:
    text = call("2026-07-28", "test_input_required_result_multi_round").text
    assert text == "Rounds: 2, name: Name(name='Ada'), color: Color(color='blue')"


def greeted(responses: dict[str, Any]) -> Any:
    """Call the greeting with answers that nothing asked for."""
    params = {"name": "test_input_required_result_elicitation", "inputResponses": responses}
    return ask("2026-07-28", lambda client: client.request("tools/call", params))


def test_a_name_that_comes_unasked_is_taken() -> None:
    responses = {"user_name": {"action": "accept", "content": {"name": "Ada"}}, "more": 1}
    assert greeted(responses)["content"] == [{"type": "text", "text": "Hello, Ada!"}]


@pytest.mark.parametrize(
    "responses",
    [{"user_name": 12345}, {"other": {"action": "accept", "content": {"name": "Ada"}}}],
    ids=["none", "of another name"],
)
def test_an_unasked_answer_that_is_no_name_is_not_taken(responses: dict[str, Any]) -> None:
    with pytest.raises(TrunklineError, match="input_required"):
        greeted(responses)


def test_a_caller_without_a_model_is_told_what_is_missing() -> None:
    with pytest.raises(RequestFailed) as refusal:
        call("2026-07-28", "test_missing_capability", sampling=None)
    assert (refusal.value.code, refusal.value.data) == (-32021, {"requiredCapabilities": {"sampling": {}}})


def test_a_caller_with_a_model_alone_is_not_asked_for_more() -> None:
    text = call("2026-07-28", "test_input_required_result_capabilities", elicitation=None, roots=None).text
    assert text == "The model says: Paris"


# --- lists ------------------------------------------------------------------------------------------------------------


@each_era
def test_all_tools_are_on_the_first_page_and_described(revision: str) -> None:
    page = ask(revision, lambda client: client.list_page("tools/list"))
    assert page.next_cursor is None
    assert [tool.name for tool in page.tools if not tool.description] == []


@each_era
@pytest.mark.parametrize(
    ("uri", "mime_type", "text"),
    [
        ("test://static-text", "text/plain", "This is the content of the static text resource."),
        ("test://watched-resource", "text/plain", "Watched resource content"),
        (
            "test://template/123/data",
            "application/json",
            '{"id": "123", "templateTest": true, "data": "Data for ID: 123"}',
        ),
    ],
    ids=["static", "watched", "template"],
)
def test_a_resource_has_its_text(uri: str, mime_type: str, text: str, revision: str) -> None:
    (contents,) = ask(revision, lambda client: client.read_resource(uri))
    assert (contents.uri, contents.mime_type, contents.text) == (uri, mime_type, text)


@each_era
@pytest.mark.parametrize(
    ("prompt", "arguments", "kinds", "text"),
    [
        ("test_simple_prompt", None, [TextContent], "This is a simple prompt for testing."),
        (
            "test_prompt_with_arguments",
            {"arg1": "one", "arg2": "two"},
            [TextContent],
            "Prompt with arguments: arg1='one', arg2='two'",
        ),
        (
            "test_prompt_with_embedded_resource",
            {"resourceUri": "test://any"},
            [EmbeddedResource, TextContent],
            "Please process the embedded resource above.",
        ),
        ("test_prompt_with_image", None, [ImageContent, TextContent], "Please analyze the image above."),
        ("test_input_required_result_prompt", None, [TextContent], "Use this context: the engine"),
    ],
    ids=["simple", "arguments", "resource", "image", "asking"],
)
def test_a_prompt_makes_its_messages(
    prompt: str, arguments: dict[str, str] | None, kinds: list[type], text: str, revision: str
) -> None:
    messages = ask(revision, lambda client: client.get_prompt(prompt, arguments)).messages
    assert [type(message.content) for message in messages] == kinds
    assert [message.content.text for message in messages if isinstance(message.content, TextContent)] == [text]


@each_era
def test_a_job_fails_as_its_kind_says(revision: str) -> None:
    with pytest.raises(ToolError, match="This job intentionally fails"):
        call(revision, "failing_job")
    with pytest.raises(RequestFailed, match="This job intentionally ends in a protocol error"):
        call(revision, "protocol_error_job")


def test_who_listens_to_a_task_is_notified_of_its_end() -> None:
    """The scenario ``tasks-status-notifications``, for as long as the suite skips it."""
    notified: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def hear(method: str, params: dict[str, Any]) -> None:
        if method == "notifications/tasks":
            notified.put_nowait(params)

    async def work(client: Client) -> tuple[str, dict[str, Any]]:
        task = await client.start_task("slow_compute", {"seconds": 0.2, "label": "heard"})
        listening = asyncio.ensure_future(
            client.request("subscriptions/listen", {"notifications": {"taskIds": [task.id]}})
        )
        state = await notified.get()
        while state["status"] == "working":
            state = await notified.get()
        listening.cancel()
        return task.id, state

    id, state = ask("2026-07-28", work, on_notification=hear)
    assert (state["taskId"], state["status"]) == (id, "completed")
    assert state["result"]["content"][0]["text"] == "heard: computed for 0.2 s"
