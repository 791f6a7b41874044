"""The host's own files.

Where they are (``TRUNKLINE_HOME`` names one folder for all of them), and how they are written: whole or not at all,
readable by their owner alone, by one process at a time. Knows bytes and paths, not their meaning. The lock is the
kernel's, on a file beside the one it protects, so it ends with the process that holds it; waiting for it is bounded.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trunkline.auth.credential_store import default_folder, try_lock
from trunkline.errors import ConfigError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = [
    "LockTimeout",
    "PathLock",
    "config_folder",
    "folder_variables",
    "locked",
    "private_folder",
    "read_private",
    "state_folder",
    "write_private",
    "write_staged",
]

# The holder of a lock writes one line or one small file; a process that takes longer hangs.
_LONGEST_WAIT = 5.0
_FIRST_PAUSE = 0.0002  # Pause before the lock is tried again; it doubles each time.
_LONGEST_PAUSE = 0.01  # A writer holds the lock for about a millisecond.
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)


class LockTimeout(OSError):
    """Another process has held a lock for too long."""


class PathLock:
    """A lock between processes, on a file that remains; within a process it works between objects, not threads."""

    def __init__(self, path: str) -> None:
        """Open the file; create it if it does not exist."""
        self._path = path
        self._descriptor = os.open(path, _FLAGS, 0o600)

    def acquire(self) -> None:
        """Wait for the lock.

        Raises:
            LockTimeout: it takes too long.
        """
        if try_lock(self._descriptor):
            return
        until, pause = time.monotonic() + _LONGEST_WAIT, _FIRST_PAUSE
        while not try_lock(self._descriptor):
            if time.monotonic() >= until:
                raise LockTimeout(f"another process holds {self._path} for over {_LONGEST_WAIT:g} s")
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def release(self) -> None:
        """Release the lock."""
        if sys.platform == "win32":
            os.lseek(self._descriptor, 0, os.SEEK_SET)
            msvcrt.locking(self._descriptor, msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file, which releases the lock if it is held."""
        os.close(self._descriptor)


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold the lock of a file while it is read, changed and written back."""
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    lock = PathLock(f"{path}.lock")
    try:
        lock.acquire()
        yield
    finally:
        lock.close()


def write_staged(path: str, content: bytes) -> str:
    """Write a file beside the one that it will replace, synced to disk; return its path."""
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
    """Replace a file atomically; only its owner can read it."""
    os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    other = write_staged(path, content)
    try:
        os.replace(other, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(other)
        raise


def read_private(path: str, *, what: str) -> bytes | None:
    """Read a file that only its owner may have written; return None if it does not exist.

    Raises:
        ConfigError: it cannot be read, or is writable by others; ``what`` names its content in the message.
    """
    try:
        with open(path, "rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o022:
                raise ConfigError(f"{path}: others can change {what} in it: check the file, then run chmod 600 on it.")
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: {what} cannot be read: {error.strerror}.") from error


def state_folder() -> Path:
    """Return the folder of this user's state."""
    return Path(default_folder())


def config_folder() -> Path:
    """Return the folder of this user's configuration."""
    given = os.environ.get("TRUNKLINE_HOME")
    if given or sys.platform in ("darwin", "win32"):
        return state_folder()
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "trunkline"


def folder_variables() -> dict[str, str]:
    """Return the environment variables that determine where state and configuration are, with absolute paths.

    A program started without them would use other grants, pins and rules.
    """
    names = ("TRUNKLINE_HOME",) if os.environ.get("TRUNKLINE_HOME") else ("XDG_CONFIG_HOME", "XDG_DATA_HOME")
    if names[0] != "TRUNKLINE_HOME" and sys.platform in ("darwin", "win32"):
        return {}
    return {name: os.path.abspath(os.environ[name]) for name in names if os.environ.get(name)}


def private_folder(path: Path) -> Path:
    """Create a folder that only its owner can read, unless it exists."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
