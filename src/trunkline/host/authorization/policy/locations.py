"""Paths, URLs and URIs as the policy reads them.

Whether a path lies in a folder in every spelling it may have, which host a URL means beyond doubt, and which
spellings of a URI are equivalent. Programs disagree about odd paths and URLs, and a server may use any of them, so a
value that cannot be read with certainty is neither inside nor outside, and has no host. No I/O: links are resolved by
a function that is passed in, and so are the home folder and the working directories of servers.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote

from msgspec import Struct

from trunkline.host.authorization.policy.patterns import any_glob, escape_glob, is_glob

__all__ = [
    "FileUriForms",
    "InvalidFolder",
    "InvalidHostPattern",
    "PathContext",
    "PathReader",
    "compile_hosts",
    "compile_within",
    "file_uri_forms",
    "host_of",
    "is_file_uri",
    "uri_forms",
    "uri_matcher",
]

_MAX_PATH_LENGTH = 8192  # Twice PATH_MAX of Linux.
_AMBIGUOUS_PATH = re.compile(
    r"[\x00-\x1f\x7f\\\ud800-\udfff]|%(?:00|25|2e|2f|5c)|\A(?:~|[A-Za-z][A-Za-z0-9+.-]*:|\Z)", re.IGNORECASE
)


class InvalidFolder(ValueError):
    """A folder in a rule is invalid; the message says why and what to write."""


class PathContext(Struct, frozen=True, kw_only=True):
    """How paths are resolved on this machine."""

    #: What ``~`` in a rule stands for.
    home: str | None = None
    #: The working directory of each server; a relative path for any other server cannot be judged.
    folders: Mapping[str, str] = MappingProxyType({})
    #: Resolves the links of an absolute path; None: paths are compared as written.
    resolve: Callable[[str], str] | None = None


class PathReader:
    """Reads paths, each once per decision: a link may lead elsewhere the next time."""

    __slots__ = ("_read", "path_context")

    def __init__(self, path_context: PathContext) -> None:
        """Read paths in this context."""
        self.path_context: PathContext = path_context
        self._read: dict[tuple[str, str], _Path | None] = {}

    def read(self, value: str, server: str) -> _Path | None:
        """Read a path as a server would; None if it cannot be judged."""
        key = (value, server)
        try:
            return self._read[key]
        except KeyError:
            pass
        written = _absolute(value, self.path_context.folders.get(server))
        path = self._read[key] = None if written is None else _Path(written)
        return path

    def forget(self) -> None:
        """Clear the cache, for the next decision."""
        if self._read:
            self._read.clear()


class _Path:
    """A path in its forms; its links are resolved on first use."""

    __slots__ = ("_real", "_written", "folded", "straight")

    def __init__(self, written: str) -> None:
        self._written = written
        self.straight: str = _normalize_folder(written)
        self.folded: str = _fold(self.straight)
        self._real: _Path | None = None

    def real(self, resolve: Callable[[str], str]) -> _Path:
        """Return the path with its links resolved.

        Raises:
            OSError, ValueError: they cannot be resolved.
        """
        if self._real is None:
            self._real = _Path(resolve(self._written))
        return self._real


def compile_within(folders: Iterable[str], *, paths: PathReader, lenient: bool) -> Callable[[str, str], bool | None]:
    """Return a function that checks if a path, for a server, lies in one of the folders; None: unknown.

    Where being inside allows something, a path must be inside in every form: as written and with its links resolved.
    Where being inside restricts it (``lenient``), one form is enough, and case is ignored.

    Raises:
        InvalidFolder: a folder is not absolute.
    """
    resolve = paths.path_context.resolve
    written = [_folder(each, paths.path_context) for each in folders]
    real_ones = [_normalize_folder(resolve(each)) for each in written if resolve is not None]
    roots = tuple(dict.fromkeys(map(_fold, (*written, *real_ones)) if lenient else (*written, *real_ones)))
    # ``startswith`` is faster with a string than with a tuple.
    starts = roots[0] if len(roots) == 1 else roots
    read = paths.read

    def judge(value: str, server: str) -> bool | None:
        path = read(value, server)
        if path is None:
            return None
        inside = (path.folded if lenient else path.straight).startswith(starts)
        if resolve is None or inside is lenient:
            return inside
        try:
            real = path.real(resolve)
        except (OSError, ValueError):
            return None
        return (real.folded if lenient else real.straight).startswith(starts)

    return judge


def _folder(text: str, path_context: PathContext) -> str:
    path = text
    if text == "~" or text.startswith("~/"):
        if path_context.home is None:
            raise InvalidFolder(f"{text!r}: the home folder '~' is not known; write the whole path")
        path = path_context.home + text[1:]
    if not path.startswith("/") or _AMBIGUOUS_PATH.search(path):
        raise InvalidFolder(f"{text!r} is not an absolute path: begin it with '/' or '~/'")
    return _normalize_folder(path)


def _absolute(value: str, cwd: str | None) -> str | None:
    if len(value) > _MAX_PATH_LENGTH or _AMBIGUOUS_PATH.search(value):
        return None
    if value.startswith("/"):
        return value
    return None if cwd is None else f"{cwd}/{value}"


def _normalize_folder(path: str) -> str:
    """Resolve dots and double slashes; it ends with a slash, so that a prefix is a containing folder."""
    # POSIX keeps two leading slashes; on all systems that matter here they mean one.
    straight = posixpath.normpath(path).strip("/")
    return f"/{straight}/" if straight else "/"


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


_MAX_URL_LENGTH = 8192  # As long as common servers accept.
_MOST_HOST = 253  # RFC 1035, 2.3.4: a name has at most 253 visible characters.
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
_DROPPED_CHARACTERS = re.compile(r"[\t\n\r]")
_STRIPPED = "".join(map(chr, range(0x21)))
_FILE = re.compile(r"[\x00-\x20]*" + r"[\t\n\r]*".join("file:"), re.IGNORECASE)
_FILE_PARTS = re.compile(r"(//[^/?#]*)?([^?#]*)(.*)", re.DOTALL)
_FILE_PATTERN = re.compile(r"file:(?://([^/?#*[]*|\[[0-9a-f:.]+\]))?(/.*)", re.DOTALL | re.IGNORECASE)
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_MOST_DECODINGS = 4  # As often as careless programs in a row may decode a text.


class InvalidHostPattern(ValueError):
    """A pattern is not a host; the message says why and what to write."""


def host_of(url: str) -> str | None:
    """Return the host of a URL, in lower case; None where programs may disagree."""
    found = None if len(url) > _MAX_URL_LENGTH or _CONTROL.search(url) else _URL.fullmatch(url)
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
            raise InvalidHostPattern(f"{pattern!r} is not a host: {_host_fix(pattern)}")
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


def uri_matcher(patterns: Iterable[str], *, for_allow: bool) -> Callable[[str], bool]:
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
    every = all if for_allow else any

    def fits(uri: str) -> bool:
        if uri in literals:
            return True
        if not is_file_uri(uri):
            return every(written(form) for form in uri_forms(uri))
        forms = file_uri_forms(uri)
        fitting = [bool(written(forms.written)), *(bool(decoded(form)) for form in forms.decoded)]
        # A trailing slash means the same file; the rule for a folder may be written with one.
        return every(fitting) or (not for_allow and any(decoded(form.rstrip("/")) for form in forms.decoded))

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
    straightened = f"{scheme}:{authority or ''}{_normalize_uri_path(path)}{rest}"
    return (uri,) if straightened == uri else (uri, straightened)


class FileUriForms(NamedTuple):
    """The forms that a ``file:`` URI may be read as."""

    #: As written; in the canonical spelling ``file:///path`` if it is beyond doubt on this machine.
    written: str
    #: With escapes, dots and double slashes resolved: one for each way that programs read it.
    decoded: tuple[str, ...]


def is_file_uri(text: str) -> bool:
    """Return True if a program may read a text as a ``file:`` URI, ignoring case and surrounding spaces."""
    return _FILE.match(text) is not None


def file_uri_forms(uri: str) -> FileUriForms:
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
    paths = dict.fromkeys(_normalize_uri_path(each) for text in (path, path + rest) for each in _decodings(text))
    hosts = ("",) if local else ("", host)
    return FileUriForms(
        written=f"file://{path}{rest}" if certain else uri,
        decoded=tuple(f"file://{host}{each}" for host in hosts for each in paths),
    )


def _clean(uri: str) -> str:
    """Remove the characters that programs drop from a URI before parsing, following the WHATWG URL standard."""
    return _DROPPED_CHARACTERS.sub("", uri).strip(_STRIPPED)


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


def _normalize_uri_path(path: str) -> str:
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
