"""One HTTP request to the authorization server: reading it within limits, and the ways to answer it.

Plain ASGI, without OAuth. A repeated parameter is rejected, since a proxy in front might check one value and we use the
other. No response may be cached, framed or sniffed for another content type.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from trunkline.auth.issuing.faults import OAuthFault

__all__ = ["App", "Exchange", "Receive", "Scope", "Send"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The maximum length of a body and of a query; legitimate requests are far below.
BODY_BYTES = 64 * 1024
QUERY_BYTES = 16 * 1024
BODY_SECONDS = 10.0
_PARAMETERS = 64

_ALWAYS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
)
_FORM = b"application/x-www-form-urlencoded"


class Exchange:
    """A request and the means to answer it."""

    __slots__ = ("_receive", "_send", "cookies_to_set", "headers", "method", "path", "scope")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wrap the arguments of an ASGI call."""
        self.scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: Mapping[bytes, bytes] = MappingProxyType(dict(scope["headers"]))
        self._receive = receive
        self._send = send
        #: Cookies for the response.
        self.cookies_to_set: list[str] = []

    # --- the request -------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The client's address, as far as the server knows it."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    def header(self, name: bytes) -> str | None:
        """Return a header as text."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    def cookie(self, name: str) -> str | None:
        """Return a cookie; one that occurs twice is ignored, since another party may have set it."""
        # In HTTP/2 each cookie may have its own header.
        lines = [value.decode("latin-1") for key, value in self.scope["headers"] if key == b"cookie"]
        found = [
            value
            for pair in ";".join(lines).split(";")
            for key, _, value in [pair.strip().partition("=")]
            if key == name
        ]
        return found[0] if len(found) == 1 else None

    def query(self) -> dict[str, str]:
        """Parse the query.

        Raises:
            OAuthError: it is too long, malformed, or repeats a parameter.
        """
        raw: bytes = self.scope.get("query_string", b"")
        if len(raw) > QUERY_BYTES:
            raise OAuthFault("invalid_request", "The query is too long", status=414)
        return _parameters(raw)

    async def form(self) -> dict[str, str]:
        """Read and parse a form.

        Raises:
            OAuthError: it is not a form, too long, malformed, or repeats a parameter.
        """
        if self._content_type() != _FORM:
            raise OAuthFault("invalid_request", f"The body must be {_FORM.decode()}", status=415)
        return _parameters(await self._body())

    async def json(self) -> dict[str, Any]:
        """Read and parse a JSON object.

        Raises:
            OAuthError: it is not a JSON object, or too long.
        """
        if self._content_type() != b"application/json":
            raise OAuthFault("invalid_request", "The body must be application/json", status=415)
        try:
            return msgspec.json.decode(await self._body(), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise OAuthFault("invalid_request", "The body must be a JSON object") from None

    def _content_type(self) -> bytes:
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()

    async def _body(self) -> bytes:
        length = self.headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 9 or int(length) > BODY_BYTES):
            raise _too_long()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self._read()
        except TimeoutError:
            raise OAuthFault("invalid_request", "The body took too long", status=408, headers=_CLOSE) from None

    async def _read(self) -> bytes:
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise OAuthFault("invalid_request", "The body ended early")
            body += message.get("body", b"")
            if len(body) > BODY_BYTES:
                raise _too_long()
            if not message.get("more_body"):
                return bytes(body)

    # --- responses ---------------------------------------------------------------------------------------------------

    async def answer_json(
        self, status: int, value: Mapping[str, Any], *, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Answer with JSON."""
        given = [("content-type", "application/json"), *headers]
        await self.answer(status, given, msgspec.json.encode(value))

    async def answer_html(
        self, status: int, page: str, *, policy: str, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Answer with a page and its content security policy."""
        given = [("content-type", "text/html; charset=utf-8"), ("content-security-policy", policy), *headers]
        await self.answer(status, given, page.encode())

    async def redirect(self, url: str) -> None:
        """Redirect the browser, which will use GET whatever the method of this request was."""
        await self.answer(303, [("location", url)])

    async def answer(self, status: int, headers: Iterable[tuple[str, str]], body: bytes = b"") -> None:
        """Send a complete response."""
        given = dict(_ALWAYS)
        listed = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        for name, _ in listed:
            given.pop(name, None)
        cookies = [(b"set-cookie", cookie.encode("latin-1")) for cookie in self.cookies_to_set]
        sized = [*given.items(), *listed, *cookies, (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": status, "headers": sized})
        await self._send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})


_CLOSE = (("connection", "close"),)


def _too_long() -> OAuthFault:
    return OAuthFault("invalid_request", f"The body may have at most {BODY_BYTES} bytes", status=413, headers=_CLOSE)


def _parameters(raw: bytes) -> dict[str, str]:
    """Parse form or query parameters; RFC 6749, 3.1: repeated ones are rejected, empty ones count as missing."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, encoding="utf-8", errors="strict", max_num_fields=_PARAMETERS
        )
    except ValueError:
        raise OAuthFault("invalid_request", "The parameters are malformed") from None
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        # RFC 8707, 2: a client may request several resources, and a server may allow only one at a time.
        raise OAuthFault("invalid_target" if twice == "resource" else "invalid_request", "A parameter is given twice")
    return {name: value for name, value in pairs if value}
