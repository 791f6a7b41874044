"""Fetches of URLs that come from an untrusted side, with the functions and limits that FastMCP has.

A name is resolved once, every address must be on the public Internet, and the connection goes to one of them while TLS
checks the name. Behind a trusted proxy (``FASTMCP_SSRF_TRUST_PROXY``) the proxy resolves names and must refuse private
addresses. Which addresses are public is decided by ``trunkline.net``.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urlsplit

from trunkline.compat.auth.http_client import httpx2
from trunkline.net.addresses import special_range

__all__ = [
    "SSRFError",
    "SSRFFetchError",
    "SSRFFetchResponse",
    "ValidatedURL",
    "format_ip_for_url",
    "is_ip_allowed",
    "resolve_hostname",
    "ssrf_safe_fetch",
    "ssrf_safe_fetch_response",
    "validate_url",
]

_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


class SSRFError(Exception):
    """A URL must not be fetched."""


class SSRFFetchError(Exception):
    """A fetch failed."""


@dataclass
class ValidatedURL:
    """A URL that may be fetched, and the addresses it was resolved to."""

    original_url: str
    hostname: str
    port: int
    path: str
    resolved_ips: list[str]
    proxy_url: str | None = None


@dataclass
class SSRFFetchResponse:
    """A response."""

    content: bytes
    status_code: int
    headers: dict[str, str] = field(default_factory=dict)


# --- addresses -------------------------------------------------------------------------------------------------------


def format_ip_for_url(ip_str: str) -> str:
    """Return an address as it stands in a URL: IPv6 in brackets."""
    try:
        return f"[{ip_str}]" if isinstance(ip_address(ip_str), IPv6Address) else ip_str
    except ValueError:
        return ip_str


#: Blocks of IPv6 that hold an IPv4 address, and at which bytes.
_LAST = ((12, 13, 14, 15),)
_EMBEDDED = (
    (IPv6Network("::ffff:0:0/96"), _LAST),
    (IPv6Network("::ffff:0:0:0/96"), _LAST),
    (IPv6Network("::/96"), _LAST),
    (IPv6Network("64:ff9b::/96"), _LAST),
    # RFC 6052, 2.2: where the prefix ends at bit 48 the address goes around byte 8, which is zero.
    (IPv6Network("64:ff9b:1::/48"), (*_LAST, (6, 7, 9, 10))),
    (IPv6Network("2002::/16"), ((2, 3, 4, 5),)),
)
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")


def _embedded(address: IPv6Address) -> tuple[list[IPv4Address], bool]:
    """Return the IPv4 addresses inside an IPv6 one, and whether it consists of nothing else."""
    packed = address.packed
    found: list[IPv4Address] = []
    whole = False
    for network, places in _EMBEDDED:
        if address in network:
            whole = True
            found += [IPv4Address(bytes(packed[index] for index in place)) for place in places]
            break
    if packed[8:12] in _ISATAP:
        found.append(IPv4Address(packed[12:]))
    return found, whole


def is_ip_allowed(ip_str: str) -> bool:
    """Return whether an address is on the public Internet, also if it carries an IPv4 address."""
    try:
        address = ip_address(ip_str)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return special_range(ip_str) is None
    inner, whole = _embedded(address)
    if special_range(ip_str) in ("a loopback address", "an unspecified address"):
        return False
    candidates = [each for each in inner if each.packed != b"\x00\x00\x00\x00"]
    if any(special_range(str(each)) is not None for each in candidates):
        return False
    return bool(candidates) if whole else special_range(ip_str) is None


async def resolve_hostname(hostname: str, port: int = 443) -> list[str]:
    """Return the addresses of a name, in the resolver's order.

    Raises:
        SSRFError: it has none.
    """
    loop = asyncio.get_running_loop()

    def look_up() -> list[Any]:
        return socket.getaddrinfo(hostname, port, socket.AF_UNSPEC, socket.SOCK_STREAM)

    try:
        found = await loop.run_in_executor(None, look_up)
    except OSError as error:
        raise SSRFError(f"DNS resolution failed for {hostname}: {error}") from error
    addresses = list(dict.fromkeys(str(info[4][0]) for info in found))
    if not addresses:
        raise SSRFError(f"DNS resolution returned no addresses for {hostname}")
    return addresses


# --- URLs ------------------------------------------------------------------------------------------------------------


def _trusted_proxy() -> str | None:
    from trunkline.compat.utilities import settings

    trusted = settings.ssrf_trust_proxy
    if trusted in (None, False, "", "0", "false", "False"):
        return None
    for name in _PROXY_VARIABLES:
        if os.environ.get(name):
            return os.environ[name]
    raise SSRFError(
        "ssrf_trust_proxy is set, but no HTTPS_PROXY/ALL_PROXY variable names a proxy: refusing to fetch without one"
    )


async def validate_url(url: str, require_path: bool = False) -> ValidatedURL:
    """Check that a URL may be fetched.

    Raises:
        SSRFError: it is not https, has no host, or one of its addresses is not public.
    """
    try:
        parsed = urlsplit(url)
        port = parsed.port or 443
    except ValueError as error:
        raise SSRFError(f"Invalid URL: {error}") from error
    if parsed.scheme != "https":
        raise SSRFError(f"URL must use HTTPS, got: {parsed.scheme}")
    if not parsed.hostname:
        raise SSRFError("URL must have a host")
    if require_path and parsed.path in ("", "/"):
        raise SSRFError("URL must have a non-root path")
    path = (parsed.path or "/") + (f"?{parsed.query}" if parsed.query else "")
    proxy = _trusted_proxy()
    if proxy is not None:
        return ValidatedURL(url, parsed.hostname, port, path, [], proxy)
    addresses = await resolve_hostname(parsed.hostname, port)
    blocked = [each for each in addresses if not is_ip_allowed(each)]
    if blocked:
        raise SSRFError(f"URL resolves to blocked IP address(es): {', '.join(blocked)}")
    return ValidatedURL(url, parsed.hostname, port, path, addresses)


# --- fetching --------------------------------------------------------------------------------------------------------


async def ssrf_safe_fetch(
    url: str,
    *,
    require_path: bool = False,
    max_size: int = 5120,
    timeout: float = 10.0,
    overall_timeout: float = 30.0,
) -> bytes:
    """Return the body at a URL.

    Raises:
        SSRFError: the URL must not be fetched.
        SSRFFetchError: the fetch failed.
    """
    response = await ssrf_safe_fetch_response(
        url, require_path=require_path, max_size=max_size, timeout=timeout, overall_timeout=overall_timeout
    )
    return response.content


async def ssrf_safe_fetch_response(
    url: str,
    *,
    require_path: bool = False,
    max_size: int = 5120,
    timeout: float = 10.0,
    overall_timeout: float = 30.0,
    request_headers: Mapping[str, str] | None = None,
    allowed_status_codes: set[int] | None = None,
) -> SSRFFetchResponse:
    """Return the response at a URL, from the first of its addresses that answers.

    Raises:
        SSRFError: the URL must not be fetched.
        SSRFFetchError: the fetch failed, was too large, or had another status.
    """
    given = {name: value for name, value in (request_headers or {}).items() if name.lower() != "host"}
    allowed = allowed_status_codes or {200}
    try:
        async with asyncio.timeout(overall_timeout):
            checked = await validate_url(url, require_path)
            last: Exception | None = None
            for target in _targets(checked):
                try:
                    return await _fetch(target, given, (max_size, timeout), allowed)
                except httpx2.TimeoutException as error:
                    last = SSRFFetchError(f"Timeout fetching {url}: {error}")
                except httpx2.RequestError as error:
                    last = SSRFFetchError(f"Error fetching {url}: {error}")
            raise last or SSRFFetchError(f"Error fetching {url}: no addresses")
    except TimeoutError as error:
        raise SSRFFetchError(f"Overall timeout fetching {url}") from error


@dataclass
class _Target:
    url: str
    headers: dict[str, str]
    extensions: dict[str, Any]
    proxy: str | None


def _targets(checked: ValidatedURL) -> list[_Target]:
    if checked.proxy_url is not None:
        return [_Target(checked.original_url, {}, {}, checked.proxy_url)]
    host = checked.hostname if checked.port == 443 else f"{checked.hostname}:{checked.port}"
    return [
        _Target(
            f"https://{format_ip_for_url(address)}:{checked.port}{checked.path}",
            {"Host": host},
            {"sni_hostname": checked.hostname},
            None,
        )
        for address in checked.resolved_ips
    ]


async def _fetch(
    target: _Target, headers: Mapping[str, str], limits: tuple[int, float], allowed: set[int]
) -> SSRFFetchResponse:
    max_size, timeout = limits
    async with (
        httpx2.AsyncClient(
            timeout=timeout,
            follow_redirects=False,
            verify=True,
            proxy=target.proxy,
            # A proxy that is named here must not be overruled by NO_PROXY.
            trust_env=target.proxy is None,
        ) as client,
        client.stream(
            "GET", target.url, headers={**headers, **target.headers}, extensions=target.extensions
        ) as response,
    ):
        if response.status_code not in allowed:
            raise SSRFFetchError(f"HTTP {response.status_code} fetching {target.url}")
        length = response.headers.get("content-length")
        if length is not None and length.isdigit() and int(length) > max_size:
            raise SSRFFetchError(f"Response too large: {length} bytes (max {max_size})")
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > max_size:
                raise SSRFFetchError(f"Response too large: more than {max_size} bytes")
        return SSRFFetchResponse(bytes(body), response.status_code, dict(response.headers))
