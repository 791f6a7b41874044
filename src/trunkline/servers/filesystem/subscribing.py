"""Which files clients subscribe to, in both eras, and the watcher that reports their changes.

The server object has no callback for subscriptions, so middleware observes the requests: a subscription of a session
starts with one request and ends with another or with the session; that of a client without a session lasts as long as
its stream. Watches that are no longer needed are found when the file changes or another client leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from trunkline.errors import ToolError, TrunklineError
from trunkline.server import CallNext, Context, Server, ServerRequest
from trunkline.servers.filesystem.limits import FileLimits
from trunkline.servers.filesystem.walking import Ground
from trunkline.servers.filesystem.watching import Watcher
from trunkline.servers.roots import path_of_uri

__all__ = ["Subscriptions"]


class Subscriptions:
    """The subscribed files and their watcher, which lives as long as a client is connected."""

    def __init__(
        self, ground_of: Callable[[Context], Awaitable[Ground]], *, limits: FileLimits, inotify: bool = True
    ) -> None:
        """Initialize with the function that returns the path resolver of a caller."""
        self._ground_of = ground_of
        self._limits = limits
        self._inotify = inotify
        self._server: Server | None = None
        self._watcher: Watcher | None = None
        #: The URIs of open streams and of requests in progress.
        self._listened: Counter[str] = Counter()

    @asynccontextmanager
    async def lifespan(self, server: Server) -> AsyncIterator[None]:
        """Run the watcher while the server is running."""
        self._server = server
        self._watcher = Watcher(self._changed, limits=self._limits, inotify=self._inotify)
        try:
            yield
        finally:
            self._watcher.close()
            self._watcher = None

    async def around(self, request: ServerRequest, call_next: CallNext) -> Any:
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
        """Watch the file of a new subscription; it counts as subscribed at once, even if another client leaves now."""
        uri: str = request.params.uri
        self._listened[uri] += 1
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
                self._listened[uri] += 1
                allowed.append(uri)
                try:
                    await self._watch(request.context, uri)
                except TrunklineError:
                    self._listened[allowed.pop()] -= 1
            if allowed != (wanted.resource_subscriptions or []):
                wanted = replace(wanted, resource_subscriptions=allowed)
                request = request.with_params(replace(request.params, notifications=wanted))
            return await call_next(request)
        finally:
            self._forget(allowed)

    def _forget(self, uris: Sequence[str]) -> None:
        self._listened.subtract(uris)
        self._listened += Counter()
        self._prune()

    async def _watch(self, context: Context, uri: str) -> None:
        path = path_of_uri(uri)
        if path is None or self._watcher is None:
            return
        # Checked before any file access: a caller without the right to read must not learn what exists.
        context.check_resource(uri)
        ground = await self._ground_of(context)
        if len(self._watcher.uris) >= self._limits.watches:
            self._prune()
        try:
            await self._watcher.add(uri, ground, path)
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
        return self._listened[uri] > 0 or any(each.session is not None and uri in each.uris for each in subscribers)
