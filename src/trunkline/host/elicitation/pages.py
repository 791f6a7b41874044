"""The address of a page that a server wants a person to open: read, and looked at for what could deceive them.

Nothing is fetched, and no name is looked up. An address that software reads in more than one way is refused; what can
be read but may not be what it seems gets a warning for each reason.
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
# What browsers drop, or read as something else.
_UNREADABLE = re.compile(r"[\x00-\x20\x7f-\xa0\\\ud800-\udfff]")
_NUMBERS = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]*))*", re.IGNORECASE)
# Ends of names under which many different people have sites; inside of a name they only look like its end.
_ENDS = frozenset({"app", "com", "dev", "edu", "gov", "io", "net", "org"})


class AddressRefused(ValueError):
    """An address is not shown as one to open; the message is a sentence that says why."""


class Address(Struct, frozen=True, kw_only=True):
    """An address, cut so that its host can be made to stand out."""

    #: The whole of it, as the server gave it.
    url: str
    #: Its parts: what stands before the host, the host as written, and the rest.
    before: str
    host: str
    after: str
    #: The host as it is looked up: letters beyond ASCII in their ``xn--`` form.
    ascii_host: str
    #: Why it may not be what it seems, a sentence each.
    warnings: tuple[str, ...] = ()


def read_address(url: str) -> Address:
    """Read the address of a page.

    Raises:
        AddressRefused: it is none that a browser should be sent to.
    """
    if len(url) > _LONGEST:
        raise AddressRefused(f"the address has {len(url)} characters, and {_LONGEST} are allowed")
    if _UNREADABLE.search(url) or any(unicodedata.category(each) == "Cf" for each in url):
        raise AddressRefused("the address has spaces, backslashes, control or invisible characters in it")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise AddressRefused(f"the address cannot be read: {error}") from error
    if parts.scheme not in _PORTS:
        raise AddressRefused("only http and https pages can be opened")
    if not host or not url[len(parts.scheme) :].startswith("://"):
        raise AddressRefused("the address names no host")
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
    # A full stop of another script is one all the same.
    plain = unicodedata.normalize("NFKC", host).replace("\u3002", ".")
    try:
        return plain.encode("idna").decode().lower()
    except UnicodeError as error:
        raise AddressRefused("the name of the host is none that can be looked up") from error


def _warnings(parts: SplitResult, host: str, ascii_host: str, *, port: int | None) -> Iterator[str]:
    loopback = is_loopback(ascii_host)
    if parts.scheme == "http" and not loopback:
        yield "it is not encrypted (http): others on the way can read and change the page"
    if "@" in parts.netloc:
        yield f"what stands before the @ is no host: the page is at {ascii_host}"
    if port is not None and port != _PORTS[parts.scheme]:
        yield f"it is at an unusual port, {port}"
    if loopback:
        yield "it is on this machine"
    yield from _about_number(ascii_host, loopback=loopback)
    yield from _about_letters(host, ascii_host)
    labels = ascii_host.rstrip(".").split(".")
    if _ENDS & set(labels[1:-1]) and len(labels) > 3:
        yield f"whose page it is, the end of the host says: {'.'.join(labels[-2:])}"


def _about_number(host: str, *, loopback: bool) -> Iterator[str]:
    try:
        address = str(ip_address(host))
    except ValueError:
        if _NUMBERS.fullmatch(host):
            yield "the host is a number, which browsers read as an address"
        return
    what = None if loopback else special_range(address)
    yield "the host is an address and no name" + (f": {what}" if what else "")


def _about_letters(host: str, ascii_host: str) -> Iterator[str]:
    shown = ".".join(map(_unicode, ascii_host.split(".")))
    if shown == ascii_host:
        return
    yield f"its letters may look like another name's: it is {ascii_host}, which browsers may show as {shown}"
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
    """Name the script of each letter, as its Unicode name begins."""
    for each in label:
        if each.isalpha():
            yield unicodedata.name(each, "UNKNOWN").split(" ")[0].capitalize()
