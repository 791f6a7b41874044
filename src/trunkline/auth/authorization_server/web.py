"""The HTTP side of the authorization server as plain ASGI: requests and their responses, errors, rate limits.

A request is read within limits, and an error becomes an OAuth error or a page. A repeated parameter is rejected, since
a proxy in front might check one value and we use the other. No response may be cached, framed or sniffed.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import msgspec

if TYPE_CHECKING:
    from trunkline.auth.authorization_server.storage import Records

__all__ = ["App", "OAuthError", "OAuthExchange", "PageError", "RateLimiter", "Receive", "Scope", "Send"]


class OAuthError(Exception):
    """A client's request is rejected with an OAuth error code."""

    def __init__(self, error: str, description: str, *, status: int = 400, headers: tuple[tuple[str, str], ...] = ()):
        """Set the code, the description, and the HTTP status and headers."""
        super().__init__(description)
        self.error = error
        self.description = description
        self.status = status
        self.headers = headers


class PageError(Exception):
    """A browser's request is rejected with an error page."""

    def __init__(self, status: int, title: str, sentence: str, *, headers: tuple[tuple[str, str], ...] = ()):
        """Set the content of the page."""
        super().__init__(sentence)
        self.status = status
        self.title = title
        self.sentence = sentence
        self.headers = headers


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: The maximum length of a body and of a query; legitimate requests are far below.
BODY_BYTES = 64 * 1024
QUERY_BYTES = 16 * 1024  # The longest query of a legitimate request, with all its URLs, has about 8 KiB.
BODY_SECONDS = 10.0  # A form arrives in one packet; slower ones hold a connection.
_PARAMETERS = 64  # OAuth requests have at most twenty.

_DEFAULT_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
)
_FORM = b"application/x-www-form-urlencoded"


class OAuthExchange:
    """One HTTP request to the authorization server, with the methods that send its response."""

    __slots__ = ("_receive", "_send", "cookies_to_set", "headers", "method", "path", "scope")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Wrap the arguments of an ASGI call."""
        self.scope: Scope = scope
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
            raise OAuthError("invalid_request", "The query is too long", status=414)
        return _parameters(raw)

    async def form(self) -> dict[str, str]:
        """Read and parse a form.

        Raises:
            OAuthError: it is not a form, too long, malformed, or repeats a parameter.
        """
        if self._content_type() != _FORM:
            raise OAuthError("invalid_request", f"The body must be {_FORM.decode()}", status=415)
        return _parameters(await self._body())

    async def json(self) -> dict[str, Any]:
        """Read and parse a JSON object.

        Raises:
            OAuthError: it is not a JSON object, or too long.
        """
        if self._content_type() != b"application/json":
            raise OAuthError("invalid_request", "The body must be application/json", status=415)
        try:
            return msgspec.json.decode(await self._body(), type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise OAuthError("invalid_request", "The body must be a JSON object") from None

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
            raise OAuthError("invalid_request", "The body took too long", status=408, headers=_CLOSE) from None

    async def _read(self) -> bytes:
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                raise OAuthError("invalid_request", "The body ended early")
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
        given = dict(_DEFAULT_HEADERS)
        listed = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        for name, _ in listed:
            given.pop(name, None)
        cookies = [(b"set-cookie", cookie.encode("latin-1")) for cookie in self.cookies_to_set]
        sized = [*given.items(), *listed, *cookies, (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": status, "headers": sized})
        await self._send({"type": "http.response.body", "body": b"" if self.method == "HEAD" else body})


_CLOSE = (("connection", "close"),)


def _too_long() -> OAuthError:
    return OAuthError("invalid_request", f"The body may have at most {BODY_BYTES} bytes", status=413, headers=_CLOSE)


def _parameters(raw: bytes) -> dict[str, str]:
    """Parse form or query parameters; RFC 6749, 3.1: repeated ones are rejected, empty ones count as missing."""
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, encoding="utf-8", errors="strict", max_num_fields=_PARAMETERS
        )
    except ValueError:
        raise OAuthError("invalid_request", "The parameters are malformed") from None
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        # RFC 8707, 2: a client may request several resources, and a server may allow only one at a time.
        raise OAuthError("invalid_target" if twice == "resource" else "invalid_request", "A parameter is given twice")
    return {name: value for name, value in pairs if value}


class RateLimiter:
    """Counts events by key over all workers, and reports when there are too many."""

    __slots__ = ("_most", "_name", "_records", "_seconds")

    def __init__(self, records: Records, name: str, *, most: int, seconds: float) -> None:
        """Allow ``most`` events in ``seconds`` seconds; ``name`` says of what."""
        self._records = records
        self._name = name
        self._most = most
        self._seconds = seconds

    async def count(self, key: str) -> int:
        """Count an event; return the seconds to wait if the limit is exceeded, else 0.

        Raises:
            StoreUnavailable: the events of all workers cannot be counted now.
        """
        wait = await self._records.admit(self._counter(key), most=self._most, seconds=self._seconds)
        return math.ceil(wait)

    async def forgive(self, key: str) -> None:
        """Reset the count of a key."""
        await self._records.forgive(self._counter(key))

    def _counter(self, key: str) -> str:
        # Names and addresses of users are not stored.
        return f"{self._name}:{hashlib.sha256(key.encode('utf-8', 'replace')).hexdigest()[:32]}"
