"""Handshake sessions over HTTP: who may use one, when it ends, and how messages are routed."""

from __future__ import annotations

import asyncio
import string
from collections.abc import Callable
from typing import Any

import pytest

from tests.transports.http.serving_support import (
    BATCHING,
    HANDSHAKE,
    Call,
    SessionClient,
    Workshop,
    ask,
    authenticate,
    initialize,
    modern,
    notification,
    post,
    request,
    tool,
    until,
)
from trunkline.errors import RequestFailed
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import HANDSHAKE_NAMES
from trunkline.server.runtime import runtime_for

FORMS: dict[str, Any] = {"elicitation": {}}


def text(call: Call) -> str:
    found: str = call.json["result"]["content"][0]["text"]
    return found


def accept(id: Any, value: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": {"action": "accept", "content": {"value": value}}}


# --- ids -------------------------------------------------------------------------------------------------------------


async def test_a_session_id_is_visible_and_cannot_be_guessed() -> None:
    app = Workshop().asgi()
    clients = [await SessionClient.open(app) for _ in range(3)]
    ids = {text(await client.post(tool("grow")).whole()) for client in clients}
    assert ids == {client.id for client in clients}
    assert set("".join(ids)) <= set(string.ascii_letters + string.digits + "-_")
    # Sealed with AES-256-GCM: what is not sealed here, or was changed, is no session.
    client = clients[0]
    id = client.id
    changed = [f"{id[:-1]}{'A' if id[-1] != 'A' else 'B'}", id[:43], id + "A", f"A{id[1:]}A"]
    statuses = {
        other: (await SessionClient(app, other, client.revision, None).post(tool("add")).whole()).status
        for other in changed
    }
    assert statuses == dict.fromkeys(changed, 404)
    assert (await client.post(tool("add")).whole()).status == 200


# --- the end of a session --------------------------------------------------------------------------------------------


async def test_deleting_a_session_ends_its_streams_and_cancels_its_requests() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    client = await SessionClient.open(app)
    listening, call = await client.listening(), client.post(tool("wait", say="hello"))
    await call.message()
    await client.delete().whole()
    await listening.whole()
    await call.whole()
    await workshop.cancelled.wait()
    await until(lambda: not app.sessions.by_id and not app.open_responses.streams)
    await until(lambda: runtime_for(workshop.server).hub.listeners() == ())


async def test_a_refused_initialize_leaves_no_session() -> None:
    async def refuse(request: Any, call_next: Any) -> Any:
        raise RequestFailed("not today")

    workshop = Workshop(middleware=[refuse])
    app = workshop.asgi()
    call = await post(app, initialize()).whole()
    assert (call.json["error"]["message"], "mcp-session-id" in call.headers) == ("not today", False)
    await until(lambda: not app.sessions.by_id and runtime_for(workshop.server).hub.listeners() == ())


async def test_an_initialize_that_cannot_be_read_leaves_no_session() -> None:
    app = Workshop().asgi()
    params = [{}, {"protocolVersion": 5}, {"protocolVersion": HANDSHAKE, "capabilities": []}]
    calls = [await post(app, request("initialize", each)).whole() for each in params]
    assert ([call.error for call in calls], len(app.sessions.by_id)) == ([(400, -32602)] * 3, 0)


async def test_a_client_that_disconnects_on_its_initialize_leaves_no_session() -> None:
    arrived, proceed = asyncio.Event(), asyncio.Event()

    async def hold(request: Any, call_next: Any) -> Any:
        arrived.set()
        await proceed.wait()
        return await call_next(request)

    workshop = Workshop(middleware=[hold])
    app = workshop.asgi()
    call = post(app, initialize())
    await arrived.wait()
    call.hang_up()
    await call.ended()
    assert (len(app.sessions.by_id), call.late) == (0, [])


async def test_an_initialize_that_outlasts_the_session_timeout_gets_an_error() -> None:
    async def hold(request: Any, call_next: Any) -> Any:
        await asyncio.Event().wait()

    app = Workshop(Limits(unready_seconds=0.1), middleware=[hold]).asgi()
    call = await post(app, initialize()).whole()
    assert (call.error, len(app.sessions.by_id)) == ((404, -32600), 0)


# --- limits and expiry -----------------------------------------------------------------------------------------------


async def test_over_the_limit_a_new_session_ends_the_oldest_idle_one_of_its_caller() -> None:
    app = Workshop(Limits(sessions=2)).asgi()
    first, second = await SessionClient.open(app), await SessionClient.open(app)
    third = await SessionClient.open(app)
    statuses = [(await client.post(tool("add")).whole()).status for client in (first, second, third)]
    assert statuses == [404, 200, 200]


async def test_no_session_is_opened_over_the_limit_while_all_are_in_use() -> None:
    app = Workshop(Limits(sessions=2)).asgi()
    clients = [await SessionClient.open(app) for _ in range(2)]
    first, second = [await client.listening() for client in clients]
    refused = await post(app, initialize()).whole()
    first.hang_up()
    await first.ended()
    opened = await post(app, initialize()).whole()
    second.hang_up()
    assert (refused.status, refused.headers["retry-after"], opened.status) == (503, "5", 200)


async def test_a_caller_that_fills_all_sessions_loses_its_own() -> None:
    app = Workshop(Limits(sessions=5)).asgi(auth=authenticate)
    modest = [await SessionClient.open(app, token="ada"), await SessionClient.open(app, token="bob")]
    greedy = [await SessionClient.open(app, token="eve") for _ in range(10)]
    modest.append(await SessionClient.open(app, token="cy"))
    assert [(await client.post(tool("add")).whole()).status for client in modest] == [200] * 3
    assert [(await client.post(tool("add")).whole()).status for client in greedy] == [404] * 8 + [200] * 2


class Clock:
    """A time that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


async def timed(limits: Limits, *, ready: bool = True) -> tuple[Any, Clock, SessionClient]:
    """Open one session under a clock of its own."""
    clock = Clock()
    app = Workshop(limits).asgi(auth=authenticate)
    app.sessions.now = clock
    return app, clock, await SessionClient.open(app, ready=ready, token="ada")


def expired(app: Any) -> list[str]:
    """Return the ids of the sessions that have been idle for too long."""
    return [session.id for session in app.sessions.expired()]


@pytest.mark.parametrize(("ready", "seconds"), [(True, 1800), (False, 60)], ids=["ready", "not ready"])
async def test_a_session_that_is_idle_too_long_expires(ready: bool, seconds: int) -> None:
    app, clock, client = await timed(Limits(), ready=ready)
    clock.now = seconds
    before = expired(app)
    clock.now = seconds + 1
    assert (before, expired(app)) == ([], [client.id])


async def test_only_requests_of_its_principal_keep_a_session_alive() -> None:
    app, clock, client = await timed(Limits(session_seconds=10))
    clock.now = 9
    await client.post(tool("add")).whole()
    clock.now = 18
    assert expired(app) == []
    await SessionClient(app, client.id, client.revision, "eve").post(tool("add")).whole()
    clock.now = 20
    assert expired(app) == [client.id]


async def test_a_session_with_an_open_stream_or_a_request_does_not_expire() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    clock = Clock()
    app.sessions.now = clock
    client, other = await SessionClient.open(app), await SessionClient.open(app)
    listening, call = await client.listening(), other.post(tool("wait"))
    await workshop.started.wait()
    clock.now = 10_000
    during = list(app.sessions.expired())
    listening.hang_up()
    await listening.ended()
    workshop.proceed.set()
    await call.whole()
    clock.now = 20_000
    assert (during, {session.id for session in app.sessions.expired()}) == ([], {client.id, other.id})


async def test_an_expired_session_is_removed_by_the_clock() -> None:
    app = Workshop().asgi()
    client = await SessionClient.open(app)
    clock = Clock()
    app.sessions.now = clock
    clock.now = app.sessions.by_id[client.id].seen + 10_000
    app.open_responses._round()
    assert (await client.post(tool("add")).whole()).status == 404


async def test_a_session_holds_no_more_streams_than_allowed() -> None:
    client = await SessionClient.open(Workshop(Limits(session_streams=2)).asgi())
    first, second = await client.listening(), await client.listening()
    refused = await client.get().whole()
    first.hang_up()
    await first.ended()
    third = await client.listening()
    assert refused.status == 503
    second.hang_up()
    third.hang_up()


async def test_a_server_holds_no_more_streams_than_allowed() -> None:
    workshop = Workshop(Limits(streams=1))
    app = workshop.asgi()
    client, other = await SessionClient.open(app), await SessionClient.open(app)
    listening = await client.listening()
    loud = {"io.modelcontextprotocol/logLevel": "info"}
    refused = [
        await other.get().whole(),
        await ask(app, "GET", "/mcp/sse").whole(),
        await other.post(tool("steps")).whole(),
        await modern(app, tool("steps"), meta=loud).whole(),
    ]
    answered = await other.post(tool("add")).whole()
    listening.hang_up()
    assert ([call.status for call in refused], answered.status) == ([503] * 4, 200)


async def test_a_session_serves_no_more_requests_at_once_than_allowed() -> None:
    workshop = Workshop(Limits(in_flight=2))
    client = await SessionClient.open(workshop.asgi())
    calls = [client.post(tool("wait", id=id)) for id in (1, 2)]
    await workshop.started.wait()
    refused = await client.post(tool("add")).whole()
    workshop.proceed.set()
    assert (refused.status, [(await call.whole()).json["id"] for call in calls]) == (503, [1, 2])


# --- principals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE", "resume"])
async def test_a_session_belongs_to_the_principal_that_opened_it(verb: str) -> None:
    workshop = Workshop()
    app = workshop.asgi(auth=authenticate)
    owner = await SessionClient.open(app, token="ada")
    thief = SessionClient(app, owner.id, owner.revision, "eve")
    calls: dict[str, Callable[[], Call]] = {
        "POST": lambda: thief.post(tool("add")),
        "GET": thief.get,
        "DELETE": thief.delete,
        "resume": lambda: thief.get("1-0"),
    }
    assert (await calls[verb]().whole()).status == 404
    assert text(await owner.post(tool("who")).whole()) == "ada"
    assert workshop.count == 0


# --- requests side by side -------------------------------------------------------------------------------------------


async def test_each_server_request_is_answered_to_the_exchange_that_sent_it() -> None:
    app = Workshop().asgi()
    client, other = [await SessionClient.open(app, capabilities=FORMS) for _ in range(2)]
    calls = [client.post(tool("ask_name", id=1)) for _ in range(3)]
    questions = [await call.message() for call in calls]
    assert len({question["id"] for question in questions}) == 3
    # An answer in another session answers nothing.
    assert (await other.post(accept(questions[0]["id"], "Mallory")).whole()).status == 202
    for number, question in reversed(list(enumerate(questions))):
        assert (await client.post(accept(question["id"], f"name {number}")).whole()).status == 202
    answers = [(await call.whole()).messages[-1]["result"]["content"][0]["text"] for call in calls]
    assert answers == ["name 0", "name 1", "name 2"]


async def test_messages_without_a_target_are_accepted_and_dropped() -> None:
    messages: list[dict[str, Any]] = [
        *(accept(id, "x") for id in ("99.1", "nonsense", 12345)),
        {"jsonrpc": "2.0", "id": "1.1", "result": 1, "error": {}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "m"}},
        notification("notifications/cancelled"),
        notification("notifications/cancelled", {"requestId": 77}),
        notification("notifications/cancelled", {"requestId": []}),
        notification("notifications/progress", {"progressToken": "9.9", "progress": 1}),
        notification("notifications/progress", []),
    ]
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    call = client.post(tool("wait", id=1))
    await workshop.started.wait()
    refused = [message for message in messages if (await client.post(message).whole()).status != 202]
    workshop.proceed.set()
    assert (refused, (await call.whole()).json["id"]) == ([], 1)


# --- cancelling ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("say", "accepts"),
    [
        ("", "application/json, text/event-stream"),
        ("hello", "application/json, text/event-stream"),
        ("", "application/json"),
    ],
    ids=["before the first byte", "in the middle", "JSON alone"],
)
async def test_a_cancelled_request_ends_without_an_answer(say: str, accepts: str) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    client = await SessionClient.open(app)
    call = client.post(tool("wait", id=5, say=say), accept=accepts)
    await workshop.started.wait()
    cancel = await client.post(notification("notifications/cancelled", {"requestId": 5})).whole()
    await workshop.cancelled.wait()
    await call.whole()
    assert cancel.status == 202
    assert b'"id":5' not in call.body
    assert app.sessions.by_id[client.id].in_flight == 0


@pytest.mark.parametrize(("id", "cancelled"), [(5, "5"), ("5", 5)], ids=["number", "text"])
async def test_a_cancellation_matches_the_session_and_the_type_of_the_id(id: Any, cancelled: Any) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    client, other = await SessionClient.open(app), await SessionClient.open(app)
    call = client.post(tool("wait", id=id))
    await workshop.started.wait()
    await client.post(notification("notifications/cancelled", {"requestId": cancelled})).whole()
    await other.post(notification("notifications/cancelled", {"requestId": id})).whole()
    workshop.proceed.set()
    assert (await call.whole()).json["id"] == id


async def test_an_ambiguous_cancellation_cancels_neither_request() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    calls = [client.post(tool("wait", id=5, say=say)) for say in ("a", "b")]
    for call in calls:
        await call.message()
    await client.post(notification("notifications/cancelled", {"requestId": 5})).whole()
    workshop.proceed.set()
    assert [(await call.whole()).messages[-1]["id"] for call in calls] == [5, 5]


# --- the state of a session ------------------------------------------------------------------------------------------


async def test_the_log_level_is_each_sessions_own() -> None:
    app = Workshop().asgi()
    loud, quiet = await SessionClient.open(app), await SessionClient.open(app)
    await quiet.post(request("logging/setLevel", {"level": "error"})).whole()
    forms = [(await client.post(tool("steps")).whole()).headers["content-type"] for client in (loud, quiet)]
    assert forms == ["text/event-stream", "application/json"]


# --- batches ---------------------------------------------------------------------------------------------------------


async def test_a_batch_whose_tools_send_notifications_is_answered_on_a_stream() -> None:
    client = await SessionClient.open(Workshop().asgi(), BATCHING)
    call = await client.post([tool("steps", id=1, n=1), tool("add", id=2)]).whole()
    told, answers = call.messages
    assert told["method"] == "notifications/message"
    assert sorted(each["id"] for each in answers) == [1, 2]


async def test_a_malformed_member_of_a_batch_is_answered_with_the_others() -> None:
    client = await SessionClient.open(Workshop().asgi(), BATCHING)
    call = await client.post([5, tool("add", id=1), {"jsonrpc": "2.0", "id": 9}]).whole()
    found = {each["id"]: each.get("error", {}).get("code") for each in call.json}
    assert (call.status, found) == (200, {None: -32600, 1: None, 9: -32600})


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param([], id="empty"),
        pytest.param([tool("add", id=n) for n in range(101)], id="too many"),
        pytest.param([tool("add", id=1), tool("add", id=1)], id="one id twice"),
        pytest.param([tool("add", id=1), initialize()], id="initialize"),
        pytest.param([tool("add", id=1), accept("9.9", "x")], id="requests and answers"),
    ],
)
async def test_an_invalid_batch_is_refused(batch: list[Any]) -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), BATCHING)
    call = await client.post(batch).whole()
    assert (call.error, workshop.count) == ((400, -32600), 0)


@pytest.mark.parametrize(("other", "answered"), [("add", [2]), ("wait", [])], ids=["one of two", "all"])
async def test_a_batch_answers_the_requests_that_were_not_cancelled(other: str, answered: list[int]) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    client = await SessionClient.open(app, BATCHING)
    call = client.post([tool("wait", id=1), tool(other, id=2)])
    await workshop.started.wait()
    for id in (1, 2):
        await client.post(notification("notifications/cancelled", {"requestId": id})).whole()
    await call.whole()
    assert [each["id"] for each in (call.json if call.body else [])] == answered
    assert app.sessions.by_id[client.id].in_flight == 0


# --- without sessions ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", HANDSHAKE_NAMES)
async def test_without_sessions_each_request_of_a_handshake_client_is_served_alone(revision: str) -> None:
    workshop = Workshop()
    app = workshop.asgi(stateless_http=True)
    opened = await post(app, initialize(revision)).whole()
    ready = await post(app, notification("notifications/initialized"), mcp_protocol_version=revision).whole()
    called = await post(app, tool("add"), mcp_protocol_version=revision).whole()
    unknown = await post(app, request("nope"), mcp_protocol_version=revision).whole()
    assert (opened.json["result"]["protocolVersion"], "mcp-session-id" in opened.headers) == (revision, False)
    assert (ready.status, text(called), unknown.error) == (202, "3", (200, -32601))
    assert (len(app.sessions.by_id), runtime_for(workshop.server).hub.listeners()) == (0, ())


@pytest.mark.parametrize(
    ("version", "body", "status", "code"),
    [
        pytest.param(BATCHING, [tool("add", id=1)], 200, None, id="batch"),
        pytest.param(None, [tool("add", id=1)], 200, None, id="batch without a header"),
        pytest.param(HANDSHAKE, [tool("add", id=1)], 400, -32600, id="batch where there are none"),
        pytest.param(BATCHING, [tool("add", id=1), tool("add", id=1)], 400, -32600, id="wrong batch"),
        pytest.param(HANDSHAKE, {"id": 1}, 400, -32600, id="no message"),
        pytest.param(HANDSHAKE, accept(1, "x"), 202, None, id="answer"),
    ],
)
async def test_without_sessions_messages_are_handled_by_their_version_header(
    version: str | None, body: Any, status: int, code: int | None
) -> None:
    call = await post(Workshop().asgi(stateless_http=True), body, mcp_protocol_version=version).whole()
    found = call.json if call.body else {}
    assert (call.status, found["error"]["code"] if "error" in found else None) == (status, code)
