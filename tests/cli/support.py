"""What the tests of the command line need: the command as a process, a server over HTTP, and a person at a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pytest

import trunkline
from tests.support import BOUND
from trunkline.cli.main import main

__all__ = [
    "BROWSER",
    "DEMO",
    "GUARDED",
    "PROTECTED",
    "ROOT",
    "Cli",
    "Outcome",
    "Person",
    "Script",
    "Served",
    "command",
    "in_a_terminal",
    "kill_if_silent",
    "serving",
]

A = TypeVar("A")

ROOT = Path(__file__).parents[2]
DEMO = str(Path(__file__).with_name("demo.py"))
GUARDED = str(Path(__file__).with_name("guarded.py"))
PROTECTED = str(Path(__file__).with_name("protected.py"))
BROWSER = f"{sys.executable} {Path(__file__).with_name('browser.py')} %s"
SECONDS = BOUND
SPINNER = re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] [^\r\n]*\r\x1b\[K")
#: What a person waits for, and what they type then; it may depend on what is to be seen.
Script: TypeAlias = tuple[tuple[str, str | Callable[[str], str]], ...]


class Outcome(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What was written to standard output, read as JSON."""
        return json.loads(self.out)


def command(*arguments: str, stdin: str = "", env: Mapping[str, str] | None = None, cwd: Path | None = None) -> Outcome:
    """Run the command as a process of its own, without a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "trunkline", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": str(Path(trunkline.__file__).parents[1]), **(env or {})},
        cwd=cwd,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


class Served:
    """A server over HTTP in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        """Take the process and the line it wrote once it listened."""
        self._process = process
        self.line = line
        found = re.search(r"is served at (\S+?)(?:;| )", line)
        assert found is not None, line
        self.url = found.group(1)

    def next_line(self) -> str:
        """Return the line that follows the first one."""
        assert self._process.stderr is not None
        return self._process.stderr.readline()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Outcome:
        """Send a signal and wait for the end; give its code and what else was written."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        out, err = self._process.communicate(timeout=SECONDS)
        return Outcome(self._process.returncode, out, err)


@contextmanager
def serving(*arguments: str, cwd: Path | None = None) -> Iterator[Served]:
    """Run ``trunkline run`` with these arguments and a port that is free."""
    with subprocess.Popen(
        [sys.executable, "-m", "trunkline", "run", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(trunkline.__file__).parents[1])},
        cwd=cwd,
    ) as process:
        assert process.stderr is not None
        try:
            with kill_if_silent(process):
                line = process.stderr.readline()
            yield Served(process, line)
        finally:
            process.kill()


@contextmanager
def kill_if_silent(process: subprocess.Popen[str]) -> Iterator[None]:
    """Bound a wait for a line of a process; its life has no bound, since a whole module may share it."""
    watch = threading.Timer(SECONDS, process.kill)
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


class Person(threading.Thread):
    """Sits at a terminal: waits for each text in turn and types what stands beside it."""

    def __init__(self, fd: int, script: Script) -> None:
        """Take our end of the terminal."""
        super().__init__(daemon=True)
        self._fd = fd
        self._script = list(script)
        self._seen = 0
        self._done = threading.Event()
        self._until = time.monotonic() + SECONDS
        self.screen = ""

    def run(self) -> None:
        """Read and type until the command is over and everything was read."""
        while time.monotonic() < self._until:
            readable, _, _ = select.select([self._fd], [], [], 0.02)
            if readable and not self._read():
                return
            if not readable and self._done.is_set():
                return

    def _read(self) -> bool:
        """Read what there is; a terminal that everybody has left has nothing more."""
        try:
            self.screen += os.read(self._fd, 65536).decode()
        except OSError:
            return False
        while self._script and (at := self.screen.find(self._script[0][0], self._seen)) >= 0:
            self._seen = at + len(self._script[0][0])
            typed = self._script.pop(0)[1]
            os.write(self._fd, (typed if isinstance(typed, str) else typed(self.screen)).encode())
        return True

    def finish(self) -> str:
        """Wait for the last words; give all that was to be seen."""
        self._done.set()
        self.join(SECONDS)
        assert self._script == [], f"never asked: {self._script}; on the screen:\n{self.screen}"
        # Whether a spinner appears depends on how busy the machine is; it has tests of its own.
        return SPINNER.sub("", self.screen.replace("\r\n", "\n"))


class Cli:
    """The command in this process, much faster than a process of its own: without a terminal, or at one."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: str, stdin: str | bytes | None = None) -> Outcome:
        """Run the command without a terminal; the text is its whole standard input."""
        self._capsys.readouterr()
        with tempfile.TemporaryFile("w+", encoding="utf-8") as file, self._monkeypatch.context() as patch:
            if stdin is not None:
                file.buffer.write(stdin.encode() if isinstance(stdin, str) else stdin)
                file.seek(0)
                patch.setattr(sys, "stdin", file)
            code = main(arguments)
        return Outcome(code, *self._capsys.readouterr())

    def at_a_terminal(self, *arguments: str, script: Script = (), typed_before: str = "") -> tuple[int, str]:
        """Run the command where a person follows a script; return its code and what was to be seen."""
        return self.at_the_terminal(lambda: main(arguments), script, typed_before=typed_before)

    def at_the_terminal(
        self, ask: Callable[[], A], script: Script, *, typed_before: str = "", columns: int = 240
    ) -> tuple[A, str]:
        """Call a function at a terminal where a person follows a script; return its answer and what was to be seen."""
        with self.terminal(columns) as fd:
            os.write(fd, typed_before.encode())
            person = Person(fd, script)
            person.start()
            answer = ask()
            sys.stdout.flush()
            sys.stderr.flush()
            return answer, person.finish()

    @contextmanager
    def terminal(self, columns: int = 240) -> Iterator[int]:
        """Make the standard streams of this process those of a terminal; yield its other end."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        with (
            open(theirs, "rb", buffering=0, closefd=False) as raw,
            open(theirs, "w", encoding="utf-8", closefd=False) as out,
            open(theirs, "w", encoding="utf-8", closefd=False) as err,
            self._monkeypatch.context() as patch,
        ):
            # Colour has tests of its own, and would stand between the words that others look for.
            patch.setenv("NO_COLOR", "1")
            patch.setattr(sys, "stdin", raw)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            try:
                yield ours
            finally:
                out.flush()
                err.flush()
        os.close(theirs)
        os.close(ours)


def in_a_terminal(
    *arguments: str,
    columns: int = 80,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    interrupt_at: str | None = None,
    program: Sequence[str] = (sys.executable, "-m", "trunkline"),
) -> Outcome:
    """Run the command as a process of its own at a terminal; Ctrl-C is typed once a text is to be seen.

    Standard output and error are one terminal, and all that was to be seen is ``out``.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [*program, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={
            **plain,
            "TERM": "xterm-256color",
            "PYTHONIOENCODING": "utf-8",
            "PYTHONPATH": str(Path(trunkline.__file__).parents[1]),
            **(env or {}),
        },
        cwd=cwd,
    )
    os.close(theirs)
    seen, until = b"", time.monotonic() + SECONDS
    try:
        while time.monotonic() < until:
            readable, _, _ = select.select([ours], [], [], 0.1)
            try:
                data = os.read(ours, 65536) if readable else None
            except OSError:
                break
            seen += data or b""
            if interrupt_at is not None and interrupt_at.encode() in seen:
                process.send_signal(signal.SIGINT)
                interrupt_at = None
        code = process.wait(max(0.1, until - time.monotonic()))
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return Outcome(code, seen.decode("utf-8", "replace").replace("\r\n", "\n"), "")
