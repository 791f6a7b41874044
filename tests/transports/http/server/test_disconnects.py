"""Clients that disconnect or stop reading: what that cancels in which era, and that memory stays bounded."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import trunkline.types as t
from tests.transports.http.serving_support import (
    META,
    Call,
    SessionClient,
    Workshop,
    ask,
    initialize,
    modern,
    modern_headers,
    notification,
    request,
    running,
    tool,
    until,
)
from trunkline import Context
from trunkline.protocol.limits import Limits
from trunkline.server.runtime import runtime_for

LOUD = {t.META_LOG_LEVEL: "info"}


async def test_nothing_is_sent_for_a_stateless_request_after_its_client_disconnected() -> None:
    workshop = Workshop()
    held = asyncio.Event()

    async def stubborn(ctx: Context) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await ctx.info("still here")
            held.set()
        return "an unwanted answer"

    workshop.server.tool(stubborn)
    call = modern(workshop.asgi(), tool("stubborn"), meta=LOUD)
    beside = modern(workshop.asgi(), tool("wait"))
    await workshop.started.wait()
    call.hang_up()
    await held.wait()
    await call.ended()
    beside.hang_up()
    assert (call.body, call.late) == (b"", [])


async def test_an_asgi_server_that_raises_on_send_after_a_disconnect_works() -> None:
    workshop = Workshop(Limits(write_bytes=10_000))
    app = workshop.asgi()
    listening = await (await SessionClient.open(app)).listening()
    call = modern(app, tool("flood", n=500), meta=LOUD)
    call.stall()
    await workshop.started.wait()
    for each in (call, listening):
        each.raises = True
        each.hang_up()
        await each.ended()
    await workshop.cancelled.wait()
    assert (len(app.open_responses.streams), len(app.open_responses.in_flight)) == (0, 0)


@pytest.mark.parametrize("say", ["", "hello"], ids=["before the first byte", "in the middle"])
async def test_a_request_is_cancelled_with_its_asgi_task(say: str) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    call = modern(app, tool("wait", say=say), meta=LOUD)
    await workshop.started.wait()
    call.task.cancel()
    await asyncio.wait([call.task])
    await workshop.cancelled.wait()
    assert call.task.cancelled()
    await until(lambda: not app.open_responses.in_flight and not app.open_responses.streams)


async def test_a_listener_that_disconnects_is_removed() -> None:
    workshop = Workshop()
    call = modern(workshop.asgi(), request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    await call.message()
    before = len(runtime_for(workshop.server).hub.listeners())
    call.hang_up()
    await call.ended()
    await asyncio.sleep(0)
    assert (before, len(runtime_for(workshop.server).hub.listeners())) == (1, 0)


@pytest.mark.parametrize("say", ["", "hello"], ids=["before the first byte", "in the middle"])
async def test_disconnecting_cancels_nothing_in_a_session_and_the_request_is_forgotten_once_done(say: str) -> None:
    workshop = Workshop()
    app = workshop.asgi()
    client = await SessionClient.open(app)
    call = client.post(tool("wait", say=say))
    await workshop.started.wait()
    call.hang_up()
    # Another request has been served since: the server has noticed.
    assert (await client.post(tool("add", id=2)).whole()).json["id"] == 2
    during = app.sessions.by_id[client.id].in_flight
    workshop.proceed.set()
    await call.ended()
    await client.post(tool("add", id=3)).whole()
    assert (workshop.cancelled.is_set(), during, app.sessions.by_id[client.id].in_flight) == (False, 1, 0)


def waiting_bytes(call: Call, app: Any) -> int:
    """Return the pending bytes of all open streams."""
    return sum(reply.stream.pending_bytes for reply in app.open_responses.streams)


@pytest.mark.parametrize("handshake", [True, False], ids=["session", "stateless"])
async def test_a_reader_that_stalls_makes_the_sender_wait(handshake: bool) -> None:
    workshop = Workshop(Limits(write_bytes=10_000, log_bytes=10_000))
    app = workshop.asgi()
    message = tool("flood", n=500, size=1000)
    call = (await SessionClient.open(app)).post(message) if handshake else modern(app, message, meta=LOUD)
    call.stall()
    await workshop.started.wait()
    await asyncio.sleep(0.1)
    stalled = (workshop.sent, waiting_bytes(call, app))
    call.flow()
    await call.whole()
    assert stalled[0] < 150
    assert stalled[1] < 200_000
    assert (workshop.sent, len([each for each in call.messages if "method" in each])) == (500, 500)


async def test_disconnecting_from_a_stalled_session_stream_continues_the_work_within_bounds() -> None:
    workshop = Workshop(Limits(write_bytes=10_000, log_bytes=20_000, log_events=50))
    app = workshop.asgi()
    client = await SessionClient.open(app)
    call = client.post(tool("flood", n=300, size=1000))
    call.stall()
    await workshop.started.wait()
    await asyncio.sleep(0.05)
    call.hang_up()
    await call.ended()
    await client.post(tool("add", id=2)).whole()
    log = app.sessions.by_id[client.id].log
    assert workshop.sent == 300
    assert sum(stream.pending_bytes for stream in log.streams.values()) < 20_000
    assert sum(len(entry.data) for entry in await app.worker.store.read(log.name) or ()) <= 20_000


@pytest.mark.parametrize("old", [True, False], ids=["the 2024 stream", "the GET stream"])
async def test_notifications_for_a_reader_that_stalls_are_bounded(old: bool) -> None:
    workshop = Workshop(Limits(write_bytes=10_000, log_bytes=10_000, log_events=50))
    app = workshop.asgi()
    call = await _old_stream(app) if old else await (await SessionClient.open(app)).listening()
    call.stall()
    for number in range(2000):
        workshop.server.notify("acme/tick", {"number": number, "text": "x" * 100})
        await asyncio.sleep(0)
    held = waiting_bytes(call, app)
    call.hang_up()
    await call.ended()
    assert held < 40_000


async def _old_stream(app: Any) -> Call:
    call = ask(app, "GET", "/mcp/sse")
    address = (await call.event()).data.decode()
    path, _, query = address.partition("?")
    for message in (initialize(), notification("notifications/initialized")):
        body = json.dumps(message).encode()
        assert (await ask(app, "POST", path, body=body, query=query.encode()).whole()).status == 202
    await call.message()
    return call


def raw(message: dict[str, Any], meta: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str | None]]:
    params = {**message["params"], "_meta": {**META, **meta}}
    return {**message, "params": params}, modern_headers(message["method"], params["name"])


@pytest.mark.parametrize("say", ["", "hello"], ids=["before the first byte", "in the middle"])
async def test_a_connection_that_closes_cancels_a_stateless_request(say: str) -> None:
    workshop = Workshop()
    async with running(workshop.asgi()) as served:
        _, writer = await served.post(*raw(tool("wait", say=say), LOUD))
        await workshop.started.wait()
        writer.close()
        await workshop.cancelled.wait()


async def test_an_unread_socket_uses_bounded_memory_and_is_answered_later() -> None:
    workshop = Workshop(Limits(write_bytes=50_000))
    app = workshop.asgi()
    async with running(app) as served:
        reader, writer = await served.post(*raw(tool("flood", n=3000, size=5000), LOUD), limit=1000)
        await workshop.started.wait()
        await asyncio.sleep(0.3)
        held, sent = sum(reply.stream.pending_bytes for reply in app.open_responses.streams), workshop.sent
        text = await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await workshop.cancelled.wait()
    assert sent < 3000
    assert held < 1_000_000
    assert text.startswith(b"HTTP/1.1 200 OK\r\n")
