"""Parses what only the managed file can contain: rules on which servers other files may configure.

``exclusive`` permits the managed servers alone. ``deniedServers`` and ``allowedServers`` are lists of rules over
``name``, ``command`` (a glob per word; a final ``**`` for any more) and ``url`` (globs for host and path). A rule with
several members matches what matches all of them, and deny overrides allow. A rule that cannot be parsed never permits
more: an allow rule then allows nothing, a deny rule denies by the members that can be parsed, and a value that is not a
list denies all servers that are not managed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from trunkline.host.config.positions import Items, Leaf, Member, Members, Node, kind_of, plain
from trunkline.host.config.records import Problem
from trunkline.host.config.rules import Refusal, Rule, Rules
from trunkline.host.config.spelling import quoted

__all__ = ["read_rules"]


def read_rules(root: Members, *, file: str | None) -> tuple[Rules, tuple[Problem, ...]]:
    """Parse the rules of a managed file; return them with their problems."""
    said: list[Problem] = []
    reader = _RuleReader(file, said)
    exclusive = reader.exclusive(root.members.get("exclusive"))
    allowed = reader.rules(root.members.get("allowedServers"), partly=False)
    denied = reader.rules(root.members.get("deniedServers"), partly=True)
    return Rules(exclusive=exclusive, allowed=allowed, denied=denied or (), closed=reader.closed), tuple(said)


class _RuleReader:
    """Parses rules and collects their problems."""

    def __init__(self, file: str | None, said: list[Problem]) -> None:
        self._file = file
        self._said = said
        self.closed: Refusal | None = None

    def exclusive(self, member: Member | None) -> bool:
        if member is None:
            return False
        value = plain(member.value)
        if not isinstance(value, bool):
            self._say(
                "exclusive", member.value, f"expected true or false, found {kind_of(member.value)}; true is taken"
            )
        return value is not False

    def rules(self, member: Member | None, *, partly: bool) -> tuple[Rule, ...] | None:
        if member is None:
            return None
        key, node = member.name, member.value
        if not isinstance(node, Items):
            self._say(key, node, f"expected a list of rules, found {kind_of(node)}; no server of others is let through")
            self.closed = Refusal(f"{key} of the managed file cannot be read", member.line or None)
            return ()
        found = [self._rule(f"{key}[{at}]", item, partly=partly) for at, item in enumerate(node.items)]
        return tuple(rule for rule in found if rule is not None)

    def _rule(self, key: str, node: Node, *, partly: bool) -> Rule | None:
        if not isinstance(node, Members):
            self._say(key, node, f"expected an object with name, command or url, found {kind_of(node)}; it is ignored")
            return None
        parts: dict[str, Any] = {}
        wrong = [*(name for name, _, _ in node.repeated)]
        for name, member in node.members.items():
            value = _READ[name](member.value) if name in _READ else None
            if value is None:
                wrong.append(name)
            else:
                parts[name] = value
        if wrong or not parts:
            kept = partly and bool(parts)
            effect = f"it denies by {', '.join(sorted(parts))} alone" if kept else "it is ignored"
            what = ", ".join(map(quoted, wrong)) if wrong else "it has no name, command or url"
            self._say(key, node, f"the rule cannot be read ({what}); {effect}")
            if not kept:
                return None
        return Rule(**parts, line=node.line or None)

    def _say(self, key: str, node: Node, message: str) -> None:
        self._said.append(Problem(message=message, file=self._file, line=node.line or None, key=key))


def _text(node: Node) -> str | None:
    return node.value if isinstance(node, Leaf) and isinstance(node.value, str) and node.value else None


def _url_glob(node: Node) -> str | None:
    text = _text(node)
    return text if text is not None and re.match(r"[^/]+://[^/]+", text) else None


def _words(node: Node) -> tuple[str, ...] | None:
    if not isinstance(node, Items) or not node.items:
        return None
    words = [item.value for item in node.items if isinstance(item, Leaf) and isinstance(item.value, str)]
    return tuple(words) if len(words) == len(node.items) else None


_READ: Mapping[str, Callable[[Node], Any]] = MappingProxyType({"name": _text, "command": _words, "url": _url_glob})
