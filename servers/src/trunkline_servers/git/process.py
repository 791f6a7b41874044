"""One child process in the event loop, with bounded output and a deadline, and the git program run that way.

A process that takes too long gets SIGTERM first, so that git removes its lock files, then SIGKILL with everything
that it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import IO, NamedTuple

from trunkline.errors import ToolError
from trunkline_servers.untrusted import one_line

__all__ = ["ChildProcess", "GitProgram", "ProcessResult"]

#: Most bytes of stderr that are kept.
_STDERR_BYTES = 64 * 1024
#: Seconds that a process has to exit after a signal.
_GRACE = 2.0
#: Longest time, in seconds, that the event loop blocks for a killed process which cannot be awaited.
_KILL_SECONDS = 0.5
_CHUNK = 65536


class ProcessResult(NamedTuple):
    """The result of a finished process; ``truncated`` if it wrote more than was kept."""

    status: int
    out: bytes
    stderr: str
    truncated: bool

    @property
    def text(self) -> str:
        """The output as text, without the trailing newline."""
        return self.out.decode("utf-8", "replace").removesuffix("\n")


class ChildProcess:
    """A process in its own session; the code that starts one must call ``end``."""

    def __init__(
        self, words: Sequence[str], *, cwd: str, env: Mapping[str, str], stdin: bytes = b"", most: int
    ) -> None:
        """Start a program with these arguments, write ``stdin`` to it, and keep ``most`` bytes of its output.

        Raises:
            OSError: it cannot be started.
            ValueError: an argument is invalid.
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
        #: Set when the output is complete or exceeds the limit.
        self._enough = asyncio.Event()
        #: Set when both pipes are closed at the other end.
        self._silent = asyncio.Event()
        self._stdin_writer: _PipeWriter | None = None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._out = _PipeReader(self._process.stdout, most, self._on_read)
        self._stderr = _PipeReader(self._process.stderr, _STDERR_BYTES, self._on_read)
        try:
            self._out.start()
            self._stderr.start()
            if self._process.stdin is not None:
                self._stdin_writer = _PipeWriter(self._process.stdin, stdin)
        except BaseException:
            self._cleanup()
            raise

    def _on_read(self) -> None:
        if self._out.over and self._stderr.over:
            self._silent.set()
        if self._silent.is_set() or self._out.truncated:
            self._enough.set()

    async def finish(self) -> ProcessResult:
        """Wait until the process has exited, or has written more than is kept."""
        await self._enough.wait()
        out = bytes(self._out.kept)
        if self._out.truncated:
            return ProcessResult(0, out, "", True)
        if self._process.poll() is None:
            await _exited(self._process)
        return ProcessResult(self._process.wait(), out, self._stderr.kept.decode("utf-8", "replace"), False)

    async def end(self) -> None:
        """Terminate the process and its group: SIGTERM first, then SIGKILL.

        If the caller is cancelled while waiting here, the process is killed at once.
        """
        try:
            # A return code is known only after all output was read.
            if self._process.returncode is None:
                for number in (signal.SIGTERM, signal.SIGKILL):
                    self._signal(number)
                    if await self._ended():
                        break
        finally:
            self._cleanup()

    async def _ended(self) -> bool:
        try:
            async with asyncio.timeout(_GRACE):
                await _exited(self._process)
                # A descendant that outlives the process still holds its pipes.
                await self._silent.wait()
        except TimeoutError:
            return False
        return True

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, number)

    def _cleanup(self) -> None:
        if self._process.returncode is None:
            # Its status was not collected yet, so its pid, which is also the group id, cannot have been reused.
            self._signal(signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILL_SECONDS)
        # A descendant may have left the group and hold the pipes indefinitely.
        for pipe in (self._out, self._stderr):
            pipe.close()
        if self._stdin_writer is not None:
            self._stdin_writer.close()
        elif self._process.stdin is not None:
            self._process.stdin.close()


async def _exited(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process to exit without collecting its status: on a pidfd, or in a thread."""
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
        # Not every system can wait without collecting the status.
        process.wait()


class _PipeReader:
    """Reads a pipe to its end and keeps the first bytes."""

    def __init__(self, pipe: IO[bytes], most: int, on_read: Callable[[], None]) -> None:
        self.kept = bytearray()
        self.truncated = False
        self.over = False
        self._pipe = pipe
        self._most = most
        self._on_read = on_read
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
            self.truncated = self.truncated or len(data) > room
        self._on_read()

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()


class _PipeWriter:
    """Writes data to a pipe, then closes it."""

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
            # A process that needs no more input closes its end; that is not an error.
            self._left = self._left[:0]
        if not self._left:
            self.close()

    def close(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()


#: Most git processes that run at once; others wait.
_SLOTS = 8
#: The oldest git that can ignore the user's configuration and take settings from the environment.
_OLDEST = (2, 32)


class GitProgram:
    """The git program of this machine, with its time and output limits."""

    def __init__(self, path: str, *, seconds: float, most: int) -> None:
        """Run the program at ``path`` for at most ``seconds``, reading at most ``most`` bytes of its output."""
        self.path = path
        self.seconds = seconds
        self.most = most
        self._slots = asyncio.Semaphore(_SLOTS)
        self._known = False

    async def check(self) -> None:
        """Check once that this git supports the settings that protect from a repository's configuration.

        Raises:
            ToolError: it is too old.
        """
        if self._known:
            return
        said = await self.run(["version"], cwd=os.sep, env={"LC_ALL": "C"})
        found = re.search(rb"(\d+)\.(\d+)", said.out)
        if found is None or (int(found[1]), int(found[2])) < _OLDEST:
            wanted = ".".join(str(part) for part in _OLDEST)
            raise ToolError(f"{self.path} is older than git {wanted}, which this server needs: install a newer one.")
        self._known = True

    async def run(
        self,
        arguments: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes = b"",
        most: int | None = None,
    ) -> ProcessResult:
        """Run git with these arguments until it exits or exceeds the output limit.

        Raises:
            ToolError: it cannot be started, or did not finish in time.
        """
        kept = self.most if most is None else most
        async with self._slots:
            try:
                child = ChildProcess([self.path, *arguments], cwd=cwd, env=env, stdin=stdin, most=kept)
            except (OSError, ValueError) as error:
                raise ToolError(f"git could not be started: {one_line(str(error))}") from error
            try:
                async with asyncio.timeout(self.seconds):
                    return await child.finish()
            except TimeoutError:
                raise ToolError(
                    f"git {arguments[0]} took longer than {self.seconds:g} seconds and was ended. "
                    "Ask for less, or start the server with a longer --timeout."
                ) from None
            finally:
                await child.end()
