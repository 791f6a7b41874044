"""Rules over servers, of the administrator's: which of those that others name may be used.

A rule with several members fits what fits all of them; a denial beats an allowance. It compares and reads nothing.
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
    """One rule over servers; what is None fits all."""

    name: str | None = None
    command: tuple[str, ...] | None = None
    url: str | None = None
    line: int | None = None

    def fits(self, entry: ServerEntry, *, loosely: bool) -> bool:
        """Tell whether it speaks of a server; ``loosely`` also by another way to write the same path of a URL."""
        if self.name is not None and self.name.casefold() != entry.name.casefold():
            return False
        if self.command is not None and (entry.command is None or not _same_words(self.command, entry.command)):
            return False
        return self.url is None or (entry.url is not None and _same_url(self.url, entry.url, loosely=loosely))


class Refusal(Struct, frozen=True):
    """Why a server may not be used, and the line that says so."""

    why: str
    line: int | None = None


class Rules(Struct, frozen=True, kw_only=True):
    """All that the managed file says about the servers of others."""

    exclusive: bool = False
    #: None: whatever is not denied.
    allowed: tuple[Rule, ...] | None = None
    denied: tuple[Rule, ...] = ()
    #: Nothing is let through, for this reason.
    closed: Refusal | None = None

    def refusal(self, entry: ServerEntry) -> Refusal | None:
        """Say why a server that is not managed may not be used, if so."""
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
    # A glob over the whole URL would let "*.example.com" fit a path of another host.
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
