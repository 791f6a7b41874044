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
    until,
)
from trunkline.protocol.limits import Limits
from trunkline.server.runtime import runtime_for

LISTEN = request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="L")


async def test_draining_ends_a_listener_with_a_cancellation_and_a_result() -> None:
    app = Workshop().asgi()
    call = modern(app, LISTEN)
    await call.message()
    await app.drain(5)
    await call.whole()
    cancelled, result = call.messages
    assert (cancelled["method"], cancelled["params"]["requestId"]) == ("notifications/cancelled", "L")
    assert (result["id"], result["result"]["resultType"]) == ("L", "complete")


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


@pytest.mark.parametrize(
    ("kind", "say"), [("stateless", ""), ("stateless", "hello"), ("session", ""), ("session", "hello"), ("2024", "")]
)
async def test_requests_in_flight_finish(kind: str, say: str) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    call = await in_flight(workshop, app, kind, say)
    draining = asyncio.ensure_future(app.drain(5))
    await asyncio.sleep(0)
    early = draining.done()
    workshop.proceed.set()
    found = await answer(call)
    await draining
    assert (early, found["id"], found["result"]["content"][0]["text"]) == (False, 1, f"done {say}")


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
    await until(lambda: not app.sessions.by_id and runtime_for(workshop.server).hub.listeners() == ())


async def test_closing_ends_sessions_and_streams_at_once() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    call = await in_flight(workshop, app, "session", "hello")
    await app.aclose()
    await workshop.cancelled.wait()
    await call.whole()


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


async def test_an_endpoint_can_be_started_again() -> None:
    app = Workshop().asgi()
    async with app.lifespan():
        await post(app, initialize()).whole()
    stopped = await post(app, initialize()).whole()
    async with app.lifespan():
        again = await post(app, initialize()).whole()
    assert (stopped.status, again.status) == (503, 200)
