"""What a site's robots.txt lets a program fetch by itself (RFC 9309): the file's rules, and the answer for a path.

A file is read once, line by line; a rule is matched by looking for its parts from left to right, so neither a file nor
a path can make it slow. It fetches nothing and keeps nothing.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct

__all__ = ["MAX_ROBOTS_BYTES", "Robots", "Rule", "product_of", "read_robots"]

#: As much of a file as is read: what the RFC asks for at least.
MAX_ROBOTS_BYTES = 500 * 1024
# A file with 5000 rules and a path of 2000 characters are a fifth of this.
_MOST_COMPARED = 50_000_000

_PRODUCT = re.compile(r"[A-Za-z_-]+")
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")


class Rule(Struct, frozen=True):
    """A line that allows or disallows the paths that fit its pattern."""

    allow: bool
    #: As it stands in the file.
    pattern: str
    #: What must stand in the path one behind the other; stars were between them.
    parts: tuple[str, ...]
    at_end: bool

    def fits(self, path: str) -> bool:
        """Say whether a path, in normal form, fits."""
        first, *others = self.parts
        if not path.startswith(first):
            return False
        at = len(first)
        if self.at_end and not others:
            return at == len(path)
        last = others.pop() if self.at_end else None
        for part in others:
            found = path.find(part, at)
            if found < 0:
                return False
            at = found + len(part)
        return last is None or (path.endswith(last) and len(path) - len(last) >= at)


class Robots(Struct, frozen=True):
    """The rules of a site for one program."""

    rules: tuple[Rule, ...]
    #: How many parts the patterns have in all.
    parts: int = 0

    def is_long_work_for(self, path: str) -> bool:
        """Say whether so many rules and so long a path together would take too long to compare."""
        return self.parts * len(path) > _MOST_COMPARED

    def forbidding(self, path: str) -> Rule | None:
        """Give the rule that forbids a path (with its query); None if it may be fetched."""
        normal = _normal(path)
        if normal == "/robots.txt":
            return None
        found = self._forbidding(normal)
        # A server may read /open/../secret as /secret, so what is forbidden there is not to be had by that way.
        return found or (self._forbidding(_without_dots(normal)) if "/." in normal else None)

    def _forbidding(self, path: str) -> Rule | None:
        best: Rule | None = None
        for rule in self.rules:
            # The longest pattern decides; of two as long, the one that allows.
            if (best is None or _weight(rule) > _weight(best)) and rule.fits(path):
                best = rule
        return None if best is None or best.allow else best


def product_of(user_agent: str) -> str:
    """Give the name by which a robots.txt knows a program: the first word of its User-Agent, without its version."""
    found = _PRODUCT.match(user_agent.strip())
    return found.group().lower() if found else ""


def read_robots(text: str, product: str) -> Robots:
    """Take from a file the rules of all groups for a program, or else of those for everybody."""
    mine: list[Rule] = []
    everybody: list[Rule] = []
    named = False
    # By whose they are: a name that a group has twice gives it no rule twice.
    groups: dict[str, list[Rule]] = {}
    in_names = False
    for line in text.removeprefix("\ufeff").splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not colon:
            continue
        if key == "user-agent":
            groups = groups if in_names else {}
            in_names = True
            if value == "*":
                groups["everybody"] = everybody
            elif product and product_of(value) == product:
                named = True
                groups["mine"] = mine
        elif key in ("allow", "disallow"):
            in_names = False
            rule = _rule(value, allow=key == "allow")
            for group in groups.values():
                group.extend(rule)
    rules = tuple(mine if named else everybody)
    return Robots(rules, sum(len(rule.parts) for rule in rules))


def _rule(value: str, *, allow: bool) -> tuple[Rule, ...]:
    """Make a rule of a line; an empty one says nothing."""
    if not value:
        return ()
    at_end = value.endswith("$")
    parts = tuple(_normal(part) for part in value.removesuffix("$").split("*"))
    return (Rule(allow, value, parts, at_end),)


def _weight(rule: Rule) -> tuple[int, bool]:
    return len(rule.pattern), rule.allow


def _normal(text: str) -> str:
    """Give a path the one form in which it is compared: only what must be is encoded, and in capitals."""
    if text.isascii() and "%" not in text:
        return text
    return _ESCAPED.sub(_decoded, quote(text, safe="%/?:@!$&'()*+,;=-._~#[]|^{}<>\"`\\ "))


def _without_dots(path: str) -> str:
    """Give the path that is meant by one with ``.`` and ``..`` in it; the query stays as it is."""
    way, mark, query = path.partition("?")
    kept: list[str] = []
    steps = way.split("/")[1:]
    for step in steps:
        if step == "..":
            del kept[-1:]
        elif step != ".":
            kept.append(step)
    end = "/" if kept and steps[-1] in (".", "..") else ""
    return f"/{'/'.join(kept)}{end}{mark}{query}"


def _decoded(found: re.Match[str]) -> str:
    byte = unquote_to_bytes(found.group())
    kept = (byte.isalnum() and byte.isascii()) or byte in (b"-", b".", b"_", b"~")
    return byte.decode() if kept else found.group().upper()
