"""Output to stderr while a call runs: lines, and a progress bar below them.

The bar is drawn on a terminal only; elsewhere each progress report is a line, shown in verbose mode. Text comes from
the server and is made safe before it is drawn; the escape sequences here are our own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import click

from trunkline.cli.output import clip, one_line, plain
from trunkline.cli.secrecy import hidden

__all__ = ["Screen"]

_ERASE = "\r\x1b[K"
_CELLS = 24
# More frequent updates are invisible, and a server may report thousands of times a second.
_SECONDS_BETWEEN = 0.05


class Screen:
    """Lines and a progress bar on stderr."""

    def __init__(self, *, verbose: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without a bar."""
        self._verbose = verbose
        self._clock = clock
        self._terminal = sys.stderr.isatty()
        self._bar = ""
        self._drawn = False
        self._next = 0.0

    def line(self, text: str) -> None:
        """Write a line above the bar."""
        self._erase()
        click.echo(plain(hidden(text)), err=True)
        self._draw()

    def ask(self, prompt: str) -> None:
        """Write a prompt for input; the bar disappears until the next progress report."""
        self.clear()
        click.echo(plain(prompt), err=True, nl=False)

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Show the progress of the call."""
        if not self._terminal:
            if self._verbose:
                self.line(f"progress: {_amount(done, total)} {one_line(message or '')}".rstrip())
            return
        self._bar = hidden(_bar(done, total, message))
        finished = total is not None and done >= total
        if finished or self._clock() >= self._next:
            self._next = self._clock() + _SECONDS_BETWEEN
            self._erase()
            self._draw()

    def clear(self) -> None:
        """Remove the bar."""
        self._erase()
        self._bar = ""

    def _erase(self) -> None:
        if self._drawn:
            self._drawn = False
            self._write(_ERASE)

    def _draw(self) -> None:
        if self._bar:
            self._drawn = True
            self._write(clip(self._bar, _columns() - 1))

    def _write(self, text: str) -> None:
        # click.echo would strip our own escapes where it detects no terminal; here there is one.
        sys.stderr.write(text)
        sys.stderr.flush()


def _bar(done: float, total: float | None, message: str | None) -> str:
    words = one_line(message or "")
    if total is None or total <= 0:
        return f"... {_amount(done, None)} {words}".rstrip()
    share = min(max(done / total, 0.0), 1.0)
    filled = int(share * _CELLS)
    return f"[{'#' * filled}{'-' * (_CELLS - filled)}] {share:4.0%} {words}".rstrip()


def _amount(done: float, total: float | None) -> str:
    return f"{done:g}" if total is None else f"{done:g}/{total:g}"


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
