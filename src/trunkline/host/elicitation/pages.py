"""The URL of a page that a server wants a person to open: parsed, and checked for what could deceive them.

Nothing is fetched, and no name is looked up. A URL that programs read in more than one way is rejected; one that is
valid but may not be what it seems gets a warning for each reason.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from types import MappingProxyType
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from trunkline.net.addresses import is_loopback, special_range

__all__ = ["Address", "AddressRefused", "read_address"]

_LONGEST = 16_384
_PORTS: Mapping[str, int] = MappingProxyType({"http": 80, "https": 443})
# Characters that browsers drop or reinterpret.
_UNREADABLE = re.compile(r"[\x00-\x20\x7f-\xa0\\\ud800-\udfff]")
_NUMBERS = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]*))*", re.IGNORECASE)
# Common top-level domains; in the middle of a host they only look like its end.
_ENDS = frozenset({"app", "com", "dev", "edu", "gov", "io", "net", "org"})


class AddressRefused(ValueError):
    """A URL must not be opened; the message says why."""


class Address(Struct, frozen=True, kw_only=True):
    """A parsed URL, split so that its host can be highlighted."""

    #: The whole URL, as the server sent it.
    url: str
    #: Its parts: the text before the host, the host as written, and the rest.
    before: str
    host: str
    after: str
    #: The host as it is looked up: non-ASCII letters in their ``xn--`` form.
    ascii_host: str
    #: Why it may not be what it seems, a sentence each.
    warnings: tuple[str, ...] = ()


def read_address(url: str) -> Address:
    """Parse the URL of a page.

    Raises:
        InvalidPageUrl: a browser should not be sent there.
    """
    if len(url) > _LONGEST:
        raise AddressRefused(f"the URL has {len(url)} characters; the limit is {_LONGEST}")
    if _UNREADABLE.search(url) or any(unicodedata.category(each) == "Cf" for each in url):
        raise AddressRefused("the URL has spaces, backslashes, control or invisible characters in it")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise AddressRefused(f"the URL cannot be parsed: {error}") from error
    if parts.scheme not in _PORTS:
        raise AddressRefused("only http and https pages can be opened")
    if not host or not url[len(parts.scheme) :].startswith("://"):
        raise AddressRefused("the URL has no host")
    ascii_host = _ascii(host)
    before, written, after = _cut(url, parts)
    return Address(
        url=url,
        before=before,
        host=written,
        after=after,
        ascii_host=ascii_host,
        warnings=tuple(_warnings(parts, host, ascii_host, port=port)),
    )


def _cut(url: str, parts: SplitResult) -> tuple[str, str, str]:
    start = url.index("://") + 3
    authority = parts.netloc
    start += authority.rfind("@") + 1
    rest = authority[authority.rfind("@") + 1 :]
    end = rest.index("]") + 1 if rest.startswith("[") else rest.find(":") if ":" in rest else len(rest)
    return url[:start], url[start : start + end], url[start + end :]


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    # IDNA treats the ideographic full stop as a dot.
    plain = unicodedata.normalize("NFKC", host).replace("\u3002", ".")
    try:
        return plain.encode("idna").decode().lower()
    except UnicodeError as error:
        raise AddressRefused("the host name cannot be looked up") from error


def _warnings(parts: SplitResult, host: str, ascii_host: str, *, port: int | None) -> Iterator[str]:
    loopback = is_loopback(ascii_host)
    if parts.scheme == "http" and not loopback:
        yield "it is not encrypted (http): others on the network can read and change the page"
    if "@" in parts.netloc:
        yield f"the part before the @ is not the host: the page is at {ascii_host}"
    if port is not None and port != _PORTS[parts.scheme]:
        yield f"it uses an unusual port, {port}"
    if loopback:
        yield "it is on this machine"
    yield from _about_number(ascii_host, loopback=loopback)
    yield from _about_letters(host, ascii_host)
    labels = ascii_host.rstrip(".").split(".")
    if _ENDS & set(labels[1:-1]) and len(labels) > 3:
        yield f"the owner of the page is named at the end of the host: {'.'.join(labels[-2:])}"


def _about_number(host: str, *, loopback: bool) -> Iterator[str]:
    try:
        address = str(ip_address(host))
    except ValueError:
        if _NUMBERS.fullmatch(host):
            yield "the host is a number, which browsers read as an address"
        return
    what = None if loopback else special_range(address)
    yield "the host is an IP address, not a name" + (f": {what}" if what else "")


def _about_letters(host: str, ascii_host: str) -> Iterator[str]:
    shown = ".".join(map(_unicode, ascii_host.split(".")))
    if shown == ascii_host:
        return
    yield f"its letters may imitate another name: it is {ascii_host}, which browsers may show as {shown}"
    for label in shown.split("."):
        scripts = sorted(set(_scripts(label)))
        if len(scripts) > 1:
            yield f"one word of the host mixes scripts: {', '.join(scripts)}"


def _unicode(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return label[4:].encode("ascii").decode("punycode")
    except UnicodeError:
        return label


def _scripts(label: Iterable[str]) -> Iterator[str]:
    """Yield the script of each letter: the first word of its Unicode name."""
    for each in label:
        if each.isalpha():
            yield unicodedata.name(each, "UNKNOWN").split(" ")[0].capitalize()
