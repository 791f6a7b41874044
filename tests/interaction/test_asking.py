"""Handlers that ask the client: forms, pages, models and folders, in every revision that has them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.interaction.rows import (
    ALL,
    ANYWHERE,
    ELICITING,
    EVERYWHERE,
    HANDSHAKE,
    SINCE_2025_06,
    SINCE_2025_11,
    STATELESS,
    UNTIL_2025_06,
    URL_COMPLETING,
    behaviour,
)
from tests.interaction.wire import Wire
from trunkline import Context, Server

FORMS: dict[str, Any] = {"elicitation": {}}
PAGES: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}}
MODELS: dict[str, Any] = {"sampling": {}}
MODEL_TOOLS: dict[str, Any] = {"sampling": {"tools": {}}}
FOLDERS: dict[str, Any] = {"roots": {}}
SAID = {"role": "assistant", "content": {"type": "text", "text": "short"}, "model": "tiny", "stopReason": "endTurn"}


def accepting(**content: Any) -> dict[str, Any]:
    return {"elicitation/create": {"action": "accept", "content": content}}


# --- forms -----------------------------------------------------------------------------------------------------------


@behaviour("elicitation.form", "2025-06-18 client/elicitation#protocol-messages", SINCE_2025_06, EVERYWHERE)
async def test_a_form_has_a_message_and_a_flat_schema_and_its_answer_is_typed(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("order", accepting(dish="soup", number=2))
        schema = talk.questions[0]["params"]["requestedSchema"]
        assert (talk.questions[0]["method"], talk.questions[0]["params"]["message"]) == (
            "elicitation/create",
            "What would you like?",
        )
        assert (schema["type"], schema["required"], set(schema["properties"])) == (
            "object",
            ["dish"],
            {"dish", "number"},
        )
        assert talk.text == "accept Order(dish='soup', number=2)"


@behaviour("elicitation.form-mode", "2025-11-25 client/elicitation#form-mode-elicitation-requests", SINCE_2025_11)
async def test_a_form_request_has_only_the_mode_form(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("order", accepting(dish="soup"))
        assert talk.questions[0]["params"].get("mode", "form") == "form"


@behaviour("elicitation.form-members", "2025-06-18 schema#elicitrequest", ALL[2:3])
async def test_a_form_has_only_the_members_of_a_revision_without_modes(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("order", accepting(dish="soup"))
        assert set(talk.questions[0]["params"]) == {"message", "requestedSchema"}


@behaviour("elicitation.refused", "2025-06-18 client/elicitation#response-actions", SINCE_2025_06)
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_user_may_decline_or_cancel(wire: Wire, action: str) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("order", {"elicitation/create": {"action": action}})
        assert talk.text == f"{action} None"


@behaviour("elicitation.invalid", "2025-11-25 client/elicitation#form-mode-security", SINCE_2025_06)
async def test_an_answer_that_does_not_fit_the_form_is_asked_again(wire: Wire) -> None:
    contents = iter([{"value": "many"}, {}, {"value": 3}])

    def answer(params: Any) -> Any:
        return {"action": "accept", "content": next(contents)}

    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("count", {"elicitation/create": answer})
        assert (talk.text, len(talk.questions)) == ("accept 3", 3)


@behaviour("elicitation.undeclared", "2025-11-25 client/elicitation#capabilities", ELICITING)
async def test_a_client_that_cannot_ask_its_user_is_not_asked_and_the_tool_fails(wire: Wire) -> None:
    async with wire.open("asking") as peer:
        talk = await peer.converse_tool("order")
        assert (talk.questions, talk.result["isError"], "elicitation" in talk.text) == ([], True, True)


@behaviour("elicitation.undeclared-error", "2026-07-28 basic/index#meta", STATELESS, ANYWHERE)
async def test_a_request_that_needs_a_capability_says_which_it_lacks(wire: Wire) -> None:
    async with wire.open("asking") as peer:
        error = await peer.error("tools/call", {"name": "order"})
        assert (error["code"], "elicitation" in error["data"]["requiredCapabilities"]) == (-32021, True)


@behaviour("elicitation.unknown", "2025-06-18 changelog#major-changes", ALL[:2])
async def test_a_client_of_a_revision_without_elicitation_gets_no_form_even_if_it_declares_it(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("order")
        assert (talk.questions, talk.result["isError"], wire.revision in talk.text) == ([], True, True)


@behaviour("elicitation.form-undeclared", "2025-11-25 client/elicitation#capabilities", SINCE_2025_11)
async def test_a_client_of_pages_alone_is_not_asked_to_show_a_form(wire: Wire) -> None:
    async with wire.open("asking", capabilities={"elicitation": {"url": {}}}) as peer:
        talk = await peer.converse_tool("order", accepting(dish="soup"))
        assert talk.questions == []


@behaviour("elicitation.degrade", "2025-11-25 basic/lifecycle#operation")
async def test_a_handler_can_find_out_beforehand(wire: Wire) -> None:
    async with wire.open("asking") as peer:
        assert (await peer.converse_tool("degrade")).text == "did without"


@behaviour("elicitation.failed", "2025-11-25 client/elicitation#error-handling", ELICITING)
async def test_a_client_that_fails_to_ask_fails_the_call_and_nothing_else(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        id = await peer.send("tools/call", {"name": "order"})
        question = await peer.hear()
        error = {"code": -32603, "message": "the screen is broken"}
        await peer.say({"jsonrpc": "2.0", "id": question["id"], "error": error})
        answer = await peer.answer(id)
        assert answer.get("result", {}).get("isError") or "error" in answer
        assert (await peer.converse_tool("degrade")).text == "could ask"


@behaviour("elicitation.wrong-kind", "2026-07-28 basic/patterns/mrtr#error-handling", SINCE_2025_06)
@pytest.mark.parametrize("said", [{}, {"action": "maybe"}, {"roots": []}, {"action": "accept", "content": 7}])
async def test_an_answer_of_the_wrong_kind_fails_the_call(wire: Wire, said: Any) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("order", {"elicitation/create": said})
        assert talk.answer["error"]["code"] == -32602


@behaviour("elicitation.places", "2026-07-28 basic/patterns/mrtr#supported-requests", SINCE_2025_06)
@pytest.mark.parametrize(
    ("method", "params", "found"),
    [("prompts/get", {"name": "letter"}, "Write to Ada."), ("resources/read", {"uri": "asking://one"}, "for Ada")],
)
async def test_prompts_and_resources_can_ask_too(wire: Wire, method: str, params: Any, found: str) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse(method, params, accepting(value="Ada"))
        assert (found in str(talk.result), len(talk.questions)) == (True, 1)


@behaviour("elicitation.elsewhere", "2026-07-28 basic/patterns/mrtr#supported-requests", SINCE_2025_06)
@pytest.mark.parametrize(
    ("method", "params"),
    [
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "plain"}, "argument": {"name": "name", "value": ""}},
        ),
        ("acme/ask", {}),
    ],
)
async def test_other_methods_cannot_send_requests_to_the_caller(wire: Wire, method: str, params: Any) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse(method, params, accepting(value=True))
        assert (talk.questions, talk.answer["error"]["code"]) == ([], -32603)


@behaviour("elicitation.several", "2026-07-28 basic/patterns/mrtr#basic-workflow", SINCE_2025_06, ANYWHERE)
async def test_several_questions_are_asked_one_after_the_other(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("twice", {"elicitation/create": lambda params: _said(params["message"][:-1])})
        assert (talk.text, len(talk.questions)) == ("First Second", 2)


@behaviour("elicitation.at-once", "2026-07-28 basic/patterns/mrtr#inputrequests", SINCE_2025_06, ANYWHERE)
async def test_several_questions_are_asked_at_once(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("at_once", {"elicitation/create": lambda params: _said(params["message"][:-1])})
        assert (talk.text, len(talk.questions)) == ("Left Right", 2)


@behaviour("elicitation.thread", "2025-11-25 client/elicitation#message-flow", SINCE_2025_06, ANYWHERE)
async def test_a_function_in_a_thread_asks_like_any_other(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool(
            "in_thread", {"elicitation/create": lambda params: _said(params["message"][:-1])}
        )
        assert (talk.text, len(talk.questions)) == ("One Two", 2)


@behaviour("elicitation.form-flat", "2025-11-25 client/elicitation#requested-schema", SINCE_2025_06)
async def test_a_form_that_is_not_flat_is_never_sent(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("nested", accepting())
        assert (talk.questions, "error" in talk.answer or talk.result["isError"]) == ([], True)


@behaviour("elicitation.choices", "2025-11-25 client/elicitation#requested-schema", SINCE_2025_06)
async def test_a_choice_is_a_list_of_values(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("colour", accepting(value="green"))
        schema = talk.questions[0]["params"]["requestedSchema"]["properties"]["value"]
        assert (schema["type"], schema["enum"], talk.text) == ("string", ["red", "green"], "green")


@behaviour("elicitation.two-calls", "2025-11-25 client/elicitation#message-flow", ELICITING, ANYWHERE)
async def test_two_calls_ask_and_each_gets_its_own_answer(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        for_cats = await peer.send("tools/call", {"name": "keyed", "arguments": {"subject": "cats"}})
        for_dogs = await peer.send("tools/call", {"name": "keyed", "arguments": {"subject": "dogs"}})
        questions = [await peer.hear(), await peer.hear()]
        await peer.say({"jsonrpc": "2.0", "id": questions[1]["id"], "result": _said(questions[1]["params"]["message"])})
        await peer.say({"jsonrpc": "2.0", "id": questions[0]["id"], "result": _said(questions[0]["params"]["message"])})
        answers = await peer.answers(for_cats, for_dogs)
        texts = [answers[id]["result"]["content"][0]["text"] for id in (for_cats, for_dogs)]
        assert texts == ["What about cats?", "What about dogs?"]


@behaviour("elicitation.loop", "2026-07-28 basic/patterns/mrtr#inputrequests", SINCE_2025_06)
async def test_the_same_question_in_a_loop_is_asked_each_time(wire: Wire) -> None:
    words = iter(["a", "b", "c"])
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("same_again", {"elicitation/create": lambda params: _said(next(words))})
        assert (talk.text, len(talk.questions)) == ("a b c", 3)


@behaviour("elicitation.effects", "2026-07-28 basic/patterns/mrtr#basic-workflow", SINCE_2025_06)
async def test_once_runs_a_function_once_in_all_rounds(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        assert (await peer.converse_tool("pay", {"elicitation/create": _said(True)})).text == "charged 1"


def _said(value: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


# --- pages -----------------------------------------------------------------------------------------------------------


@behaviour("elicitation.url", "2025-11-25 client/elicitation#url-mode-elicitation-requests", SINCE_2025_11, ANYWHERE)
async def test_a_page_to_open_has_its_mode_message_and_url(wire: Wire) -> None:
    async with wire.open("asking", capabilities=PAGES) as peer:
        talk = await peer.converse_tool("visit", {"elicitation/create": {"action": "accept"}})
        params = talk.questions[0]["params"]
        assert (params["mode"], params["message"], params["url"]) == ("url", "Look", "https://example.com/look")
        assert ("requestedSchema" in params, talk.text) == (False, "accept")


@behaviour(
    "elicitation.url-id",
    "2025-11-25 client/elicitation#completion-notifications-for-url-mode-elicitation",
    URL_COMPLETING,
    ANYWHERE,
)
async def test_a_url_elicitation_has_an_id_and_its_completion_is_notified_under_it(wire: Wire) -> None:
    async with wire.open("asking", capabilities=PAGES) as peer:
        talk = await peer.converse_tool("log_in", {"elicitation/create": {"action": "accept"}})
        id = talk.questions[0]["params"]["elicitationId"]
        assert peer.notices("notifications/elicitation/complete") == [{"elicitationId": id}]


@behaviour("elicitation.url-undeclared", "2025-11-25 client/elicitation#capabilities", SINCE_2025_11)
async def test_a_client_of_forms_alone_is_not_sent_to_a_page(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FORMS) as peer:
        talk = await peer.converse_tool("visit", {"elicitation/create": {"action": "accept"}})
        assert talk.questions == []


@behaviour("elicitation.url-unknown", "2025-11-25 changelog#minor-changes", ALL[2:3])
async def test_a_revision_without_pages_is_never_sent_to_one(wire: Wire) -> None:
    async with wire.open("asking", capabilities=PAGES) as peer:
        talk = await peer.converse_tool("visit", {"elicitation/create": {"action": "accept"}})
        assert (talk.questions, talk.result["isError"]) == ([], True)


@behaviour("elicitation.url-scheme", "2025-11-25 client/elicitation#safe-url-handling", SINCE_2025_11)
@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "example.com"])
async def test_only_pages_of_the_web_are_asked_for(wire: Wire, url: str) -> None:
    server = Server("pages", version="1")

    async def look(ctx: Context) -> str:
        return (await ctx.elicit_url("Look", url)).action

    server.add_tool(look)
    async with wire.open(server, capabilities=PAGES) as peer:
        talk = await peer.converse_tool("look", {"elicitation/create": {"action": "accept"}})
        assert (talk.questions, talk.result["isError"]) == ([], True)


# --- models ----------------------------------------------------------------------------------------------------------


@behaviour("sampling.asked", "2025-11-25 client/sampling#creating-messages", transports=EVERYWHERE)
async def test_a_model_is_asked_with_everything_the_handler_said(wire: Wire) -> None:
    async with wire.open("asking", capabilities=MODELS) as peer:
        talk = await peer.converse_tool("sum_up", {"sampling/createMessage": SAID}, text="long")
        asked = talk.questions[0]["params"]
        assert asked["messages"] == [{"role": "user", "content": {"type": "text", "text": "Sum up: long"}}]
        assert (asked["maxTokens"], asked["systemPrompt"], asked["temperature"]) == (50, "Be brief.", 0.5)
        assert (asked["stopSequences"], asked["modelPreferences"]["hints"]) == (["END"], [{"name": "small"}])
        assert talk.text == "short by tiny"


@behaviour("sampling.undeclared", "2025-11-25 client/sampling#capabilities")
async def test_a_client_without_a_model_is_not_asked(wire: Wire) -> None:
    async with wire.open("asking") as peer:
        talk = await peer.converse_tool("sum_up", text="long")
        assert (talk.questions, "error" in talk.answer or talk.result["isError"]) == ([], True)


@behaviour("sampling.undeclared-caught", "2025-11-25 client/sampling#capabilities")
async def test_a_handler_can_do_without_a_model(wire: Wire) -> None:
    async with wire.open("asking") as peer:
        assert (await peer.converse_tool("careful")).text == "without sampling"


@behaviour("sampling.tools", "2025-11-25 client/sampling#sampling-with-tools", SINCE_2025_11)
async def test_a_model_is_given_tools_where_the_client_allows_it(wire: Wire) -> None:
    said = {**SAID, "stopReason": "toolUse", "content": [{"type": "tool_use", "id": "t1", "name": "add", "input": {}}]}
    async with wire.open("asking", capabilities=MODEL_TOOLS) as peer:
        talk = await peer.converse_tool("with_tools", {"sampling/createMessage": said})
        asked = talk.questions[0]["params"]
        assert ([tool["name"] for tool in asked["tools"]], asked["toolChoice"]) == (["add"], {"mode": "auto"})
        assert talk.text == "toolUse"


@behaviour("sampling.tools-undeclared", "2025-11-25 client/sampling#tools-in-sampling", SINCE_2025_11)
async def test_a_model_is_not_given_tools_where_the_client_does_not_allow_it(wire: Wire) -> None:
    async with wire.open("asking", capabilities=MODELS) as peer:
        talk = await peer.converse_tool("with_tools", {"sampling/createMessage": SAID})
        assert talk.questions == []


@behaviour("sampling.tools-unknown", "2025-11-25 changelog#minor-changes", UNTIL_2025_06)
async def test_a_model_is_not_given_tools_where_the_revision_has_none(wire: Wire) -> None:
    async with wire.open("asking", capabilities=MODEL_TOOLS) as peer:
        talk = await peer.converse_tool("with_tools", {"sampling/createMessage": SAID})
        assert [question for question in talk.questions if "tools" in question["params"]] == []


@behaviour("sampling.tool-results-alone", "2025-11-25 client/sampling#tool-result-messages", SINCE_2025_11)
async def test_a_message_with_tool_results_and_other_content_is_never_sent(wire: Wire) -> None:
    async with wire.open("asking", capabilities=MODEL_TOOLS) as peer:
        talk = await peer.converse_tool("tool_loop", {"sampling/createMessage": SAID})
        assert talk.questions == []


# --- folders ---------------------------------------------------------------------------------------------------------


@behaviour("roots.listed", "2025-11-25 client/roots#listing-roots", transports=ANYWHERE)
async def test_a_client_is_asked_for_its_folders(wire: Wire) -> None:
    roots = {"roots": [{"uri": "file:///home/ada"}, {"uri": "file:///srv", "name": "srv"}]}
    async with wire.open("asking", capabilities=FOLDERS) as peer:
        talk = await peer.converse_tool("folders", {"roots/list": roots})
        assert talk.text == "file:///home/ada file:///srv"


@behaviour("roots.undeclared", "2025-11-25 client/roots#capabilities")
async def test_a_client_that_shares_no_folders_is_not_asked(wire: Wire) -> None:
    async with wire.open("asking") as peer:
        talk = await peer.converse_tool("folders")
        assert (talk.questions, "error" in talk.answer or talk.result["isError"]) == ([], True)


@behaviour("roots.scheme", "2025-11-25 client/roots#root")
async def test_a_folder_that_is_no_file_uri_is_rejected(wire: Wire) -> None:
    async with wire.open("asking", capabilities=FOLDERS) as peer:
        talk = await peer.converse_tool("folders", {"roots/list": {"roots": [{"uri": "https://example.com"}]}})
        assert talk.answer["error"]["code"] == -32602


@behaviour("roots.changed", "2025-11-25 client/roots#root-list-changes", HANDSHAKE, ANYWHERE)
async def test_a_server_is_notified_of_changed_roots(wire: Wire) -> None:
    server = Server("hearing", version="1")
    heard: list[str] = []
    server.notification("notifications/roots/list_changed")(lambda: heard.append("changed"))
    async with wire.open(server, capabilities={"roots": {"listChanged": True}}) as peer:
        await peer.tell("notifications/roots/list_changed")
        await peer.settle()
    assert heard == ["changed"]
