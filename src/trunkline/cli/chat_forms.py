"""The arguments of a tool, asked of a person field by field, or read from what stands behind the tool's name.

Fields that a form knows are asked as in a form; all others are typed as JSON, or as text where the tool takes text. The
whole is held to the tool's schema before it goes anywhere.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import click
import msgspec

from trunkline.cli.arguments import typed_arguments
from trunkline.cli.exits import Failure
from trunkline.cli.form import Left, fill_in
from trunkline.cli.options import pairs
from trunkline.cli.output import one_line, wire_json
from trunkline.cli.terminal import Terminal
from trunkline.protocol.json_schema import SchemaError, compile_schema

__all__ = ["Unreadable", "ask_arguments", "missing", "problems_of", "read_arguments"]

_PLAIN = ("string", "integer", "number", "boolean")
_WAYS_OUT = (":cancel", ":decline")
_MOST_PROBLEMS = 5


class Unreadable(ValueError):
    """What was typed are no arguments; the message says why."""


def read_arguments(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Read ``key=value`` words, or one JSON object, as the arguments of a tool.

    Raises:
        Unreadable: they are neither.
    """
    try:
        if text.startswith("{"):
            return msgspec.json.decode(text, type=dict[str, Any])
        return typed_arguments(pairs(tuple(shlex.split(text))), schema)
    except click.ClickException as error:
        raise Unreadable(error.format_message()) from error
    except (Failure, ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from error


def missing(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Name the arguments that a tool needs and that are not there."""
    required = schema.get("required")
    return [name for name in required if name not in arguments] if isinstance(required, list) else []


def problems_of(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Say where arguments do not fit a schema; a schema that cannot be used finds no fault."""
    try:
        found = compile_schema(dict(schema)).check(dict(arguments), limit=_MOST_PROBLEMS)
    except SchemaError:
        return []
    return [f"{each.path or '/'}: {each.message}" for each in found]


async def ask_arguments(terminal: Terminal, schema: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for all arguments; ``before`` are those that are known, to be taken by Enter.

    Raises:
        Left: the person typed a way out.
        InputEnded: the input ended.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return dict(before)
    terminal.show("(Enter takes the value in brackets or skips; :cancel leaves.)")
    required = missing(schema, {})
    given: dict[str, Any] = {}
    for name, field in properties.items():
        needed = name in required
        if _is_plain(field):
            one = {"properties": {name: field}, "required": [name] if needed else []}
            given |= await fill_in(terminal, one, before)
        else:
            given |= await _typed(terminal, name, schema, before=before, needed=needed)
    return given


def _is_plain(field: Any) -> bool:
    """Tell whether a form can ask for a field."""
    if not isinstance(field, dict) or any(key in field for key in ("$ref", "anyOf", "allOf", "const")):
        return False
    if field.get("type") == "array":
        items = field.get("items")
        return isinstance(items, dict) and "enum" in items
    choices = field.get("enum")
    texts = not isinstance(choices, list) or all(isinstance(each, str) for each in choices)
    return field.get("type") in _PLAIN and texts and "oneOf" not in field


async def _typed(
    terminal: Terminal, name: str, schema: Mapping[str, Any], *, before: Mapping[str, Any], needed: bool
) -> dict[str, Any]:
    """Ask for a field that no form knows."""
    field = schema["properties"][name]
    about = field.get("description") if isinstance(field, dict) else None
    if about:
        terminal.show(f"  {one_line(str(about))}")
    hint = f" [{wire_json(before[name]).decode()}]" if name in before else "" if needed else " (optional)"
    while True:
        typed = await terminal.ask(f"{one_line(name)}{hint} (as JSON): ")
        if typed in _WAYS_OUT:
            raise Left(typed[1:])
        if not typed and name in before:
            return {name: before[name]}
        if not typed and not needed:
            return {}
        # Here no file is meant by an @.
        text = f"@{typed}" if typed.startswith("@") else typed
        if typed:
            return typed_arguments({name: text}, schema)
        terminal.show("  this must be filled in (:cancel leaves)")
