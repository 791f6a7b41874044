"""Colour on the terminal: whether it is wanted, and how text is painted.

Colour is for terminals: ``FORCE_COLOR`` adds it elsewhere; ``--no-color``, ``NO_COLOR`` and ``TERM=dumb`` remove it.
Painting is a few escape sequences, so that a short command does not load a library for them. Tables are laid out by
``rich`` (see ``output.print_table``), which is imported only when stdout is a terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["colors_enabled", "is_terminal", "paint", "rich_console", "without_color"]

#: The styles, as parameters of the escape sequence.
_STYLES: Mapping[str, str] = MappingProxyType(
    {"heading": "1", "name": "36", "ok": "32", "warn": "33", "fail": "1;31", "dim": "2"}
)
_no_color: ContextVar[bool] = ContextVar("trunkline_no_color", default=False)


@contextmanager
def without_color(disabled: bool) -> Iterator[None]:
    """Disable colour in this context, if ``disabled``."""
    token = _no_color.set(disabled)
    try:
        yield
    finally:
        _no_color.reset(token)


def is_terminal(stream: Any) -> bool:
    """Return whether a stream is a terminal that understands escape sequences."""
    return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"


def colors_enabled(stream: Any) -> bool:
    """Return whether output to a stream is coloured."""
    if _no_color.get() or os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") != "0":
        return True
    return is_terminal(stream)


def paint(text: str, style: str, *, stream: Any = None) -> str:
    """Return a safe text in a style, for stdout unless another stream is given; unchanged where colour is off."""
    if not text or not colors_enabled(sys.stdout if stream is None else stream):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"


def rich_console() -> Console | None:
    """Return a console for tables on stdout; None if stdout is no terminal, or ``rich`` is not installed."""
    if not is_terminal(sys.stdout):
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(
        file=sys.stdout,
        color_system="standard" if colors_enabled(sys.stdout) else None,
        force_terminal=True,
        highlight=False,
        markup=False,
        emoji=False,
    )
