"""The terminal.

Status lines and a progress bar on stderr, questions answered one line at a time while the event loop runs, a text
editor, and signal handlers. Questions are written to stderr, so that stdout holds only the command's answer. A wait
for input can be cancelled at any moment: the event loop watches the terminal, and no thread is left reading it.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click

from trunkline.cli.ui.output import clip, is_terminal, one_line, redact, terminal_width, wrap_lines
from trunkline.protocol.printable import printable

__all__ = [
    "EndOfInput",
    "Screen",
    "Terminal",
    "discard_typeahead",
    "echo_disabled",
    "edit_text",
    "has_editor",
    "is_interactive",
    "signal_handlers",
    "spinner",
]

_ERASE = "\r\x1b[K"
_CELLS = 24  # With the percentage and a few words it fits into 80 columns.
# More frequent updates are invisible, and a server may report thousands of times a second.
_SECONDS_BETWEEN = 0.05
_SECONDS_BEFORE_SPINNER = 0.5  # What is over sooner needs no explanation.
_SECONDS_BEFORE_LINE = 4.0  # Most servers answer in one or two.
_SECONDS_PER_FRAME = 0.1  # Fast enough to look alive.
_FRAMES, _ASCII_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"


class Screen:
    """Lines and a progress bar on stderr."""

    def __init__(self, *, verbose: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """Start without a bar."""
        self._verbose = verbose
        self._clock = clock
        self._terminal = is_terminal(sys.stderr)
        self._spinner: asyncio.TimerHandle | None = None
        self._bar = ""
        self._drawn = False
        self._next = 0.0

    def line(self, text: str) -> None:
        """Write a line above the bar."""
        self._erase()
        click.echo(_fit(redact(text)), err=True)
        self._draw()

    def ask(self, prompt: str) -> None:
        """Write a prompt for input; the bar disappears until the next progress report."""
        self.clear()
        click.echo(_fit(prompt), err=True, nl=False)

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Show the progress of the call."""
        if not self._terminal:
            if self._verbose:
                self.line(f"progress: {_amount(done, total)} {one_line(message or '')}".rstrip())
            return
        self._stop_spinner()
        self._bar = redact(_bar(done, total, message))
        finished = total is not None and done >= total
        if finished or self._clock() >= self._next:
            self._next = self._clock() + _SECONDS_BETWEEN
            self._erase()
            self._draw()

    @contextmanager
    def working(self, what: str | Callable[[], str], *, slow: Callable[[], str] | None = None) -> Iterator[None]:
        """Show what is being done, from half a second on, until the block ends or something else is shown.

        A function is called again for each frame. Only on a terminal, and inside an event loop. ``slow`` returns a line
        that is printed once if the block takes several seconds, with or without a terminal.
        """
        if slow is not None:
            timer = asyncio.get_running_loop().call_later(_SECONDS_BEFORE_LINE, lambda: self._line_of(slow))
            try:
                with self.working(what):
                    yield
            finally:
                timer.cancel()
            return
        if not self._terminal:
            yield
            return
        loop, began = asyncio.get_running_loop(), self._clock()

        def draw() -> None:
            self._spinner = loop.call_later(_SECONDS_PER_FRAME, draw)
            self._bar = redact(_spinner_text(what if isinstance(what, str) else what(), self._clock() - began))
            self._erase()
            self._draw()

        self._stop_spinner()
        self._spinner = loop.call_later(_SECONDS_BEFORE_SPINNER, draw)
        try:
            yield
        finally:
            self.clear()

    def _line_of(self, slow: Callable[[], str]) -> None:
        if text := slow():
            self.line(text)

    def _stop_spinner(self) -> None:
        if self._spinner is not None:
            self._spinner.cancel()
            self._spinner = None

    def clear(self) -> None:
        """Remove the bar."""
        self._stop_spinner()
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


@contextmanager
def spinner(what: str) -> Iterator[None]:
    """Show what is being done and for how long on stderr, as ``Screen.working`` does, while no event loop runs."""
    if not is_terminal(sys.stderr):
        yield
        return
    from threading import Event, Thread

    over, began = Event(), time.monotonic()

    def spin() -> None:
        if over.wait(_SECONDS_BEFORE_SPINNER):
            return
        while not over.wait(_SECONDS_PER_FRAME):
            text = clip(_spinner_text(what, time.monotonic() - began), _columns() - 1)
            os.write(2, f"{_ERASE}{text}".encode())
        os.write(2, _ERASE.encode())

    thread = Thread(target=spin, daemon=True, name="trunkline-spinner")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _spinner_text(what: str, seconds: float) -> str:
    frames = _FRAMES if (sys.stderr.encoding or "").lower().startswith("utf") else _ASCII_FRAMES
    waited = f" ({int(seconds)} s)" if seconds >= 1 else ""
    return f"{frames[int(seconds / _SECONDS_PER_FRAME) % len(frames)]} {one_line(what)}{waited}"


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
    return terminal_width(sys.stderr)


def _fit(text: str) -> str:
    """Return text made safe and wrapped for the terminal, if stderr is one."""
    return wrap_lines(printable(text), _columns() - 1)


class EndOfInput(Exception):
    """The user ended the input with Ctrl-D; no more answers will come."""


def is_interactive() -> bool:
    """Return True if stdin, stdout and stderr are a terminal, so that a question can be asked."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def discard_typeahead() -> None:
    """Discard input typed before a question was shown: it was meant for something else."""
    if sys.platform != "win32":
        import termios

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


@contextmanager
def echo_disabled() -> Iterator[None]:
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

    def discard_typeahead(self) -> None:
        """Discard input typed before the next question was shown."""
        self._typed = b""
        discard_typeahead()

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
            raise EndOfInput
        return data


def has_editor() -> bool:
    """Return True if ``VISUAL`` or ``EDITOR`` is set."""
    return bool(os.environ.get("VISUAL") or os.environ.get("EDITOR"))


async def edit_text(terminal: Terminal, text: str, *, suffix: str, prompt: str) -> str:
    """Return a text as edited by the user; the file is readable by them only and deleted afterwards.

    Raises:
        ValueError: the editor failed.
        OSError: it cannot be run.
        EndOfInput: the input ended.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor:
        return await terminal.ask(prompt)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="trunkline-") as folder:
        path = os.path.join(folder, f"review{suffix}")
        _write_private(path, text)
        process = await asyncio.create_subprocess_exec(*shlex.split(editor), path)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if code != 0:
            raise ValueError(f"the editor exited with status {code}")
        return _read_back(path)


def _write_private(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
        file.write(text)


def _read_back(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read().removesuffix("\n")


@contextmanager
def signal_handlers(wanted: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Call a function for each signal while the context is active; unsupported signals keep their default."""
    loop = asyncio.get_running_loop()
    heard: list[signal.Signals] = []
    try:
        for number, function in wanted.items():
            try:
                loop.add_signal_handler(number, function)
            except (NotImplementedError, RuntimeError, ValueError):
                # Not the main thread, or a system without such signals.
                break
            heard.append(number)
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
