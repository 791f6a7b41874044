"""Rows of a result as indented JSON, each as in a list of rows.

The encoder of the standard library is slow with indentation, so rows are assembled here, with identical output. This
module knows nothing of the database.
"""

from __future__ import annotations

from json.encoder import encode_basestring
from math import isfinite
from typing import Any

from trunkline.servers.postgres.values import plain
from trunkline.servers.tables import to_json

__all__ = ["RowWriter"]

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
    return _written_in_lines(plain(value), indent)


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
