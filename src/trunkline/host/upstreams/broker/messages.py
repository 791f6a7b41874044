"""The messages between the broker and the workers of a gateway on the local socket.

A connection begins with a ``Hello``, which says what it is for, and its ``Welcome`` or a ``Refusal``. A link to a
server then carries lines of JSON-RPC; its last one may be a notification ``ENDED``, which says why the server is gone.
The control connection carries frames: requests of the worker with a number, answers with the same number, and what the
broker reports by itself.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from typing import Any, Literal

import msgspec
from msgspec import Struct

from trunkline.errors import (
    ConfigError,
    ConnectionLost,
    LinkError,
    RequestFailed,
    ServerExited,
    ServerUnavailable,
    TooManyRequests,
    TrunklineError,
)

__all__ = [
    "ENDED",
    "Announce",
    "Answer",
    "Command",
    "Hello",
    "ListsChanged",
    "PushedMessage",
    "Refusal",
    "ServerSnapshot",
    "Welcome",
    "end_of",
    "is_own_peer",
    "pack_frame",
    "read_frame",
    "read_hello",
    "receive_frame",
    "refusal_of",
    "send_frame",
]

#: The last notification on a link: why the server process is gone.
ENDED = "trunkline/ended"
#: The first message of a connection: a name, a key, and the environment of a process.
_HELLO_BYTES = 1024 * 1024
#: The largest frame: the largest message of the protocol, with its envelope.
_MOST_BYTES = 128 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class Hello(Struct, frozen=True, kw_only=True):
    """The purpose of a connection."""

    open: Literal["control", "shared", "dedicated"]
    server: str = ""
    #: The process of a shared connection.
    run: int = 0
    #: The process of a dedicated connection; None for one of its own.
    key: str | None = None
    #: Replaces the environment of the entry.
    env: dict[str, str] | None = None


class Welcome(Struct, frozen=True, kw_only=True, tag=True):
    """The connection is open."""

    pid: int | None = None
    #: Whether the process was started for this connection.
    fresh: bool = False


class Refusal(Struct, frozen=True, kw_only=True, tag=True):
    """Why something failed."""

    kind: str
    message: str
    data: Any = None
    status: int | None = None
    stderr: str = ""

    def error(self) -> TrunklineError:
        """Return it as an exception."""
        if self.kind == "TooManyRequests":
            return TooManyRequests(self.message, data=self.data)
        if self.kind == "ServerExited":
            return ServerExited(self.message, status=self.status, stderr=self.stderr)
        kinds: dict[str, type[TrunklineError]] = {
            "ConfigError": ConfigError,
            "ConnectionLost": ConnectionLost,
            "LinkError": LinkError,
            "ServerUnavailable": ServerUnavailable,
        }
        return kinds.get(self.kind, ConnectionLost)(self.message)


def refusal_of(error: Exception) -> Refusal:
    """Return an exception as a message."""
    return Refusal(
        kind=type(error).__name__,
        message=getattr(error, "message", None) or str(error),
        data=error.data if isinstance(error, RequestFailed) else None,
        status=getattr(error, "status", None),
        stderr=getattr(error, "stderr", ""),
    )


def end_of(params: Any) -> TrunklineError:
    """Return the error that the last notification of a link carries."""
    try:
        return msgspec.json.decode(params, type=Refusal).error()
    except (msgspec.DecodeError, TypeError):
        return ConnectionLost("the server is gone")


class Command(Struct, frozen=True, kw_only=True, tag=True):
    """A request of a worker; ``number`` is 0 if it expects no answer."""

    number: int
    verb: Literal["start", "restart", "stop", "verify", "suspect", "changed", "ended"]
    server: str
    kinds: tuple[str, ...] = ()
    key: str = ""


class ListsChanged(Struct, frozen=True, kw_only=True, tag=True):
    """The lists of a gateway changed at a worker; the broker has it announced once all workers have them."""

    gateway: str
    kinds: tuple[str, ...]


class Answer(Struct, frozen=True, kw_only=True, tag=True):
    """The answer to a command."""

    number: int
    result: str | None = None
    error: Refusal | None = None


class ServerSnapshot(Struct, frozen=True, kw_only=True, tag=True):
    """The state of a server."""

    name: str
    state: str
    reason: str | None
    busy: bool
    since: float
    starts: int
    last_error: str | None
    stderr: bytes
    remark: str | None
    approved: bool
    #: The process of the shared connection and its revision; 0 while there is none.
    run: int
    revision: str
    #: What it offers, as JSON; empty if it is as before.
    offering: bytes = b""


class Announce(Struct, frozen=True, kw_only=True, tag=True):
    """Announce changed lists of a gateway to its clients, at all workers."""

    gateway: str
    kinds: tuple[str, ...]


PushedMessage = ServerSnapshot | Announce | Answer


def is_own_peer(connection: socket.socket) -> bool:
    """Return True if the process at the other end belongs to this user, as far as the kernel tells."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None or sys.platform == "win32":
        # The permissions of the folder protect the socket.
        return True
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return bool(uid == os.geteuid())


def pack_frame(message: object) -> bytes:
    """Return a message as a length and bytes."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader, kind: Any = Any) -> Any:
    """Read the next message, as a value of this type.

    Raises:
        ConnectionError, asyncio.IncompleteReadError: there is none, or it is too large.
    """
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if size > _MOST_BYTES:
        raise ConnectionError(f"a message of {size} bytes")
    return msgspec.msgpack.decode(await reader.readexactly(size), type=kind)


async def receive_frame(connection: socket.socket, kind: Any) -> Any:
    """Read one frame from a socket that is not blocking, without reading further.

    Raises:
        ConnectionError, msgspec.DecodeError: there is none.
    """
    (size,) = _LENGTH.unpack(await _receive(connection, _LENGTH.size))
    if size > _HELLO_BYTES:
        raise ConnectionError("the first message is too large")
    return msgspec.msgpack.decode(await _receive(connection, size), type=kind)


async def read_hello(connection: socket.socket) -> Hello:
    """Read the first message of a connection."""
    found: Hello = await receive_frame(connection, Hello)
    return found


async def send_frame(connection: socket.socket, message: object) -> None:
    """Send one frame."""
    await asyncio.get_running_loop().sock_sendall(connection, pack_frame(message))


async def _receive(connection: socket.socket, size: int) -> bytes:
    loop, found = asyncio.get_running_loop(), b""
    while len(found) < size:
        data = await loop.sock_recv(connection, size - len(found))
        if not data:
            raise ConnectionError("the other side has disconnected")
        found += data
    return found
