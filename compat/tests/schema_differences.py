"""Compares the schemas a server lists under its own framework and under ours, but for documented classes of difference.

The classes: titles made from names; references in place of what they refer to; a value
that may be null; the descriptions of parameters that come from the docstring; the text of a docstring without its
section on parameters; unknown arguments; FastMCP's mark of wrapped results; the order of members.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["differences", "literal_differences", "normal_schema"]

_IGNORED = frozenset(
    {
        "title",
        "additionalProperties",
        "description",
        "$schema",
        "$defs",
        "definitions",
        "format",
        "x-fastmcp-wrap-result",
    }
)
_MAX_DEPTH = 40


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Return what differs between two lists of tools by name; each value has ``input`` and ``output`` schemas."""
    texts = [f"missing: {name}" for name in theirs if name not in ours]
    texts += [f"additional: {name}" for name in ours if name not in theirs]
    for name in theirs.keys() & ours.keys():
        for part in ("input", "output"):
            left, right = normal_schema(theirs[name][part]), normal_schema(ours[name][part])
            if left != right:
                texts.append(f"{name} {part}: {_sorted_text(left)} != {_sorted_text(right)}")
    return sorted(texts)


def _sorted_text(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True, ensure_ascii=False)


def literal_differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """Return the schemas that are not written the same, word for word, as ``tool input`` and ``tool output``."""
    return sorted(
        f"{name} {part}"
        for name in theirs.keys() & ours.keys()
        for part in ("input", "output")
        if theirs[name][part] != ours[name][part]
    )


def normal_schema(schema: Any) -> Any:
    """Return a schema without what may differ."""
    if not isinstance(schema, dict):
        return None
    known = {**schema.get("definitions", {}), **schema.get("$defs", {})}
    normal = _normal(schema, known, 0)
    # A schema of any object promises nothing.
    return None if normal in ({"type": "object"}, {}) else normal


def _normal(schema: Any, known: dict[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return schema if not isinstance(schema, dict) else {}
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _normal({**known.get(name, {}), **{k: v for k, v in schema.items() if k != "$ref"}}, known, depth + 1)
    if len(schema.get("allOf", ())) == 1:
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        return _normal({**schema["allOf"][0], **rest}, known, depth + 1)
    normal: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            if value:
                normal[key] = {name: _normal(member, known, depth + 1) for name, member in value.items()}
        elif key in ("anyOf", "oneOf"):
            normal["anyOf"] = _union([_normal(branch, known, depth + 1) for branch in value])
        elif key in ("items", "additionalItems", "contains", "propertyNames"):
            normal[key] = _normal(value, known, depth + 1)
        elif key == "type" and isinstance(value, list):
            normal["anyOf"] = _union([{"type": name} for name in value])
        elif key == "required":
            if value:
                normal[key] = sorted(value)
        elif key == "const":
            normal["enum"] = [value]
        elif key == "enum":
            normal[key] = sorted(value, key=repr)
        elif key == "default" and value is None:
            continue
        elif key not in _IGNORED:
            normal[key] = value
    return _tidy(normal)


def _union(parts: list[Any]) -> list[Any]:
    return [part for part in parts if part != {"type": "null"}]


def _tidy(normal: dict[str, Any]) -> dict[str, Any]:
    """Write the same thing one way: a union of one, a type that an enum says already, an item of anything."""
    if "anyOf" in normal:
        branches = normal.pop("anyOf")
        parts = [part for branch in branches for part in branch.get("anyOf", [branch])]
        enums = [value for part in parts if "enum" in part for value in part["enum"]]
        others = [part for part in parts if "enum" not in part]
        if None in enums or enums:
            others.append({"enum": sorted((value for value in enums if value is not None), key=repr)})
        if len(others) == 1:
            normal = {**others[0], **normal}
        elif {} not in others:
            normal["anyOf"] = sorted(others, key=repr)
    if "enum" in normal:
        normal["enum"] = [value for value in normal["enum"] if value is not None]
        normal.pop("type", None)
    if normal.get("items") == {}:
        del normal["items"]
    return normal
