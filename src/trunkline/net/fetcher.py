"""The one HTTP client for untrusted URLs: metadata, keys, client documents.

An untrusted URL may be an attempt to make us call something that only we can reach. So a URL is parsed once and rebuilt
from checked parts; its name is resolved once for each hop, every address it has must be on the public Internet, and the
connection goes to those addresses and no others, while TLS still checks the name. There are no cookies, no stored
passwords, no environment settings, no compression unless requested, and nothing without a limit. It knows nothing of
what is fetched. With a proxy it is the proxy that resolves names, and so the proxy that must refuse private addresses.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from msgspec import Struct, structs

from trunkline.errors import ConfigError, FetchError
from trunkline.net.addresses import NotPublicAddress, special_range
from trunkline.net.decompression import ENCODINGS, DecompressionError, Decompressor
from trunkline.net.urls import ParsedURL, is_proxy_url, parse_url, redact_url

if TYPE_CHECKING:
    import aiohttp

__all__ = ["BeforeHop", "FetchResponse", "Fetcher", "Resolve"]

#: Resolves a host name and port to addresses.
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

#: Called with the URL of each hop before the request is sent; an exception ends the fetch.
BeforeHop = Callable[[str], Awaitable[None]]

# Allowance for padding in compressed data. Beyond twice the limit plus this, a response that yields almost no output is
# aborted.
_PADDING_ALLOWANCE = 64 * 1024
_LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class FetchResponse(Struct, frozen=True):
    """A response of any status; names of headers are in lower case, repeated ones are joined by a comma."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    #: The URL it came from, after redirects.
    url: str
    #: Whether the body was truncated.
    cut: bool = False


class _FetchRequest(Struct, frozen=True):
    """A request and its limits."""

    method: str
    headers: Mapping[str, str]
    body: bytes | None
    max_bytes: int
    redirects: int
    cross_origin: bool
    before_hop: BeforeHop | None = None
    cut: bool = False
    gzip: bool = False


class Fetcher:
    """Fetches untrusted URLs; any number at a time.

    ``allow_loopback`` allows this machine under its own names (``localhost``, ``127.0.0.1``, ``[::1]``), also over
    plain http, for development; ``allow_private`` allows every address besides, and ``allow_hosts`` those of the hosts
    it names, as ``host`` or ``host:port``. ``allow_http`` allows plain http everywhere, not only on this machine. Each
    hop has its own connection: responses are cached by the callers, and an idle connection would outlive the check of
    its address.
    """

    def __init__(
        self,
        *,
        allow_private: bool = False,
        allow_loopback: bool = False,
        allow_hosts: Collection[str] = (),
        allow_http: bool = False,
        ca_file: str | None = None,
        proxy: str | None = None,
        resolve_proxied: bool = False,
        user_agent: str = "trunkline",
        resolve: Resolve | None = None,
    ) -> None:
        """Store the options and open nothing; ``ca_file`` has the certificates to trust instead of the system's.

        With ``resolve_proxied`` a name that resolves here to a private address is rejected even if a proxy is used,
        which may resolve it again and differently: a second line of defence, not the guard.

        Raises:
            ConfigError: the certificate file or the proxy is invalid.
        """
        self._allow_private = allow_private
        self._allow_loopback = allow_loopback or allow_private
        self._allow_hosts = frozenset(host.lower() for host in allow_hosts)
        self._allow_http = allow_http
        self._resolve_proxied = resolve_proxied
        self._trust = _tls_trust(ca_file)
        self._proxy = _checked_proxy(proxy)
        self._user_agent = user_agent
        self._resolve = resolve or _resolve
        self._closed = False

    async def __aenter__(self) -> Fetcher:
        """Return the fetcher itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the fetcher."""
        await self.aclose()

    async def aclose(self) -> None:
        """Reject further fetches; those under way end by their own timeout."""
        self._closed = True

    async def fetch(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        max_bytes: int = 1024 * 1024,
        seconds: float = 10.0,
        redirects: int = 3,
        cross_origin: bool = False,
        before_hop: BeforeHop | None = None,
        cut: bool = False,
        gzip: bool = False,
    ) -> FetchResponse:
        """Fetch a URL; a response of any status is returned.

        GET and HEAD follow redirects on the same origin. ``cross_origin`` allows other origins, to which none of the
        given headers are sent. With ``redirects=0`` a redirect is returned, whatever the method. With ``cut`` a body
        that is too large is truncated at ``max_bytes`` and is no error. ``gzip`` accepts compressed responses too; they
        are decompressed piece by piece and never beyond ``max_bytes``.

        Raises:
            FetchError: the URL, an address, or a redirect was rejected, or there was no response within the limits.
        """
        request = _FetchRequest(
            method.upper(), headers or {}, body, max_bytes, redirects, cross_origin, before_hop, cut, gzip
        )
        if self._closed:
            raise FetchError(f"Cannot fetch {redact_url(url)}: the fetcher is closed")
        target = self._checked(url)
        try:
            async with asyncio.timeout(seconds):
                return await self._follow(request, target)
        except TimeoutError as error:
            raise FetchError(f"{target.where} took too long: the limit is {seconds:g} seconds") from error

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _follow(self, request: _FetchRequest, target: ParsedURL) -> FetchResponse:
        """Follow redirects until a response is not one."""
        first = target
        for _ in range(request.redirects + 1):
            if request.before_hop is not None:
                await request.before_hop(target.url)
            answer = await self._hop(request, target)
            if not _is_redirect(request, answer.status, answer.headers):
                return answer
            there = self._redirected(request, target, answer.headers["location"])
            if there.origin != target.origin:
                # Never again, even if a later hop leads back: by then an untrusted server has influenced the URL.
                request = structs.replace(request, headers={}, body=None)
            target = there
        raise FetchError(f"{first.where} redirects more than {request.redirects} times")

    def _redirected(self, request: _FetchRequest, target: ParsedURL, location: str) -> ParsedURL:
        """Return the target of a redirect, if it may be followed."""
        if request.method not in ("GET", "HEAD") or request.body is not None:
            raise FetchError(f"{target.where} answered {request.method} with a redirect, which is never followed")
        try:
            there = self._checked(urljoin(target.url, location))
        except (FetchError, ValueError) as error:
            raise FetchError(f"{target.where} redirects to a URL that is not allowed. {error}") from error
        if there.scheme != target.scheme and there.scheme != "https":
            raise FetchError(f"{target.where} redirects from https to http at {there.where}, which is not followed")
        if there.origin != target.origin and not request.cross_origin:
            raise FetchError(
                f"{target.where} redirects to {there.scheme}://{there.where}, which is another origin and not followed"
            )
        return there

    async def _hop(self, request: _FetchRequest, target: ParsedURL) -> FetchResponse:
        """Send one request, to an address that was just checked."""
        import aiohttp
        from yarl import URL

        proxy = None if target.is_local else self._proxy
        addresses = await self._proxied(target) if proxy else await self._addresses(target)
        # Compressed responses are not requested and not accepted unless the caller wants them: a small one may become
        # large.
        given = {name.lower(): value for name, value in request.headers.items()}
        encoding = "gzip" if request.gzip else "identity"
        head = {"user-agent": self._user_agent, **given, "accept-encoding": encoding}
        try:
            async with (
                self._session(addresses) as session,
                session.request(
                    request.method,
                    URL(target.url, encoded=True),
                    headers=head,
                    data=request.body,
                    allow_redirects=False,
                    proxy=proxy,
                ) as response,
            ):
                return await _read(response, request, target)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise FetchError(_failure(error, target, proxied=proxy is not None)) from error

    def _session(self, addresses: Sequence[str]) -> aiohttp.ClientSession:
        """Create a session that connects to these addresses only; to a proxy, if there are none."""
        import aiohttp

        resolver: Any = _PinnedResolver(addresses) if addresses else None
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._trust, resolver=resolver, use_dns_cache=False, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            # The only timeout is that of the whole fetch.
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )

    # --- checks ------------------------------------------------------------------------------------------------------

    def _checked(self, url: str) -> ParsedURL:
        """Parse a URL, and rebuild it from valid parts."""
        target = parse_url(url)
        plain = self._allow_http or self._trusted(target) or (self._allow_loopback and target.is_local)
        if target.scheme == "http" and not plain:
            raise FetchError(f"Will not fetch from {target.where} over plain http: https is needed")
        if target.is_address:
            self._admit(target, target.host)
        return target

    async def _addresses(self, target: ParsedURL) -> Sequence[str]:
        """Return the addresses of a target; all of them must be allowed, since any of them may be used."""
        if target.is_address:
            return (target.host,)
        # A name of this machine is not left to a resolver (RFC 6761, 6.3).
        if target.is_local:
            found: Sequence[str] = _LOOPBACK_ADDRESSES
        else:
            try:
                found = await self._resolve(target.host.removesuffix("."), target.port)
            except OSError as error:
                raise FetchError(f"The name {target.host} cannot be resolved: {_reason(error)}") from error
        if not found:
            raise FetchError(f"The name {target.host} has no address")
        for address in found:
            self._admit(target, address)
        return found

    async def _proxied(self, target: ParsedURL) -> Sequence[str]:
        """Check the addresses that a name has here, if any, and leave the resolution to the proxy."""
        if self._resolve_proxied and not target.is_address:
            try:
                found = await self._resolve(target.host.removesuffix("."), target.port)
            except OSError:
                found = ()
            for address in found:
                self._admit(target, address)
        return ()

    def _trusted(self, target: ParsedURL) -> bool:
        """Return True if the host was listed as one that may have any address."""
        host = target.shown_host.removesuffix(".")
        return not self._allow_hosts.isdisjoint((host, f"{host}:{target.port}"))

    def _admit(self, target: ParsedURL, address: str) -> None:
        """Raise if an address is not on the public Internet, unless such addresses are allowed."""
        if self._allow_private or (self._allow_loopback and target.is_local) or self._trusted(target):
            return
        special = special_range(address)
        if special is not None:
            raise NotPublicAddress(target.where, address, special)


class _PinnedResolver:
    """A resolver for aiohttp that returns the addresses that were checked."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        """Return the addresses, whatever the name."""
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            }
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


async def _resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def _read(response: aiohttp.ClientResponse, request: _FetchRequest, target: ParsedURL) -> FetchResponse:
    """Read a response up to its limit."""
    headers: dict[str, str] = {}
    for name, value in response.headers.items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    if request.method == "HEAD" or _is_redirect(request, response.status, headers):
        return FetchResponse(response.status, headers, b"", target.url)
    body = await _read_body(response, headers, request, target)
    return FetchResponse(response.status, headers, body[: request.max_bytes], target.url, len(body) > request.max_bytes)


def _is_redirect(request: _FetchRequest, status: int, headers: Mapping[str, str]) -> bool:
    """Return True if a response is a redirect that must be followed or rejected."""
    return request.redirects > 0 and status in _REDIRECTS and bool(headers.get("location"))


async def _read_body(
    response: aiohttp.ClientResponse, headers: Mapping[str, str], request: _FetchRequest, target: ParsedURL
) -> bytes:
    """Read a body until it ends or exceeds its limit."""
    decompressor = _decompressor(headers, request, target)
    if not request.cut and (response.content_length or 0) > request.max_bytes:
        raise FetchError(_too_large(request, target))
    # One buffer instead of a list: each tiny chunk would cost far more memory as its own bytes object.
    body = bytearray()
    received = 0
    while len(body) <= request.max_bytes and (data := await response.content.readany()):
        received += len(data)
        try:
            for piece in (data,) if decompressor is None else decompressor.feed(data):
                body += piece
                if len(body) > request.max_bytes:
                    break
        except DecompressionError as error:
            raise FetchError(
                f"{target.where} sent a compressed response that cannot be decompressed: it {error}"
            ) from error
        if len(body) <= request.max_bytes and received > 2 * request.max_bytes + _PADDING_ALLOWANCE:
            raise FetchError(f"{target.where} sent far more bytes than they decompress to")
    if len(body) > request.max_bytes and not request.cut:
        raise FetchError(_too_large(request, target))
    return bytes(body)


def _too_large(request: _FetchRequest, target: ParsedURL) -> str:
    return f"The response of {target.where} is too large: the limit is {request.max_bytes} bytes"


def _decompressor(headers: Mapping[str, str], request: _FetchRequest, target: ParsedURL) -> Decompressor | None:
    """Return the decompressor of a response; None if it is not compressed."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("identity", ""):
        return None
    if not request.gzip or encoding not in ENCODINGS:
        raise FetchError(f"{target.where} sent Content-Encoding {encoding[:100]!r}, which was not requested")
    return Decompressor(encoding)


# --- settings and failures -------------------------------------------------------------------------------------------


def _tls_trust(ca_file: str | None) -> Any:
    if ca_file is None:
        return True
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"ca_file={ca_file!r} cannot be used: {error}") from error


def _checked_proxy(proxy: str | None) -> str | None:
    if not proxy:
        return None
    if not is_proxy_url(proxy):
        raise ConfigError("proxy= must be a URL such as http://proxy.example:3128")
    return proxy


def _failure(error: Exception, target: ParsedURL, *, proxied: bool) -> str:
    """Return a message for a network error that names the party at fault."""
    import aiohttp

    where = target.where
    match error:
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", None) or str(error.certificate_error)
            return f"The certificate of {where} is not trusted: {why}"
        case aiohttp.ClientConnectorSSLError():
            return f"TLS with {where} failed: {error.os_error}"
        case aiohttp.ClientHttpProxyError():
            return f"The proxy did not connect to {where}: {error.status} {error.message}"
        case aiohttp.ClientConnectorError():
            return f"Cannot connect to {'the proxy for ' * proxied}{where}: {_reason(error.os_error)}"
        case aiohttp.ClientResponseError():
            return f"{where} sent an invalid HTTP response: {_without_bytes(error.message)}"
        case aiohttp.ServerDisconnectedError():
            return f"{where} closed the connection before it answered"
        case aiohttp.ClientPayloadError():
            return f"{where} closed the connection in the middle of its response"
        case ValueError():
            return f"Cannot send a request to {where}: {error}"
    return f"The connection to {where} broke: {str(error) or type(error).__name__}"


def _without_bytes(message: str) -> str:
    """Return what is wrong with a response without the excerpt that follows, which is untrusted text."""
    reason = message.partition("\n")[0]
    for begin in (": b'", ': b"', ": bytearray("):
        reason = reason.partition(begin)[0]
    return reason.rstrip(": ")


def _reason(error: OSError) -> str:
    # An event loop replaces the system's words by its own; the number is plain and unambiguous.
    known = error.errno is not None and error.errno > 0 and os.strerror(error.errno)
    return known or error.strerror or str(error) or type(error).__name__
