"""The administrator's rules: which of the servers that other files configure may be used.

A rule with several members matches what matches all of them; deny overrides allow. No I/O.
"""

from __future__ import annotations

import posixpath
from fnmatch import fnmatchcase
from urllib.parse import SplitResult, unquote, urlsplit

from msgspec import Struct

from trunkline.host.entries import ServerEntry

__all__ = ["Refusal", "Rule", "Rules"]

_PORTS = (("http", 80), ("https", 443))


class Rule(Struct, frozen=True, kw_only=True):
    """One rule over servers; a member that is None matches everything."""

    name: str | None = None
    command: tuple[str, ...] | None = None
    url: str | None = None
    line: int | None = None

    def fits(self, entry: ServerEntry, *, loosely: bool) -> bool:
        """Return True if the rule matches a server; if lenient, also by another spelling of the same URL path."""
        if self.name is not None and self.name.casefold() != entry.name.casefold():
            return False
        if self.command is not None and (entry.command is None or not _same_words(self.command, entry.command)):
            return False
        return self.url is None or (entry.url is not None and _same_url(self.url, entry.url, loosely=loosely))


class Refusal(Struct, frozen=True):
    """Why a server may not be used, and the line of the rule."""

    why: str
    line: int | None = None


class Rules(Struct, frozen=True, kw_only=True):
    """The rules of the managed file for servers of other files."""

    exclusive: bool = False
    #: None allows whatever is not denied.
    allowed: tuple[Rule, ...] | None = None
    denied: tuple[Rule, ...] = ()
    #: If set, everything is denied, for this reason.
    closed: Refusal | None = None

    def refusal(self, entry: ServerEntry) -> Refusal | None:
        """Return why a server that is not managed is denied; None if it is allowed."""
        if self.exclusive:
            return Refusal("the managed file is exclusive")
        if self.closed is not None:
            return self.closed
        for rule in self.denied:
            if rule.fits(entry, loosely=True):
                return Refusal("deniedServers of the managed file denies it", rule.line)
        if self.allowed is None or any(rule.fits(entry, loosely=False) for rule in self.allowed):
            return None
        return Refusal("allowedServers of the managed file does not name it")


# --- comparing -------------------------------------------------------------------------------------------------------


def _same_words(globs: tuple[str, ...], words: tuple[str, ...]) -> bool:
    if globs[-1] == "**":
        globs, words = globs[:-1], words[: len(globs) - 1]
    if len(globs) != len(words):
        return False
    return all(fnmatchcase(word, glob) for glob, word in zip(globs, words, strict=True))


def _same_url(glob: str, url: str, *, loosely: bool) -> bool:
    # A glob over the whole URL would let "*.example.com" match a path of another host.
    scheme, _, rest = glob.partition("://")
    host, _, path = rest.partition("/")
    parts = urlsplit(url)
    if not fnmatchcase(parts.scheme, scheme.lower()) or not fnmatchcase(_authority(parts), _plain_port(host, scheme)):
        return False
    if not path:
        return True
    straight = posixpath.normpath(unquote(parts.path))
    ways = [fnmatchcase(each, f"/{path}") for each in (parts.path, straight)]
    return any(ways) if loosely else all(ways)


def _authority(parts: SplitResult) -> str:
    host = (parts.hostname or "").rstrip(".")
    port = parts.port
    return host if port is None or (parts.scheme, port) in _PORTS else f"{host}:{port}"


def _plain_port(host: str, scheme: str) -> str:
    for known, port in _PORTS:
        if scheme == known:
            host = host.removesuffix(f":{port}")
    return host.lower()
