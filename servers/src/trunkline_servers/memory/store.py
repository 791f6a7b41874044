"""The graph's file: read in its current state, changed under a lock, and replaced atomically.

A change takes the lock that all processes with this file share, reads the file, and replaces it once the new one is
complete and on disk: a process killed in between leaves the old one. Unreadable lines are moved to a file beside it at
the next change. The last graph is cached with the bytes of the file: every call reads the file, but only different
bytes are parsed again. All of this blocks, so it runs in a worker thread.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from msgspec import Struct

from trunkline.auth import try_lock
from trunkline.errors import ToolError
from trunkline_servers.memory.graph import Graph, GraphLimits, graph_lines, read_graph

__all__ = ["GraphFile", "migrate_old_file"]

T = TypeVar("T")

log = logging.getLogger("trunkline_servers")

_LOCK_SECONDS = 10.0
_PAUSE = 0.01
#: The graph of a larger file is not cached.
_MOST_KEPT = 8 * 1024 * 1024
_LEFTOVER = re.compile(r"[0-9a-f]{16}\.new")
_OPENED = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
#: Files beside the graph must not be links planted by others.
_OWN = _OPENED | getattr(os, "O_NOFOLLOW", 0)


class _CachedGraph(Struct, frozen=True):
    """The bytes of a file and their graph, which must not be changed."""

    data: bytes
    graph: Graph


class GraphFile:
    """A graph in a file, which need not exist yet."""

    def __init__(self, path: str, limits: GraphLimits, *, lock_seconds: float = _LOCK_SECONDS) -> None:
        """Initialize with the path; nothing is read or created."""
        self.path = path
        self._limits = limits
        self._lock_seconds = lock_seconds
        self._reported_rejected: int = 0
        #: Replaced as a whole, so that any thread may read it.
        self._kept: _CachedGraph | None = None

    def read(self) -> Graph:
        """Return the current graph; it must not be changed.

        Raises:
            ToolError: the file cannot be read, or is too large.
        """
        try:
            data = _read_file(self.path, self._limits.file_bytes + 1)
        except FileNotFoundError:
            return Graph()
        except OSError as error:
            raise ToolError(f"The memory file {self.path} cannot be read: {error.strerror}.") from error
        if len(data) > self._limits.file_bytes:
            raise ToolError(
                f"The memory file {self.path} is larger than {self._limits.file_bytes} bytes: raise --max-bytes."
            )
        kept = self._kept
        if kept is not None and kept.data == data:
            return kept.graph
        graph = read_graph(data)
        self._tell(len(graph.rejected))
        self._keep(data, graph)
        return graph

    def change(self, change: Callable[[Graph], T]) -> T:
        """Change a copy of the graph and return the result of the function; if it raises, the file is unchanged.

        Raises:
            ToolError: the file cannot be read or written, or another process holds it for too long.
        """
        try:
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o700, exist_ok=True)
            with self._locked():
                before = self.read()
                graph = before.copy()
                given = change(graph)
                if graph.rejected or not graph.equals(before):
                    lines = graph_lines(graph)
                    self._replace(lines, graph.rejected)
                    graph.rejected = []
                    self._tell(0)
                    self._keep(lines, graph)
                return given
        except OSError as error:
            raise ToolError(
                f"The memory file {self.path} cannot be written, and was not changed: {error.strerror}."
            ) from error

    def _keep(self, data: bytes, graph: Graph) -> None:
        self._kept = _CachedGraph(data, graph) if len(data) <= _MOST_KEPT else None

    def _tell(self, rejected: int) -> None:
        """Log the number of unreadable lines once."""
        if rejected and rejected != self._reported_rejected:
            log.warning(
                "%d lines of %s cannot be read and are left out; with the next change they move to %s.rejected",
                rejected,
                self.path,
                self.path,
            )
        self._reported_rejected = rejected

    def _replace(self, data: bytes, rejected: list[bytes]) -> None:
        """Replace the file atomically."""
        if len(data) > self._limits.file_bytes:
            raise ToolError(
                f"The memory file would have {len(data)} bytes, and at most {self._limits.file_bytes} are kept. "
                "Delete something first, or raise --max-bytes."
            )
        # A link to the file stays a link.
        target = os.path.realpath(self.path)
        _check_writable(target)
        if rejected:
            self._set_aside(target, rejected)
        _remove_leftovers(target)
        made = f"{target}.{os.urandom(8).hex()}.new"
        try:
            _write_whole(made, data, mode=_mode_of(target))
            os.replace(made, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(made)
            raise
        _sync_folder(os.path.dirname(target))

    def _set_aside(self, target: str, rejected: list[bytes]) -> None:
        """Append unreadable lines to a separate file before they are dropped here."""
        descriptor = os.open(f"{target}.rejected", os.O_WRONLY | os.O_CREAT | os.O_APPEND | _OWN, 0o600)
        with open(descriptor, "ab") as file:
            if os.fstat(descriptor).st_size > self._limits.file_bytes:
                raise ToolError(f"{target}.rejected is full of unreadable lines: look at it, then remove it.")
            file.write(b"\n".join(rejected) + b"\n")
            file.flush()
            os.fsync(descriptor)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file; the kernel releases it if this process dies."""
        path = f"{os.path.realpath(self.path)}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _OWN, 0o600)
        try:
            until = time.monotonic() + self._lock_seconds
            while not try_lock(descriptor):
                if time.monotonic() >= until:
                    raise ToolError(f"Another process holds {path} for over {self._lock_seconds:g} seconds. Try again.")
                time.sleep(_PAUSE)
            yield
        finally:
            # Closing the only descriptor releases the lock.
            os.close(descriptor)


def migrate_old_file(path: str) -> None:
    """Rename ``memory.json``, the former file name, if there is no file under the new name."""
    old = os.path.join(os.path.dirname(path), "memory.json")
    if os.path.exists(old) and not os.path.exists(path):
        with suppress(FileNotFoundError):
            os.rename(old, path)
            log.info("renamed %s to %s", old, path)


def _read_file(path: str, most: int) -> bytes:
    """Read a file without blocking on a pipe."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _OPENED)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ToolError(f"The memory file {path} is not a file: name one with --file or MEMORY_FILE_PATH.")
        # Closed below: if the file object cannot be created, as for a folder, it would stay open.
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def _check_writable(path: str) -> None:
    """Check that the file is writable: replacing it would only need permissions on its folder."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if not mode & 0o222 or not os.access(path, os.W_OK):
        raise ToolError(f"The memory file {path} is read-only, and was not changed: allow its owner to write to it.")


def _write_whole(path: str, data: bytes, *, mode: int) -> None:
    """Write a new file and flush it to disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OWN, mode)
    with open(descriptor, "wb") as file:
        if hasattr(os, "fchmod"):
            # The umask must not affect a file that replaces another.
            os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)


def _mode_of(path: str) -> int:
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return 0o600


def _remove_leftovers(target: str) -> None:
    """Remove temporary files of killed processes; only the holder of the lock writes."""
    folder, name = os.path.split(target)
    for entry in os.listdir(folder):
        if entry.startswith(f"{name}.") and _LEFTOVER.fullmatch(entry.removeprefix(f"{name}.")):
            with suppress(OSError):
                os.unlink(os.path.join(folder, entry))


def _sync_folder(folder: str) -> None:
    # Where folders cannot be opened, durability is up to the system.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
