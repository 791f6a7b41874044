"""Converts ``key=value`` arguments to JSON values according to the tool's input schema.

A string parameter gets the text as typed, even if it looks like a number. For any other type, the text is parsed as
JSON; text that is not JSON is sent as it is, for the server to judge.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import click
import msgspec

from trunkline.cli.exits import Exit, Failure

__all__ = ["json_object", "read_value", "typed_arguments"]

_PYTHON_TYPES: Mapping[type, tuple[str, ...]] = MappingProxyType(
    {
        bool: ("boolean",),
        int: ("integer", "number"),
        float: ("number",),
        list: ("array",),
        dict: ("object",),
        type(None): ("null",),
    }
)
_ALL_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
# Deeper than this, the references of a schema are circular.
_MOST_STEPS = 16


def typed_arguments(texts: Mapping[str, str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Convert texts to the types of a tool's parameters."""
    return {name: _typed(text, _parameter(name, schema), schema) for name, text in texts.items()}


def _parameter(name: str, schema: Mapping[str, Any]) -> Any:
    properties = schema.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return schema.get("additionalProperties", {})


def _typed(text: str, parameter: Any, schema: Mapping[str, Any]) -> Any:
    text = read_value(text, binary=isinstance(parameter, dict) and parameter.get("contentEncoding") == "base64")
    wanted = _types(parameter, schema, _MOST_STEPS)
    if wanted == {"string"}:
        return text
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text
    if "string" not in wanted:
        return value
    fits = wanted.intersection(_PYTHON_TYPES.get(type(value), ()))
    return value if fits else text


def _types(parameter: Any, schema: Mapping[str, Any], steps: int) -> frozenset[str]:
    """Return the JSON types that a parameter accepts; all types if its schema does not restrict them."""
    if not isinstance(parameter, dict) or steps == 0:
        return _ALL_TYPES
    if isinstance(parameter.get("$ref"), str):
        return _types(_referred(parameter["$ref"], schema), schema, steps - 1)
    declared = parameter.get("type")
    if isinstance(declared, str | list):
        return frozenset([declared] if isinstance(declared, str) else declared)
    for key in ("anyOf", "oneOf"):
        if isinstance(parameter.get(key), list):
            return frozenset().union(*(_types(part, schema, steps - 1) for part in parameter[key]))
    if isinstance(parameter.get("allOf"), list):
        return _ALL_TYPES.intersection(*(_types(part, schema, steps - 1) for part in parameter["allOf"]))
    values = parameter["enum"] if isinstance(parameter.get("enum"), list) else [parameter.get("const", ...)]
    if values == [...]:
        return _ALL_TYPES
    return frozenset(name for value in values for name in _PYTHON_TYPES.get(type(value), ("string",)))


def _referred(reference: str, schema: Mapping[str, Any]) -> Any:
    found: Any = schema
    for part in reference.removeprefix("#").split("/")[1:]:
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def read_value(text: str, *, binary: bool = False) -> str:
    """Return a value as typed or, after ``@``, the contents of a file (``-`` is stdin); ``@@`` escapes an ``@``.

    Raises:
        CommandError: the file cannot be read, or is not UTF-8 text where text is required.
    """
    if not text.startswith("@") or text.startswith("@@"):
        return text.replace("@@", "@", 1) if text.startswith("@@") else text
    data = _file(text[1:])
    if binary:
        from base64 import b64encode

        return b64encode(data).decode()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Failure(f"{text[1:]} is not UTF-8 text", Exit.CONFIG) from None


def _file(path: str) -> bytes:
    if path == "-":
        return sys.stdin.buffer.read()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise Failure(f"{path} cannot be read: {error.strerror}", Exit.CONFIG) from error


def json_object(text: str) -> dict[str, Any]:
    """Parse the value of ``--args``: a JSON object, or ``@`` and a file with one."""
    try:
        value = msgspec.json.decode(read_value(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise click.UsageError(f"--args is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise click.UsageError("--args is not a JSON object.")
    return value
