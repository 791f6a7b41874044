"""Locks around a stored login: between the tasks of one program, and between processes that share a folder.

The file lock is the kernel's: it is released when its process ends, however that happens. Waiting does not block the
event loop.
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
    """A lock between tasks that may run in different event loops, one after another."""

    def __init__(self) -> None:
        """Start unlocked."""
        self._held = False

    async def __aenter__(self) -> None:
        """Acquire the lock."""
        pause = _FIRST_PAUSE
        while self._held:
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        self._held = True

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Release the lock."""
        self._held = False


class FileLock:
    """A lock between processes, on a file that is never deleted."""

    def __init__(self, folder: str, name: str) -> None:
        """Choose the lock file; its name is a digest and reveals nothing."""
        self._folder = folder
        self._path = os.path.join(folder, "locks", hashlib.sha256(name.encode()).hexdigest()[:32])
        self._descriptor: int | None = None

    async def __aenter__(self) -> None:
        """Acquire the lock.

        Raises:
            AuthError: the file cannot be created, or another process holds the lock for too long.
        """
        try:
            # Separately, because makedirs applies the mode to the last folder only.
            for folder in (self._folder, os.path.dirname(self._path)):
                os.makedirs(folder, mode=0o700, exist_ok=True)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as error:
            raise AuthError(f"Cannot create the lock file {self._path}: {error.strerror}.") from error
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
                raise AuthError(f"Another process has held the lock {self._path} for over {_LONGEST_WAIT:g} s.")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            # Closing the only descriptor of this open file releases the lock.
            os.close(self._descriptor)
            self._descriptor = None


def try_lock(descriptor: int) -> bool:
    """Try to lock an open file against other openings of it; return True on success. Closing the file unlocks it."""
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
