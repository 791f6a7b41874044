"""Drafts a rule as TOML from one call: as narrow as the call, for the user to widen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from trunkline.host.authorization.policy.decisions import ActKind, Effect
from trunkline.host.authorization.policy.patterns import escape_glob
from trunkline.host.authorization.policy.rules import WITH_ARGUMENTS

__all__ = ["draft_rule"]

#: The key of a rule that names its subject.
_TARGETS: Mapping[str, str] = MappingProxyType(
    {"tool": "tool", "prompt": "prompt", "resource": "uri", "skill": "skill"}
)
_LONGEST = 400  # Characters of an argument; with longer ones the rule would be hard to read.
_MOST = 50  # Arguments of a tool with a very large schema.


def draft_rule(
    kind: ActKind, server: str, name: str, arguments: Mapping[str, Any] | None, *, effect: Effect, hidden: str = "***"
) -> str:
    """Return a rule for calls with the same arguments as this one.

    An argument that TOML cannot express, or that contains ``hidden`` in place of a secret, is named in a comment.
    """
    lines = ["[[rule]]", f"effect = {_text(effect)}", f"server = {_text(server)}"]
    target = _TARGETS.get(kind)
    lines.append(f"kind = {_text(kind)}" if target is None else f"{target} = {_text(escape_glob(name))}")
    conditions, comments = [], []
    given = list((arguments or {}).items()) if kind in WITH_ARGUMENTS else []
    for key, value in given[:_MOST]:
        pointer = "/" + key.replace("~", "~0").replace("/", "~1")
        written = _written(value, hidden)
        if written is None:
            comments.append(f"# not part of the rule: {_text(pointer)} (a secret, too long, or not possible in TOML)")
        else:
            conditions.append(f"    {{ arg = {_text(pointer)}, equals = {written} }},")
    if len(given) > _MOST:
        comments.append(f"# not part of the rule: {len(given) - _MOST} more arguments")
    if conditions:
        lines += ["when = [", *conditions, "]"]
    return "\n".join([*comments, *lines]) + "\n"


def _written(value: Any, hidden: str) -> str | None:
    """Return a JSON value as TOML; None if that is not possible, or too long."""
    try:
        text = _value(value)
    except ValueError:
        return None
    return None if len(text) > _LONGEST or hidden in text else text


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(_members(value))} }}" if value else "{}"
    raise ValueError("TOML has no such value")


def _members(value: dict[str, Any]) -> Iterator[str]:
    for name, each in value.items():
        yield f"{_text(name)} = {_value(each)}"


def _text(text: str) -> str:
    """Return a TOML string; it is escaped as in JSON, except that DEL must be escaped too."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
