"""Members of JSON that others wrote, each as the type that is wanted: what is of another type counts as absent."""

from __future__ import annotations

from typing import Any

__all__ = ["as_dict", "as_list", "text_of"]


def as_dict(value: Any) -> dict[str, Any]:
    """Give an object, or an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """Give a list, or an empty one in place of anything else."""
    return value if isinstance(value, list) else []


def text_of(value: Any, most: int = 500) -> str:
    """Give the beginning of a text, or nothing in place of anything else."""
    return value[:most] if isinstance(value, str) else ""
