"""Replaces a running server by another one while its connections stay open.

A server is a definition, not a connection, so a new definition can take over the connections of an old one: sessions,
subscriptions and log levels are kept. Requests that are running finish with the old definition, and its lifespans are
exited after the last of them. New requests are served by the new definition. Clients are notified of the lists that
differ. This module uses private attributes of both servers; other modules must not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from trunkline.connection import Connection
from trunkline.server.dispatch import ServerConnection
from trunkline.server.subscriptions import ChangeHub

if TYPE_CHECKING:
    from trunkline.server.dispatch import ServerRequest
    from trunkline.server.registry import RegistrySnapshot
    from trunkline.server.server import Server

__all__ = ["ListChange", "ReplaceableServer"]

#: The lists, and the tables of the registry that each shows.
_LISTS = (("tools", ("tools",)), ("prompts", ("prompts",)), ("resources", ("resources", "templates")))


class ListChange(msgspec.Struct, frozen=True):
    """How one list differs after a replacement: the names or URIs of its items."""

    kind: str
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]


class _RunningRequests:
    """Middleware that counts the running requests of a server, except its subscriptions, which never finish."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def __call__(self, request: ServerRequest, call_next: Callable[[ServerRequest], Awaitable[Any]]) -> Any:
        if request.method == "subscriptions/listen":
            return await call_next(request)
        self._count += 1
        self._idle.clear()
        try:
            return await call_next(request)
        finally:
            self._count -= 1
            if not self._count:
                self._idle.set()

    async def wait(self) -> None:
        """Wait until no request is running."""
        await self._idle.wait()


class ReplaceableServer:
    """A running server, and the earlier ones that still have running requests."""

    def __init__(self, server: Server) -> None:
        """Prepare a server; call this before it is run."""
        self.server = server
        self._requests = _prepare(server)
        self._retiring: dict[asyncio.Task[None], Server] = {}

    async def replace(self, server: Server, *, seconds: float | None = None) -> list[ListChange]:
        """Let another server take over all connections; return how the lists differ.

        Its lifespans are entered first. If one fails, its exception is raised, and the old server keeps running.

        Raises:
            TimeoutError: its lifespans were not entered within ``seconds``.
        """
        requests = _prepare(server)
        holder = object()
        server.acquire_lifespans(holder)
        try:
            async with asyncio.timeout(seconds):
                await _lifespans_ready(server, holder)
        except BaseException:
            await server.release(holder)
            raise
        old, running = self.server, self._requests
        _take_over(old, server)
        self.server, self._requests = server, requests
        await server.release(holder)
        self._retire(old, running)
        changes = _compare(old.registry, server.registry)
        for change in changes:
            server.changed(change.kind)
        return changes

    async def aclose(self) -> None:
        """Stop the server and its predecessors; called after the transport has ended."""
        retiring = dict(self._retiring)
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        for old in retiring.values():
            # Again, because a task that is cancelled before its first step does nothing.
            await _stop(old)
        await self.server.aclose()

    def _retire(self, old: Server, running: _RunningRequests) -> None:
        async def wait() -> None:
            try:
                # Requests that wait for a lifespan are not counted yet. They began to wait earlier, so they are resumed
                # before this task.
                for holder in tuple(old._held):
                    with suppress(Exception):
                        await _lifespans_ready(old, holder)
                await running.wait()
            finally:
                await _stop(old)

        task = asyncio.get_running_loop().create_task(wait())
        self._retiring[task] = old
        task.add_done_callback(lambda done: self._retiring.pop(done, None))


async def _stop(server: Server) -> None:
    """Exit the lifespans of a server that was replaced, and close it; a second call does nothing."""
    for holder in tuple(server._held):
        await server.release(holder)
    server.close()


def _prepare(server: Server) -> _RunningRequests:
    """Announce all lists, so that items of a kind that was empty can be added later, and count requests."""
    # A handshake client is only told of capabilities once, when it connects.
    server.announced = server.announced | {"tools", "prompts", "resources", "completions"}
    requests = _RunningRequests()
    server.add_middleware(requests)
    return requests


async def _lifespans_ready(server: Server, holder: object) -> None:
    """Wait until the lifespans of a holder are entered; raise the exception of one that failed."""
    for lifespan in server._held.get(holder, ()):
        assert lifespan.ready is not None
        await asyncio.shield(lifespan.ready)


def _take_over(old: Server, new: Server) -> None:
    """Move the connections, subscriptions and keys of a server to another one."""
    # Listeners stay attached to the hub that they know; what the old server reports from now on reaches no client.
    new.hub, old.hub = old.hub, ChangeHub()
    if new.state.take_over(old.state):
        # What the old server stored and sealed stays valid: handles, tasks, calls that wait for an answer.
        new._state, new._seal, new._handles = old.state, old.seal, old.handles
    for holder in tuple(old._held):
        if isinstance(holder, Connection) and isinstance(holder.service, ServerConnection):
            holder.service.replace_server(new)
            new._held[holder] = []
            new._acquire_lifespans(holder)
            holder.cleanup = new._clean_up
    for acceptor in tuple(old.acceptors):
        acceptor.replace_server(new)
    if old.telemetry is not None:
        from trunkline.server.telemetry import move_telemetry

        move_telemetry(old, new)


def _compare(before: RegistrySnapshot, after: RegistrySnapshot) -> list[ListChange]:
    changes = []
    for kind, tables in _LISTS:
        old, new = _listed(before, tables), _listed(after, tables)
        if list(old.items()) != list(new.items()):
            changes.append(
                ListChange(
                    kind,
                    tuple(name for name in new if name not in old),
                    tuple(name for name in old if name not in new),
                    tuple(name for name in new if name in old and new[name] != old[name]),
                )
            )
    return changes


def _listed(registry: RegistrySnapshot, tables: tuple[str, ...]) -> dict[str, bytes]:
    """Return the encoded items of a list, by name or URI."""
    return {
        str(name): msgspec.json.encode(definition.listed())
        for table in tables
        for name, definition in getattr(registry, table).items()
    }
