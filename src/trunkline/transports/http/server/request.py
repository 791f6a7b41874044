"""One HTTP request: its headers, its body within limits, the memory it holds, and the method that sends a response.

``MemoryBudget`` is the one account of the memory that HTTP clients make a process hold while it receives and serves
their requests. Every request is charged to its caller (`owner_name`: a user, or a network where there are none) from
the first part of its body that arrives until it is answered, also if its client has disconnected meanwhile and the
handler still waits for an answer to a question. A caller has a share, and all callers together have a total. A request
that would exceed one is refused at once, and nothing of it is held. What the server keeps in its store is counted
there, by `StoreBudget`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any, Protocol

from trunkline.protocol.caller import Origin, Principal, owner_name
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.asgi import (
    TOO_MANY,
    UNAVAILABLE,
    Headers,
    HTTPException,
    Receive,
    Scope,
    Send,
)
from trunkline.transports.http.server.origin_policy import is_json

__all__ = [
    "CONNECTION_KEY",
    "ClientConnection",
    "DirectExchange",
    "HeldMemory",
    "HttpRequest",
    "McpHeaders",
    "MemoryBudget",
    "RequestHeaders",
    "send_response",
]

#: The key of the ASGI scope under which the HTTP server provides the `ClientConnection` of a request.
CONNECTION_KEY = "trunkline.connection"

#: What a request holds besides its body: its headers, its task, its response.
_OVERHEAD = 4096
_RETRY_SECONDS = b"5"  # Most requests are answered in less.
_WHITESPACE = b" \t"
_NO_HEADERS: Mapping[bytes, bytes] = MappingProxyType({})
# Returns the bytes of the names that are read of every request. The bound method keeps its dictionary from changes, and
# costs less than a read-only view.
_known_name = {name: name.encode() for name in ("mcp-protocol-version", "mcp-method", "mcp-name")}.get


class ClientConnection(Protocol):
    """The connection of a request, which reports that the client disconnected: the one way to learn of it."""

    def add_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of the connection."""

    def remove_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Remove a callback."""


class ReceivedDisconnect:
    """The connection of a request at an HTTP server that reports a disconnect only by ``receive``.

    A task awaits it while there is a callback.
    """

    __slots__ = ("_callbacks", "_receive", "_task")

    def __init__(self, receive: Receive) -> None:
        """Use the method of a request whose body has been read."""
        self._receive = receive
        self._callbacks: tuple[Callable[[], None], ...] = ()
        self._task: asyncio.Task[None] | None = None

    def add_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of the connection."""
        self._callbacks = (*self._callbacks, callback)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._wait(), name="trunkline-disconnect")

    def remove_disconnect_callback(self, callback: Callable[[], None]) -> None:
        """Remove a callback."""
        self._callbacks = tuple(other for other in self._callbacks if other != callback)
        if not self._callbacks and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # Without a task to cancel: a callback may remove itself.
        self._task = None
        for callback in self._callbacks:
            callback()


class DirectExchange:
    """The object behind ``receive`` and ``send`` of the HTTP server of this package.

    It does in one step what the two do in several. Middleware that replaces one of the two sees all messages: then
    there is no such object.
    """

    __slots__ = ()

    def take_body(self) -> bytes | None:
        """Return the body if all of it has arrived."""
        raise NotImplementedError

    def write_chunk(self, body: bytes) -> bool:
        """Write a part of a response that has begun; return False if ``send`` must be used instead."""
        raise NotImplementedError

    def write_json(self, body: bytes) -> bool:
        """Write a whole response with status 200; return False if ``send`` must be used instead."""
        raise NotImplementedError


class McpHeaders(Mapping[str, str]):
    """The headers of a request that mirror its message, decoded on access: most are never read."""

    __slots__ = ("_headers",)

    def __init__(self, headers: Mapping[bytes, bytes]) -> None:
        """Wrap all headers of a request, names in lower case."""
        self._headers = headers

    def get(self, name: str, default: Any = None) -> Any:
        """Return a header's value without the whitespace that HTTP allows around it."""
        # Only what mirrors the message is readable here: a token goes no further than to its verifier.
        wanted = _known_name(name) or (name.encode("latin-1") if name.startswith("mcp-") else b"")
        value = self._headers.get(wanted)
        return default if value is None else value.decode("latin-1").strip(" \t")

    def clear(self) -> None:
        """Drop the headers."""
        self._headers = _NO_HEADERS

    def __getitem__(self, name: str) -> str:
        value: str | None = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._headers if name.startswith(b"mcp-"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class RequestHeaders(Mapping[str, str]):
    """All headers of a request as text, names in lower case; decoded on access."""

    __slots__ = ("_headers",)

    def __init__(self, headers: Mapping[bytes, bytes]) -> None:
        """Wrap the headers of a request, names in lower case."""
        self._headers = headers

    def __getitem__(self, name: str) -> str:
        return self._headers[name.encode("latin-1", "replace")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._headers)

    def __len__(self) -> int:
        return len(self._headers)


class MemoryBudget:
    """The bytes that are held for each caller; `HeldMemory` adds to them and subtracts again."""

    __slots__ = ("by_owner", "held_bytes", "share", "total")

    def __init__(self, limits: Limits) -> None:
        """Start with nothing held."""
        # One request of the largest size always fits.
        self.share: int = max(limits.owner_memory_bytes, limits.body_bytes + _OVERHEAD)
        self.total: int = max(limits.memory_bytes, self.share)
        self.by_owner: dict[str, int] = {}
        #: The bytes that are held for all callers.
        self.held_bytes: int = 0


class HeldMemory:
    """What one request holds."""

    __slots__ = ("_budget", "_owner", "_size")

    def __init__(self, budget: MemoryBudget, owner: str, size: int) -> None:
        """Charge a request of so many bytes to its caller.

        Raises:
            HTTPException: the caller, or all callers together, would hold too much.
        """
        self._budget = budget
        self._owner = owner
        self._size = 0
        self.grow(_OVERHEAD + size)

    def grow(self, size: int) -> None:
        """Charge more.

        Raises:
            HTTPException: the caller, or all callers together, would hold too much.
        """
        budget, owner = self._budget, self._owner
        held = budget.by_owner.get(owner, 0) + size
        if held > budget.share:
            raise _refusal(
                TOO_MANY,
                f"The requests of this caller that are in progress hold too much memory "
                f"(owner_memory_bytes={budget.share}); wait until some are answered",
            )
        if budget.held_bytes + size > budget.total:
            raise _refusal(
                UNAVAILABLE,
                f"The requests in progress hold too much memory (memory_bytes={budget.total}); try again later",
            )
        budget.by_owner[owner] = held
        budget.held_bytes += size
        self._size += size

    def release(self) -> None:
        """Release it; a second time does nothing."""
        budget, owner, size = self._budget, self._owner, self._size
        if size:
            self._size = 0
            budget.held_bytes -= size
            left = budget.by_owner[owner] - size
            if left:
                budget.by_owner[owner] = left
            else:
                del budget.by_owner[owner]


class HttpRequest:
    """An HTTP request, and the method that sends a whole response to it."""

    __slots__ = (
        "_budget",
        "_connection",
        "_mirrored",
        "client_address",
        "direct",
        "headers",
        "held",
        "json_only",
        "limits",
        "principal",
        "receive",
        "scope",
        "send",
    )

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, limits: Limits, budget: MemoryBudget | None = None
    ) -> None:
        """Wrap what the ASGI server passes; of a repeated header the last counts, where repeating is allowed."""
        self.scope: Scope = scope
        self._budget = budget or MemoryBudget(limits)
        #: What the request holds, once a part of its body has arrived; whoever serves it takes that over.
        self.held: HeldMemory | None = None
        # A comprehension costs half of what ``dict`` does, which looks at each pair as at any sequence.
        self.headers: Mapping[bytes, bytes] = {name: value for name, value in scope["headers"]}  # noqa: C416
        client = scope.get("client")
        #: The network address of the client; None if it is not known.
        self.client_address: str | None = client[0] if client else None
        self.receive: Receive = receive
        self.send: Send = send
        self.limits: Limits = limits
        #: The sender of the request; set by the endpoint once it is authenticated.
        self.principal: Principal | None = None
        self._mirrored: McpHeaders | None = None
        self._connection: ClientConnection | None = scope.get(CONNECTION_KEY)
        #: The client does not accept a stream.
        self.json_only: bool = False
        #: The shorter way to receive and send, if both are the HTTP server's own methods.
        self.direct: DirectExchange | None = None
        exchange = getattr(send, "__self__", None)
        if isinstance(exchange, DirectExchange) and getattr(receive, "__self__", None) is exchange:
            self.direct = exchange

    @property
    def connection(self) -> ClientConnection:
        """The connection of the request."""
        if self._connection is None:
            self._connection = ReceivedDisconnect(self.receive)
        return self._connection

    def field(self, name: bytes) -> bytes | None:
        """Return a header's value; RFC 9110, 5.5: the whitespace around it is no part of it."""
        value = self.headers.get(name)
        return None if value is None else value.strip(_WHITESPACE)

    @property
    def address(self) -> str:
        """Scheme and host, as the client wrote them."""
        return f"{self.scope.get('scheme', 'http')}://{self.headers.get(b'host', b'').decode('latin-1')}"

    @property
    def origin(self) -> Origin:
        """The origin of the message: its sender, and the headers that mirror it."""
        self._mirrored = McpHeaders(self.headers)
        return Origin("http", self.principal, self._mirrored, self.client_address)

    def add_response_headers(self, headers: Headers) -> None:
        """Add headers to the response, whatever it is."""
        self.send = _with_headers(self.send, headers)
        self.direct = None

    def drop_headers(self) -> None:
        """Free the headers: a stream may be open for long, and the headers of its request are not read again."""
        self.headers = _NO_HEADERS
        if self._mirrored is not None:
            self._mirrored.clear()

    async def answer(self, status: int, headers: Headers | None = None, body: bytes = b"") -> None:
        """Send a whole response."""
        await send_response(self.send, status, headers or [], body)

    def take_body(self) -> bytes | None:
        """Return the body if all of it has arrived; None if ``body`` must be awaited.

        Raises:
            HTTPException: the body is too long, or its caller holds too much already.
        """
        if self.direct is None or self.headers.get(b"content-type") != b"application/json":
            return None
        body = self.direct.take_body()
        if body is not None:
            if len(body) > self.limits.body_bytes:
                raise self._too_long()
            self._hold(len(body))
        return body

    def _hold(self, size: int) -> None:
        if self.held is None:
            self.held = HeldMemory(self._budget, owner_name(self.principal, self.client_address), size)
        else:
            self.held.grow(size)

    def take_held(self) -> HeldMemory | None:
        """Return what the request holds, to be released by the caller of this method."""
        held, self.held = self.held, None
        return held

    async def body(self) -> bytes:
        """Read the body, within the limits of size and time.

        Raises:
            HTTPException: the body is not JSON by its type, is too long, or arrives too slowly, or its caller holds
                too much already.
        """
        headers, limit = self.headers, self.limits.body_bytes
        kind = headers.get(b"content-type")
        if kind != b"application/json" and not is_json(kind):
            raise HTTPException(415, "The body must be application/json")
        length = headers.get(b"content-length")
        if length is not None and len(length) > 6 and length.isdigit() and int(length[:20]) > limit:
            raise self._too_long()
        message = await self.receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            body: bytes = message.get("body", b"")
            if len(body) > limit:
                raise self._too_long()
            self._hold(len(body))
            return body
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                return await self._read_rest(message)
        except TimeoutError:
            raise HTTPException(408, "The body took too long", headers=((b"connection", b"close"),)) from None

    async def _read_rest(self, message: MutableMapping[str, Any]) -> bytes:
        parts, size = [], 0
        while message["type"] == "http.request":
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.limits.body_bytes:
                raise self._too_long()
            self._hold(len(parts[-1]))
            if not message.get("more_body"):
                return b"".join(parts)
            message = await self.receive()
        raise HTTPException(400, "The body ended early")

    def _too_long(self) -> HTTPException:
        close = ((b"connection", b"close"),)
        return HTTPException(413, f"A body of more than {self.limits.body_bytes} bytes", headers=close)


def _refusal(status: int, message: str) -> HTTPException:
    # The rest of the body is not read.
    headers = ((b"retry-after", _RETRY_SECONDS), (b"connection", b"close"))
    return HTTPException(status, message, code=status, headers=headers)


async def send_response(send: Send, status: int, headers: Headers, body: bytes = b"") -> None:
    """Send a whole response: its status, its headers and its body."""
    # RFC 9110, 8.6: a response without content has no length either.
    sized = headers if status == 204 else [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send, headers: Headers) -> Send:
    """Return a ``send`` that adds headers to every response."""

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return send_with_headers
