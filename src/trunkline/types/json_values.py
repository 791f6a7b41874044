"""JSON values as types: what a decoder returns, and what an encoder accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

__all__ = ["JsonInput", "JsonObject", "JsonValue"]

#: A decoded JSON value.
JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
#: A decoded JSON object.
JsonObject: TypeAlias = "dict[str, JsonValue]"
#: A value to encode as JSON; covariant, so that a ``dict[str, int]`` or a tuple is one.
JsonInput: TypeAlias = "bool | int | float | str | Sequence[JsonInput] | Mapping[str, JsonInput] | None"
