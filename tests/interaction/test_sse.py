"""The transport of the first revision, the server's side: a stream that brings everything, an address to post to."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.interaction.rows import HANDSHAKE, sse_behaviour
from tests.interaction.web import OldPair, Reply
from tests.interaction.wire import Peer, Wire

JSON = {"Content-Type": "application/json"}
STREAM = {"Accept": "text/event-stream"}


def pair(peer: Peer) -> OldPair:
    """Return the HTTP carrier of a peer."""
    assert isinstance(peer.carrier, OldPair)
    return peer.carrier


async def post(peer: Peer, message: Any, *, address: str | None = None, **headers: str) -> Reply:
    """Post beside the conversation, and give the whole response."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    url = await pair(peer).address if address is None else address
    reply, task = pair(peer).begin("POST", url, {**JSON, **headers}, data=body)
    await task
    return reply


async def second_stream(peer: Peer) -> tuple[Reply, asyncio.Task[Any]]:
    """Open another stream, of which the peer takes nothing, and wait for its first event."""
    opened, task = pair(peer).begin("GET", f"{pair(peer).url}/sse", STREAM)
    await opened.told.wait()
    return opened, task


@sse_behaviour("sse.endpoint-first", "2024-11-05 basic/transports#http-with-sse", HANDSHAKE)
async def test_a_stream_begins_with_the_address_to_post_to(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        stream = pair(peer).replies[0]
        assert (stream.status, stream.kind, stream.events[0].event) == (200, "text/event-stream", "endpoint")
        assert urlsplit(await pair(peer).address)[:2] == urlsplit(pair(peer).url)[:2]


@sse_behaviour("sse.endpoint-secret", "2024-11-05 basic/transports#http-with-sse", HANDSHAKE[:1])
async def test_each_stream_has_its_own_random_address(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        other, _ = await second_stream(peer)
        addresses = [await pair(peer).address, other.events[0].data.decode()]
        assert (addresses[0].endswith(addresses[1]), len(urlsplit(addresses[1]).query) >= 32) == (False, True)


@sse_behaviour("sse.messages", "2024-11-05 basic/transports#http-with-sse", HANDSHAKE)
async def test_all_messages_come_as_events_and_nothing_on_the_posts(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        await peer.call("count", {"to": 3}, meta={"progressToken": 1})
        stream, *posts = pair(peer).replies
        assert [(reply.status, reply.verb) for reply in posts] == [(202, "POST")] * 3
        assert {event.event for event in stream.events[1:]} == {"message"}
        assert stream.messages[-1]["result"]["content"][0]["text"] == "3"


@sse_behaviour("sse.own-stream", "2024-11-05 basic/transports#http-with-sse", HANDSHAKE[:1])
async def test_a_message_comes_on_the_stream_of_its_own_client_alone(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        other, _ = await second_stream(peer)
        await peer.result("tools/list")
        await peer.settle()
        assert [event.event for event in other.events] == ["endpoint"]


@sse_behaviour("sse.notices", "2024-11-05 basic/transports#http-with-sse", HANDSHAKE)
async def test_messages_without_a_request_come_on_the_stream(wire: Wire) -> None:
    async with wire.open("changing") as peer:
        await peer.call("add_tools", {"names": ["fresh"]})
        await peer.notice("notifications/tools/list_changed")
        assert "notifications/tools/list_changed" in [each.get("method") for each in pair(peer).replies[0].messages]


@sse_behaviour("sse.question", "2024-11-05 basic/transports#http-with-sse", HANDSHAKE[:1])
async def test_a_question_comes_on_the_stream_and_its_answer_is_posted(wire: Wire) -> None:
    async with wire.open("asking", capabilities={"roots": {}}) as peer:
        roots = {"roots": [{"uri": "file:///srv"}]}
        talk = await peer.converse_tool("folders", {"roots/list": roots})
        assert ([question["method"] for question in talk.questions], "/srv" in talk.text) == (["roots/list"], True)


@sse_behaviour("sse.unknown-address", "2024-11-05 basic/transports#http-with-sse", HANDSHAKE[:1])
@pytest.mark.parametrize("address", ["?session_id=no-such", "", "?session_id=", "?other=1"])
async def test_an_address_that_no_stream_named_is_rejected(wire: Wire, address: str) -> None:
    async with wire.open("catalog") as peer:
        reply = await post(
            peer, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, address=f"{pair(peer).url}/messages{address}"
        )
        assert reply.status in (400, 404)


@sse_behaviour("sse.gone", "2024-11-05 basic/transports#http-with-sse", HANDSHAKE[:1])
async def test_an_address_is_gone_with_its_stream(wire: Wire) -> None:
    async with wire.open("slow") as peer:
        other, task = await second_stream(peer)
        address = pair(peer).url.removesuffix("/mcp") + other.events[0].data.decode()
        hello = peer.request_of("initialize", peer.hello(), id=1)
        held = peer.request_of("tools/call", {"name": "hold", "arguments": {"name": "a"}}, id=2)
        statuses = [(await post(peer, message, address=address)).status for message in (hello, held)]
        await peer.call("happened", {"event": "a started"})
        task.cancel()
        await peer.call("happened", {"event": "a cancelled"})
        assert (statuses, (await post(peer, hello, address=address)).status) == ([202, 202], 404)


@sse_behaviour("sse.unreadable", "2024-11-05 basic/transports#http-with-sse", HANDSHAKE)
@pytest.mark.parametrize("body", [b"hello", b'{"jsonrpc":"2.0","id":1}'])
async def test_a_body_that_is_not_a_message_is_rejected_and_the_stream_lives(wire: Wire, body: bytes) -> None:
    async with wire.open("catalog") as peer:
        assert (await post(peer, body)).status == 400
        assert "tools" in await peer.result("tools/list")


@sse_behaviour("sse.origin", "2024-11-05 basic/transports#security-warning", HANDSHAKE[:1])
@pytest.mark.parametrize("place", ["/sse", "/messages"])
async def test_a_web_page_of_another_origin_is_rejected_at_both_addresses(wire: Wire, place: str) -> None:
    async with wire.open("catalog") as peer:
        verb = "GET" if place == "/sse" else "POST"
        headers = {**JSON, **STREAM, "Origin": "https://evil.example"}
        reply, task = pair(peer).begin(verb, f"{pair(peer).url}{place}", headers)
        await task
        assert reply.status == 403


@sse_behaviour("sse.verbs", "2024-11-05 basic/transports#http-with-sse", HANDSHAKE[:1])
@pytest.mark.parametrize(("verb", "place"), [("POST", "/sse"), ("DELETE", "/sse"), ("GET", "/messages")])
async def test_each_address_has_one_verb(wire: Wire, verb: str, place: str) -> None:
    async with wire.open("catalog") as peer:
        reply, task = pair(peer).begin(verb, f"{pair(peer).url}{place}", {**JSON, **STREAM})
        await task
        assert reply.status == 405


@sse_behaviour("sse.at-the-endpoint", "2025-11-25 basic/transports#backwards-compatibility", HANDSHAKE[:1])
async def test_a_client_that_falls_back_finds_the_stream_at_the_endpoint_itself(wire: Wire) -> None:
    async with wire.open("catalog") as peer:
        opened, task = pair(peer).begin("GET", pair(peer).url, STREAM)
        await pair(peer).head(opened, task)
        assert (opened.status, opened.kind) == (200, "text/event-stream")


@sse_behaviour("sse.off", "2025-11-25 basic/transports#backwards-compatibility", HANDSHAKE[:1])
@pytest.mark.parametrize(("place", "status"), [("/sse", 404), ("/messages", 404), ("", 405)])
async def test_a_server_may_be_without_the_old_transport(wire: Wire, place: str, status: int) -> None:
    async with wire.open("catalog", greet=False, sse=False) as peer:
        opened, task = pair(peer).begin("GET", f"{pair(peer).url}{place}", STREAM)
        await task
        assert opened.status == status
