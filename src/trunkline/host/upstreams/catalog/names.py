"""Names for what many servers offer together: ids for people, wire names for models, outer URIs for resources.

Every name is a pure function of the pair (server, own name), so it does not depend on which other servers there are.
No I/O; knows neither the catalog nor policy.

An **id** is ``server/name``. The name of a server contains no ``/``, so an id is split at the first one, and the own
name may contain any number.

A **wire name** is a name that model providers accept (a ``NamingScheme``: which characters, how many). It is
``server__name`` where both are legal, the joiner occurs exactly once and the whole is short enough; otherwise it is a
readable part and 12 digits of a digest of the pair, without the joiner. So the two forms never overlap, joined names
have one reading, and only two equal digests could give two pairs the same wire name, in which case neither is served.
Wire names are mapped back by a table, never by splitting.

An **outer URI** has the server as its first segment, percent-encoded:

====================  =========================
a server's own URI    outside
====================  =========================
``scheme://rest``     ``scheme://server/rest``
``scheme:rest``       ``scheme:server/rest``
anything else         ``mcp:/server/anything``
====================  =========================

The three forms differ in what follows the first colon (two slashes, none, one), so they are unambiguous and the
original is restored byte for byte, also for an RFC 6570 template and its expansions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from hashlib import sha256
from typing import TypeVar
from urllib.parse import quote

from msgspec import Struct

__all__ = [
    "ANTHROPIC",
    "DEFAULT_NAMING",
    "GEMINI",
    "OPENAI",
    "NamingScheme",
    "inner_uri",
    "item_id",
    "outer_uri",
    "server_name_problem",
    "split_ambiguous",
    "split_id",
    "text_problem",
    "wire_name",
]

T = TypeVar("T")

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_WORD = _LETTERS | frozenset("0123456789_-")
_DIGEST_DIGITS = 12  # 48 bits: no collision by chance, and finding one on purpose hides both names.
_LONGEST_SERVER_NAME = 128  # As long as the specification recommends for tool names.
# Control and format characters (including bidirectional controls and invisible characters), line and paragraph
# separators, lone surrogates: a name that contains one is not what it looks like.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(//)?(.*)", re.S)
_OUTER = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):(//?|)([^/]+)/(.*)", re.S)
_NO_SCHEME = "mcp"


# --- ids -------------------------------------------------------------------------------------------------------------


def item_id(server: str, name: str) -> str:
    """Return the id of an item of a server."""
    return f"{server}/{name}"


def split_id(text: str) -> tuple[str, str] | None:
    """Split an id into server and own name; None if it is not an id."""
    server, _, name = text.partition("/")
    return (server, name) if server and name else None


def server_name_problem(name: str) -> str | None:
    """Return why a server cannot have this name; None if it can."""
    if "/" in name:
        return 'the name of a server may not have "/", which separates it from the names of its tools'
    if len(name) > _LONGEST_SERVER_NAME:
        return f"the name of a server has at most {_LONGEST_SERVER_NAME} characters"
    return text_problem(name)


def text_problem(text: str) -> str | None:
    """Return why a text cannot be a name: it is empty, or has invisible characters; None if it can."""
    if not text:
        return "the name is empty"
    if text.isascii() and text.isprintable():
        return None
    for character in text:
        if unicodedata.category(character) in _UNSEEN:
            return f"the name has the control or invisible character U+{ord(character):04X}"
    return None


# --- wire names ------------------------------------------------------------------------------------------------------


class NamingScheme(Struct, frozen=True, kw_only=True):
    """What a provider accepts as the name of a tool."""

    alphabet: frozenset[str]
    max_length: int
    #: What a name may begin with; the whole alphabet if empty.
    first: frozenset[str] = frozenset()
    joiner: str = "__"

    def __post_init__(self) -> None:
        """Reject a scheme in which names would be ambiguous."""
        if not self.joiner or not self.alphabet.issuperset(self.joiner) or any(map(str.isalnum, self.joiner)):
            raise ValueError("a joiner is made of signs of the alphabet, none of them a letter or digit")
        if not self.alphabet >= _LETTERS | frozenset("0123456789_") or self.max_length < 32:
            raise ValueError("a naming has letters, digits and the underscore, and room for 32 characters")

    def is_legal(self, text: str) -> bool:
        """Return True if a text is a valid name in this scheme."""
        within = 0 < len(text) <= self.max_length and self.alphabet.issuperset(text)
        return within and (not self.first or text[0] in self.first)


ANTHROPIC = NamingScheme(alphabet=_WORD, max_length=64)
OPENAI = ANTHROPIC
GEMINI = NamingScheme(alphabet=_WORD, max_length=63, first=_LETTERS | {"_"})
#: Clients prefix each tool with their name for the gateway: ``mcp__trunkline__`` has 16 characters.
_ROOM_FOR_PREFIX = 16
#: The scheme of the gateway: names that every provider above accepts, with and without a client's prefix.
DEFAULT_NAMING = NamingScheme(alphabet=_WORD, max_length=64 - _ROOM_FOR_PREFIX, first=_LETTERS | {"_"})


def wire_name(server: str, name: str, naming: NamingScheme = DEFAULT_NAMING) -> str:
    """Return the wire name of an item of a server."""
    joined = f"{server}{naming.joiner}{name}"
    # First and last occurrence are the same, so the joiner occurs once: no other pair joins to the same text.
    once = joined.find(naming.joiner) == joined.rfind(naming.joiner) == len(server)
    if server and name and once and naming.is_legal(joined):
        return joined
    return _digested(server, name, naming)


def _digested(server: str, name: str, naming: NamingScheme) -> str:
    # The length distinguishes the pair from others with the same concatenation.
    pair = f"{len(server)}:{server}{name}".encode("utf-8", "surrogatepass")
    digest = sha256(pair).hexdigest()[:_DIGEST_DIGITS]
    # A leading letter makes the first character legal where the scheme restricts it.
    room = naming.max_length - len(digest) - len("n___")
    head = _readable(server, room // 3, naming)
    tail = _readable(name, room - len(head), naming)
    written = "_".join(part for part in (head, tail, digest) if part)
    if naming.first and written[0] not in naming.first:
        written = f"n_{written}"
    while naming.joiner in written:
        written = written.replace(naming.joiner, naming.joiner[:-1])
    return written


def _readable(text: str, room: int, naming: NamingScheme) -> str:
    """Keep up to ``room`` legal characters of a text, with one underscore for each run of others."""
    kept = (character if character in naming.alphabet else "_" for character in text[: 4 * room])
    return re.sub("_+", "_", "".join(kept)).strip("_")[:room].rstrip("_")


def split_ambiguous(named: Iterable[tuple[str, T]]) -> tuple[dict[str, T], list[tuple[str, T]]]:
    """Split into a table of unique names, and a list of everything that shares a name, which is not served."""
    table: dict[str, T] = {}
    clashing: list[tuple[str, T]] = []
    shared: set[str] = set()
    for name, value in named:
        if name in shared:
            clashing.append((name, value))
        elif name in table:
            shared.add(name)
            clashing += [(name, table.pop(name)), (name, value)]
        else:
            table[name] = value
    return table, clashing


# --- URIs ------------------------------------------------------------------------------------------------------------


def outer_uri(server: str, uri: str) -> str:
    """Return the outer form of a server's own URI or URI template."""
    segment = _segment(server)
    found = _URI.fullmatch(uri)
    if found is None:
        return f"{_NO_SCHEME}:/{segment}/{uri}"
    scheme, slashes, rest = found.groups()
    return f"{scheme}:{slashes or ''}{segment}/{rest}"


def inner_uri(outer: str, known_servers: Collection[str]) -> tuple[str, str] | None:
    """Split an outer URI into a known server and its own URI; None if it is not an outer URI.

    Some clients lowercase the host of a URL, so a segment that is not a server's name may be that of the only server
    whose name differs in case alone.
    """
    found = _OUTER.fullmatch(outer)
    if found is None:
        return None
    scheme, slashes, segment, rest = found.groups()
    server = _named_by(segment, known_servers)
    if server is None or (slashes == "/" and scheme != _NO_SCHEME):
        return None
    return server, rest if slashes == "/" else f"{scheme}:{slashes}{rest}"


def _segment(server: str) -> str:
    # "." and ".." are segments that software removes from paths.
    segment = quote(server, safe="", errors="surrogatepass")
    return segment.replace(".", "%2E") if segment in (".", "..") else segment


def _named_by(segment: str, servers: Collection[str]) -> str | None:
    if segment in servers and _segment(segment) == segment:
        return segment
    exact = [server for server in servers if _segment(server) == segment]
    alike = exact or [server for server in servers if _segment(server).lower() == segment.lower()]
    return alike[0] if len(alike) == 1 else None
