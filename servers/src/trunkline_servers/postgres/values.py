"""PostgreSQL values and rows as JSON, in the forms of the official server's driver as far as those lose nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from json.encoder import encode_basestring
from math import isfinite
from types import MappingProxyType
from typing import Any

from trunkline_servers.sql import to_json

__all__ = ["DECODERS", "TUPLE_DECODERS", "RowWriter", "to_plain"]

_MICROSECONDS = 1_000_000
_MOST_LEVELS = 100
_ENDLESS = MappingProxyType(
    {(2**31 - 1, 2**31 - 1, 2**63 - 1): "infinity", (-(2**31), -(2**31), -(2**63)): "-infinity"}
)


def _number(text: str) -> float | int | str:
    """Parse a float; one that JSON cannot represent stays text."""
    value = float(text)
    if not math.isfinite(value):
        return text
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def _timestamp(text: str) -> str:
    """Format a timestamp without time zone as ISO 8601, without adding a zone."""
    return text.replace(" ", "T", 1) if re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?", text) else text


def _timestamptz(text: str) -> str:
    """Format a timestamp with time zone as ISO 8601 in UTC, in milliseconds or, if needed, microseconds."""
    try:
        found = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return text
    made = found.isoformat(timespec="microseconds" if found.microsecond % 1000 else "milliseconds")
    return f"{made.removesuffix('+00:00')}Z"


def _json(text: str) -> Any:
    """Parse JSON; it stays text if it is too deep or has a number that is too long."""
    try:
        value = json.loads(text, parse_float=_number, parse_constant=str)
    except (ValueError, RecursionError):
        return text
    return text if text.count("[") + text.count("{") > _MOST_LEVELS and _is_deep(value) else value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_MOST_LEVELS):
        inside = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [each for values in inside for each in values]
        if not level:
            return False
    return True


def _interval(parts: tuple[int, int, int]) -> dict[str, Any] | str:
    """Format an interval as an object of its nonzero parts; an infinite one as a word."""
    if parts in _ENDLESS:
        return _ENDLESS[parts]
    months, days, micros = parts
    sign = -1 if micros < 0 else 1
    seconds, rest = divmod(abs(micros), _MICROSECONDS)
    years, months = int(months / 12), int(math.fmod(months, 12))
    named = {
        "years": years,
        "months": months,
        "days": days,
        "hours": sign * (seconds // 3600),
        "minutes": sign * (seconds // 60 % 60),
        "seconds": sign * (seconds % 60),
        "milliseconds": sign * rest / 1000,
    }
    return {name: int(value) if value == int(value) else value for name, value in named.items() if value}


def _geometry(*parts: str) -> Callable[[str], Any]:
    """Return a decoder of a geometric value to an object with these parts."""

    def read(text: str) -> Any:
        values = text.strip("<()>").replace("),", ",").split(",")
        return {name: _number(value) for name, value in zip(parts, values, strict=True)}

    return read


def _text_types() -> dict[str, Callable[[str], Any]]:
    """Return decoders for the types that are shown as PostgreSQL writes them."""
    names = "bit box bytea cidr date inet int8 jsonpath line lseg macaddr macaddr8 money numeric path pg_lsn"
    names += " pg_snapshot polygon tid time timetz tsquery tsvector txid_snapshot uuid varbit xid8 xml"
    return dict.fromkeys(names.split(), str)


#: Decoders from a type's text to a JSON value, by type name.
DECODERS: Mapping[str, Callable[[str], Any]] = MappingProxyType(
    {
        **_text_types(),
        "circle": _geometry("x", "y", "radius"),
        "point": _geometry("x", "y"),
        "float4": _number,
        "float8": _number,
        "json": _json,
        "jsonb": _json,
        "timestamp": _timestamp,
        "timestamptz": _timestamptz,
    }
)
#: The same for types that arrive as tuples.
TUPLE_DECODERS: Mapping[str, Callable[[tuple[int, int, int]], Any]] = MappingProxyType({"interval": _interval})


def _range(value: Any) -> str:
    """Format a range as PostgreSQL does."""
    if value.isempty:
        return "empty"
    lower, upper = ("" if each is None else each for each in (value.lower, value.upper))
    return f"{'[' if value.lower_inc else '('}{lower},{upper}{']' if value.upper_inc else ')'}"


def to_plain(value: Any) -> Any:
    """Convert a decoded value to plain JSON values; unknown types become their text."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple) and not hasattr(value, "keys"):
        return [to_plain(each) for each in value]
    if hasattr(value, "items"):
        # A composite: a record with named fields.
        return {str(name): to_plain(each) for name, each in value.items()}
    if isinstance(value, bytes):
        # The type "char", of a single byte.
        return value.decode("utf-8", "backslashreplace")
    if hasattr(value, "lower_inc"):
        return _range(value)
    return str(value)


_INDENT = "    "


class RowWriter:
    """Writes the rows of one result."""

    def __init__(self) -> None:
        """Start without cached column names."""
        self._names: dict[str, str] = {}

    def write(self, row: Any) -> str:
        """Return a row as JSON; of two values under one name the second wins."""
        values = dict(row.items())
        if not values:
            return "  {}"
        lines = [
            f"{self._names.get(name) or self._named(name)}{_written(value, _INDENT)}" for name, value in values.items()
        ]
        return "  {\n" + ",\n".join(lines) + "\n  }"

    def _named(self, name: str) -> str:
        made = self._names[name] = f"{_INDENT}{_text(name)}: "
        return made


def _written(value: Any, indent: str) -> str:
    """Return a value as JSON at an indentation."""
    if isinstance(value, str):
        return _text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) or (isinstance(value, float) and isfinite(value)):
        return repr(value)
    return _written_in_lines(to_plain(value), indent)


def _written_in_lines(value: Any, indent: str) -> str:
    deeper = f"{indent}  "
    if isinstance(value, dict) and value:
        lines = [f"{deeper}{_text(name)}: {_written(each, deeper)}" for name, each in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        lines = [f"{deeper}{_written(each, deeper)}" for each in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    return to_json(value)


def _text(text: str) -> str:
    made = encode_basestring(text)
    # It escapes unprintable characters.
    return made if made.isprintable() else to_json(text)
