"""Untrusted URLs, parsed once and rebuilt from checked parts.

What was checked is then what is called: no second parser reads the text and sees another host in it. It resolves
nothing and does not judge addresses.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from urllib.parse import SplitResult, quote, urlsplit

from msgspec import Struct

from trunkline.errors import FetchError

__all__ = ["ParsedURL", "is_proxy_url", "parse_url", "redact_url"]

_PORTS = MappingProxyType({"https": 443, "http": 80})
_NAME = re.compile(r"(?=.{1,253}\.?$)(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*\.?", re.ASCII)
# The last part of a name decides whether resolvers read it as a number: 127.1, 0x7f.1 and 2130706433 are addresses.
_NUMBER = re.compile(r"(?:\d+|0x[0-9a-f]*)", re.ASCII)
_FOUR = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}", re.ASCII)
_BRACKETED = re.compile(r"\[[^\[\]]*\](?::\d*)?")
_UNCLEAN = re.compile(r"[\x00-\x1f\x7f\\]")
# The characters that RFC 3986 allows in a path and a query, and the percent sign of what is encoded already.
_PATH = "/:@!$&'()*+,;=-._~%"
_QUERY = _PATH + "?"


class ParsedURL(Struct, frozen=True):
    """A URL made of checked parts."""

    scheme: str
    #: A name in ASCII, or an address in canonical form.
    host: str
    port: int
    #: The path, and the query if there is one.
    rest: str
    is_address: bool

    @property
    def where(self) -> str:
        """Host and port, as messages show them: a path or query may hold a secret."""
        return f"{self.shown_host}:{self.port}"

    @property
    def shown_host(self) -> str:
        """The host as it stands in a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def origin(self) -> tuple[str, str, int]:
        """The origin: scheme, host and port."""
        return self.scheme, self.host, self.port

    @property
    def url(self) -> str:
        """The whole URL."""
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.shown_host}{port}{self.rest}"

    @property
    def is_local(self) -> bool:
        """Whether it names this machine itself, independent of any resolver."""
        if self.is_address:
            return self.host == "::1" or self.host.startswith("127.")
        name = self.host.removesuffix(".")
        return name == "localhost" or name.endswith(".localhost")


def parse_url(url: str) -> ParsedURL:
    """Parse and check an untrusted URL; a fragment is dropped.

    Raises:
        FetchError: it is not http or https, contains a user, or has an invalid host or port.
    """
    if _UNCLEAN.search(url):
        raise FetchError(f"Will not fetch {redact_url(url)}: a URL must not contain control characters or backslashes")
    try:
        parts = urlsplit(url)
        default = _PORTS.get(parts.scheme)
        port = default if parts.port is None else parts.port
        if default is None:
            raise FetchError(f"Will not fetch {redact_url(url)}: https is needed")
        if "@" in parts.netloc:
            raise FetchError(f"Will not fetch from {(parts.hostname or '')!r}: its URL has a user or password in it")
        if not port:
            raise ValueError("the port must not be 0")
        host, is_address = _host(parts)
        rest = quote(parts.path or "/", safe=_PATH)
        if parts.query:
            rest += "?" + quote(parts.query, safe=_QUERY)
    except ValueError as error:
        raise FetchError(f"Will not fetch {redact_url(url)}: {error}") from error
    return ParsedURL(parts.scheme, host, port, rest, is_address)


def _host(parts: SplitResult) -> tuple[str, bool]:
    """Return the host in its canonical form, and whether it is an address."""
    host = parts.hostname or ""
    if "[" in parts.netloc:
        if "%" in host or not _BRACKETED.fullmatch(parts.netloc):
            raise ValueError("only an IPv6 address without a zone may be in brackets")
        return str(IPv6Address(host)), True
    if not host.isascii():
        import idna

        host = idna.encode(host, uts46=True).decode().lower()
    if not _NAME.fullmatch(host):
        raise ValueError(f"{host[:100]!r} is not a host name")
    if _NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2]):
        if not _FOUR.fullmatch(host):
            raise ValueError("an IPv4 address must be written as four decimal numbers")
        return str(IPv4Address(host)), True
    return host, False


def is_proxy_url(url: str) -> bool:
    """Return True if a URL is valid for a proxy."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def redact_url(url: str) -> str:
    """Return an untrusted URL for messages: without user, path and query, since each may hold a secret."""
    found = re.match(r"[^/?#]*(?://[^/?#]*)?", url)
    return repr(re.sub(r"//.*@", "//…@", found.group() if found else "")[:100])
