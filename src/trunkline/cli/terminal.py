"""Reads answers from the terminal, one line at a time, while the event loop runs.

Questions are written to stderr, so that stdout holds only the command's answer. A wait can be cancelled at any moment:
the event loop watches the terminal, and no thread is left reading it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from trunkline.cli.screen import Screen

__all__ = ["InputEnded", "Terminal", "forget_typed", "is_there", "unseen"]


class InputEnded(Exception):
    """The user ended the input with Ctrl-D; no more answers will come."""


def is_there() -> bool:
    """Return True if stdin, stdout and stderr are a terminal, so that a question can be asked."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def forget_typed() -> None:
    """Discard input typed before a question was shown: it was meant for something else."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


@contextmanager
def unseen() -> Iterator[None]:
    """Disable the echo of the terminal while the context is active."""
    if sys.platform == "win32":
        yield
        return
    import termios

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(fd, termios.TCSAFLUSH, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSAFLUSH, before)


class Terminal:
    """Asks the user questions in the terminal."""

    def __init__(self, screen: Screen) -> None:
        """Write questions to this screen."""
        self._screen = screen
        self._typed = b""

    def show(self, text: str) -> None:
        """Show lines."""
        self._screen.line(text)

    def forget_typed(self) -> None:
        """Discard input typed before the next question was shown."""
        self._typed = b""
        forget_typed()

    async def ask(self, prompt: str) -> str:
        """Ask for a line.

        Raises:
            EndOfInput: the user pressed Ctrl-D.
        """
        self._screen.ask(prompt)
        while b"\n" not in self._typed:
            self._typed += await self._more()
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    async def choose(self, prompt: str, answers: Mapping[str, str], *, default: str | None = None) -> str:
        """Ask until the answer is the beginning of one of these words; return the value of that word."""
        while True:
            typed = (await self.ask(prompt)).lower() or default
            if typed:
                for word, meaning in answers.items():
                    if word.startswith(typed):
                        return meaning
            self.show(f"Type one of: {', '.join(answers)}.")

    async def _more(self) -> bytes:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        fd = sys.stdin.fileno()
        loop.add_reader(fd, lambda: None if readable.done() else readable.set_result(None))
        try:
            await readable
        except asyncio.CancelledError:
            self._screen.line("")
            raise
        finally:
            loop.remove_reader(fd)
        data = os.read(fd, 4096)
        if not data:
            self._screen.line("")
            raise InputEnded
        return data
