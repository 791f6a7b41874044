"""A watcher that reports changes of files: by inotify where the system has it, by polling otherwise.

A file is watched through its directory, since editors replace files instead of writing to them. Files that inotify
cannot watch, or no longer can because the directory is gone, are polled. A file that changes constantly is reported at
most ten times a second.
"""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress

from trunkline.errors import RequestFailed
from trunkline.servers.filesystem.kernel import inotify_add, inotify_init
from trunkline.servers.filesystem.limits import FileLimits
from trunkline.servers.filesystem.walking import Denied, Ground, Place

__all__ = ["Watcher"]

_MODIFY, _CLOSE_WRITE, _MOVED, _CREATE, _DELETE = 0x2, 0x8, 0xC0, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x4000, 0x8000
_ONLY_DIRECTORY = 0x01000000
_MASK = _MODIFY | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORY
_GONE = _DELETE_SELF | _MOVE_SELF | _IGNORED
_EVENT = struct.Struct("iIII")
_QUIET_SECONDS = 0.1

#: What identifies the state of a file; None if it does not exist.
_Seen = tuple[int, int, int, int] | None


class _Watched:
    """A watched file: how to read its state, the last state, and its inotify watch."""

    __slots__ = ("look", "name", "seen", "watch")

    def __init__(self, look: Callable[[], _Seen]) -> None:
        self.look = look
        self.seen = look()
        self.name = ""
        #: The watch of the directory; None if the file is polled.
        self.watch: int | None = None


class Watcher:
    """Watches files, each under the URI that is reported when it changes; bound to one event loop."""

    def __init__(self, tell: Callable[[str], None], *, limits: FileLimits, inotify: bool = True) -> None:
        """Initialize with the callback for changes; without ``inotify`` files are polled."""
        self._tell = tell
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._watched: dict[str, _Watched] = {}
        #: URIs that were reported just now, and whether they have changed since.
        self._quiet: dict[str, bool] = {}
        self._looking: asyncio.Task[None] | None = None
        #: How many files are being added right now, and the watches that were found unused.
        self._adding = 0
        self._unused: set[int] = set()
        self._descriptor: int | None = None
        if inotify:
            with suppress(OSError):
                self._descriptor = inotify_init()
                self._loop.add_reader(self._descriptor, self._events)

    @property
    def uris(self) -> tuple[str, ...]:
        """The watched URIs."""
        return tuple(self._watched)

    async def add(self, uri: str, ground: Ground, path: str) -> None:
        """Start watching the file at a path; the file need not exist, but its folder must.

        Raises:
            RequestFailed: too many files are watched.
            ToolError: the path leads out of the allowed folders.
            OSError: its folder does not exist.
        """
        if uri not in self._watched and len(self._watched) >= self._limits.watches:
            raise RequestFailed(f"At most {self._limits.watches} files are watched at once; unsubscribe from some.")
        # Resolved even if it is already watched for another caller: this one may have other folders.
        self._adding += 1
        try:
            watched = await asyncio.to_thread(self._prepared, ground, path)
            watched = self._watched.setdefault(uri, watched)
        finally:
            self._adding -= 1
            self._sweep()
        if watched.watch is None:
            self._look()

    def remove(self, uri: str) -> None:
        """Stop watching a file."""
        watched = self._watched.pop(uri, None)
        if watched is None or watched.watch is None or self._descriptor is None:
            return
        self._unused.add(watched.watch)
        self._sweep()

    def close(self) -> None:
        """Stop watching all files."""
        self._watched.clear()
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None
        if self._looking is not None:
            self._looking.cancel()

    def _sweep(self) -> None:
        """Remove unused watches; not while a file is added, which may get the same watch."""
        if self._adding or self._descriptor is None:
            return
        for watch in self._unused - {each.watch for each in self._watched.values()}:
            with suppress(OSError):
                _forget(self._descriptor, watch)
        self._unused.clear()

    def _prepared(self, ground: Ground, path: str) -> _Watched:
        watched = _Watched(lambda: _seen(ground, path))

        def watch(place: Place) -> None:
            if self._descriptor is not None:
                with suppress(OSError):
                    watched.watch = inotify_add(self._descriptor, place.directory, _MASK)
                    watched.name = place.name

        ground.use(path, watch)
        return watched

    # --- inotify -----------------------------------------------------------------------------------------------------

    def _events(self) -> None:
        assert self._descriptor is not None
        try:
            data = os.read(self._descriptor, 64 * 1024)
        except BlockingIOError:
            return
        place = 0
        while place < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, place)
            place += _EVENT.size + length
            self._event(watch, mask, os.fsdecode(data[place - length : place].rstrip(b"\0")))

    def _event(self, watch: int, mask: int, name: str) -> None:
        if mask & _OVERFLOW:
            self._changed(self._watched)
        here = {uri: each for uri, each in self._watched.items() if each.watch == watch}
        if mask & _GONE:
            for each in here.values():
                each.watch, each.seen = None, None
            if mask & _MOVE_SELF and self._descriptor is not None:
                with suppress(OSError):
                    _forget(self._descriptor, watch)
            self._look()
            self._changed(here)
        else:
            self._changed(uri for uri, each in here.items() if each.name == name)

    def _changed(self, uris: Iterable[str]) -> None:
        for uri in tuple(uris):
            if uri in self._quiet:
                self._quiet[uri] = True
                continue
            self._quiet[uri] = False
            self._loop.call_later(_QUIET_SECONDS, self._loud, uri)
            self._tell(uri)

    def _loud(self, uri: str) -> None:
        if self._quiet.pop(uri, False) and uri in self._watched:
            self._changed([uri])

    # --- polling -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = self._loop.create_task(self._keep_looking())

    async def _keep_looking(self) -> None:
        while looked_at := {uri: each for uri, each in self._watched.items() if each.watch is None}:
            await asyncio.sleep(self._limits.poll_seconds)
            seen = await asyncio.to_thread(lambda: {uri: each.look() for uri, each in looked_at.items()})
            for uri, each in looked_at.items():
                if seen[uri] != each.seen:
                    each.seen = seen[uri]
                    self._changed([uri])


def _seen(ground: Ground, path: str) -> _Seen:
    def look(place: Place) -> _Seen:
        found = place.status()
        return None if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    try:
        return ground.use(path, look)
    except (Denied, OSError):
        return None


def _forget(descriptor: int, watch: int) -> None:
    from ctypes import CDLL

    if CDLL(None).inotify_rm_watch(descriptor, watch) < 0:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
