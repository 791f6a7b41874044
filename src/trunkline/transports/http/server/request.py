"""One HTTP request: its head, its body within limits, and the way to answer it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any

from trunkline.protocol.caller import Origin, Principal
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.asgi import Headers, HTTPException, Receive, Scope, Send, send_plain
from trunkline.transports.http.server.origin_policy import is_json
from trunkline.transports.http.server.response import ClientConnection

__all__ = ["HttpRequest", "McpHeaders", "RequestHeaders"]

_WHITE = b" \t"
_NO_HEADERS: Mapping[bytes, bytes] = MappingProxyType({})
# The headers that each request is asked for.
_NAMES: Mapping[str, bytes] = MappingProxyType(
    {name: name.encode() for name in ("mcp-protocol-version", "mcp-method", "mcp-name")}
)


class McpHeaders(Mapping[str, str]):
    """The headers of a request that mirror its message, read when asked for: most are never looked at."""

    __slots__ = ("given",)

    def __init__(self, given: Mapping[bytes, bytes]) -> None:
        """Take all headers of a request, names in lower case."""
        self.given: Mapping[bytes, bytes] = given

    def get(self, name: str, default: Any = None) -> Any:
        """Give a header's value without the white space that HTTP allows around it."""
        # Nothing but what mirrors the message can be had here: a token goes no further than to whoever checks it.
        wanted = _NAMES.get(name) or (name.encode("latin-1") if name.startswith("mcp-") else b"")
        value = self.given.get(wanted)
        if value is None:
            return default
        return (value if value[-1:] not in _WHITE else value.strip(_WHITE)).decode("latin-1")

    def __getitem__(self, name: str) -> str:
        value: str | None = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self.given if name.startswith(b"mcp-"))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class RequestHeaders(Mapping[str, str]):
    """All headers of a request as text, names in lower case; read when asked for."""

    __slots__ = ("_given",)

    def __init__(self, given: Mapping[bytes, bytes]) -> None:
        """Look at what a request came with."""
        self._given = given

    def __getitem__(self, name: str) -> str:
        return self._given[name.encode("latin-1", "replace")].decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self._given)

    def __len__(self) -> int:
        return len(self._given)


class HttpRequest:
    """A request and the way to send a whole response to it."""

    __slots__ = ("_mirrored", "headers", "json_only", "limits", "principal", "receive", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits) -> None:
        """Take what the ASGI server brought; of a header given twice the last counts, if that is allowed at all."""
        self.scope: Scope = scope
        self.headers: Mapping[bytes, bytes] = dict(scope["headers"])
        self.receive: Receive = receive
        self.send: Send = send
        self.limits: Limits = limits
        #: Who sent it; whoever found that out writes it.
        self.principal: Principal | None = None
        self._mirrored: McpHeaders | None = None
        #: The client takes no stream.
        self.json_only: bool = False

    @property
    def carrier(self) -> ClientConnection | None:
        """The connection below, if the server gives it."""
        carrier: ClientConnection | None = self.scope.get("trunkline.carrier")
        return carrier

    def field(self, name: bytes) -> bytes | None:
        """Give a header's value; RFC 9110, 5.5: the white space around it is no part of it."""
        value = self.headers.get(name)
        return value if value is None or value[-1:] not in _WHITE else value.strip(_WHITE)

    @property
    def address(self) -> str:
        """Scheme and host, as the client wrote them."""
        return f"{self.scope.get('scheme', 'http')}://{self.headers.get(b'host', b'').decode('latin-1')}"

    @property
    def origin(self) -> Origin:
        """How the message came: by whom, and with which headers beside it."""
        self._mirrored = McpHeaders(self.headers)
        return Origin("http", self.principal, self._mirrored)

    def forget(self) -> None:
        """Let the headers go: a stream may be open for long, and what it was asked with is not looked at again."""
        self.headers = _NO_HEADERS
        if self._mirrored is not None:
            self._mirrored.given = _NO_HEADERS

    async def answer(self, status: int, headers: Headers | None = None, body: bytes = b"") -> None:
        """Send a whole response."""
        await send_plain(self.send, status, headers or [], body)

    async def body(self) -> bytes:
        """Read the body, as far as the limit and the clock allow.

        Raises:
            Refused: it is no JSON by its type, too long, or too slow.
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
            return body
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                return await self._rest(message)
        except TimeoutError:
            raise HTTPException(408, "The body took too long", headers=((b"connection", b"close"),)) from None

    async def _rest(self, message: MutableMapping[str, Any]) -> bytes:
        parts, size = [], 0
        while message["type"] == "http.request":
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.limits.body_bytes:
                raise self._too_long()
            if not message.get("more_body"):
                return b"".join(parts)
            message = await self.receive()
        raise HTTPException(400, "The body ended early")

    def _too_long(self) -> HTTPException:
        close = ((b"connection", b"close"),)
        return HTTPException(413, f"A body of more than {self.limits.body_bytes} bytes", headers=close)
