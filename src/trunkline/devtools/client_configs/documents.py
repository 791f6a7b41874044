"""Documents as Python objects: one member set or removed, for the editors of texts to compare their result with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trunkline.errors import ConfigError

__all__ = ["has_member", "newline_of", "with_member", "without_member"]


def has_member(document: Any, key_path: tuple[str, ...]) -> bool:
    """Return whether a document has a value at a key path."""
    for step in key_path:
        if not isinstance(document, dict) or step not in document:
            return False
        document = document[step]
    return True


def with_member(document: Any, key_path: tuple[str, ...], value: Any) -> Any:
    """Return a copy of a document with one value set; missing objects on the path are created.

    Raises:
        ConfigError: a value on the path is not an object.
    """
    if not key_path:
        return value
    if not isinstance(document, Mapping):
        raise ConfigError(f"the file cannot be changed: the parent of {key_path[0]!r} is not an object")
    inner = document.get(key_path[0], {} if len(key_path) > 1 else None)
    return {**document, key_path[0]: with_member(inner, key_path[1:], value)}


def without_member(document: Any, key_path: tuple[str, ...]) -> Any:
    """Return a copy of a document without one member."""
    if len(key_path) == 1:
        return {name: value for name, value in document.items() if name != key_path[0]}
    return {
        name: without_member(value, key_path[1:]) if name == key_path[0] else value for name, value in document.items()
    }


def newline_of(text: str) -> str:
    """Return the line ending of a text."""
    return "\r\n" if "\r\n" in text else "\n"
