"""A form filled in at the terminal, field by field: what an elicitation's schema asks, and what was typed.

It knows the flat schemas that the specification allows in a form. A typed line is read as the field's type wants it and
judged by the field's own schema; what does not fit is asked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from trunkline.cli.output import one_line
from trunkline.cli.terminal import Terminal

__all__ = ["Left", "fill_in", "summary"]

_NOTHING = object()
_WAYS_OUT: Mapping[str, str] = MappingProxyType({":decline": "decline", ":cancel": "cancel"})


class Left(Exception):
    """The person left the form instead of filling it in."""

    def __init__(self, action: str) -> None:
        """Say whether by ``decline`` or by ``cancel``."""
        super().__init__(action)
        self.action = action


class _Unfit(ValueError):
    """What was typed is no value of the field."""


async def fill_in(terminal: Terminal, schema: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for every field; ``before`` holds what was typed the last time.

    Raises:
        Left: the person typed a way out.
        InputEnded: the input ended.
    """
    fields = schema.get("properties")
    required = schema.get("required")
    content: dict[str, Any] = {}
    for name, field in fields.items() if isinstance(fields, dict) else ():
        field = field if isinstance(field, dict) else {}
        if name in before:
            field = {**field, "default": before[name]}
        value = await _one(terminal, name, field, required=isinstance(required, list) and name in required)
        if value is not _NOTHING:
            content[name] = value
    return content


async def _one(terminal: Terminal, name: str, field: dict[str, Any], *, required: bool) -> Any:
    for line in _about(name, field):
        terminal.show(line)
    default = _default(field)
    hint = f" [{_shown(default)}]" if default is not _NOTHING else "" if required else " (optional)"
    while True:
        typed = await terminal.ask(f"{one_line(name)}{hint}: ")
        if typed in _WAYS_OUT:
            raise Left(_WAYS_OUT[typed])
        try:
            return _read(typed, field) if typed else _left_out(default, required=required)
        except _Unfit as problem:
            terminal.show(f"  {problem}")


def _left_out(default: Any, *, required: bool) -> Any:
    if default is _NOTHING and required:
        raise _Unfit("this must be filled in (:decline refuses, :cancel leaves)")
    return default


def _default(field: dict[str, Any]) -> Any:
    """Give a field's default, if it has one that fits."""
    default = field.get("default", _NOTHING)
    try:
        if default is not _NOTHING:
            _check(default, field)
    except _Unfit:
        return _NOTHING
    return default


def summary(content: Mapping[str, Any]) -> str:
    """Show what was filled in, a field a line."""
    return "\n".join(f"  {one_line(name)}: {_shown(value)}" for name, value in content.items())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def _about(name: str, field: dict[str, Any]) -> list[str]:
    """Say what is known of a field, besides its name."""
    title, description = str(field.get("title") or name), str(field.get("description") or "")
    lines = [title] if title != name else []
    lines += [f"  {description}"] if description else []
    for number, (value, label) in enumerate(_choices(field), 1):
        lines.append(f"  {number}. {label if label == value else f'{label} ({value})'}")
    hint = _HINTS.get(str(field.get("format") or field.get("type")))
    lines += [f"  {hint}"] if hint else []
    return [_indented(line) for line in lines]


def _indented(line: str) -> str:
    """Put a line on one line, its indentation kept."""
    return line[: len(line) - len(line.lstrip())] + one_line(line)


_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "boolean": "yes or no",
        "integer": "a whole number",
        "number": "a number",
        "array": "any number of these, with commas between",
        "email": "an e-mail address",
        "uri": "a URI, with its scheme",
        "date": "a date: year-month-day",
        "date-time": "a date and time, as ISO 8601 writes it",
    }
)


# --- from what was typed to a value ----------------------------------------------------------------------------------


def _read(typed: str, field: dict[str, Any]) -> Any:
    """Read a line as a field's value, or say why it is none."""
    kind = str(field.get("type", "string"))
    if kind == "array":
        value: Any = [_chosen(part.strip(), _choices(field)) for part in typed.split(",") if part.strip()]
    elif _choices(field):
        value = _chosen(typed, _choices(field))
    else:
        value = _READERS.get(kind, str)(typed)
    _check(value, field)
    return value


def _choices(field: dict[str, Any]) -> list[tuple[str, str]]:
    """Give the values that may be chosen, each with its title, in all the forms the revisions have."""
    items = field.get("items")
    if field.get("type") == "array" and isinstance(items, dict):
        field = items
    for key in ("oneOf", "anyOf"):
        rows = field.get(key)
        if isinstance(rows, list):
            consts = [row for row in rows if isinstance(row, dict) and "const" in row]
            return [(str(row["const"]), str(row.get("title") or row["const"])) for row in consts]
    values = field.get("enum")
    if not isinstance(values, list):
        return []
    titles = field.get("enumNames")
    if not isinstance(titles, list) or len(titles) != len(values):
        titles = values
    return [(str(value), str(title)) for value, title in zip(values, titles, strict=True)]


def _chosen(typed: str, choices: list[tuple[str, str]]) -> str:
    """Take a choice by its value, its title or its number, in this order."""
    for at in (0, 1):
        for choice in choices:
            if choice[at] == typed:
                return choice[0]
    if typed.isascii() and typed.isdigit() and 0 < int(typed) <= len(choices):
        return choices[int(typed) - 1][0]
    raise _Unfit(f"{typed!r} is none of the choices: type one, or its number")


def _boolean(typed: str) -> bool:
    word = typed.lower()
    if word in ("y", "yes", "true", "1"):
        return True
    if word in ("n", "no", "false", "0"):
        return False
    raise _Unfit("type yes or no")


def _integer(typed: str) -> int:
    try:
        return int(typed)
    except ValueError:
        raise _Unfit(f"{typed!r} is no whole number") from None


def _number(typed: str) -> float:
    try:
        return int(typed) if re.fullmatch(r"[+-]?\d+", typed) else _finite(float(typed))
    except ValueError:
        raise _Unfit(f"{typed!r} is no number") from None


def _finite(value: float) -> float:
    if value - value != 0:
        raise ValueError
    return value


_READERS: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {"boolean": _boolean, "integer": _integer, "number": _number}
)


def _check(value: Any, field: dict[str, Any]) -> None:
    from trunkline.protocol.json_schema import SchemaError, compile_schema

    try:
        problem = compile_schema(field).first_problem(value)
    except SchemaError:
        # A schema that cannot be used is told when the answer is checked as a whole; here it finds no fault.
        problem = None
    if problem is not None:
        raise _Unfit(problem.message)
    judge = _FORMATS.get(str(field.get("format")))
    if judge is not None and isinstance(value, str) and not judge(value):
        raise _Unfit(f"{value!r} is not {_HINTS[str(field['format'])]}")


def _is_date(text: str) -> bool:
    from datetime import date

    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def _is_time(text: str) -> bool:
    from datetime import datetime

    try:
        return len(text) > len("0000-00-00") and bool(datetime.fromisoformat(text))
    except ValueError:
        return False


_FORMATS: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "email": lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None,
        "uri": lambda text: re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:\S+", text) is not None,
        "date": _is_date,
        "date-time": _is_time,
    }
)
