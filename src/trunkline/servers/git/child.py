"""One process in the event loop: what goes in, what comes out up to a cap, and its end with everything it started.

It knows nothing of git. The process is started without a copy of this one's memory, and its pipes are read where the
event loop says so: no thread, no task and no signal handler takes part.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple

__all__ = ["Child", "Ran"]

#: How much of what a process complains is kept.
_COMPLAINT_BYTES = 64 * 1024
#: How long a process that was asked to end may take, in seconds.
_GRACE = 2.0
#: How long the event loop is held up for a process that was killed and that nobody can wait for, in seconds.
_LAST = 0.5
_CHUNK = 65536


class Ran(NamedTuple):
    """What a finished process said; ``cut`` if it had more to say than was kept."""

    status: int
    out: bytes
    complaint: str
    cut: bool

    @property
    def text(self) -> str:
        """The output as text, without the last line's end."""
        return self.out.decode("utf-8", "replace").removesuffix("\n")


class Child:
    """A process that runs in a session of its own; whoever starts one calls ``end``."""

    def __init__(
        self, words: Sequence[str], *, cwd: str, env: Mapping[str, str], stdin: bytes = b"", most: int
    ) -> None:
        """Start a program with these words, give it ``stdin``, and keep ``most`` bytes of its output.

        Raises:
            OSError: it cannot be started.
            ValueError: a word cannot be one.
        """
        self._process = subprocess.Popen(
            words,
            cwd=cwd,
            env=env,
            bufsize=0,
            stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        #: Nothing more is to be waited for: all was said, or more than is kept.
        self._enough = asyncio.Event()
        #: Nobody holds the other ends of the pipes.
        self._silent = asyncio.Event()
        self._mouth: _Mouth | None = None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._out = _Ear(self._process.stdout, most, self._heard)
        self._complaint = _Ear(self._process.stderr, _COMPLAINT_BYTES, self._heard)
        try:
            self._out.start()
            self._complaint.start()
            if self._process.stdin is not None:
                self._mouth = _Mouth(self._process.stdin, stdin)
        except BaseException:
            self._leave()
            raise

    def _heard(self) -> None:
        if self._out.over and self._complaint.over:
            self._silent.set()
        if self._silent.is_set() or self._out.cut:
            self._enough.set()

    async def finish(self) -> Ran:
        """Wait until it has ended, or has said more than is kept."""
        await self._enough.wait()
        out = bytes(self._out.kept)
        if self._out.cut:
            return Ran(0, out, "", True)
        if self._process.poll() is None:
            await _exited(self._process)
        return Ran(self._process.wait(), out, self._complaint.kept.decode("utf-8", "replace"), False)

    async def end(self) -> None:
        """Make sure that nothing of it is left: it is asked to end, and then killed with all that it started.

        Whoever is cancelled while waiting here has it killed at once.
        """
        try:
            # It has ended by itself only after all had been said.
            if self._process.returncode is None:
                for number in (signal.SIGTERM, signal.SIGKILL):
                    self._signal(number)
                    if await self._ended():
                        break
        finally:
            self._leave()

    async def _ended(self) -> bool:
        try:
            async with asyncio.timeout(_GRACE):
                await _exited(self._process)
                # What outlives a process still holds its pipes.
                await self._silent.wait()
        except TimeoutError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, number)

    def _leave(self) -> None:
        if self._process.returncode is None:
            # Nobody has asked for its status, so that its number, which is the group's, is not yet given to another.
            self._signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_LAST)
        # What it started may have left its group, and hold the pipes for as long as it likes.
        for pipe in (self._out, self._complaint):
            pipe.close()
        if self._mouth is not None:
            self._mouth.close()
        elif self._process.stdin is not None:
            self._process.stdin.close()


async def _exited(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process to exit, without asking for its status: on its descriptor, or else in a thread."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        await asyncio.to_thread(_wait, process)
        return
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    except (AttributeError, OSError):
        # Not every system can wait without asking.
        process.wait()


class _Ear:
    """Reads a pipe to its end, keeps the beginning, and forgets the rest."""

    def __init__(self, pipe: IO[bytes], most: int, heard: Callable[[], None]) -> None:
        self.kept = bytearray()
        self.cut = False
        self.over = False
        self._pipe = pipe
        self._most = most
        self._heard = heard
        self._loop = asyncio.get_running_loop()

    def start(self) -> None:
        os.set_blocking(self._pipe.fileno(), False)
        self._loop.add_reader(self._pipe.fileno(), self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self._pipe.fileno(), _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            self.over = True
        else:
            room = self._most - len(self.kept)
            self.kept += data[:room]
            self.cut = self.cut or len(data) > room
        self._heard()

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()


class _Mouth:
    """Writes to a pipe what there is to say, and closes it."""

    def __init__(self, pipe: IO[bytes], data: bytes) -> None:
        self._pipe = pipe
        self._left = memoryview(data)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_writer(pipe.fileno(), self._writable)

    def _writable(self) -> None:
        try:
            self._left = self._left[os.write(self._pipe.fileno(), self._left) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # A process that has heard enough closes its end, which is no failure of ours.
            self._left = self._left[:0]
        if not self._left:
            self.close()

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()
