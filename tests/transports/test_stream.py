"""The link over asyncio streams that its caller opened."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest

from tests.transports.loops import LOOPS, run_on
from trunkline.errors import ConnectionLost
from trunkline.protocol.caller import STREAM
from trunkline.protocol.jsonrpc import InvalidMessage, Notification, Outbound
from trunkline.protocol.limits import Limits
from trunkline.testing.link_check import RecordingReceiver
from trunkline.transports.stream import StreamLink


async def joined(limits: Limits | None = None) -> tuple[StreamLink, RecordingReceiver, socket.socket]:
    """A link whose other end is a bare socket."""
    near, far = socket.socketpair()
    link = StreamLink(*await asyncio.open_connection(sock=near), limits=limits or Limits())
    seen = RecordingReceiver()
    link.attach(seen)
    return link, seen, far


@pytest.mark.parametrize("loop", LOOPS)
def test_a_link_over_tcp_carries_messages_both_ways(loop: str) -> None:
    async def main() -> tuple[bytes, object, object]:
        link, seen, far = await joined()
        with far:
            far.sendall(b'{"jsonrpc":"2.0","method":"there"}\n')
            (message,) = await seen.messages(1)
            link.send([Outbound(Notification("back"))])
            await link.drain()
            wire = far.recv(1000)
            await link.aclose()
            return wire, message, seen.origins[0]

    wire, message, origin = run_on(loop, main())
    assert wire == b'{"jsonrpc":"2.0","method":"back"}\n'
    assert message == Notification("there")
    assert origin is STREAM


async def test_a_line_over_the_limit_is_reported_and_the_next_read() -> None:
    link, seen, far = await joined(Limits(message_bytes=50))
    with far:
        far.sendall(b"x" * 100 + b'\n{"jsonrpc":"2.0","method":"next"}\n')
        incoming = await seen.messages(2)
        await link.aclose()
    assert list(incoming) == [
        InvalidMessage(-32700, "Parse error: a line longer than 50 bytes"),
        Notification("next"),
    ]


@pytest.mark.parametrize("id", [b"007", b"-01", b"1e3", b'"\\ud800"', b"-"])
async def test_an_oversized_line_with_an_invalid_id_does_not_end_the_link(id: bytes) -> None:
    link, seen, far = await joined(Limits(message_bytes=50))
    with far:
        far.sendall(b'{"result":"' + b"x" * 100 + b'","id":' + id + b'}\n{"jsonrpc":"2.0","method":"next"}\n')
        incoming = await seen.messages(2)
        await link.aclose()
    refused, following = list(incoming)
    assert isinstance(refused, InvalidMessage)
    assert (refused.id, refused.response, refused.too_long) == (None, True, True)
    assert following == Notification("next")


async def test_the_last_id_in_a_truncated_oversized_line_is_not_used() -> None:
    link, seen, far = await joined(Limits(message_bytes=50))
    with far:
        far.sendall(b'{"result":{"rows":["' + b"x" * 100 + b'",{"a":1,"id":7}')
    await seen.end()
    await link.aclose()
    (refused,) = list(seen.incoming)
    assert isinstance(refused, InvalidMessage)
    assert refused.id is None


@pytest.mark.parametrize("loop", LOOPS)
def test_a_reset_connection_ends_the_link_with_the_error(loop: str) -> None:
    async def main() -> Exception | None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            reader, writer = await asyncio.open_connection(*server.getsockname())
            far, _ = server.accept()
        link = StreamLink(reader, writer)
        seen = RecordingReceiver()
        link.attach(seen)
        # Closed with unread time set to none, the connection is reset instead of ended.
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        reason = await seen.end()
        await link.aclose()
        return reason

    assert isinstance(run_on(loop, main()), ConnectionLost)


async def test_closing_is_bounded_when_the_output_is_not_read() -> None:
    link, _, far = await joined(Limits(exit_seconds=0.05))
    with far:
        link.send([Outbound(Notification("large", "x" * 5_000_000))])
        started = asyncio.get_running_loop().time()
        await link.aclose()
        assert (asyncio.get_running_loop().time() - started) < 2
