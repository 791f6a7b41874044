"""Draining an endpoint: requests in flight finish, listeners end with a result, new requests are refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.transports.http.server.test_legacy_sse_server import OldClient
from tests.transports.http.serving_support import (
    META,
    Call,
    SessionClient,
    Workshop,
    ask,
    initialize,
    modern,
    modern_headers,
    post,
    request,
    running,
    tool,
)
from trunkline.protocol.limits import Limits

LISTEN = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="L")


# --- listening -------------------------------------------------------------------------------------------------------


async def test_a_listener_is_acknowledged_and_notified_on_its_stream() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    call = modern(app, LISTEN)
    first = await call.message()
    await modern(app, tool("grow")).whole()
    second = await call.message()
    assert (call.headers["content-type"], first["method"]) == (
        "text/event-stream",
        "notifications/subscriptions/acknowledged",
    )
    assert second["method"] == "notifications/tools/list_changed"
    assert second["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == "L"
    call.hang_up()
    await call.ended()


async def test_listeners_with_the_same_id_get_their_own_notifications() -> None:
    workshop = Workshop(capabilities=["prompts"])
    app = workshop.asgi()
    filters = [{"toolsListChanged": True}, {"resourcesListChanged": True}]
    calls = [modern(app, request("subscriptions/listen", {"notifications": each})) for each in filters]
    for call in calls:
        await call.message()
    workshop.server.changed("resources")
    workshop.server.changed("tools")
    told = [(await call.message())["method"] for call in calls]
    assert told == ["notifications/tools/list_changed", "notifications/resources/list_changed"]
    for call in calls:
        call.hang_up()
        await call.ended()


async def test_draining_ends_a_listener_with_a_cancellation_and_a_result() -> None:
    app = Workshop().asgi()
    call = modern(app, LISTEN)
    await call.message()
    await app.drain(5)
    await call.whole()
    cancelled, result = call.messages
    assert (cancelled["method"], cancelled["params"]["requestId"]) == ("notifications/cancelled", "L")
    assert (result["id"], result["result"]["resultType"]) == ("L", "complete")


# --- draining --------------------------------------------------------------------------------------------------------


async def in_flight(workshop: Workshop, app: Any, kind: str, say: str) -> Any:
    """Send a request that waits for ``proceed``; return the call."""
    message = tool("wait", say=say)
    if kind == "stateless":
        call: Any = modern(app, message)
    elif kind == "session":
        call = (await SessionClient.open(app)).post(message)
    else:
        call = await OldClient(app).open()
        await call.post(message).whole()
    await workshop.started.wait()
    return call


async def answer(call: Any) -> Any:
    if isinstance(call, OldClient):
        messages = [await call.stream.message()]
        while "result" not in messages[-1]:
            messages.append(await call.stream.message())
        return messages[-1]
    await call.whole()
    return call.json if call.headers["content-type"] == "application/json" else call.messages[-1]


@pytest.mark.parametrize("say", ["", "hello"], ids=["silent", "streaming"])
@pytest.mark.parametrize("kind", ["stateless", "session", "2024"])
async def test_requests_in_flight_finish(kind: str, say: str) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    call = await in_flight(workshop, app, kind, say)
    draining = asyncio.ensure_future(app.drain(5))
    await asyncio.sleep(0.05)
    early = draining.done()
    workshop.proceed.set()
    found = await answer(call)
    await draining
    assert (early, found["id"], found["result"]["content"][0]["text"]) == (False, 1, f"done {say}")


async def test_a_request_with_a_released_stream_finishes_too() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    client = await SessionClient.open(app)
    call = await client.post(tool("poll")).whole()
    again = await client.listening(call.taken()[-1].id)
    draining = asyncio.ensure_future(app.drain(5))
    await asyncio.sleep(0.05)
    workshop.proceed.set()
    await again.whole()
    await draining
    assert [message.get("id") for message in again.messages] == [None, 1]


@pytest.mark.parametrize("kind", ["stateless", "session", "2024"])
async def test_a_stuck_request_is_cancelled_after_the_drain_time(kind: str) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    call = await in_flight(workshop, app, kind, "")
    await app.drain(0.05)
    await workshop.cancelled.wait()
    if isinstance(call, Call):
        assert (await call.whole()).error == (503, -32600)
    else:
        await call.stream.whole()


@pytest.mark.parametrize(
    ("verb", "path"), [("POST", "/mcp"), ("GET", "/mcp"), ("GET", "/mcp/sse")], ids=["POST", "GET", "the 2024 stream"]
)
async def test_new_requests_are_refused_while_draining(verb: str, path: str) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    call = await in_flight(workshop, app, "stateless", "")
    draining = asyncio.ensure_future(app.drain(5))
    await asyncio.sleep(0)
    refused = await ask(app, verb, path, body=json.dumps(initialize()).encode() if verb == "POST" else b"").whole()
    workshop.proceed.set()
    await call.whole()
    await draining
    assert (refused.status, refused.headers["retry-after"], refused.headers["connection"]) == (503, "1", "close")


async def test_draining_ends_the_streams_of_sessions() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    client = await SessionClient.open(app)
    streams = [await client.listening() for _ in range(2)]
    old = await OldClient(app).open()
    await app.drain(5)
    for stream in (*streams, old.stream):
        await stream.whole()
    await asyncio.sleep(0.01)
    assert (len(app.sessions.by_id), workshop.server.hub.listeners()) == (0, ())


async def test_an_idle_endpoint_drains_at_once() -> None:
    app = Workshop().asgi()
    await asyncio.wait_for(app.drain(1000), 20)


async def test_closing_ends_sessions_and_streams_at_once() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    call = await in_flight(workshop, app, "session", "hello")
    await app.aclose()
    await workshop.cancelled.wait()
    await call.whole()


# --- over a socket ---------------------------------------------------------------------------------------------------


async def test_a_stopping_server_answers_requests_in_flight_and_returns() -> None:
    workshop = Workshop()
    async with running(workshop.asgi(), Limits(drain_seconds=5)) as served:
        message = tool("wait", meta=META)
        reader, writer = await served.post(message, modern_headers("tools/call", "wait"))
        await workshop.started.wait()
        served.stopping.set()
        await asyncio.sleep(0.05)
        workshop.proceed.set()
        await served.task
        received = await reader.read()
        writer.close()
    assert received.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"done" in received


async def test_a_stopping_server_ends_listeners_with_a_result() -> None:
    workshop = Workshop()
    async with running(workshop.asgi(), Limits(drain_seconds=5)) as served:
        params = {**LISTEN["params"], "_meta": META}
        reader, writer = await served.post({**LISTEN, "params": params}, modern_headers("subscriptions/listen"))
        await reader.readuntil(b"acknowledged")
        served.stopping.set()
        rest = await reader.read()
        await served.task
        writer.close()
    assert b"notifications/cancelled" in rest
    # The last chunk of the body is there: the stream did not just break off.
    assert rest.endswith(b"0\r\n\r\n")


async def test_a_stopping_server_returns_although_a_client_does_not_read() -> None:
    workshop = Workshop(Limits(write_bytes=50_000))
    async with running(workshop.asgi(), Limits(drain_seconds=0.3)) as served:
        message = tool("flood", meta={**META, "io.modelcontextprotocol/logLevel": "info"}, n=5000, size=5000)
        _, writer = await served.post(message, modern_headers("tools/call", "flood"), limit=1000)
        await workshop.started.wait()
        await asyncio.sleep(0.1)
        served.stopping.set()
        await served.task
        writer.transport.abort()
    assert workshop.cancelled.is_set()


async def test_an_endpoint_can_be_started_again() -> None:
    app = Workshop().asgi()
    async with app.lifespan():
        await post(app, initialize()).whole()
    stopped = await post(app, initialize()).whole()
    async with app.lifespan():
        again = await post(app, initialize()).whole()
    assert (stopped.status, again.status) == (503, 200)
