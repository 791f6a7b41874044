"""How the tests reach their peers: programs, foreign clients of our server, and two SDKs joined in memory."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

import anyio
import mcp
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from tests.support import BOUND
from trunkline import Client
from trunkline.protocol.caller import MEMORY
from trunkline.protocol.jsonrpc import Outbound, decode, encode
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import REVISION_NAMES, find_revision
from trunkline.transports.link import Link, Receiver

C = TypeVar("C")
T = TypeVar("T")

__all__ = [
    "ALL",
    "ASKING",
    "BOTH_ERAS",
    "HANDSHAKE",
    "NEWEST",
    "NEWEST_HANDSHAKE",
    "PROGRAMS",
    "SharedClient",
    "StreamsLink",
    "Visits",
    "is_handshake",
    "joined_streams",
    "npm_server",
    "official_client",
    "program",
    "shared",
    "transport_of",
]

PROGRAMS = Path(__file__).parent / "programs"
NPM = Path(__file__).parents[2] / ".interop" / "node_modules" / "@modelcontextprotocol"


def is_handshake(name: str) -> bool:
    """Tell whether a revision begins with a handshake."""
    revision = find_revision(name)
    assert revision is not None
    return revision.handshake


ALL = sorted(REVISION_NAMES)
HANDSHAKE = [name for name in ALL if is_handshake(name)]
NEWEST = ALL[-1]
NEWEST_HANDSHAKE = HANDSHAKE[-1]
#: One revision of each era.
BOTH_ERAS = [NEWEST_HANDSHAKE, NEWEST]
#: The revisions in which a server may ask the user.
ASKING = ALL[2:]


def program(name: str, *arguments: str) -> list[str]:
    """Give the command of one of our test programs."""
    return [sys.executable, str(PROGRAMS / name), *arguments]


# --- the official Python client, as client of our server


@asynccontextmanager
async def official_client(*revisions: str, mode: str | None = None, **options: Any) -> AsyncIterator[mcp.Client]:
    """Let the official client start our server, which serves these revisions, and connect to it."""
    command = program("ours.py", *revisions)
    if mode is None:
        mode = "legacy" if is_handshake(revisions[0]) else "auto"
    parameters = mcp.StdioServerParameters(command=command[0], args=command[1:])
    with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230 - a device that never blocks
        transport = mcp.stdio_client(parameters, errlog=nowhere)
        async with mcp.Client(transport, mode=mode, read_timeout_seconds=10, **options) as client:
            yield client


class Visits:
    """Official clients that many tests share, one for each revision, open in an event loop of their own."""

    def __init__(self, connect: Callable[[str], AbstractAsyncContextManager[mcp.Client]] = official_client) -> None:
        """Start without any; they are connected as the function says, by default to our server over stdio."""
        self._connect = connect
        self._stack = ExitStack()
        self._clients: dict[str, mcp.Client] = {}

    def __enter__(self) -> Self:
        """Start the loop."""
        self._portal = self._stack.enter_context(start_blocking_portal())
        return self

    def __exit__(self, *exc: object) -> None:
        """Close all clients."""
        self._stack.close()

    def __call__(self, revision: str, work: Callable[[mcp.Client], Awaitable[Any]], *, seconds: float = BOUND) -> Any:
        """Do something with the client of a revision, within a bound."""
        if revision not in self._clients:
            opened = self._portal.wrap_async_context_manager(self._connect(revision))
            self._clients[revision] = self._stack.enter_context(opened)
        return _bounded(self._portal, work, self._clients[revision], seconds)


def _bounded(portal: BlockingPortal, work: Callable[[C], Awaitable[T]], client: C, seconds: float) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(seconds):
            return await work(client)

    return portal.call(bounded)


# --- our client, as client of servers that are slow to start


class SharedClient:
    """A client of ours that many tests use, open in an event loop of its own."""

    def __init__(self, portal: BlockingPortal, client: Client, heard: list[tuple[str, dict[str, Any]]]) -> None:
        """Take the loop, the client open in it, and the notifications that it hears."""
        self._portal = portal
        self.client = client
        self.heard = heard

    def run(self, work: Callable[[Client], Awaitable[T]], *, seconds: float = BOUND) -> T:
        """Do something with the client, within a bound."""
        return _bounded(self._portal, work, self.client, seconds)


@contextmanager
def shared(command: Sequence[str], **options: Any) -> Iterator[SharedClient]:
    """Start a server and keep a client of it open."""
    heard: list[tuple[str, dict[str, Any]]] = []
    with start_blocking_portal() as portal:
        client = Client(list(command), on_notification=lambda *news: heard.append(news), **options)
        with portal.wrap_async_context_manager(client):
            yield SharedClient(portal, client, heard)


# --- the official TypeScript servers


def npm_server(name: str, *arguments: str) -> list[str]:
    """Give the command of a reference server; skip the test where it is not installed."""
    script = NPM / f"server-{name}" / "dist" / "index.js"
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not here: the TypeScript servers cannot run")
    if not script.exists():
        pytest.skip(f"server-{name} is not installed: `make interop` does that")
    return [node, str(script), *arguments]


# --- both SDKs in one process

_Messages = MemoryObjectReceiveStream[SessionMessage | Exception]
_Sender = MemoryObjectSendStream[SessionMessage | Exception]


def joined_streams() -> tuple[tuple[_Messages, _Sender], tuple[_Messages, _Sender]]:
    """Make the two ends of a pair of streams as the official SDK uses them."""
    to_right, right = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
    to_left, left = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
    return (left, to_right), (right, to_left)


class StreamsLink(Link):
    """A link of ours over the streams of the official SDK."""

    def __init__(self, received: _Messages, sent: _Sender) -> None:
        """Take one end of the pair."""
        self._received = received
        self._sent = sent
        self._reading: asyncio.Task[None] | None = None

    def attach(self, receiver: Receiver) -> None:
        """Start to read."""
        self._reading = asyncio.get_running_loop().create_task(self._read(receiver))

    async def _read(self, receiver: Receiver) -> None:
        async for item in self._received:
            assert isinstance(item, SessionMessage)
            data = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            receiver.message_received(decode(data, Limits()), MEMORY)
        receiver.eof_received()

    def send(self, batch: Sequence[Outbound]) -> None:
        """Give the messages to the other side; once it is gone they are lost, as on any link."""
        for outbound in batch:
            message = jsonrpc_message_adapter.validate_json(encode(outbound.message))
            try:
                self._sent.send_nowait(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async def drain(self) -> None:
        """Return at once: nothing is kept here."""

    async def aclose(self) -> None:
        """Close both directions."""
        self._sent.close()
        self._received.close()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])


@asynccontextmanager
async def transport_of(server: Any) -> AsyncIterator[Any]:
    """Be a transport of the official client whose other end is a server of ours."""
    near, far = joined_streams()
    connection = server.accept(StreamsLink(*far))
    try:
        yield near
    finally:
        near[0].close()
        near[1].close()
        await connection.aclose()
        await connection.ended()
