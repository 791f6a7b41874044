"""Which files clients subscribe to, in both eras, and the watcher that reports their changes.

By inotify where the system has it, by polling otherwise.
"""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec.structs import replace

from trunkline.errors import RequestFailed, ToolError, TrunklineError
from trunkline.server import CallNext, Context, Server, ServerRequest
from trunkline_servers.filesystem.path_resolver import Location, PathDenied, PathResolver, inotify_add, inotify_init
from trunkline_servers.filesystem.worker import FileLimits
from trunkline_servers.roots import path_from_file_uri

__all__ = ["FileSubscriptions", "FileWatcher"]

_MODIFY, _CLOSE_WRITE, _MOVED, _CREATE, _DELETE = 0x2, 0x8, 0xC0, 0x100, 0x200
_DELETE_SELF, _MOVE_SELF, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x4000, 0x8000
_ONLY_DIRECTORY = 0x01000000
_MASK = _MODIFY | _CLOSE_WRITE | _MOVED | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORY
_GONE = _DELETE_SELF | _MOVE_SELF | _IGNORED
_EVENT = struct.Struct("iIII")
_QUIET_SECONDS = 0.1

#: What identifies the state of a file; None if it does not exist.
_Signature = tuple[int, int, int, int] | None


class _WatchedFile:
    """A watched file: how to read its state, the last state, and its inotify watch."""

    __slots__ = ("look", "name", "seen", "watch")

    def __init__(self, look: Callable[[], _Signature]) -> None:
        self.look = look
        self.seen = look()
        self.name = ""
        #: The watch of the directory; None if the file is polled.
        self.watch: int | None = None


class FileWatcher:
    """Watches files, each under the URI that is reported when it changes; bound to one event loop."""

    def __init__(self, tell: Callable[[str], None], *, limits: FileLimits, inotify: bool = True) -> None:
        """Initialize with the callback for changes; without ``inotify`` files are polled."""
        self._tell = tell
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._watched: dict[str, _WatchedFile] = {}
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

    async def add(self, uri: str, resolver: PathResolver, path: str) -> None:
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
            watched = await asyncio.to_thread(self._prepared, resolver, path)
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

    def _prepared(self, resolver: PathResolver, path: str) -> _WatchedFile:
        watched = _WatchedFile(lambda: _signature_of(resolver, path))

        def watch(place: Location) -> None:
            if self._descriptor is not None:
                with suppress(OSError):
                    watched.watch = inotify_add(self._descriptor, place.directory, _MASK)
                    watched.name = place.name

        resolver.use(path, watch)
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


def _signature_of(resolver: PathResolver, path: str) -> _Signature:
    def look(place: Location) -> _Signature:
        found = place.status()
        return None if found is None else (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    try:
        return resolver.use(path, look)
    except (PathDenied, OSError):
        return None


def _forget(descriptor: int, watch: int) -> None:
    from ctypes import CDLL

    if CDLL(None).inotify_rm_watch(descriptor, watch) < 0:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


class FileSubscriptions:
    """The subscribed files, and their watcher."""

    def __init__(
        self, resolver_for: Callable[[Context], Awaitable[PathResolver]], *, limits: FileLimits, inotify: bool = True
    ) -> None:
        """Initialize with the function that returns the path resolver of a caller."""
        self._resolver_for = resolver_for
        self._limits = limits
        self._inotify = inotify
        self._server: Server | None = None
        self._watcher: FileWatcher | None = None
        #: The URIs of open streams and of requests in progress.
        self._use_counts: Counter[str] = Counter()

    @asynccontextmanager
    async def lifespan(self, server: Server) -> AsyncIterator[None]:
        """Run the watcher for the server's lifespan, which lasts while at least one connection or endpoint holds it."""
        self._server = server
        self._watcher = FileWatcher(self._changed, limits=self._limits, inotify=self._inotify)
        try:
            yield
        finally:
            self._watcher.close()
            self._watcher = None

    async def middleware(self, request: ServerRequest, call_next: CallNext) -> Any:
        """Handle the requests that concern subscriptions."""
        match request.method:
            case "resources/subscribe":
                return await self._subscribe(request, call_next)
            case "resources/unsubscribe":
                return await self._then_prune(request, call_next)
            case "subscriptions/listen":
                return await self._listen(request, call_next)
        return await call_next(request)

    async def _subscribe(self, request: ServerRequest, call_next: CallNext) -> Any:
        """Watch the file, then subscribe.

        The URI is counted while the request runs, so that a prune triggered by another client cannot remove the new
        watch.
        """
        uri: str = request.params.uri
        self._use_counts[uri] += 1
        try:
            await self._watch(request.context, uri)
            return await call_next(request)
        finally:
            self._forget([uri])

    async def _then_prune(self, request: ServerRequest, call_next: CallNext) -> Any:
        try:
            return await call_next(request)
        finally:
            self._prune()

    async def _listen(self, request: ServerRequest, call_next: CallNext) -> Any:
        """Watch the files of a stream; those that may not be watched are removed from its filter."""
        wanted = request.params.notifications
        allowed: list[str] = []
        try:
            for uri in wanted.resource_subscriptions or ():
                # Counted before it is watched: unused watches are removed as soon as another client leaves.
                self._use_counts[uri] += 1
                allowed.append(uri)
                try:
                    await self._watch(request.context, uri)
                except TrunklineError:
                    self._use_counts[allowed.pop()] -= 1
            if allowed != (wanted.resource_subscriptions or []):
                wanted = replace(wanted, resource_subscriptions=allowed)
                request = request.with_params(replace(request.params, notifications=wanted))
            return await call_next(request)
        finally:
            self._forget(allowed)

    def _forget(self, uris: Sequence[str]) -> None:
        self._use_counts.subtract(uris)
        self._use_counts += Counter()
        self._prune()

    async def _watch(self, context: Context, uri: str) -> None:
        path = path_from_file_uri(uri)
        if path is None or self._watcher is None:
            return
        # Checked before any file access: a caller without the right to read must not learn what exists.
        context.check_resource(uri)
        resolver = await self._resolver_for(context)
        if len(self._watcher.uris) >= self._limits.watches:
            self._prune()
        try:
            await self._watcher.add(uri, resolver, path)
        except OSError as error:
            raise ToolError(f"{path} cannot be watched: {error.strerror or error}.") from error

    def _changed(self, uri: str) -> None:
        if self._server is not None and self._is_wanted(uri):
            self._server.changed(uri)
        else:
            self._prune()

    def _prune(self) -> None:
        for uri in () if self._watcher is None else self._watcher.uris:
            if not self._is_wanted(uri) and self._watcher is not None:
                self._watcher.remove(uri)

    def _is_wanted(self, uri: str) -> bool:
        subscribers = () if self._server is None else self._server.subscribers()
        return self._use_counts[uri] > 0 or any(each.session is not None and uri in each.uris for each in subscribers)
