"""Which files clients want to hear of, in both eras, and the watcher that has something to tell.

A server is not told of subscriptions, so middleware looks at them as they pass: those of a session begin with a request
and end with another, or with the session; those of a client without one last as long as its stream. What nobody wants
any more is found out when it changes, or when somebody else leaves.
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
    """What is wanted, and the watcher of it, which lives as long as somebody is connected."""

    def __init__(
        self, ground_of: Callable[[Context], Awaitable[Ground]], *, limits: FileLimits, inotify: bool = True
    ) -> None:
        """Take what finds the allowed folders of a caller."""
        self._ground_of = ground_of
        self._limits = limits
        self._inotify = inotify
        self._server: Server | None = None
        self._watcher: Watcher | None = None
        #: The URIs of open streams, and of requests under way.
        self._listened: Counter[str] = Counter()

    @asynccontextmanager
    async def lifespan(self, server: Server) -> AsyncIterator[None]:
        """Watch while the server serves."""
        self._server = server
        self._watcher = Watcher(self._changed, limits=self._limits, inotify=self._inotify)
        try:
            yield
        finally:
            self._watcher.close()
            self._watcher = None

    async def around(self, request: ServerRequest, call_next: CallNext) -> Any:
        """Look at a request that is about subscriptions."""
        match request.method:
            case "resources/subscribe":
                return await self._subscribe(request, call_next)
            case "resources/unsubscribe":
                return await self._then_prune(request, call_next)
            case "subscriptions/listen":
                return await self._listen(request, call_next)
        return await call_next(request)

    async def _subscribe(self, request: ServerRequest, call_next: CallNext) -> Any:
        """Watch what a session asks for, which is wanted from now on, whoever else leaves meanwhile."""
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
        """Watch what a stream is for; what may not be watched is taken out of its filter, as the client can see."""
        wanted = request.params.notifications
        allowed: list[str] = []
        try:
            for uri in wanted.resource_subscriptions or ():
                # Before it is watched: what nobody wants is no longer watched as soon as somebody else leaves.
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
        # Before anything is looked at: who may not read is not told what is there.
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
