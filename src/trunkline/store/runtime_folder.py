"""The folder of one run of several workers: what they share on this machine, and their sockets.

Only this user can access it. The supervisor makes it before it forks, and removes it at the end. One that was killed
leaves it behind: the next start removes the folders that no process has locked. In memory where there is such a place,
since nothing in it must outlive the run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from trunkline.errors import ConfigError

if TYPE_CHECKING:
    from trunkline.store.sqlite import SqliteEngine

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows, which has no workers
    fcntl = None  # type: ignore[assignment]

__all__ = ["RuntimeFolder"]

_PREFIX = "trunkline-run-"
_LOCK = "lock"
#: What a file system in memory must have left to be used; a container has 64 MiB by default, which is too little.
_LEAST_BYTES = 256 * 1024 * 1024
#: The most that the workers store: several times what the limits of one server allow for handles, states and tasks.
_STORE_BYTES = 1024 * 1024 * 1024
_ATTEMPTS = 10  # Each fails only if another process starts at the same moment.


class RuntimeFolder:
    """A folder that is removed at the end of the run."""

    def __init__(self) -> None:
        """Make the folder; it is locked as long as this process, or one that it forked, lives.

        Raises:
            ConfigError: there is no place for it.
        """
        for place in _places():
            _remove_left_folders(place)
        self.path, self._lock = _make_folder()

    def store(self, name: str) -> SqliteEngine:
        """Return the store of the workers, for the server of this name; called in a worker."""
        from trunkline.store.sqlite import SqliteEngine

        return SqliteEngine(self.path / "store.db", name=name, durable=False, max_bytes=_STORE_BYTES)

    def remove(self) -> None:
        """Remove the folder; called when all processes have ended."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _places() -> Iterator[Path]:
    """Yield where such a folder can be, the best place first."""
    for folder in (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm"):
        if folder and os.access(folder, os.W_OK | os.X_OK):
            yield Path(folder)
    with contextlib.suppress(OSError):
        yield Path(tempfile.gettempdir())


def _make_folder() -> tuple[Path, int]:
    """Return a new folder, and the descriptor that locks it."""
    reason = "there is none"
    for _ in range(_ATTEMPTS):
        for place in _places():
            try:
                if place != Path(tempfile.gettempdir()) and _free_bytes(place) < _LEAST_BYTES:
                    continue
                folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
                lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as error:
                reason = error.strerror or str(error)
                continue
            if _locked(lock) and (folder / _LOCK).exists():
                return folder, lock
            # Another process that starts took it for one that was left.
            os.close(lock)
    raise ConfigError(
        "several workers need a temporary folder for what they share: make /tmp writable, or set TMPDIR to such a "
        f"folder ({reason})"
    )


def _free_bytes(place: Path) -> int:
    status = os.statvfs(place)
    return status.f_bavail * status.f_frsize


def _locked(descriptor: int) -> bool:
    """Lock a file; return False if another process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_left_folders(place: Path) -> None:
    """Remove the folders of supervisors that were killed."""
    with contextlib.suppress(OSError):
        for folder in place.glob(f"{_PREFIX}*"):
            _remove_if_left(folder)


def _remove_if_left(folder: Path) -> None:
    with contextlib.suppress(OSError):
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return
        # One without a lock is just being made.
        lock = os.open(folder / _LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
        try:
            if _locked(lock):
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)
