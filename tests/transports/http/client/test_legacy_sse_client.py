"""The client over the HTTP+SSE transport of the first revision."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.transports.http.scripted_http import (
    CAPABILITIES,
    LISTENING,
    Got,
    HttpScript,
    Status,
    Writer,
    break_off,
    old_script,
    streaming,
)
from trunkline.client.client import Client
from trunkline.client.options import ClientState
from trunkline.errors import ConfigError, ConnectionLost, HttpError, LocalProtocolError, RemoteProtocolError
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST, REVISIONS
from trunkline.transports.http.client.http_client import HttpClientOptions
from trunkline.transports.http.client.legacy_sse import LegacySseLink

OLDEST = REVISIONS[0].name
RESULTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": OLDEST,
        "capabilities": CAPABILITIES,
        "serverInfo": {"name": "old", "version": "1"},
    },
    "tools/list": {"tools": []},
    "tools/call": {"content": [{"type": "text", "text": "3"}]},
}


class OldServer(HttpScript):
    """Plays the old transport: all messages leave on the stream of the GET."""

    def __init__(self, endpoint: bytes = b"/messages?s=1", **table: Any) -> None:
        """Set the data of the first event."""
        super().__init__({"GET": self.stream, "POST": self.post, **table})
        self.endpoint = endpoint
        self.out: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def stream(self, got: Got, writer: Writer) -> None:
        """Name the endpoint, then say what is to be said; None ends it."""
        writer.stream()
        writer.raw(b"event: endpoint\ndata: %b\n\n" % self.endpoint)
        while (data := await self.out.get()) is not None:
            writer.raw(data)
            await writer.flush()

    async def post(self, got: Got, writer: Writer) -> None:
        """Answer on the stream what was posted to the endpoint."""
        if not got.path.startswith("/messages"):
            writer.status(Status(405, b"Method Not Allowed"))
            return
        writer.status(Status(202, b"Accepted"))
        if "id" in got.message and got.method in RESULTS:
            import json

            answer = {"jsonrpc": "2.0", "id": got.id, "result": RESULTS[got.method]}
            self.out.put_nowait(b"event: message\ndata: %b\n\n" % json.dumps(answer).encode())


async def test_an_entry_of_type_sse_uses_http_sse_at_once() -> None:
    script = OldServer()
    async with script, Client({"url": script.url, "type": "sse", "headers": {"X-A": "b"}}) as client:
        await client.list_tools()
    assert {got.headers["x-a"] for got in script.requests} == {"b"}
    assert script.names == ["GET", "initialize", "notifications/initialized", "tools/list"]


def test_the_sse_transport_has_no_stateless_revision() -> None:
    with pytest.raises(ConfigError, match="sse"):
        Client({"url": "http://localhost/sse", "type": "sse"}, revision=NEWEST.name)


@pytest.mark.parametrize("endpoint", [b"https://127.0.0.1/m", b"//other/m", b"", b"http://[/", b"http://u@127.0.0.1/"])
async def test_an_endpoint_on_another_server_is_refused(endpoint: bytes) -> None:
    script = OldServer(endpoint)
    async with script:
        with pytest.raises(RemoteProtocolError, match="not on this server"):
            await Client({"url": script.url, "type": "sse"}).__aenter__()
    assert script.names == ["GET"]


async def breaks_in_an_error(got: Got, writer: Writer) -> None:
    writer.raw(b"HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\nx")
    await writer.flush()
    writer.break_off()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (streaming(), ConnectionLost),
        (break_off, ConnectionLost),
        (breaks_in_an_error, ConnectionLost),
        (Status(404), HttpError),
        (Status(200, b"<html>", type="text/html"), RemoteProtocolError),
    ],
    ids=["ends", "breaks", "error-breaks", "404", "html"],
)
async def test_a_stream_that_cannot_be_opened_raises(reply: Any, error: type[Exception]) -> None:
    async with old_script({"GET": reply}) as script:
        with pytest.raises(error):
            await Client({"url": script.url, "type": "sse"}).__aenter__()


async def test_a_stream_without_an_endpoint_event_raises() -> None:
    async with old_script({"GET": LISTENING}) as script:
        with pytest.raises(RemoteProtocolError, match="did not name the URL to post to"):
            await Client({"url": script.url, "type": "sse"}, limits=Limits(header_seconds=0.05)).__aenter__()


async def test_the_end_of_the_stream_ends_the_link_and_the_next_call_reconnects() -> None:
    script = OldServer()
    async with script, Client({"url": script.url, "type": "sse"}) as client:
        pending = asyncio.ensure_future(client.request("acme/never"))
        await script.until(lambda: script.of("acme/never"))
        script.out.put_nowait(None)
        with pytest.raises(ConnectionLost, match="ended its event stream"):
            await pending
        state = client.state
        assert (state, (await client.call_tool("add")).text) == (ClientState.FAILED, "3")


@pytest.mark.parametrize(
    ("reply", "error"),
    [(Status(500, b"no"), HttpError), (break_off, ConnectionLost), (breaks_in_an_error, ConnectionLost)],
)
async def test_a_failed_post_affects_only_its_request(reply: Any, error: type[Exception]) -> None:
    script = OldServer(**{"acme/x": reply, "acme/told": reply})
    async with script, Client({"url": script.url, "type": "sse"}) as client:
        await client.notify("acme/told")
        with pytest.raises(error):
            await client.request("acme/x")
        assert (client.state, (await client.call_tool("add")).text) == (ClientState.ACTIVE, "3")


async def test_a_request_that_cannot_be_encoded_fails_alone() -> None:
    script = OldServer()
    async with script, Client({"url": script.url, "type": "sse"}) as client:
        with pytest.raises(LocalProtocolError, match="cannot be sent"):
            await client.request("acme/x", {"x": object()})


async def test_a_cancelled_call_posts_a_cancellation() -> None:
    script = OldServer()
    async with script, Client({"url": script.url, "type": "sse"}) as client:
        task = asyncio.ensure_future(client.request("acme/never"))
        await script.until(lambda: script.of("acme/never"))
        task.cancel()
        await script.until(lambda: script.of("notifications/cancelled"))
    assert (script.of("notifications/cancelled")[0].message["params"]["requestId"] - script.of("acme/never")[0].id) == 0


async def test_messages_before_attach_are_delivered_and_then_the_end() -> None:
    class Taken:
        def __init__(self) -> None:
            self.told: list[Any] = []

        def message_received(self, incoming: Any, origin: Any) -> None:
            self.told.append(incoming.method)

        def eof_received(self, error: Exception | None = None, *, about: Any = None) -> None:
            self.told.append(type(error))

    async def reply(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.raw(b'event: endpoint\ndata: /x\n\ndata: {"jsonrpc":"2.0","method":"a"}\n\n')

    async with old_script({"GET": reply}) as script:
        link = await LegacySseLink.open(HttpClientOptions(url=script.url), Limits())
        assert link._stream is not None
        await asyncio.wait([link._stream])
        taken = Taken()
        link.attach(taken)
        await link.drain()
        await link.aclose()
        link.send([])
        assert taken.told == ["a", ConnectionLost]
