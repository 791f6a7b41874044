"""Fills in an elicitation form in the terminal, field by field.

It supports the flat schemas that the specification allows in a form. A typed line is parsed according to the type of
the field and validated against its schema; an invalid value is asked for again.
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
    """The user declined or cancelled the form."""

    def __init__(self, action: str) -> None:
        """Set the action, ``decline`` or ``cancel``."""
        super().__init__(action)
        self.action = action


class _Unfit(ValueError):
    """The typed text is not a valid value of the field."""


async def fill_in(terminal: Terminal, schema: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for every field; ``before`` holds the previous answers.

    Raises:
        FormDismissed: the user declined or cancelled the form.
        EndOfInput: the input ended.
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
        raise _Unfit("a value is required (:decline declines, :cancel cancels)")
    return default


def _default(field: dict[str, Any]) -> Any:
    """Return the default of a field, if it has a valid one."""
    default = field.get("default", _NOTHING)
    try:
        if default is not _NOTHING:
            _check(default, field)
    except _Unfit:
        return _NOTHING
    return default


def summary(content: Mapping[str, Any]) -> str:
    """Format the answers, one field per line."""
    return "\n".join(f"  {one_line(name)}: {_shown(value)}" for name, value in content.items())


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(", ".join(map(str, value)) if isinstance(value, list) else str(value))


def _about(name: str, field: dict[str, Any]) -> list[str]:
    """Return the description of a field: title, text, choices and format."""
    title, description = str(field.get("title") or name), str(field.get("description") or "")
    lines = [title] if title != name else []
    lines += [f"  {description}"] if description else []
    for number, (value, label) in enumerate(_choices(field), 1):
        lines.append(f"  {number}. {label if label == value else f'{label} ({value})'}")
    hint = _HINTS.get(str(field.get("format") or field.get("type")))
    lines += [f"  {hint}"] if hint else []
    return [_indented(line) for line in lines]


def _indented(line: str) -> str:
    """Make a line safe and keep its indentation."""
    return line[: len(line) - len(line.lstrip())] + one_line(line)


_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "boolean": "yes or no",
        "integer": "a whole number",
        "number": "a number",
        "array": "any number of these, separated by commas",
        "email": "an e-mail address",
        "uri": "a URI with a scheme",
        "date": "a date: year-month-day",
        "date-time": "a date and time in ISO 8601 format",
    }
)


# --- parsing and validation ------------------------------------------------------------------------------------------


def _read(typed: str, field: dict[str, Any]) -> Any:
    """Parse and validate a line as the value of a field."""
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
    """Return the allowed values with their titles, in all the forms that the revisions define."""
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
    """Return the choice with this value, title or number, in this order."""
    for at in (0, 1):
        for choice in choices:
            if choice[at] == typed:
                return choice[0]
    if typed.isascii() and typed.isdigit() and 0 < int(typed) <= len(choices):
        return choices[int(typed) - 1][0]
    raise _Unfit(f"{typed!r} is not one of the choices: type one of them, or its number")


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
        raise _Unfit(f"{typed!r} is not a whole number") from None


def _number(typed: str) -> float:
    try:
        return int(typed) if re.fullmatch(r"[+-]?\d+", typed) else _finite(float(typed))
    except ValueError:
        raise _Unfit(f"{typed!r} is not a number") from None


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
        # An invalid schema is reported when the whole answer is validated; here it accepts every value.
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
