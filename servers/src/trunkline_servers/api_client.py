"""A client for the JSON API of a service that the user chose: bounded requests, and errors that a model can act on.

The service's URL comes from the user, the requests from a model. So paths are built from quoted segments, credentials
go only to the service's own origin, and no response is read beyond its limit or decompressed.

A service's token comes from the environment of the server; without one the server still starts, and calls that need it
fail with a message. A token must be valid in a header, is sent only over secure connections, and is redacted from the
service's messages. This module knows no particular service.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, quote, urlencode, urljoin, urlsplit

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError, ToolError
from trunkline.net import is_loopback
from trunkline_servers.untrusted import one_line

if TYPE_CHECKING:
    import aiohttp

__all__ = [
    "ApiClient",
    "ApiError",
    "ApiResponse",
    "RawBody",
    "read_token",
    "redact_token",
    "redacted_url",
    "require_secure_url",
    "require_token",
]

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 3
_RATE_LIMITED = frozenset({403, 429, 503})
#: Most digits of a number of seconds.
_LONGEST_NUMBER = 12
#: Advice after a change whose outcome is unknown; a repeated request might apply it twice.
_OUTCOME_UNKNOWN = "it is not known whether it was done: check before you try again"
#: Members in which services put the error message, most specific first.
_MEMBERS = ("message", "error_description", "error", "detail", "title", "errors")


class ApiError(ToolError):
    """The service rejected the request, cannot be reached, or sent an invalid response."""

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        """Initialize with the message; ``status`` is 0 without a response."""
        super().__init__(message)
        self.status = status
        #: Seconds until the service accepts requests again, if it said so.
        self.retry_after = retry_after


class RawBody(Struct, frozen=True):
    """A request body that is not JSON."""

    content: bytes
    content_type: str


class ApiResponse(Struct, frozen=True):
    """A response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    service: str = "The service"
    method: str = "GET"

    def json(self) -> Any:
        """Return the decoded body.

        Raises:
            ApiError: it is not valid JSON.
        """
        try:
            return msgspec.json.decode(self.body) if self.body else None
        except (msgspec.DecodeError, RecursionError) as error:
            said = f"{self.service} answered with something that is not JSON"
            raise ApiError(said + _unknown_outcome(self.method), status=self.status) from error


class ApiClient:
    """Client of one service; connects with the first request."""

    def __init__(
        self,
        base: str,
        *,
        service: str,
        headers: Mapping[str, str] | None = None,
        seconds: float = 30.0,
        max_bytes: int = 8 * 1024 * 1024,
        max_wait: float = 5.0,
        unix_socket: str | None = None,
        user_agent: str = "trunkline",
    ) -> None:
        """Initialize with the service's URL; ``max_wait`` is the longest wait for a rate limit.

        Raises:
            ConfigError: the URL is invalid, or aiohttp is not installed.
        """
        if find_spec("aiohttp") is None:
            raise ConfigError(f"{service} is called over HTTP: pip install 'trunkline[servers]'")
        parts = _address(base, service)
        self.service = service
        self.base = base.rstrip("/")
        self._netloc = parts.netloc
        self._origin = _origin(base)
        # Compression is neither requested nor decoded: a small response may expand to a large one.
        self._headers = {
            "user-agent": user_agent,
            "accept": "application/json",
            "accept-encoding": "identity",
            **_lower(headers or {}),
        }
        self._seconds = seconds
        self._max_bytes = max_bytes
        self._max_wait = max_wait
        self._unix_socket = unix_socket
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ApiClient:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def path(self, *segments: str | int) -> str:
        """Build a path from segments, each quoted completely.

        Raises:
            ToolError: a segment is empty, is "." or "..", or contains control characters.
        """
        return "".join(f"/{_segment(each)}" for each in segments)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        accept_status: Collection[int] = (),
        max_bytes: int | None = None,
        seconds: float | None = None,
    ) -> ApiResponse:
        """Send a request; a status of 300 or above is an error unless it is in ``accept_status``.

        A ``body`` is sent as JSON, a ``RawBody`` as it is. Members of ``query`` that are None are omitted, a list is
        repeated.

        Raises:
            ApiError: there is no response within the limits, or it is an error.
        """
        url = f"{self.base}{path}{_query(query)}"
        content, kind = _content(body)
        head = {**self._headers, **_lower(headers or {}), **({"content-type": kind} if kind else {})}
        limit, clock = max_bytes or self._max_bytes, seconds or self._seconds
        for last in (False, True):
            reply = await self._timed(method.upper(), url, head, content, limit, clock)
            if reply.status < 300 or reply.status in accept_status:
                return reply
            error = self._failure(reply)
            wait = error.retry_after
            if last or method.upper() not in _SAFE or wait is None or wait > self._max_wait:
                raise error
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def drain(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any],
        started: Callable[[], None],
        on_chunk: Callable[[int], None],
    ) -> None:
        """Read a streaming response and discard it; ``take`` is called with the size of each chunk.

        Raises:
            ApiError: the response is not a success, or breaks off.
        """
        import aiohttp
        from yarl import URL

        url = URL(f"{self.base}{path}{_query(query)}", encoded=True)
        try:
            async with self._opened().request(method, url, headers=self._headers, allow_redirects=False) as response:
                if response.status >= 300:
                    raise ApiError(f"{self.service} answered {response.status}", status=response.status)
                started()
                while piece := await response.content.readany():
                    on_chunk(len(piece))
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(f"{self.service} closed the connection early") from error

    # --- sending -----------------------------------------------------------------------------------------------------

    async def _timed(
        self, method: str, url: str, head: Mapping[str, str], content: bytes | None, limit: int, seconds: float
    ) -> ApiResponse:
        try:
            async with asyncio.timeout(seconds):
                return await self._follow(method, url, head, content, limit)
        except TimeoutError as error:
            then = "try again later" if method in _SAFE else _OUTCOME_UNKNOWN
            raise ApiError(f"{self.service} did not answer within {seconds:g} seconds; {then}") from error

    async def _follow(
        self, method: str, url: str, head: Mapping[str, str], content: bytes | None, limit: int
    ) -> ApiResponse:
        for _ in range(_MOST_REDIRECTS + 1):
            reply = await self._ask(method, url, head, content, limit)
            location = reply.headers.get("location")
            if reply.status not in _REDIRECTS or not location:
                return reply
            if method not in _SAFE:
                raise ApiError(
                    f"{self.service} redirects this request to another URL, and changes are not redirected; "
                    "nothing was changed. The resource may have been renamed: read it to find its new name",
                    status=reply.status,
                )
            origin, url = _target(url, location)
            if origin != self._origin:
                raise ApiError(
                    f"{self.service} redirects to another host, which is not followed since the credentials are for "
                    f"{self._netloc} only",
                    status=reply.status,
                )
        raise ApiError(f"{self.service} redirects more than {_MOST_REDIRECTS} times")

    async def _ask(
        self, method: str, url: str, head: Mapping[str, str], content: bytes | None, limit: int
    ) -> ApiResponse:
        import aiohttp
        from yarl import URL

        for last in (False, True):
            try:
                async with self._opened().request(
                    method, URL(url, encoded=True), headers=head, data=content, allow_redirects=False
                ) as response:
                    return await self._read(response, limit)
            except (aiohttp.ClientConnectorError, ValueError) as error:
                # Nothing was sent.
                raise ApiError(self._unreachable(error)) from error
            except (aiohttp.ClientConnectionError, OSError) as error:
                # An idle connection may have been closed during sending; no retry if we closed it ourselves.
                if last or method not in _SAFE or self._session is None:
                    said = f"{self.service} closed the connection before it answered"
                    raise ApiError(said + _unknown_outcome(method)) from error
            except aiohttp.ClientError as error:
                said = f"{self.service} closed the connection early, or sent something that is not HTTP"
                raise ApiError(said + _unknown_outcome(method)) from error
        raise AssertionError("unreachable")

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is not None:
            return self._session
        import aiohttp

        connector: aiohttp.BaseConnector = (
            aiohttp.UnixConnector(self._unix_socket) if self._unix_socket else aiohttp.TCPConnector(limit=16)
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # The timeout is that of the whole request.
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        return self._session

    async def _read(self, response: aiohttp.ClientResponse, limit: int) -> ApiResponse:
        headers = {name.lower(): value for name, value in response.headers.items()}
        if headers.get("content-encoding", "identity").lower() != "identity":
            said = f"{self.service} sent a compressed response, which was not requested"
            raise ApiError(said + _unknown_outcome(response.method), status=response.status)
        pieces: list[bytes] = []
        size = 0
        while piece := await response.content.readany():
            size += len(piece)
            if size > limit:
                response.close()
                said = f"The answer of {self.service} is larger than {limit} bytes"
                fix = _unknown_outcome(response.method) or "; ask for less at a time"
                raise ApiError(said + fix, status=response.status)
            pieces.append(piece)
        return ApiResponse(response.status, headers, b"".join(pieces), self.service, response.method)

    # --- failures ----------------------------------------------------------------------------------------------------

    def _failure(self, reply: ApiResponse) -> ApiError:
        wait = _retry_after(reply)
        said = _error_text(reply.body)
        sentence = f"{self.service} answered {reply.status}{': ' if said else ''}{said}"
        if wait is not None and reply.status == 503:
            sentence += f"{'. ' if said else ': '}Try again in {_duration(wait)}"
        elif wait is not None:
            sentence += f". Its rate limit is reached: try again in {_duration(wait)}"
        return ApiError(sentence, status=reply.status, retry_after=wait)

    def _unreachable(self, error: Exception) -> str:
        where = self._unix_socket or self._netloc
        said = f"{self.service} cannot be reached at {where} ({one_line(_connect_error(error))})"
        return said if self._unix_socket else f"{said}: check its address, and the network"


# --- parts of requests and responses ---------------------------------------------------------------------------------


def _address(base: str, service: str) -> SplitResult:
    try:
        parts = urlsplit(base)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or any(each <= " " for each in base):
        raise ConfigError(
            f"The address of {service} must be a URL such as https://api.example.com, not {redacted_url(base)!r}"
        )
    if parts.username or parts.password:
        raise ConfigError(f"The address of {service} must not hold a password: give it in the environment")
    return parts


def redacted_url(url: str) -> str:
    """Return a URL that is safe to show: without password and query."""
    return re.sub(r"//[^/]*@", "//***@", re.split(r"[?#]", url)[0])


def _unknown_outcome(method: str) -> str:
    """Return the advice after a change whose response was lost; empty for a safe method."""
    return "" if method in _SAFE else f"; {_OUTCOME_UNKNOWN}"


def _origin(url: str) -> tuple[str, str | None, int | None, str | None]:
    """Return the normalized origin of a URL."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname, port, parts.username


def _target(url: str, location: str) -> tuple[Any, str]:
    """Return origin and URL of a redirect target; the origin is None if it is invalid."""
    try:
        target = urljoin(url, location)
        return _origin(target), target
    except ValueError:
        return None, url


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _segment(value: str | int) -> str:
    text = str(value)
    if not text or text in (".", "..") or any(ord(each) < 0x20 or ord(each) == 0x7F for each in text):
        raise ToolError(
            f"{text!r} cannot be a URL path segment: use a name without control characters, not '.' or '..'"
        )
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise ToolError(f"{text!r} cannot be a URL path segment: it is not valid Unicode") from error


def _query(query: Mapping[str, Any] | None) -> str:
    given = {name: _plain(value) for name, value in (query or {}).items() if value is not None}
    return f"?{urlencode(given, doseq=True)}" if given else ""


def _plain(value: Any) -> Any:
    return ("false", "true")[value] if isinstance(value, bool) else value


def _content(body: Any) -> tuple[bytes | None, str | None]:
    if body is None:
        return None, None
    if isinstance(body, RawBody):
        return body.content, body.content_type
    return msgspec.json.encode(body), "application/json"


def _error_text(body: bytes) -> str:
    """Return the service's error message, on one line and truncated."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return ""
    parts = [value[name] for name in _MEMBERS if value.get(name)]
    texts = [each if isinstance(each, str) else msgspec.json.encode(each).decode() for each in parts[:2]]
    return one_line("; ".join(texts))


def _connect_error(error: Exception) -> str:
    """Return why the connection failed, without the library's wording around it."""
    from ssl import SSLError

    cause = getattr(error, "os_error", None)
    if isinstance(cause, OSError) and not isinstance(cause, SSLError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno)
    return str(getattr(cause, "strerror", None) or error) or type(error).__name__


def _retry_after(reply: ApiResponse) -> float | None:
    """Return the seconds until a rate limit ends; None if the response is not a rate limit."""
    if reply.status not in _RATE_LIMITED:
        return None
    if (given := reply.headers.get("retry-after")) is not None:
        return _seconds(given)
    if reply.headers.get("x-ratelimit-remaining") == "0" and _is_number(
        at := reply.headers.get("x-ratelimit-reset", "")
    ):
        return max(0.0, float(at) - time.time())
    return None


def _seconds(given: str) -> float | None:
    if _is_number(given):
        return float(given)
    # Rarely needed, and slow to import.
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _is_number(given: str) -> bool:
    return given.isascii() and given.isdigit() and len(given) <= _LONGEST_NUMBER


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes"


def read_token(value: str | None, variable: str) -> str | None:
    """Return a token ready for a header; None if there is none.

    Raises:
        ConfigError: it contains characters that no token has.
    """
    token = (value or "").strip()
    if not all("!" <= each <= "~" for each in token):
        raise ConfigError(
            f"The value of {variable} is not a valid token: it contains spaces or other invalid characters"
        )
    return token or None


def require_token(token: str | None, why: str, variable: str) -> str:
    """Return the token, or raise if the server was started without one; ``why`` says what needs it.

    Raises:
        ToolError: there is none; the message names the variable to set.
    """
    if token is None:
        raise ToolError(f"{why}: start the server with {variable} in its environment")
    return token


def require_secure_url(url: str, service: str) -> None:
    """Check that a token would not be sent in the clear.

    Raises:
        ConfigError: the URL is plain HTTP and not on this machine.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        # An invalid URL is reported by the API client.
        return
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ConfigError(
            f"The address of {service} must start with https://, since a token is sent there, not {redacted_url(url)!r}"
        )


def redact_token(error: ApiError, token: str | None, hint: str = "") -> ApiError:
    """Return an error with a hint and with the token redacted, in case the service repeated it."""
    said = str(error)
    if token:
        said = said.replace(token, "[token]")
        # A long message is truncated, perhaps in the middle of the token.
        cut = next((size for size in range(len(token) - 1, 3, -1) if said.endswith(f"{token[:size]}…")), 0)
        said = f"{said[: -cut - 1]}[token]" if cut else said
    return ApiError(said + hint, status=error.status, retry_after=error.retry_after)
