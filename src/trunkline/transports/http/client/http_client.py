"""The HTTP client that the links use: connections, TLS, proxies, redirects, and the interface of the authorizer."""

from __future__ import annotations

import io
import time
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

import aiohttp
from msgspec import Struct
from yarl import URL

from trunkline.errors import ConfigError, HttpError
from trunkline.net.addresses import is_loopback
from trunkline.protocol.limits import Limits
from trunkline.protocol.traffic import HttpTraffic, TrafficTap
from trunkline.transports.http.client.errors import NETWORK_ERRORS, network_error, printable_url, status_error
from trunkline.transports.http.client.response_body import read_body
from trunkline.types import RequestId

__all__ = [
    "SMALL",
    "ClientAuthorizer",
    "HttpClient",
    "HttpClientOptions",
    "PausableTimeouts",
    "post_oneway",
    "timeouts_of",
]


class ClientAuthorizer(Protocol):
    """Adds credentials to requests, and obtains new ones when a request is denied."""

    @property
    def stale(self) -> bool:
        """Whether ``prepare`` should be awaited before the next request."""

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the headers with the credentials of one request."""

    def accepted(self, nonce: str | None) -> None:
        """Called when a request was accepted, with the nonce that the response sets for the next one."""

    async def prepare(self) -> None:
        """Refresh the credentials without involving the user."""

    async def refused(
        self, status: int, challenges: list[str], *, shown: str | None, nonce: str | None, quietly: bool = False
    ) -> bool:
        """Called when a request was denied; return whether to send it again.

        ``shown`` is the ``Authorization`` header that was sent; ``quietly``, the user is not involved.
        """


@runtime_checkable
class PausableTimeouts(Protocol):
    """The timeouts of pending requests, which are paused while a person logs in."""

    def pause_clocks(self) -> None:
        """Pause the timeouts."""

    def resume_clocks(self) -> None:
        """Resume the timeouts."""


def timeouts_of(receiver: object) -> PausableTimeouts | None:
    """Return the receiver of a link if it has timeouts; one that only listens has none."""
    return receiver if isinstance(receiver, PausableTimeouts) else None


#: The limit for the body of a response that carries no message, such as the reason of an error.
SMALL = 64 * 1024

T = TypeVar("T")

_HOPS = 3  # A moved endpoint, its canonical host and its trailing slash.
# A login, scopes for one operation, and a nonce for each; a server that needs more would never be satisfied.
_TRIES = 5
# Many servers close a connection that was idle for five seconds. One that is reused just then loses its request, and a
# POST cannot be retried safely; so ours are idle for less.
_KEEPALIVE_SECONDS = 4.0
# A body of this size is passed to the writer as a file: as bytes it would be written in one go.
_LARGE = 2**20
_PERMANENT = frozenset({301, 308})
# These keep method and body; for the other two, browsers have long sent a GET instead.
_FOLLOWED = frozenset({307, 308})
_FOLLOWED_BY_GET = frozenset({301, 302, 307, 308})


class HttpClientOptions(Struct, frozen=True, kw_only=True):
    """The options of an HTTP client: the URL, and how to reach it."""

    url: str
    user_agent: str = "trunkline"
    #: Sent with every request.
    headers: Mapping[str, str] = {}
    #: The URL of the proxy; None uses the environment's, the empty string none.
    proxy: str | None = None
    #: A file with the certificates to trust instead of the system's.
    ca_file: str | None = None
    #: An ``ssl.SSLContext`` to use as it is.
    ssl: Any = None
    #: The source of credentials, unless a fixed header has them.
    authorizer: ClientAuthorizer | None = None
    #: Where the exchanges can be observed.
    tap: TrafficTap | None = None


class HttpClient:
    """The HTTP connections to one server."""

    def __init__(self, options: HttpClientOptions, limits: Limits) -> None:
        """Create the session without connecting. Must be called in a running event loop.

        Raises:
            ConfigError: the certificate file or the proxy is invalid.
        """
        self.url = URL(options.url, encoded=True)
        self.proxy = _proxy(self.url, options.proxy)
        self._authorizer = options.authorizer
        self._tap = options.tap
        #: The timeouts to pause while a person logs in.
        self.clocks: PausableTimeouts | None = None
        trust = _ssl_context(options)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=trust, keepalive_timeout=_KEEPALIVE_SECONDS),
            # `trunkline.connection.Connection` applies the request timeouts; aiohttp only limits connecting.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            max_line_size=limits.header_bytes,
            max_field_size=limits.header_bytes,
            proxy=self.proxy,
        )

    async def open(
        self,
        method: str,
        head: Mapping[str, str],
        *,
        body: bytes | None = None,
        url: URL | None = None,
        quietly: bool = False,
        about: RequestId | None = None,
    ) -> aiohttp.ClientResponse:
        """Send a request and return the response once its headers are there; redirects on the same server are followed.

        A denied request may lead to a login, after which it is sent again. With ``quietly`` no interactive login is
        started. ``about`` is the id of the request in the body, for an observer.

        Raises:
            ConnectionLost: the network failed.
            HttpError: the response is a redirect that is not followed.
            RemoteProtocolError: the response is not HTTP.
            AuthError: the login failed.
        """
        authorizer = self._authorizer
        if authorizer is None:
            return await self._send(method, head, body=body, url=url, about=about)
        if authorizer.stale:
            await self._with_timeouts_paused(authorizer.prepare())
        for attempt in range(_TRIES):
            response = await self._send(method, head, body=body, url=url, about=about)
            nonce = response.headers.get("DPoP-Nonce")
            if response.status not in (401, 403):
                authorizer.accepted(nonce)
                return response
            handled = authorizer.refused(
                response.status,
                response.headers.getall("WWW-Authenticate", []),
                shown=response.request_info.headers.get("Authorization"),
                nonce=nonce,
                quietly=quietly,
            )
            try:
                retry = await self._with_timeouts_paused(handled)
            except BaseException:
                response.close()
                raise
            if not retry or attempt == _TRIES - 1:
                break
            response.close()
        return response

    async def _with_timeouts_paused(self, work: Awaitable[T]) -> T:
        """Await what may involve the user, with the timeouts of pending requests paused."""
        clocks = self.clocks
        if clocks is None:
            return await work
        clocks.pause_clocks()
        try:
            return await work
        finally:
            clocks.resume_clocks()

    async def _send(
        self, method: str, head: Mapping[str, str], *, body: bytes | None, url: URL | None, about: RequestId | None
    ) -> aiohttp.ClientResponse:
        target = url or self.url
        authorizer = self._authorizer
        for _ in range(_HOPS + 1):
            data = io.BytesIO(body) if body is not None and len(body) >= _LARGE else body
            # A proof names the URL, so each hop has its own.
            headers = head if authorizer is None else {**head, **authorizer.headers(method, str(target))}
            # Looked up for each exchange: observing may begin and end at any time.
            observer = None if self._tap is None else self._tap.observer
            began = 0.0 if observer is None else time.perf_counter()
            try:
                response = await self._session.request(
                    method, target, data=data, headers=headers, allow_redirects=False
                )
            except NETWORK_ERRORS as error:
                failure = network_error(error, target, proxy=self.proxy)
                if observer is not None:
                    observer.http_exchanged(_failed(method, target, headers, began, about, failure))
                raise failure from error
            if observer is not None:
                observer.http_exchanged(_exchanged(response, began, about))
            if not 300 <= response.status < 400:
                return response
            target = self._redirect_target(response, method)
            if url is None and response.status in _PERMANENT:
                self.url = target
            response.release()
        raise HttpError(f"{target.host}:{target.port} redirects too often", status=response.status)

    def _redirect_target(self, response: aiohttp.ClientResponse, method: str) -> URL:
        """Return the target of a redirect, if it may be followed."""
        location = response.headers.get("Location", "")
        try:
            target = response.url.join(URL(location, encoded=True)) if location else None
            same = target is not None and target.origin() == response.url.origin() and target.user is None
        except ValueError:
            target, same = None, False
        if target is not None and same and response.status in (_FOLLOWED_BY_GET if method == "GET" else _FOLLOWED):
            return target
        response.close()
        advice = f"it points to {location[:200]!r}, which is not followed; give that URL if you trust it"
        raise status_error(response, method, advice=advice)

    def failure(self, error: BaseException) -> Exception:
        """Return the exception for an error that was raised while a response was read."""
        return network_error(error, self.url, proxy=self.proxy)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()


# The values of these are never passed to an observer.
_CREDENTIALS = frozenset({"authorization", "cookie", "dpop", "dpop-nonce", "proxy-authorization", "set-cookie"})


def _exchanged(response: aiohttp.ClientResponse, began: float, about: RequestId | None) -> HttpTraffic:
    return HttpTraffic(
        method=response.method,
        url=printable_url(response.url),
        status=response.status,
        request_headers=_observable(response.request_info.headers),
        response_headers=_observable(response.headers),
        seconds=time.perf_counter() - began,
        about=about,
    )


def _failed(
    method: str, url: URL, headers: Mapping[str, str], began: float, about: RequestId | None, error: Exception
) -> HttpTraffic:
    return HttpTraffic(
        method=method,
        url=printable_url(url),
        request_headers=_observable(headers),
        seconds=time.perf_counter() - began,
        about=about,
        error=str(error),
    )


def _observable(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: "***" if name.lower() in _CREDENTIALS else value for name, value in headers.items()}


async def post_oneway(http: HttpClient, head: Mapping[str, str], body: bytes, *, url: URL | None = None) -> None:
    """Post a message whose response is only a status.

    Raises:
        HttpError: the server did not accept it.
        TrunklineError: it could not be sent; see ``HttpClient.open``.
    """
    response = await http.open("POST", head, body=body, url=url)
    try:
        content = await read_body(response, SMALL)
    finally:
        if not response.content.is_eof():
            response.close()
    if response.status >= 300:
        raise status_error(response, "POST", body=content)


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
    """Return the proxy given, else the environment's. Loopback URLs use a proxy only if one is given explicitly."""
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
