"""URLs and URIs as the policy reads them: which host a URL means beyond doubt, and which spellings a URI may have.

Programs disagree about odd URLs, and a server may use any of them. So a host is returned only where all agree; a URL
with a user, a backslash, an escape in its host, a number in place of an address or a non-ASCII character has none.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple
from urllib.parse import unquote

from trunkline.host.policy.globs import any_glob, escape_glob, is_glob

__all__ = [
    "FileForms",
    "HostError",
    "compile_hosts",
    "file_uri_forms",
    "host_of",
    "is_file_uri",
    "uri_forms",
    "uri_matcher",
]

_MOST_TEXT = 8192
_MOST_HOST = 253
_URL = re.compile(
    r"(?:https?|wss?)://(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{0,5}))?(?P<rest>[/?#].*)?",
    re.ASCII | re.IGNORECASE | re.DOTALL,
)
_CONTROL = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff]")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# The WHATWG URL standard reads any host that ends like this as an IPv4 address, in four notations.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//[^/?#]*)?([^?#]*)(.*)", re.ASCII | re.DOTALL)
# Escapes of unreserved characters (RFC 3986, 2.3), and of those that would change the path.
_ESCAPE = re.compile(r"%(2[de]|2f|3[0-9]|4[1-9a-f]|5[0-9ac]|5f|6[1-9a-f]|7[0-9ae])", re.IGNORECASE)
_CASELESS = frozenset({"ftp", "http", "https", "ws", "wss"})
# Programs remove the former anywhere in a URI, and the latter from its ends.
_REMOVED = re.compile(r"[\t\n\r]")
_STRIPPED = "".join(map(chr, range(0x21)))
_FILE = re.compile(r"[\x00-\x20]*" + r"[\t\n\r]*".join("file:"), re.IGNORECASE)
_FILE_PARTS = re.compile(r"(//[^/?#]*)?([^?#]*)(.*)", re.DOTALL)
_FILE_PATTERN = re.compile(r"file:(?://([^/?#*[]*|\[[0-9a-f:.]+\]))?(/.*)", re.DOTALL | re.IGNORECASE)
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_MOST_DECODINGS = 4


class HostError(ValueError):
    """A pattern is not a host; the message says why and what to write."""


def host_of(url: str) -> str | None:
    """Return the host of a URL, in lower case; None where programs may disagree."""
    found = None if len(url) > _MOST_TEXT or _CONTROL.search(url) else _URL.fullmatch(url)
    if found is None or int(found["port"] or 0) > 65535:
        return None
    rest = found["rest"] or ""
    # If no slash ends the authority, some parsers look for a user after the '?' or '#'.
    if rest[:1] in ("?", "#") and ("@" in rest or "\\" in rest):
        return None
    return _plain_host(found["host"].lower())


def _plain_host(host: str) -> str | None:
    """Return the canonical spelling of a host; None if it has none."""
    if host.startswith("["):
        return _address(host[1:-1], version=6)
    host = host.removesuffix(".")
    labels = host.split(".")
    if len(host) > _MOST_HOST or not all(map(_LABEL.fullmatch, labels)):
        return None
    return _address(host, version=4) if _NUMBER.fullmatch(labels[-1]) else host


def _address(text: str, *, version: int) -> str | None:
    from ipaddress import IPv6Address, ip_address

    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return None
    return str(address) if address.version == version and (version == 6 or str(address) == text) else None


def compile_hosts(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Return a function that checks if a host is one of these, or below one written as ``*.example.com``.

    Raises:
        InvalidHostPattern: a pattern is neither.
    """
    exact, below = set[str](), list[str]()
    for pattern in patterns:
        under = pattern.startswith("*.")
        host = _plain_host(_bracketed(pattern.removeprefix("*.").lower()))
        if host is None or (under and _NUMBER.fullmatch(host.rpartition(".")[2])):
            raise HostError(f"{pattern!r} is not a host: {_host_fix(pattern)}")
        below.append(f".{host}") if under else exact.add(host)
    hosts, ends = frozenset(exact), tuple(below)
    return lambda host: host in hosts or host.endswith(ends)


def _bracketed(text: str) -> str:
    return f"[{text}]" if text.count(":") > 1 and not text.startswith("[") else text


def _host_fix(pattern: str) -> str:
    if not pattern.isascii():
        return "write it in its ASCII form, xn--..."
    if "/" in pattern or ":" in pattern:
        return "write the host alone, without scheme, port and path"
    return "write a name, an address, or '*.' and a name for all below it"


# --- URIs ------------------------------------------------------------------------------------------------------------


def uri_matcher(patterns: Iterable[str], *, opens: bool) -> Callable[[str], bool]:
    """Return a function that checks if a URI matches one of the globs, in the spellings it may have.

    For a rule that allows, the URI must match in every form that a server may read it as; for one that asks or denies,
    one form is enough. A URI that is written out literally in a rule matches itself.

    Raises:
        InvalidGlob: a pattern is not a valid glob.
    """
    given = tuple(patterns)
    literals = frozenset(given)
    written = any_glob(dict.fromkeys((*given, *map(_with_plain_authority, given))))
    decoded = any_glob(dict.fromkeys(map(_decoded_pattern, given)))
    every = all if opens else any

    def fits(uri: str) -> bool:
        if uri in literals:
            return True
        if not is_file_uri(uri):
            return every(written(form) for form in uri_forms(uri))
        forms = file_uri_forms(uri)
        fitting = [bool(written(forms.written)), *(bool(decoded(form)) for form in forms.decoded)]
        # A trailing slash means the same file; the rule for a folder may be written with one.
        return every(fitting) or (not opens and any(decoded(form.rstrip("/")) for form in forms.decoded))

    return fits


def uri_forms(uri: str) -> tuple[str, ...]:
    """Return a URI as it is and, if that differs, with dots, double slashes and escapes of its path resolved."""
    found = _URI.fullmatch(_clean(uri))
    if found is None:
        return (uri,)
    scheme, authority, path, rest = found[1].lower(), found[2], found[3], found[4]
    path = _ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), path).replace("\\", "/")
    if authority is not None:
        authority = authority.lower() if scheme in _CASELESS else authority
    straightened = f"{scheme}:{authority or ''}{_straight(path)}{rest}"
    return (uri,) if straightened == uri else (uri, straightened)


class FileForms(NamedTuple):
    """The forms that a ``file:`` URI may be read as."""

    #: As written; in the canonical spelling ``file:///path`` if it is beyond doubt on this machine.
    written: str
    #: With escapes, dots and double slashes resolved: one for each way that programs read it.
    decoded: tuple[str, ...]


def is_file_uri(text: str) -> bool:
    """Return True if a program may read a text as a ``file:`` URI, ignoring case and surrounding spaces."""
    return _FILE.match(text) is not None


def file_uri_forms(uri: str) -> FileForms:
    """Return the forms of a ``file:`` URI.

    ``file:/x``, ``file:///x``, ``file://localhost/x`` and a loopback address as host are equivalent (RFC 8089).
    Programs differ in more than that: some ignore any host, some end the path at ``?`` and ``#`` and some do not, some
    convert backslashes or decode escapes twice. Each of these is a form.
    """
    cleaned = _clean(uri)
    authority, path, rest = _file_parts(cleaned.partition(":")[2].replace("\\", "/"))
    host = (authority or "//")[2:].lower()
    local = _is_this_machine(host)
    certain = local and path.startswith("/") and cleaned == uri and "\\" not in uri
    paths = dict.fromkeys(_straight(each) for text in (path, path + rest) for each in _decodings(text))
    hosts = ("",) if local else ("", host)
    return FileForms(
        written=f"file://{path}{rest}" if certain else uri,
        decoded=tuple(f"file://{host}{each}" for host in hosts for each in paths),
    )


def _clean(uri: str) -> str:
    """Remove the characters that programs drop from a URI before parsing, following the WHATWG URL standard."""
    return _REMOVED.sub("", uri).strip(_STRIPPED)


def _file_parts(rest: str) -> tuple[str | None, str, str]:
    found = _FILE_PARTS.fullmatch(rest)
    assert found is not None
    path = found[2] if found[2].startswith("/") else f"/{found[2]}"
    return found[1], path, found[3]


def _is_this_machine(host: str) -> bool:
    if host.removesuffix(".") in ("", "localhost"):
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _decodings(text: str) -> Iterator[str]:
    """Yield a text with its escapes decoded once, and as often as a careless program may decode them."""
    for _ in range(_MOST_DECODINGS):
        decoded = unquote(text, errors="surrogateescape")
        yield decoded.replace("\\", "/")
        if decoded == text:
            return
        text = decoded


def _straight(path: str) -> str:
    """Resolve dots and double slashes of an absolute path; a trailing slash is kept."""
    if not path.startswith("/"):
        return path
    straight = posixpath.normpath(path)
    return "/" + straight.lstrip("/") + ("/" if path.endswith("/") and straight.strip("/") else "")


def _with_plain_authority(pattern: str) -> str:
    """Return a pattern of local files in the spelling ``file:///path``; any other pattern unchanged."""
    found = _FILE_PATTERN.fullmatch(pattern)
    return f"file://{found[2]}" if found is not None and _is_this_machine((found[1] or "").lower()) else pattern


def _decoded_pattern(pattern: str) -> str:
    """Return a pattern with its escapes decoded, to match decoded forms; no escape becomes a wildcard."""
    plain = _with_plain_authority(pattern)
    if not is_glob(plain) and is_file_uri(plain):
        return escape_glob(file_uri_forms(plain).decoded[-1])
    return _ESCAPES.sub(lambda found: escape_glob(unquote(found[0], errors="surrogateescape")), plain)
