"""A client of ours is asked and told: requests of the server, questions in results, notices and logs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.interaction.rows import (
    ANYWHERE,
    EVERYWHERE,
    HANDSHAKE,
    SINCE_2025_06,
    SINCE_2025_11,
    STATELESS,
    UNTIL_2025_06,
    URL_COMPLETING,
    behaviour,
)
from tests.interaction.script import SILENCE, Failure, Script
from tests.interaction.wire import META, Wire
from trunkline import Client, Limits, TrunklineError
from trunkline.errors import RemoteProtocolError, UrlElicitationRequired
from trunkline.types import ElicitRequestParams, ElicitResult, TextContent

DONE = {"content": [{"type": "text", "text": "done"}]}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 10}
SCHEMA = {
    "type": "object",
    "properties": {"dish": {"type": "string"}, "number": {"type": "integer", "default": 1}},
    "required": ["dish"],
}
FORM = {"message": "What?", "requestedSchema": SCHEMA}
PAGE = {"mode": "url", "message": "Look", "url": "https://example.com", "elicitationId": "e1"}


async def asked(wire: Wire, method: str, params: Any = None, **options: Any) -> Any:
    """Send a request from a server to a client, in the way of the revision, and return the response.

    Where questions travel in results, a client that refuses to answer fails the call; then the failure is given.
    """
    script = wire.script()
    async with script.client(**options) as client:
        if not wire.stateless:
            return await script.ask(method, params)
        script.table["tools/call"] = _questions(
            {"q": {"method": method} | ({} if params is None else {"params": params})}
        )
        try:
            await client.call_tool("work", {})
        except TrunklineError as error:
            return {"failed": error}
        return {"result": script.all("tools/call")[1]["params"]["inputResponses"]["q"]}


def _questions(questions: dict[str, Any], state: str | None = "state") -> Any:
    """Answer a first round with questions, and any other with a result."""

    def answer(params: dict[str, Any]) -> Any:
        if "inputResponses" in params or "requestState" in params:
            return DONE
        asks = {"resultType": "input_required", "inputRequests": questions}
        return asks if state is None else {**asks, "requestState": state}

    return answer


# --- being asked -----------------------------------------------------------------------------------------------------


@behaviour("client.asked-ping", "2025-11-25 basic/utilities/ping#behavior-requirements", HANDSHAKE)
async def test_a_client_answers_a_ping(wire: Wire) -> None:
    assert (await asked(wire, "ping"))["result"] == {}


@behaviour("client.asked-unknown", "2025-11-25 basic/index#error-responses", HANDSHAKE)
@pytest.mark.parametrize("method", ["no/such", "sampling/complete", "tools/list"])
async def test_a_client_does_not_know_other_methods(wire: Wire, method: str) -> None:
    error = (await asked(wire, method))["error"]
    assert (error["code"], error["data"]["method"]) == (-32601, method)


@behaviour("client.asked-never", "2026-07-28 basic/transports/stdio#sending-messages", STATELESS)
@pytest.mark.parametrize("method", ["ping", "sampling/createMessage", "no/such"])
async def test_a_client_writes_no_answers_where_servers_may_not_ask(wire: Wire, method: str) -> None:
    script = wire.script({"tools/call": DONE})
    async with script.client(sampling=lambda params: "x") as client:
        script.say({"jsonrpc": "2.0", "id": "s", "method": method, "params": SAMPLING})
        await client.call_tool("work", {})
        await client.call_tool("work", {})
        assert "answer" not in script.methods


@behaviour("client.asked-undeclared", "2025-11-25 basic/lifecycle#operation", HANDSHAKE)
@pytest.mark.parametrize(
    ("method", "params"), [("sampling/createMessage", SAMPLING), ("elicitation/create", FORM), ("roots/list", None)]
)
async def test_a_client_rejects_requests_that_it_did_not_declare(wire: Wire, method: str, params: Any) -> None:
    assert (await asked(wire, method, params))["error"]["code"] == -32601


@behaviour(
    "client.asked-undeclared-rounds", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS
)
@pytest.mark.parametrize(
    ("method", "params"), [("sampling/createMessage", SAMPLING), ("elicitation/create", FORM), ("roots/list", None)]
)
async def test_a_call_fails_that_asks_what_the_client_did_not_declare(wire: Wire, method: str, params: Any) -> None:
    assert isinstance((await asked(wire, method, params))["failed"], RemoteProtocolError)


@behaviour("client.asked-at-once", "2025-11-25 client/sampling#message-flow", HANDSHAKE, ANYWHERE)
async def test_a_client_answers_while_its_own_call_waits(wire: Wire) -> None:
    script = wire.script({"tools/call": SILENCE})
    async with script.client(sampling=lambda params: "x") as client:
        call = asyncio.ensure_future(client.call_tool("work", {}))
        request = await script.heard("tools/call")
        answers = await asyncio.gather(
            script.ask("sampling/createMessage", SAMPLING, id="a"), script.ask("ping", id="b")
        )
        script.answer(request, DONE)
        assert (["result" in answer for answer in answers], (await call).text) == ([True, True], "done")


@behaviour(
    "client.asked-cancelled", "2025-11-25 basic/utilities/cancellation#behavior-requirements", HANDSHAKE, ANYWHERE
)
async def test_a_question_that_the_server_withdraws_is_dropped_and_not_answered(wire: Wire) -> None:
    asking, left = asyncio.Event(), asyncio.Event()

    async def sampling(params: Any) -> str:
        asking.set()
        try:
            await asyncio.get_running_loop().create_future()
            return "never"
        finally:
            left.set()

    script = wire.script({"tools/call": DONE})
    async with script.client(sampling=sampling) as client:
        script.say({"jsonrpc": "2.0", "id": "s", "method": "sampling/createMessage", "params": SAMPLING})
        await asking.wait()
        script.tell("notifications/cancelled", {"requestId": "s", "reason": "never mind"})
        await left.wait()
        await client.call_tool("work", {})
        assert "answer" not in script.methods


@behaviour("client.asked-tasks", "2025-11-25 basic/utilities/tasks#capabilities", URL_COMPLETING)
async def test_a_client_without_tasks_does_not_have_their_methods(wire: Wire) -> None:
    assert (await asked(wire, "tasks/get", {"taskId": "t1"}))["error"]["code"] == -32601


@behaviour("client.sampling", "2025-11-25 client/sampling#creating-messages")
async def test_a_client_samples_by_its_callback(wire: Wire) -> None:
    seen: list[Any] = []

    def sampling(params: Any) -> str:
        seen.append((params.max_tokens, params.messages[0].content.text))
        return "short"

    result = (await asked(wire, "sampling/createMessage", SAMPLING, sampling=sampling))["result"]
    assert (seen, result["role"], result["content"]) == ([(10, "Hi")], "assistant", {"type": "text", "text": "short"})
    assert isinstance(result["model"], str)


@behaviour("client.sampling-failed", "2025-11-25 client/sampling#error-handling", HANDSHAKE)
async def test_a_client_whose_model_fails_has_no_internal_details(wire: Wire) -> None:
    def sampling(params: Any) -> str:
        raise RuntimeError("the key is hunter2")

    answer = await asked(wire, "sampling/createMessage", SAMPLING, sampling=sampling)
    assert (answer["error"]["code"], "hunter2" in str(answer)) == (-32603, False)


@behaviour("client.sampling-invalid", "2025-11-25 client/sampling#error-handling", HANDSHAKE)
@pytest.mark.parametrize("params", [{}, {"messages": []}, {"messages": "x", "maxTokens": 1}])
async def test_a_client_rejects_sampling_that_makes_no_sense(wire: Wire, params: Any) -> None:
    answer = await asked(wire, "sampling/createMessage", params, sampling=lambda params: "x")
    assert answer["error"]["code"] == -32602


@behaviour("client.sampling-tools-undeclared", "2025-11-25 client/sampling#tools-in-sampling", SINCE_2025_11)
async def test_a_client_rejects_tools_that_it_did_not_declare(wire: Wire) -> None:
    params = {**SAMPLING, "tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
    answer = await asked(wire, "sampling/createMessage", params, sampling=lambda params: "x")
    assert "result" not in answer


@behaviour("client.sampling-blocks", "2025-06-18 schema#createmessageresult", UNTIL_2025_06)
async def test_an_answer_of_several_blocks_is_one_where_only_one_is_known(wire: Wire) -> None:
    blocks = [TextContent(text="a"), TextContent(text="b")]
    result = (await asked(wire, "sampling/createMessage", SAMPLING, sampling=lambda params: blocks))["result"]
    assert result["content"] == {"type": "text", "text": "a\nb"}


@behaviour("client.elicitation", "2025-11-25 client/elicitation#requested-schema", SINCE_2025_06, ANYWHERE)
async def test_a_client_fills_in_a_form_by_its_callback_and_adds_defaults(wire: Wire) -> None:
    answer = await asked(wire, "elicitation/create", FORM, elicitation=lambda params: {"dish": "soup"})
    assert answer["result"] == {"action": "accept", "content": {"dish": "soup", "number": 1}}


@behaviour("client.elicitation-mode-absent", "2025-11-25 client/elicitation#elicitation-requests", SINCE_2025_06)
async def test_a_question_without_a_mode_is_a_form(wire: Wire) -> None:
    seen: list[ElicitRequestParams] = []

    def elicitation(params: ElicitRequestParams) -> Any:
        seen.append(params)
        return {"dish": "soup"}

    await asked(wire, "elicitation/create", FORM, elicitation=elicitation)
    assert (seen[0].mode in (None, "form"), seen[0].requested_schema) == (True, SCHEMA)


@behaviour("client.elicitation-refused", "2025-11-25 client/elicitation#response-actions", SINCE_2025_06)
@pytest.mark.parametrize("given", [None, ElicitResult(action="decline"), ElicitResult(action="cancel")])
async def test_a_user_may_refuse_and_nothing_else_is_said(wire: Wire, given: Any) -> None:
    result = (await asked(wire, "elicitation/create", FORM, elicitation=lambda params: given))["result"]
    assert (result["action"] in ("decline", "cancel"), "content" in result) == (True, False)


@behaviour("client.elicitation-checked", "2025-11-25 client/elicitation#form-mode-security", SINCE_2025_06)
async def test_an_answer_that_does_not_fit_the_form_does_not_leave(wire: Wire) -> None:
    answer = await asked(wire, "elicitation/create", FORM, elicitation=lambda params: {"dish": 7})
    assert "result" not in answer


@behaviour("client.elicitation-url", "2025-11-25 client/elicitation#url-mode-elicitation-requests", SINCE_2025_11)
async def test_a_client_with_url_elicitation_declares_it_and_answers_without_content(wire: Wire) -> None:
    options = {"elicitation": lambda params: True, "elicitation_urls": True}
    assert (await asked(wire, "elicitation/create", PAGE, **options))["result"] == {"action": "accept"}


@behaviour("client.elicitation-url-undeclared", "2025-11-25 client/elicitation#error-handling", URL_COMPLETING)
async def test_a_client_that_cannot_open_pages_rejects_them(wire: Wire) -> None:
    answer = await asked(wire, "elicitation/create", PAGE, elicitation=lambda params: True)
    assert answer["error"]["code"] == -32602


@behaviour(
    "client.elicitation-complete",
    "2025-11-25 client/elicitation#completion-notifications-for-url-mode-elicitation",
    URL_COMPLETING,
)
async def test_a_notification_that_an_unknown_page_was_finished_is_ignored(wire: Wire) -> None:
    script = wire.script({"tools/call": DONE})
    async with script.client(elicitation=lambda params: True, elicitation_urls=True) as client:
        script.tell("notifications/elicitation/complete", {"elicitationId": "unknown"})
        assert (await client.call_tool("work", {})).text == "done"


@behaviour(
    "client.elicitation-required", "2025-11-25 client/elicitation#url-elicitation-required-error", URL_COMPLETING
)
async def test_an_error_that_asks_for_a_page_has_the_page(wire: Wire) -> None:
    script = wire.script({"tools/call": Failure(-32042, "log in first", {"elicitations": [PAGE]})})
    async with script.client() as client:
        with pytest.raises(UrlElicitationRequired) as caught:
            await client.call_tool("work", {})
        assert caught.value.data == {"elicitations": [PAGE]}


@behaviour("client.roots", "2025-11-25 client/roots#root")
async def test_a_client_names_its_folders_as_file_uris(wire: Wire) -> None:
    roots = (await asked(wire, "roots/list", roots=["/srv/data", "file:///home/ada"]))["result"]["roots"]
    assert [root["uri"] for root in roots] == ["file:///srv/data", "file:///home/ada"]


@behaviour("client.roots-changed", "2025-11-25 client/roots#root-list-changes", HANDSHAKE)
async def test_a_client_tells_that_its_folders_changed(wire: Wire) -> None:
    script = wire.script()
    async with script.client(roots=["/srv"]) as client:
        await client.notify_roots_changed()
        await script.heard("notifications/roots/list_changed")
        assert script.declared["roots"] == {"listChanged": True}


# --- rounds ----------------------------------------------------------------------------------------------------------


def call_params(script: Script) -> list[Any]:
    return [message["params"] for message in script.all("tools/call")]


@behaviour("client.rounds", "2026-07-28 basic/patterns/mrtr#client-requirements-basic-workflow", STATELESS, ANYWHERE)
async def test_a_retry_has_the_answers_by_key_the_same_state_and_a_new_id(wire: Wire) -> None:
    state = "opaque é \\u0000 {}"
    questions = {"a": {"method": "elicitation/create", "params": FORM}, "b": {"method": "roots/list"}}
    script = wire.script({"tools/call": _questions(questions, state)})
    async with script.client(elicitation=lambda params: {"dish": "soup"}, roots=["/srv"]) as client:
        assert (await client.call_tool("work", {"x": 1})).text == "done"
    first, second = script.all("tools/call")
    assert (first["id"] != second["id"], second["params"]["requestState"]) == (True, state)
    assert (second["params"]["name"], second["params"]["arguments"]) == ("work", {"x": 1})
    assert set(second["params"]["inputResponses"]) == {"a", "b"}


@behaviour("client.rounds-envelope", "2026-07-28 basic/index#meta", STATELESS)
async def test_each_round_has_the_client_info(wire: Wire) -> None:
    script = wire.script({"tools/call": _questions({"b": {"method": "roots/list"}})})
    async with script.client(roots=["/srv"]) as client:
        await client.call_tool("work", {})
    metas = [params["_meta"] for params in call_params(script)]
    assert [f"{META}protocolVersion" in meta for meta in metas] == [True, True]


@behaviour("client.rounds-stateless", "2026-07-28 basic/patterns/mrtr#client-requirements-basic-workflow", STATELESS)
async def test_a_retry_has_no_state_if_none_was_given(wire: Wire) -> None:
    script = wire.script({"tools/call": _questions({"b": {"method": "roots/list"}}, None)})
    async with script.client(roots=["/srv"]) as client:
        await client.call_tool("work", {})
    assert "requestState" not in call_params(script)[1]


@behaviour("client.rounds-wait", "2026-07-28 basic/patterns/mrtr#client-requirements-basic-workflow", STATELESS)
async def test_a_result_with_a_state_alone_is_retried_with_it(wire: Wire) -> None:
    def answer(params: dict[str, Any]) -> Any:
        return DONE if "requestState" in params else {"resultType": "input_required", "requestState": "later"}

    script = wire.script({"tools/call": answer})
    async with script.client() as client:
        assert (await client.call_tool("work", {})).text == "done"
    assert (call_params(script)[1]["requestState"], "inputResponses" in call_params(script)[1]) == ("later", False)


@behaviour("client.rounds-empty", "2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow", STATELESS)
async def test_a_result_that_asks_nothing_is_invalid(wire: Wire) -> None:
    script = wire.script({"tools/call": {"resultType": "input_required"}})
    async with script.client() as client:
        with pytest.raises(RemoteProtocolError):
            await client.call_tool("work", {})


@behaviour("client.rounds-elsewhere", "2026-07-28 basic/patterns/mrtr#supported-requests", STATELESS)
async def test_a_question_where_none_may_be_is_invalid(wire: Wire) -> None:
    script = wire.script({"tools/list": {"resultType": "input_required", "requestState": "x", "tools": []}})
    async with script.client() as client:
        with pytest.raises(RemoteProtocolError):
            await client.list_tools()


@behaviour("client.rounds-handshake", "2026-07-28 basic/patterns/mrtr#multi-round-trip-requests", HANDSHAKE)
async def test_a_question_in_a_result_is_invalid_where_there_are_none(wire: Wire) -> None:
    script = wire.script({"tools/call": {"resultType": "input_required", "requestState": "x"}})
    async with script.client() as client:
        with pytest.raises(RemoteProtocolError):
            await client.call_tool("work", {})


@behaviour("client.rounds-limit", "2026-07-28 basic/patterns/mrtr#client-requirements-basic-workflow", STATELESS)
async def test_a_client_ends_a_call_that_asks_for_ever(wire: Wire) -> None:
    asks = {"resultType": "input_required", "requestState": "x", "inputRequests": {"b": {"method": "roots/list"}}}
    script = wire.script({"tools/call": asks})
    async with script.client(roots=["/srv"], limits=Limits(rounds=3)) as client:
        with pytest.raises(RemoteProtocolError, match="3"):
            await client.call_tool("work", {})


@behaviour("client.rounds-apart", "2026-07-28 basic/patterns/mrtr#client-requirements-basic-workflow", STATELESS)
async def test_answers_and_state_go_to_their_own_call_alone(wire: Wire) -> None:
    ask = _questions({"b": {"method": "roots/list"}})
    script = wire.script({"tools/call": lambda params: ask(params) if params["name"] == "asks" else DONE})
    async with script.client(roots=["/srv"]) as client:
        await asyncio.gather(client.call_tool("asks", {}), client.call_tool("plain", {}), client.call_tool("plain", {}))
    plain = [params for params in call_params(script) if params["name"] == "plain"]
    assert [{"inputResponses", "requestState"} & set(params) for params in plain] == [set(), set()]


# --- being told ------------------------------------------------------------------------------------------------------


@behaviour("client.log", "2025-11-25 server/utilities/logging#log-message-notifications", transports=ANYWHERE)
async def test_log_messages_reach_the_callback(wire: Wire) -> None:
    heard: list[Any] = []
    script = wire.script({"tools/call": DONE})
    async with script.client(logging=heard.append) as client:
        script.tell("notifications/message", {"level": "error", "logger": "acme", "data": {"a": 1}})
        await client.call_tool("work", {})
    assert [(each.level, each.logger, each.data) for each in heard] == [("error", "acme", {"a": 1})]


@behaviour("client.log-level", "2025-11-25 server/utilities/logging#setting-log-level", HANDSHAKE)
async def test_a_client_sets_the_level_by_a_request(wire: Wire) -> None:
    script = wire.script({"logging/setLevel": {}})
    async with script.client() as client:
        await client.set_logging_level("warning")
        assert script.all("logging/setLevel")[0]["params"] == {"level": "warning"}


@behaviour("client.log-level-request", "2026-07-28 server/utilities/logging#per-request-log-level", STATELESS)
async def test_a_client_sets_the_level_in_each_request(wire: Wire) -> None:
    script = wire.script({"tools/call": DONE})
    async with script.client() as client:
        await client.call_tool("work", {})
        await client.set_logging_level("warning")
        await client.call_tool("work", {})
    assert [params["_meta"].get(f"{META}logLevel") for params in call_params(script)] == [None, "warning"]


@behaviour("client.notice-unknown", "2025-11-25 basic/index#notifications")
@pytest.mark.parametrize("params", [None, {}, {"deep": [1]}])
async def test_a_notification_of_an_unknown_kind_goes_to_the_callback_and_does_no_harm(wire: Wire, params: Any) -> None:
    heard: list[Any] = []
    script = wire.script({"tools/call": DONE})
    async with script.client(on_notification=lambda method, members: heard.append((method, members))) as client:
        script.tell("acme/news", params)
        await client.call_tool("work", {})
    assert heard == [("acme/news", params or {})]


@behaviour("client.notice-unreadable", "2025-11-25 basic/index#notifications")
@pytest.mark.parametrize("params", [7, [], {"level": "loud", "data": 1}, {"uri": 7}])
async def test_a_notification_that_cannot_be_read_does_no_harm(wire: Wire, params: Any) -> None:
    script = wire.script({"tools/call": DONE})
    async with script.client(logging=lambda message: None) as client:
        script.tell("notifications/message", params)
        script.tell("notifications/resources/updated", params)
        assert (await client.call_tool("work", {})).text == "done"


@behaviour("client.callback-fails", "2025-11-25 basic/index#notifications")
async def test_a_callback_that_fails_does_no_harm(wire: Wire) -> None:
    def logging(message: Any) -> None:
        raise RuntimeError("in the callback")

    script = wire.script({"tools/call": DONE})
    async with script.client(logging=logging) as client:
        script.tell("notifications/message", {"level": "error", "data": 1})
        assert (await client.call_tool("work", {})).text == "done"


@behaviour("client.changes", "2025-11-25 server/tools#list-changed-notification", transports=EVERYWHERE)
async def test_a_client_is_notified_of_changes_and_reads_the_list_again(wire: Wire) -> None:
    async with (
        wire.serve("changing") as server,
        Client(server, revision=wire.revision) as client,
        client.listen(tools=True) as changes,
    ):
        await client.list_tools()
        await client.call_tool("add_tools", {"names": ["fresh"]})
        assert (await anext(aiter(changes))).kind == "tools"
        assert "fresh" in [tool.name for tool in await client.list_tools()]


@behaviour("client.changes-callback", "2025-11-25 server/tools#list-changed-notification", transports=ANYWHERE)
async def test_a_callback_is_notified_of_changes(wire: Wire) -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()
    async with (
        wire.serve("changing") as server,
        Client(server, revision=wire.revision, on_change=heard.put_nowait) as client,
    ):
        await client.ping()
        await client.ping()
        await client.call_tool("add_prompt", {"name": "fresh"})
        assert (await heard.get()).kind == "prompts"


@behaviour("client.changes-resource", "2025-11-25 server/resources#subscriptions")
async def test_a_client_is_notified_of_a_changed_resource(wire: Wire) -> None:
    async with (
        wire.serve("changing") as server,
        Client(server, revision=wire.revision) as client,
        client.listen(uris=["note://one"]) as changes,
    ):
        await client.call_tool("touch", {"uri": "note://two"})
        await client.call_tool("touch", {"uri": "note://one"})
        change = await anext(aiter(changes))
        assert (change.kind, change.uri) == ("resource", "note://one")


# --- listening where it is a request ---------------------------------------------------------------------------------


async def listening(script: Script, client: Client, accepted: dict[str, Any], **wanted: Any) -> tuple[Any, Any]:
    """Open a listener, acknowledge it with a filter, and give it with the id of its subscription."""
    script.table["subscriptions/listen"] = SILENCE
    count = len(script.all("subscriptions/listen"))
    opening = asyncio.ensure_future(client.listen(**wanted).__aenter__())
    id = (await script.heard("subscriptions/listen", count=count + 1))["id"]
    stamp = {f"{META}subscriptionId": id}
    script.tell("notifications/subscriptions/acknowledged", {"_meta": stamp, "notifications": accepted})
    return await opening, id


@behaviour("client.listen-filter", "2026-07-28 basic/patterns/subscriptions#acknowledgment", STATELESS)
async def test_a_client_asks_for_what_it_wants_and_learns_what_it_gets(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        listener, _ = await listening(script, client, {"toolsListChanged": True}, tools=True, uris=["note://one"])
        wanted = script.all("subscriptions/listen")[0]["params"]["notifications"]
        assert wanted == {"toolsListChanged": True, "resourceSubscriptions": ["note://one"]}
        assert (listener.acknowledged.tools_list_changed, listener.acknowledged.resource_subscriptions) == (True, None)
        await listener.aclose()


@behaviour("client.listen-id", "2026-07-28 basic/patterns/subscriptions#receiving-notifications", STATELESS, ANYWHERE)
async def test_a_notification_belongs_to_the_subscription_that_it_names(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        first, one = await listening(script, client, {"toolsListChanged": True}, tools=True)
        second, two = await listening(script, client, {"promptsListChanged": True}, prompts=True)
        script.tell("notifications/tools/list_changed", {"_meta": {f"{META}subscriptionId": "unknown"}})
        script.tell("notifications/tools/list_changed", {"_meta": {f"{META}subscriptionId": str(one)}})
        script.tell("notifications/prompts/list_changed", {"_meta": {f"{META}subscriptionId": two}})
        script.tell("notifications/tools/list_changed", {"_meta": {f"{META}subscriptionId": one}})
        kinds = [(await anext(aiter(first))).kind, (await anext(aiter(second))).kind]
        assert (kinds, client.dropped) == (["tools", "prompts"], 2)
        await first.aclose()
        await second.aclose()


@behaviour("client.listen-closed", "2026-07-28 basic/patterns/subscriptions#cancellation", STATELESS, ANYWHERE)
async def test_a_listener_that_is_closed_cancels_its_subscription(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        listener, id = await listening(script, client, {"toolsListChanged": True}, tools=True)
        await listener.aclose()
        assert (await script.heard("notifications/cancelled"))["params"]["requestId"] == id


@behaviour("client.listen-ended", "2026-07-28 basic/patterns/subscriptions#graceful-closure", STATELESS, ANYWHERE)
async def test_a_subscription_that_the_server_ends_ends_the_listener(wire: Wire) -> None:
    script = wire.script()
    async with script.client() as client:
        listener, id = await listening(script, client, {"toolsListChanged": True}, tools=True)
        script.tell("notifications/cancelled", {"requestId": id, "reason": "shutting down"})
        script.answer({"id": id}, {"_meta": {f"{META}subscriptionId": id}})
        with pytest.raises(StopAsyncIteration):
            await anext(aiter(listener))
        await listener.aclose()
    assert "notifications/cancelled" not in script.methods
