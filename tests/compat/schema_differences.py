"""Compares what a server lists under its own framework and under ours, but for documented classes of difference.

The classes, each named in docs/migrating.md: titles made from names; references in place of what they refer to; a value
that may be null; the descriptions of parameters that come from the docstring; the text of a docstring without its
section on parameters; unknown arguments; FastMCP's mark of wrapped results; the order of members.
"""

from __future__ import annotations

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
    found = [f"missing: {name}" for name in theirs if name not in ours]
    found += [f"additional: {name}" for name in ours if name not in theirs]
    for name in theirs.keys() & ours.keys():
        for part in ("input", "output"):
            left, right = normal_schema(theirs[name][part]), normal_schema(ours[name][part])
            if left != right:
                found.append(f"{name} {part}: {left} != {right}")
    return sorted(found)


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
    made = _normal(schema, known, 0)
    # A schema of any object promises nothing.
    return None if made in ({"type": "object"}, {}) else made


def _normal(schema: Any, known: dict[str, Any], depth: int) -> Any:
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return schema if not isinstance(schema, dict) else {}
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return _normal({**known.get(name, {}), **{k: v for k, v in schema.items() if k != "$ref"}}, known, depth + 1)
    if len(schema.get("allOf", ())) == 1:
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        return _normal({**schema["allOf"][0], **rest}, known, depth + 1)
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":
            if value:
                made[key] = {name: _normal(each, known, depth + 1) for name, each in value.items()}
        elif key in ("anyOf", "oneOf"):
            made["anyOf"] = _union([_normal(each, known, depth + 1) for each in value])
        elif key in ("items", "additionalItems", "contains", "propertyNames"):
            made[key] = _normal(value, known, depth + 1)
        elif key == "type" and isinstance(value, list):
            made["anyOf"] = _union([{"type": each} for each in value])
        elif key == "required":
            if value:
                made[key] = sorted(value)
        elif key == "const":
            made["enum"] = [value]
        elif key == "enum":
            made[key] = sorted(value, key=repr)
        elif key == "default" and value is None:
            continue
        elif key not in _IGNORED:
            made[key] = value
    return _tidy(made)


def _union(parts: list[Any]) -> list[Any]:
    return [each for each in parts if each != {"type": "null"}]


def _tidy(made: dict[str, Any]) -> dict[str, Any]:
    """Write the same thing one way: a union of one, a type that an enum says already, an item of anything."""
    if "anyOf" in made:
        parts = made.pop("anyOf")
        parts = [part for each in parts for part in each.get("anyOf", [each])]
        enums = [value for part in parts if "enum" in part for value in part["enum"]]
        others = [part for part in parts if "enum" not in part]
        if None in enums or enums:
            others.append({"enum": sorted((value for value in enums if value is not None), key=repr)})
        if len(others) == 1:
            made = {**others[0], **made}
        elif {} not in others:
            made["anyOf"] = sorted(others, key=repr)
    if "enum" in made:
        made["enum"] = [value for value in made["enum"] if value is not None]
        made.pop("type", None)
    if made.get("items") == {}:
        del made["items"]
    return made
