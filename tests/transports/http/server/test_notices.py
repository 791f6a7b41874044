"""Notices of listen streams over real sockets: written at once if nothing waits, equal to those sent otherwise."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.transports.http.serving_support import META, Running, Workshop, modern_headers, request, running
from trunkline.protocol.sse import EventReader
from trunkline.server import subscriptions
from trunkline.server.subscriptions import change_notification

URI = "note://one"
WANTED = {"toolsListChanged": True, "resourceSubscriptions": [URI]}


async def listen(served: Running, id: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a listen stream, and read until it is acknowledged."""
    message = request("subscriptions/listen", {"notifications": WANTED, "_meta": META}, id=id)
    reader, writer = await served.post(message, modern_headers("subscriptions/listen"))
    await reader.readuntil(b"subscriptions/acknowledged")
    await reader.readuntil(b"\n\n\r\n")
    return reader, writer


async def event(reader: asyncio.StreamReader) -> bytes:
    """Return the data of the next event: one chunk."""
    async with asyncio.timeout(120):
        size = int(await reader.readuntil(b"\r\n"), 16)
        chunk = await reader.readexactly(size)
        await reader.readexactly(2)
    (found,) = EventReader(max_event=1 << 20).feed(chunk)
    return found.data.encode() if isinstance(found.data, str) else found.data


@pytest.mark.parametrize("id", ["a text", 7])
@pytest.mark.parametrize("what", ["tools", URI])
async def test_a_notice_is_the_same_in_both_ways(id: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    received = []
    for direct in (True, False):
        if not direct:
            monkeypatch.setattr(subscriptions, "_direct_sender", lambda _: lambda _: False)
        workshop = Workshop()
        async with running(workshop.asgi()) as served:
            reader, writer = await listen(served, id)
            workshop.server.changed(what)
            received.append(await event(reader))
            writer.close()
    assert received[0] == received[1]
    assert b"io.modelcontextprotocol/subscriptionId" in received[0]


async def test_notices_keep_their_order_when_some_are_queued() -> None:
    workshop = Workshop()
    async with running(workshop.asgi()) as served:
        reader, writer = await listen(served, 1)
        for what in ("tools", URI, "tools"):
            workshop.server.changed(what)
            await asyncio.sleep(0)
        heard = [await event(reader) for _ in range(2)]
        assert [b"list_changed" in heard[0], b"resources/updated" in heard[1]] == [True, True]
        writer.close()


def test_an_address_cannot_pass_for_the_id() -> None:
    method, _ = change_notification(("resource", '"x"'), None)
    head, tail = subscriptions._encoded_around_id(("resource", 'note://"},"subscriptionId":1'))
    assert method.encode() in head
    assert (head + b"5" + tail).count(b"subscriptionId") == 2
