"""Every Link of the package passes the one link check, on each event loop."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from tests.transports.loops import LOOPS, run_on
from trunkline.protocol.jsonrpc import Outbound
from trunkline.testing.links import LinkRecorder, check_link
from trunkline.transports.link import Link, LinkWrapper
from trunkline.transports.memory import memory_pair
from trunkline.transports.pipes import PipeLink
from trunkline.transports.process import ProcessLink
from trunkline.transports.stdio import StdioLink
from trunkline.transports.stream import StreamLink

MakePair = Callable[[], Awaitable[tuple[Link, Link]]]

PROGRAMS = Path(__file__).parent / "programs"


async def memory() -> tuple[Link, Link]:
    return memory_pair()


async def stdio() -> tuple[Link, Link]:
    (to_server, from_client), (to_client, from_server) = os.pipe(), os.pipe()
    return PipeLink(to_client, from_client), StdioLink(to_server, from_server)


async def sockets() -> tuple[Link, Link]:
    left, right = socket.socketpair()
    return PipeLink(os.dup(left.fileno()), left.detach()), PipeLink(os.dup(right.fileno()), right.detach())


async def stream() -> tuple[Link, Link]:
    left, right = socket.socketpair()
    return StreamLink(*await asyncio.open_connection(sock=left)), StreamLink(*await asyncio.open_connection(sock=right))


async def process() -> tuple[Link, Link]:
    accepted: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Future()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/wire"
        server = await asyncio.start_unix_server(lambda *streams: accepted.set_result(streams), path)
        link = ProcessLink.spawn([sys.executable, "-S", str(PROGRAMS / "relay.py"), path])
        streams = await accepted
        server.close()
    return link, StreamLink(*streams)


PAIRS = [memory, stdio, sockets, stream, process]


@pytest.fixture(params=PAIRS, ids=[pair.__name__ for pair in PAIRS])
def make_pair(request: pytest.FixtureRequest) -> MakePair:
    made: MakePair = request.param
    return made


@pytest.mark.parametrize("loop", LOOPS)
def test_a_link_passes_the_link_check(loop: str, make_pair: MakePair) -> None:
    run_on(loop, check_link(make_pair), seconds=30)


class Backwards(LinkWrapper):
    """A link that sends what it is given together in the wrong order."""

    def send(self, batch: Sequence[Outbound]) -> None:
        self._link.send(batch[::-1])


def test_the_link_check_names_the_broken_promise() -> None:
    async def backwards() -> tuple[Link, Link]:
        left, right = memory_pair()
        return Backwards(left), right

    with pytest.raises(AssertionError, match="a link carries a burst: a burst lost messages or their order"):
        run_on("asyncio", check_link(backwards, seconds=1), seconds=5)


def test_the_link_check_waits_for_a_bounded_time() -> None:
    async def unjoined() -> tuple[Link, Link]:
        return memory_pair()[0], memory_pair()[1]

    with pytest.raises(AssertionError, match=r"a link keeps order both ways: not within 0\.1 seconds"):
        run_on("asyncio", check_link(unjoined, seconds=0.1), seconds=5)


def test_a_recorder_gives_the_reason_of_the_end() -> None:
    async def end() -> Exception | None:
        recorder = LinkRecorder()
        recorder.eof_received(OSError("broken"))
        return await recorder.end()

    assert str(run_on("asyncio", end(), seconds=5)) == "broken"
