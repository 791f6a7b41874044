"""Runs the real git: an argument list, a process group of its own, a deadline, and a cap on what is read.

It knows nothing of repositories. A process that takes too long is first asked to end, so that git removes its lock
files, and then killed with everything it started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trunkline.errors import ToolError

__all__ = ["Program", "Ran", "one_line"]

#: How much of what git complains is kept, and how much of it is told.
_COMPLAINT_BYTES = 64 * 1024
_COMPLAINT_CHARS = 1000
#: How long a process that was asked to end may take, in seconds.
_GRACE = 2.0
#: How many git processes run at once; others wait.
_SLOTS = 8
_CHUNK = 65536
#: The oldest git that can be told to read no configuration of the user and to take settings from the environment.
_OLDEST = (2, 32)


class Ran(NamedTuple):
    """What a finished git said; ``cut`` if it had more to say than was read."""

    status: int
    out: bytes
    complaint: str
    cut: bool

    @property
    def text(self) -> str:
        """The output as text, without the last line's end."""
        return self.out.decode("utf-8", "replace").removesuffix("\n")


class Program:
    """The git program of this machine, and how long and how much it may work."""

    def __init__(self, path: str, *, seconds: float, most: int) -> None:
        """Use the program at ``path`` for at most ``seconds`` a run; read at most ``most`` bytes of its output."""
        self.path = path
        self.seconds = seconds
        self.most = most
        #: The settings of the whole machine, once they have been read.
        self.system: list[tuple[str, str]] | None = None
        self._slots = asyncio.Semaphore(_SLOTS)
        self._known = False

    async def check(self) -> None:
        """Make sure, once, that this git understands what protects from a repository's configuration.

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
    ) -> Ran:
        """Run git with these arguments, to its end or until its output is longer than wanted.

        Raises:
            ToolError: it cannot be started, or did not end in time.
        """
        async with self._slots:
            try:
                process = await asyncio.create_subprocess_exec(
                    self.path,
                    *arguments,
                    cwd=cwd,
                    env=dict(env),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                raise ToolError(f"git could not be started: {one_line(str(error))}") from error
            try:
                async with asyncio.timeout(self.seconds):
                    return await _finish(process, stdin, self.most if most is None else most)
            except TimeoutError:
                raise ToolError(
                    f"git {arguments[0]} took longer than {self.seconds:g} seconds and was ended. "
                    "Ask for less, or start the server with a longer --timeout."
                ) from None
            finally:
                await _end(process)


async def _finish(process: asyncio.subprocess.Process, stdin: bytes, most: int) -> Ran:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    fed = asyncio.ensure_future(_feed(process.stdin, stdin))
    told = asyncio.ensure_future(_read(process.stderr, _COMPLAINT_BYTES, drain=True))
    try:
        out, cut = await _read(process.stdout, most, drain=False)
        if cut:
            return Ran(0, out, "", True)
        complaint, _ = await told
        return Ran(await process.wait(), out, complaint.decode("utf-8", "replace"), False)
    finally:
        for task in (fed, told):
            task.cancel()
        await asyncio.gather(fed, told, return_exceptions=True)


async def _feed(pipe: asyncio.StreamWriter, data: bytes) -> None:
    # A git that has seen enough closes its end, which is no failure of ours.
    with contextlib.suppress(OSError):
        if data:
            pipe.write(data)
            await pipe.drain()
        pipe.close()


async def _read(pipe: asyncio.StreamReader, most: int, *, drain: bool) -> tuple[bytes, bool]:
    """Read up to ``most`` bytes, and tell whether there are more; ``drain`` reads the rest and forgets it."""
    kept = bytearray()
    cut = False
    while data := await pipe.read(_CHUNK):
        kept += data[: most - len(kept) + 1]
        if len(kept) > most:
            del kept[most:]
            cut = True
            if not drain:
                break
    return bytes(kept), cut


async def _end(process: asyncio.subprocess.Process) -> None:
    """Make sure that nothing of a run is left."""
    # What outlives git still holds its pipes.
    if process.returncode is not None and all(
        each is None or each.at_eof() for each in (process.stdout, process.stderr)
    ):
        return
    # A process whose output nobody reads is not seen to end.
    waiting = asyncio.gather(process.wait(), _drain(process.stdout), _drain(process.stderr))
    for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        _signal(process, number)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), _GRACE)
    # What the process itself started may have left its group and hold the pipes.
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting


async def _drain(pipe: asyncio.StreamReader | None) -> None:
    while pipe is not None and await pipe.read(_CHUNK):
        pass


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def one_line(text: str) -> str:
    """Give a complaint as one short line without control characters."""
    plain = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(plain.split())
    return line if len(line) <= _COMPLAINT_CHARS else line[:_COMPLAINT_CHARS] + "..."
