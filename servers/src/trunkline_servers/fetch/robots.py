"""The rules of robots.txt (RFC 9309): parsing, and the decision for a path.

A file is parsed once, line by line; a rule is matched by searching for its parts from left to right, so neither a file
nor a path can make it slow. This module does no I/O.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct

__all__ = ["MAX_ROBOTS_BYTES", "RobotsRule", "RobotsRules", "parse_robots", "product_of"]

#: Most bytes read of a file: the minimum that the RFC requires.
MAX_ROBOTS_BYTES = 500 * 1024
# A file with 5000 rules and a path of 2000 characters need a fifth of this.
_MOST_COMPARED = 50_000_000

_PRODUCT = re.compile(r"[A-Za-z_-]+")
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")


class RobotsRule(Struct, frozen=True):
    """A line that allows or disallows the paths that match its pattern."""

    allow: bool
    #: As written in the file.
    pattern: str
    #: The parts between stars, which must occur in the path in this order.
    parts: tuple[str, ...]
    at_end: bool

    def matches(self, path: str) -> bool:
        """Return True if a normalized path matches."""
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


class RobotsRules(Struct, frozen=True):
    """The rules of a site for one user agent."""

    rules: tuple[RobotsRule, ...]
    #: The number of parts of all patterns.
    parts: int = 0

    def is_too_expensive_for(self, path: str) -> bool:
        """Return True if matching a path of this length against all rules would take too long."""
        return self.parts * len(path) > _MOST_COMPARED

    def disallowing_rule(self, path: str) -> RobotsRule | None:
        """Return the rule that disallows a path (with its query); None if it may be fetched."""
        normal = _normal(path)
        if normal == "/robots.txt":
            return None
        found = self._disallowing_rule(normal)
        # A server may resolve /open/../secret to /secret, so the rules for that path apply too.
        return found or (self._disallowing_rule(_without_dots(normal)) if "/." in normal else None)

    def _disallowing_rule(self, path: str) -> RobotsRule | None:
        best: RobotsRule | None = None
        for rule in self.rules:
            # The longest pattern wins; among equals, the one that allows.
            if (best is None or _weight(rule) > _weight(best)) and rule.matches(path):
                best = rule
        return None if best is None or best.allow else best


def product_of(user_agent: str) -> str:
    """Return the product token for robots.txt: the first word of a User-Agent, without the version."""
    found = _PRODUCT.match(user_agent.strip())
    return found.group().lower() if found else ""


def parse_robots(text: str, product: str) -> RobotsRules:
    """Parse a file; return the rules of all groups for a product, or else of the groups for ``*``."""
    mine: list[RobotsRule] = []
    for_all: list[RobotsRule] = []
    named = False
    # By audience: a name that appears twice in a group adds no rule twice.
    groups: dict[str, list[RobotsRule]] = {}
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
                groups["for_all"] = for_all
            elif product and product_of(value) == product:
                named = True
                groups["mine"] = mine
        elif key in ("allow", "disallow"):
            in_names = False
            rule = _rule(value, allow=key == "allow")
            for group in groups.values():
                group.extend(rule)
    rules = tuple(mine if named else for_all)
    return RobotsRules(rules, sum(len(rule.parts) for rule in rules))


def _rule(value: str, *, allow: bool) -> tuple[RobotsRule, ...]:
    """Parse the value of a line; an empty value yields no rule."""
    if not value:
        return ()
    at_end = value.endswith("$")
    parts = tuple(_normal(part) for part in value.removesuffix("$").split("*"))
    return (RobotsRule(allow, value, parts, at_end),)


def _weight(rule: RobotsRule) -> tuple[int, bool]:
    return len(rule.pattern), rule.allow


def _normal(text: str) -> str:
    """Normalize a path for comparison: only what must be is encoded, with upper-case digits."""
    if text.isascii() and "%" not in text:
        return text
    return _ESCAPED.sub(_decoded, quote(text, safe="%/?:@!$&'()*+,;=-._~#[]|^{}<>\"`\\ "))


def _without_dots(path: str) -> str:
    """Resolve ``.`` and ``..`` in a path; the query is unchanged."""
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
