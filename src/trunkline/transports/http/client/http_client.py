"""The HTTP client below the links.

Connections, TLS, proxies, redirects, and the interface to whatever holds the credentials.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import aiohttp
from msgspec import Struct
from yarl import URL

from trunkline.errors import ConfigError, HttpError, RemoteProtocolError
from trunkline.net.addresses import is_loopback
from trunkline.protocol.limits import Limits
from trunkline.transports.http.client.errors import NETWORK_ERRORS, network_error, status_error
from trunkline.transports.http.client.response_body import Decompressor

__all__ = [
    "SMALL",
    "ClientAuthorizer",
    "HttpClient",
    "HttpClientOptions",
    "PausableTimeouts",
    "post_oneway",
    "read_body",
    "timeouts_of",
]


class ClientAuthorizer(Protocol):
    """Shows requests to be allowed, and does something about a refusal."""

    @property
    def stale(self) -> bool:
        """Whether ``prepare`` should be awaited before the next request."""

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Give the headers that show one request to be allowed."""

    def accepted(self, nonce: str | None) -> None:
        """Learn that a request was let in, and the nonce that its answer gives for the next."""

    async def prepare(self) -> None:
        """Get ready without asking anybody."""

    async def refused(
        self, status: int, challenges: list[str], *, shown: str | None, nonce: str | None, quietly: bool = False
    ) -> bool:
        """Do something about a refusal; tell whether the request is worth another try."""


@runtime_checkable
class PausableTimeouts(Protocol):
    """The clocks of requests that wait, which stand still while a person logs in."""

    def pause_clocks(self) -> None:
        """Stop them."""

    def resume_clocks(self) -> None:
        """Let them run on."""


def timeouts_of(receiver: object) -> PausableTimeouts | None:
    """Find the clocks of whom a link delivers to; one that only listens has none."""
    return receiver if isinstance(receiver, PausableTimeouts) else None


#: What is read of an answer that says no more than why something was refused.
SMALL = 64 * 1024

T = TypeVar("T")

_HOPS = 3  # A moved endpoint, its canonical host and its trailing slash.
# A login, scopes for one operation, and a nonce for each; whatever needs more will not come to an end.
_TRIES = 5
# Many servers close a connection that rested for five seconds. One that is taken up just then loses its request, and a
# POST cannot be sent again unasked; so ours rest for less.
_KEEPALIVE_SECONDS = 4.0
# From here on a body is given to the writer as a file: as bytes it would be written in one go.
_LARGE = 2**20
_PERMANENT = frozenset({301, 308})
# These keep verb and body; to the other two, browsers have long answered with a GET.
_FOLLOWED = frozenset({307, 308})
_FOLLOWED_BY_GET = frozenset({301, 302, 307, 308})


class HttpClientOptions(Struct, frozen=True, kw_only=True):
    """How to reach a server on the web."""

    url: str
    user_agent: str = "trunkline"
    #: Sent with every request.
    headers: Mapping[str, str] = {}
    #: The proxy's URL; None leaves it to the environment, the empty text means none.
    proxy: str | None = None
    #: A file with the certificates to trust instead of the system's.
    ca_file: str | None = None
    #: An ``ssl.SSLContext`` to use as it is.
    ssl: Any = None
    #: Who shows requests to be allowed, where a fixed header does not.
    authorizer: ClientAuthorizer | None = None


class HttpClient:
    """The connections to one server."""

    def __init__(self, options: HttpClientOptions, limits: Limits) -> None:
        """Open nothing yet; called inside a running event loop.

        Raises:
            ConfigError: a certificate file or a proxy that makes no sense.
        """
        self.url = URL(options.url, encoded=True)
        self.proxy = _proxy(self.url, options.proxy)
        self._authorizer = options.authorizer
        #: What stands still while a person logs in.
        self.clocks: PausableTimeouts | None = None
        trust = _ssl_context(options)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trust, keepalive_timeout=_KEEPALIVE_SECONDS),
            # The connection above has all the clocks.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            max_line_size=limits.header_bytes,
            max_field_size=limits.header_bytes,
            proxy=self.proxy,
        )

    async def open(
        self,
        verb: str,
        head: Mapping[str, str],
        *,
        body: bytes | None = None,
        url: URL | None = None,
        quietly: bool = False,
    ) -> aiohttp.ClientResponse:
        """Send a request and give the answer once its head is there; redirects on the same server are followed.

        A refusal may lead to a login, after which the request is sent again; ``quietly``, nobody is asked.

        Raises:
            ConnectionLost: the network failed.
            HttpError: it is a redirect that is not followed.
            RemoteProtocolError: the answer is no HTTP.
            AuthError: the login failed.
        """
        authorizer = self._authorizer
        if authorizer is None:
            return await self._send(verb, head, body=body, url=url)
        if authorizer.stale:
            await self._with_timeouts_paused(authorizer.prepare())
        for attempt in range(_TRIES):
            response = await self._send(verb, head, body=body, url=url)
            nonce = response.headers.get("DPoP-Nonce")
            if response.status not in (401, 403):
                authorizer.accepted(nonce)
                return response
            refused = authorizer.refused(
                response.status,
                response.headers.getall("WWW-Authenticate", []),
                shown=response.request_info.headers.get("Authorization"),
                nonce=nonce,
                quietly=quietly,
            )
            try:
                again = await self._with_timeouts_paused(refused)
            except BaseException:
                response.close()
                raise
            if not again or attempt == _TRIES - 1:
                break
            response.close()
        return response

    async def _with_timeouts_paused(self, work: Awaitable[T]) -> T:
        """Wait for what a person may be part of: whoever waits for the answer is not to lose patience over it."""
        clocks = self.clocks
        if clocks is None:
            return await work
        clocks.pause_clocks()
        try:
            return await work
        finally:
            clocks.resume_clocks()

    async def _send(
        self, verb: str, head: Mapping[str, str], *, body: bytes | None, url: URL | None
    ) -> aiohttp.ClientResponse:
        there = url or self.url
        authorizer = self._authorizer
        for _ in range(_HOPS + 1):
            data = io.BytesIO(body) if body is not None and len(body) >= _LARGE else body
            # A proof names the URL, so each hop has its own.
            whole = head if authorizer is None else {**head, **authorizer.headers(verb, str(there))}
            try:
                response = await self._session.request(verb, there, data=data, headers=whole, allow_redirects=False)
            except NETWORK_ERRORS as error:
                raise network_error(error, there, proxy=self.proxy) from error
            if not 300 <= response.status < 400:
                return response
            there = self._follow(response, verb)
            if url is None and response.status in _PERMANENT:
                self.url = there
            response.release()
        raise HttpError(f"{there.host}:{there.port} redirects again and again", status=response.status)

    def _follow(self, response: aiohttp.ClientResponse, verb: str) -> URL:
        """Say where a redirect leads, if it may be followed."""
        location = response.headers.get("Location", "")
        try:
            there = response.url.join(URL(location, encoded=True)) if location else None
            same = there is not None and there.origin() == response.url.origin() and there.user is None
        except ValueError:
            there, same = None, False
        if there is not None and same and response.status in (_FOLLOWED_BY_GET if verb == "GET" else _FOLLOWED):
            return there
        response.close()
        advice = f"it points to {location[:200]!r}, which is not followed; give that URL if you trust it"
        raise status_error(response, verb, advice=advice)

    def failure(self, error: BaseException) -> Exception:
        """Turn what reading an answer raised into an exception of ours."""
        return network_error(error, self.url, proxy=self.proxy)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()


async def post_oneway(web: HttpClient, head: Mapping[str, str], body: bytes, *, url: URL | None = None) -> None:
    """Post what is answered by a status alone.

    Raises:
        HttpError: the server did not take it.
        TrunklineError: it could not be sent; see ``Web.open``.
    """
    response = await web.open("POST", head, body=body, url=url)
    try:
        said = await read_body(response, SMALL)
    finally:
        if not response.content.is_eof():
            response.close()
    if response.status >= 300:
        raise status_error(response, "POST", body=said)


async def read_body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read a whole answer, compression undone.

    Raises:
        RemoteProtocolError: it is longer than the limit, or compressed with what was not asked for.
        NETWORK_ERRORS: it broke off.
    """
    encoding = response.headers.get("Content-Encoding")
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and int(length) > limit:
        raise _too_long(limit)
    if encoding is None and length:
        return await response.content.read()
    inflater = Decompressor(encoding or "")
    pieces: list[bytes] = []
    size = 0
    while data := await response.content.readany():
        for piece in inflater.feed(data):
            size += len(piece)
            if size > limit:
                raise _too_long(limit)
            pieces.append(piece)
    return b"".join(pieces)


def _too_long(limit: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"the answer is longer than {limit} bytes, which is the limit")


def _ssl_context(options: HttpClientOptions) -> Any:
    if options.ssl is not None:
        return options.ssl
    if options.ca_file is None:
        return True
    import ssl

    try:
        return ssl.create_default_context(cafile=options.ca_file)
    except OSError as error:
        raise ConfigError(f"ca_file={options.ca_file!r} cannot be used: {error}") from error


def _proxy(url: URL, given: str | None) -> URL | None:
    """Find the proxy: the one given, else the environment's; never for this machine itself, unless it was given."""
    text = given
    if given is None and not is_loopback(url.host):
        from urllib.request import getproxies, proxy_bypass

        found = getproxies()
        text = found.get(url.scheme) or found.get("all")
        if text and proxy_bypass(f"{url.host}:{url.port}"):
            text = None
    if not text:
        return None
    proxy = URL(text if "://" in text else f"http://{text}")
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise ConfigError(f"The proxy {proxy.scheme}://{proxy.host} cannot be used: only http and https proxies can.")
    return proxy
