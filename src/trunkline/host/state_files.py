"""Small files that the host keeps: written whole or not at all, for their owner alone, by one process at a time.

It knows bytes and paths and not what they mean. The lock is the kernel's, on a file beside the one it is for: it ends
with the process that holds it, however that ends, and waiting for it is bounded.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from trunkline.auth.locks import try_lock
from trunkline.errors import ConfigError

__all__ = ["Busy", "PathLock", "locked", "read_private", "stage", "write_private"]

# Whoever holds a lock writes one line or one small file; somebody who takes longer hangs.
_LONGEST_WAIT = 5.0
_FIRST_PAUSE = 0.0002
_LONGEST_PAUSE = 0.01
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)


class Busy(OSError):
    """Another process holds a lock for too long."""


class PathLock:
    """A lock between processes, by a file that stays; within a process it holds between objects, not threads."""

    def __init__(self, path: str) -> None:
        """Open the file, and make it if there is none."""
        self._path = path
        self._descriptor = os.open(path, _FLAGS, 0o600)

    def acquire(self) -> None:
        """Wait until nobody else holds it.

        Raises:
            Busy: that takes too long.
        """
        if try_lock(self._descriptor):
            return
        until, pause = time.monotonic() + _LONGEST_WAIT, _FIRST_PAUSE
        while not try_lock(self._descriptor):
            if time.monotonic() >= until:
                raise Busy(f"another process holds {self._path} for over {_LONGEST_WAIT:g} s")
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def release(self) -> None:
        """Let go of it."""
        if sys.platform == "win32":
            import msvcrt

            os.lseek(self._descriptor, 0, os.SEEK_SET)
            msvcrt.locking(self._descriptor, msvcrt.LK_UNLCK, 1)
        else:
            import fcntl

            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file; whoever held the lock does no more."""
        os.close(self._descriptor)


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock that goes with a file, while it is read, changed and written back."""
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    lock = PathLock(f"{path}.lock")
    try:
        lock.acquire()
        yield
    finally:
        lock.close()


def stage(path: str, content: bytes) -> str:
    """Write a file beside the one that it will replace, down to the disk; give its path."""
    folder, name = os.path.split(path)
    other = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(8).hex()}")
    descriptor = os.open(other, _FLAGS | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            os.unlink(other)
        raise
    return other


def write_private(path: str, content: bytes) -> None:
    """Replace a file whole; only its owner can read it."""
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    other = stage(path, content)
    try:
        os.replace(other, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(other)
        raise


def read_private(path: str, *, what: str) -> bytes | None:
    """Read a file that nobody else may have written; None if there is none.

    Raises:
        ConfigError: it cannot be read, or others could have changed it; ``what`` names its content.
    """
    try:
        with open(path, "rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o022:
                raise ConfigError(f"{path}: others can change {what} in it: run chmod 600 on it once you read it.")
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {what} cannot be read: {error.strerror}.") from error
