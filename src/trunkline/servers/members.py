"""Members of untrusted JSON, each as the expected type; a value of another type counts as absent."""

from __future__ import annotations

from typing import Any

__all__ = ["as_dict", "as_list", "text_of"]


def as_dict(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def text_of(value: Any, most: int = 500) -> str:
    """Return the first ``most`` characters of a string; empty for anything else."""
    return value[:most] if isinstance(value, str) else ""
