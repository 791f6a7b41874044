"""Restores masked secrets in values that a page sends back unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["restore_masked"]

_MASK = "***"


def restore_masked(edited: Any, original: Any, hide: Callable[[str], str]) -> Any:
    """Return an edited JSON value with its masked texts restored.

    A text is restored only at its place in ``original``, and only if it equals the masked text that the page was shown
    there.
    """
    if isinstance(edited, str):
        masked = _MASK in edited and isinstance(original, str) and hide(original) == edited
        return original if masked else edited
    if isinstance(edited, dict) and isinstance(original, dict):
        shown = {hide(name): name for name in original}
        return {
            shown.get(name, name): restore_masked(value, original.get(shown.get(name, name)), hide)
            for name, value in edited.items()
        }
    if isinstance(edited, list) and isinstance(original, list):
        padded = [*original, *([None] * (len(edited) - len(original)))]
        return [restore_masked(value, before, hide) for value, before in zip(edited, padded, strict=False)]
    return edited
