"""Locks around a login that is kept: within one program, and between processes that share a folder.

A file lock is the kernel's: it ends with the process that holds it, however that ends. Waiting never blocks the loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from types import TracebackType

from trunkline.errors import AuthError

__all__ = ["FileLock", "LoopLock", "try_lock"]

# Longer than a token request may take.
_LONGEST_WAIT = 60.0
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.25


class LoopLock:
    """A lock between tasks, whichever event loop they run in one after another."""

    def __init__(self) -> None:
        """Begin open."""
        self._held = False

    async def __aenter__(self) -> None:
        """Wait until it is open, and close it."""
        pause = _FIRST_PAUSE
        while self._held:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        self._held = True

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Open it."""
        self._held = False


class FileLock:
    """A lock between processes, by a file that stays."""

    def __init__(self, folder: str, name: str) -> None:
        """Name what is locked; the file's name gives away nothing of it."""
        self._folder = folder
        self._path = os.path.join(folder, "locks", hashlib.sha256(name.encode()).hexdigest()[:32])
        self._descriptor: int | None = None

    async def __aenter__(self) -> None:
        """Wait until nobody else holds it.

        Raises:
            AuthError: the file cannot be made, or somebody holds it for too long.
        """
        try:
            # One after the other: the mode holds for the last folder only.
            for folder in (self._folder, os.path.dirname(self._path)):
                os.makedirs(folder, mode=0o700, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as error:
            raise AuthError(f"The lock {self._path} cannot be made: {error.strerror}.") from error
        try:
            await self._acquire(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    async def _acquire(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + _LONGEST_WAIT, _FIRST_PAUSE
        while not try_lock(descriptor):
            if loop.time() >= until:
                raise AuthError(f"Another process holds the lock {self._path} for over {_LONGEST_WAIT:g} s.")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Let go of it."""
        if self._descriptor is not None:
            # Closing the only descriptor of this opening frees the lock.
            os.close(self._descriptor)
            self._descriptor = None


def try_lock(descriptor: int) -> bool:
    """Take the lock of an open file against other openings of it, if nobody has it; closing the file lets go."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, 0, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
