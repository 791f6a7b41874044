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
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        #: Nothing more is to be waited for: all was said, or more than is kept.
        self._enough = asyncio.Event()
        #: Nobody holds the other ends of the pipes.
        self._silent = asyncio.Event()
        self._out = _Ear(self._process.stdout, most, self._heard)
        self._complaint = _Ear(self._process.stderr, _COMPLAINT_BYTES, self._heard)
        self._mouth = None if self._process.stdin is None else _Mouth(self._process.stdin, stdin)

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
        return Ran(await self._exit(), out, self._complaint.kept.decode("utf-8", "replace"), False)

    async def end(self) -> None:
        """Make sure that nothing of it is left: it is asked to end, and then killed with all that it started."""
        try:
            # What outlives a process still holds its pipes.
            if self._process.poll() is not None and self._silent.is_set():
                return
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(OSError):
                    os.killpg(self._process.pid, number)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_GRACE):
                        await self._exit()
                        await self._silent.wait()
        finally:
            # What it started may have left its group, and hold the pipes for as long as it likes.
            for pipe in (self._out, self._complaint, self._mouth):
                if pipe is not None:
                    pipe.close()

    async def _exit(self) -> int:
        if self._process.poll() is None:
            await _exited(self._process)
        return self._process.wait()


async def _exited(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process to exit: on its descriptor where the system has such, else in a thread."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        await asyncio.to_thread(process.wait)
        return
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


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
        os.set_blocking(pipe.fileno(), False)
        self._loop.add_reader(pipe.fileno(), self._readable)

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
