"""Asks a person in the terminal, one line at a time, while the event loop goes on.

Questions stand on stderr, so that stdout holds the answer of the command alone. A wait can be cancelled at any moment:
the terminal is watched by the loop, and no thread is left reading it.
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
    """The person ended the input (Ctrl-D): they will answer nothing more."""


def is_there() -> bool:
    """Tell whether somebody can see a question and type an answer."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def forget_typed() -> None:
    """Discard what was typed before a question could be seen: it was meant for something else."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


@contextmanager
def unseen() -> Iterator[None]:
    """Have the terminal not show what is typed."""
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
    """A person at a terminal."""

    def __init__(self, screen: Screen) -> None:
        """Write questions on this screen."""
        self._screen = screen
        self._typed = b""

    def show(self, text: str) -> None:
        """Show lines."""
        self._screen.line(text)

    def forget_typed(self) -> None:
        """Discard what was typed before the next question could be seen."""
        self._typed = b""
        forget_typed()

    async def ask(self, prompt: str) -> str:
        """Ask for a line.

        Raises:
            InputEnded: there is none.
        """
        self._screen.ask(prompt)
        while b"\n" not in self._typed:
            self._typed += await self._more()
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    async def choose(self, prompt: str, answers: Mapping[str, str], *, default: str | None = None) -> str:
        """Ask until the answer begins like one of these; gives what stands beside it."""
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
