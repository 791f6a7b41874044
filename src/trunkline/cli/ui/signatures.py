"""Definitions of tools, prompts and resources as text: a signature with the types of the arguments, and all of it.

A type is written as in JSON Schema, shortened: ``string | null``, ``array of integer``, ``"a" | "b"``; the members of
an object stand below it, indented. A schema comes from a server: whatever has an unexpected form is left out, and
references are followed a few steps only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from trunkline.cli.ui.output import clip, one_line, wire_json

__all__ = ["definition_lines", "parameter_names", "signature"]

_STEPS = 4  # How deep types are followed; deeper ones are named without their parts.
_MOST_VALUES = 6  # The values of an enumeration that are listed.
_MOST_LINES = 500  # A schema that refers to itself in many members has millions.
_LONGEST_DEFAULT = 40  # With a name and a type it fits on a line.


def signature(item: Any) -> str:
    """Return the name of a tool or prompt with its parameters; of a resource, its URI."""
    if hasattr(item, "input_schema"):
        members = _members(item.input_schema, item.input_schema)
        return f"{one_line(item.name)}({', '.join(text for text, _ in members)})"
    if hasattr(item, "arguments"):
        return f"{one_line(item.name)}({', '.join(text for text, _ in _prompt_parameters(item))})"
    return one_line(getattr(item, "uri", None) or item.uri_template)


def parameter_names(schema: Mapping[str, Any]) -> str:
    """Return the names of a tool's parameters, optional ones in brackets."""
    properties, required = _properties(schema), _required(schema)
    return " ".join(name if name in required else f"[{name}]" for name in properties)


def definition_lines(item: Any) -> Iterator[str]:
    """Yield the signature of an item, its description, and its parameters and result with all their members."""
    yield signature(item)
    yield from _indented(item.description or item.title or "")
    parameters: list[str] = []
    if hasattr(item, "input_schema"):
        parameters = list(_all_members(item.input_schema))
    elif hasattr(item, "arguments"):
        parameters = [
            line for text, description in _prompt_parameters(item) for line in (text, *_indented(description))
        ]
    if parameters:
        yield "Arguments:"
        yield from (f"    {line}" for line in parameters)
    output = getattr(item, "output_schema", None)
    if output:
        yield f"Returns: {_type_text(output, output)}"
        yield from (f"    {line}" for line in _all_members(output))
    hints = getattr(item, "annotations", None)
    if hints is not None and hasattr(item, "input_schema"):
        yield f"Hints: {one_line(wire_json(hints).decode())}"


def _indented(text: str) -> Iterator[str]:
    yield from (f"    {line.strip()}".rstrip() for line in text.strip().splitlines())


def _all_members(schema: Mapping[str, Any]) -> Iterator[str]:
    lines = _member_lines(schema, schema, _STEPS)
    yield from islice(lines, _MOST_LINES)
    if next(lines, None) is not None:
        yield "..."


def _member_lines(part: Mapping[str, Any], schema: Mapping[str, Any], steps: int) -> Iterator[str]:
    """Yield each member of an object with its description, and below it, indented, its own members."""
    for text, member in _members(part, schema):
        yield text
        yield from _indented(_description(member))
        objects = list(_objects(member, schema, steps - 1))
        for at, inner in enumerate(objects):
            if len(objects) > 1:
                yield "    or:" if at else "    either:"
            indent = "        " if len(objects) > 1 else "    "
            yield from (f"{indent}{line}" for line in _member_lines(inner, schema, steps - 1))


def _objects(part: Any, schema: Mapping[str, Any], steps: int) -> Iterator[Mapping[str, Any]]:
    """Yield the objects with members that a schema describes: itself, the items of an array, the parts of a union."""
    from trunkline.cli.options import referred_schema

    if not isinstance(part, dict) or steps <= 0:
        return
    if isinstance(part.get("$ref"), str):
        yield from _objects(referred_schema(part["$ref"], schema), schema, steps - 1)
    elif _properties(part):
        yield part
    for key in ("anyOf", "oneOf"):
        for branch in part[key] if isinstance(part.get(key), list) else ():
            yield from _objects(branch, schema, steps)
    for key in ("items", "additionalProperties"):
        yield from _objects(part.get(key), schema, steps)


def _members(part: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each member of an object with its type and default, and its schema."""
    required = _required(part)
    for name, parameter in _properties(part).items():
        parameter = parameter if isinstance(parameter, dict) else {}
        optional = "" if name in required else "?"
        default = ""
        if "default" in parameter:
            optional = ""
            default = f" = {clip(one_line(wire_json(parameter['default']).decode()), _LONGEST_DEFAULT)}"
        yield f"{one_line(name)}{optional}: {_type_text(parameter, schema)}{default}", parameter


def _prompt_parameters(item: Any) -> Iterator[tuple[str, str]]:
    for argument in item.arguments or ():
        yield f"{one_line(argument.name)}{'' if argument.required else '?'}: string", argument.description or ""


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def _required(schema: Mapping[str, Any]) -> list[Any]:
    required = schema.get("required")
    return required if isinstance(required, list) else []


def _description(parameter: Mapping[str, Any]) -> str:
    description = parameter.get("description")
    return description if isinstance(description, str) else ""


def _type_text(parameter: Any, schema: Mapping[str, Any], steps: int = _STEPS) -> str:
    from trunkline.cli.options import referred_schema

    if not isinstance(parameter, dict) or steps == 0:
        return "any"
    if isinstance(parameter.get("$ref"), str):
        return _type_text(referred_schema(parameter["$ref"], schema), schema, steps - 1)
    values = parameter["enum"] if isinstance(parameter.get("enum"), list) else [parameter.get("const", ...)]
    if values != [...]:
        texts = [one_line(wire_json(value).decode()) for value in values[:_MOST_VALUES]]
        return " | ".join([*texts, *(["..."] if len(values) > _MOST_VALUES else [])])
    for key in ("anyOf", "oneOf"):
        if isinstance(parameter.get(key), list):
            return " | ".join(dict.fromkeys(_type_text(part, schema, steps - 1) for part in parameter[key]))
    declared = parameter.get("type")
    kinds = [declared] if isinstance(declared, str) else declared if isinstance(declared, list) else []
    return " | ".join(_kind_text(str(kind), parameter, schema, steps) for kind in kinds) or "any"


def _kind_text(kind: str, parameter: Mapping[str, Any], schema: Mapping[str, Any], steps: int) -> str:
    if kind == "array" and isinstance(parameter.get("items"), dict):
        items = _type_text(parameter["items"], schema, steps - 1)
        return f"array of ({items})" if " | " in items else f"array of {items}"
    if kind == "object" and isinstance(parameter.get("additionalProperties"), dict) and not _properties(parameter):
        return f"object of {_type_text(parameter['additionalProperties'], schema, steps - 1)}"
    if kind == "string" and isinstance(parameter.get("format"), str):
        return f"string ({one_line(parameter['format'])})"
    return one_line(kind)
