"""What the requests of a caller may hold: a share for each, a total for all, and everything is released."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.transports.http.server.test_legacy_sse_server import OldClient
from tests.transports.http.serving_support import (
    Call,
    SessionClient,
    Workshop,
    ask,
    authenticate,
    modern,
    running,
    tool,
    until,
)
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.endpoint import Endpoint

#: Two requests of this size are more than the share of one caller, and four are more than the total.
LARGE = 60_000
LIMITS = Limits(owner_memory_bytes=100_000, memory_bytes=220_000, body_bytes=90_000, drain_seconds=1)

Post = Callable[[dict[str, Any]], Call]


def large(id: int) -> dict[str, Any]:
    """Return a call of a tool that waits, with a large body."""
    return tool("wait", id=id, meta={"padding": "x" * LARGE})


async def single(app: Endpoint, token: str) -> Post:
    return lambda message: modern(app, message, authorization=f"Bearer {token}")


async def in_session(app: Endpoint, token: str) -> Post:
    return (await SessionClient.open(app, token=token)).post


async def on_stream(app: Endpoint, token: str) -> Post:
    return (await OldClient(app, token=token).open()).post


WAYS = pytest.mark.parametrize("connect", [single, in_session, on_stream])
Connect = Callable[[Endpoint, str], Awaitable[Post]]


def refusal(call: Call) -> tuple[int | None, str | None, int]:
    return call.status, call.headers.get("retry-after"), call.json["error"]["code"]


@WAYS
async def test_a_caller_that_holds_its_share_is_refused_until_a_request_is_answered(connect: Connect) -> None:
    workshop = Workshop(LIMITS, auth=authenticate)
    app = workshop.asgi()
    post, other = await connect(app, "ann"), await connect(app, "bob")
    first = post(large(1))
    await workshop.started.wait()
    refused = await post(large(2)).whole()
    assert refusal(refused) == (429, "5", 429)
    assert "owner_memory_bytes=100000" in refused.json["error"]["message"]
    # The share of another caller is not affected, and a small request of this one fits.
    calls = [post(tool("add", id=3)), other(large(4))]
    assert await calls[0].head() in (200, 202)
    workshop.proceed.set()
    for call in (first, *calls):
        await call.whole()
    await until(lambda: app.memory.held_bytes == 0)
    assert (await post(large(5)).whole()).status in (200, 202)
    await app.aclose()


@WAYS
async def test_all_callers_together_hold_no_more_than_the_total(connect: Connect) -> None:
    workshop = Workshop(LIMITS, auth=authenticate)
    app = workshop.asgi()
    posts = [await connect(app, name) for name in ("ann", "bob", "cid", "dan")]
    calls = []
    for number, post in enumerate(posts[:3]):
        workshop.started.clear()
        calls.append(post(large(number)))
        await workshop.started.wait()
    refused = await posts[3](large(4)).whole()
    assert refusal(refused) == (503, "5", 503)
    assert "memory_bytes=220000" in refused.json["error"]["message"]
    workshop.proceed.set()
    await asyncio.gather(*(call.whole() for call in calls))
    await until(lambda: app.memory.held_bytes == 0)
    await app.aclose()


async def test_a_request_whose_client_has_gone_holds_its_share_until_its_handler_has_ended() -> None:
    workshop = Workshop(LIMITS)
    app = workshop.asgi()
    client = await SessionClient.open(app)
    first = client.post(large(1))
    await workshop.started.wait()
    first.hang_up()
    assert (await client.post(large(2)).whole()).status == 429
    workshop.proceed.set()
    await until(lambda: app.memory.held_bytes == 0)
    assert (await client.post(large(3)).whole()).status == 200
    await app.aclose()


async def test_a_request_without_a_session_is_released_when_its_client_disconnects() -> None:
    workshop = Workshop(LIMITS)
    app = workshop.asgi()
    first = modern(app, large(1))
    await workshop.started.wait()
    assert app.memory.held_bytes > LARGE
    first.hang_up()
    await workshop.cancelled.wait()
    await until(lambda: app.memory.held_bytes == 0)


async def test_the_end_of_an_old_stream_releases_its_requests() -> None:
    workshop = Workshop(LIMITS)
    app = workshop.asgi()
    client = await OldClient(app).open()
    await client.post(large(1)).whole()
    await workshop.started.wait()
    assert app.memory.held_bytes > LARGE
    await client.close()
    await until(lambda: app.memory.held_bytes == 0)


async def test_a_body_that_arrives_in_parts_is_refused_at_the_part_that_is_too_much() -> None:
    workshop = Workshop(LIMITS)
    app = workshop.asgi()
    read = 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        read += 1
        return {"type": "http.request", "body": b"x" * 10_000, "more_body": True}

    first = modern(app, large(1))
    await workshop.started.wait()
    call = ask(app, headers={"mcp-protocol-version": "2026-07-28"})
    call.receive = receive  # type: ignore[method-assign]
    await call.whole()
    assert (call.status, call.headers["connection"], read) == (429, "close", 4)
    workshop.proceed.set()
    await first.whole()
    assert app.memory.held_bytes == 0


async def test_one_request_of_the_largest_size_fits_whatever_the_share_is() -> None:
    app = Workshop(Limits(owner_memory_bytes=1, memory_bytes=1)).asgi()
    assert (await modern(app, tool("add", meta={"padding": "x" * LARGE})).whole()).status == 200


async def test_requests_that_are_refused_or_need_no_answer_hold_nothing() -> None:
    app = Workshop(LIMITS).asgi()
    client = await SessionClient.open(app)
    for body in (
        b"{",
        b"[]",
        b'{"jsonrpc":"2.0","method":"notifications/none"}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
    ):
        await client.post(body).whole()
        await modern(app, tool("missing")).whole()
    assert app.memory.held_bytes == 0
    await app.aclose()


async def test_the_share_holds_for_a_real_connection() -> None:
    workshop = Workshop(LIMITS)
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "wait"}
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in _META.items()}
    body = tool("wait", meta={"padding": "x" * LARGE, **meta})
    app = workshop.asgi()
    async with running(app) as served:
        first, writer = await served.post(body, headers)
        await workshop.started.wait()
        second, other = await served.post(body, headers)
        assert (await second.readline()).split()[1] == b"429"
        workshop.proceed.set()
        assert (await first.readline()).split()[1] == b"200"
        writer.close()
        other.close()
        await until(lambda: app.memory.held_bytes == 0)


_META = {
    "protocolVersion": "2026-07-28",
    "clientInfo": {"name": "tester", "version": "1"},
    "clientCapabilities": {},
}
