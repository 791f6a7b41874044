"""Arguments of a tool, prompted for field by field, or parsed from the text after the tool's name.

Fields that a form supports are asked as in a form; all others are typed as JSON, or as text if the tool takes text. The
arguments are validated against the tool's schema before anything is sent.
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
    """The input cannot be parsed; the message says why."""


def read_arguments(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Parse ``key=value`` words, or one JSON object, as the arguments of a tool.

    Raises:
        InvalidChatInput: the text is neither.
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
    """Return the names of required arguments that are missing."""
    required = schema.get("required")
    return [name for name in required if name not in arguments] if isinstance(required, list) else []


def problems_of(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
    """Return where arguments violate a schema; an invalid schema accepts everything."""
    try:
        found = compile_schema(dict(schema)).check(dict(arguments), limit=_MOST_PROBLEMS)
    except SchemaError:
        return []
    return [f"{each.path or '/'}: {each.message}" for each in found]


async def ask_arguments(terminal: Terminal, schema: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Prompt for all arguments; ``before`` holds known values, which Enter accepts.

    Raises:
        FormDismissed: the user cancelled.
        EndOfInput: the input ended.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict) or not properties:
        return dict(before)
    terminal.show("(Enter accepts the value in brackets or skips; :cancel cancels.)")
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
    """Return True if a form supports the field."""
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
    """Prompt for a field that a form does not support."""
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
        # Here an @ does not refer to a file.
        text = f"@{typed}" if typed.startswith("@") else typed
        if typed:
            return typed_arguments({name: text}, schema)
        terminal.show("  a value is required (:cancel cancels)")
