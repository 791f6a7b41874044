"""Reloading: the definition of a running server is replaced while its connections stay open.

The runtime stays, with sessions, subscriptions, log levels, tasks and store; only its definition is swapped. Requests
that are running finish with the old definition, and its lifespans are exited after the last of them. New requests are
served by the new definition. Clients are notified of the lists that differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from trunkline.server.runtime import runtime_for

if TYPE_CHECKING:
    from trunkline.server.dispatch import ServerRequest
    from trunkline.server.registry import RegistrySnapshot
    from trunkline.server.runtime import ServerRuntime
    from trunkline.server.server import Server

__all__ = ["ListChange", "Reloader"]

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


class Reloader:
    """Replaces the definition of a running server, and retires those before, which still have running requests."""

    def __init__(self, server: Server) -> None:
        """Prepare a server; call this before it is run."""
        self.server = server
        self._requests = _prepare(server)
        self._retiring: dict[asyncio.Task[None], _RetiredDefinition] = {}

    async def replace(self, server: Server, *, seconds: float | None = None) -> list[ListChange]:
        """Let another definition serve all connections; return how the lists differ.

        Its lifespans are entered first. If one fails, its exception is raised, and the old definition stays.

        Raises:
            TimeoutError: its lifespans were not entered within ``seconds``.
        """
        runtime, requests = runtime_for(self.server), _prepare(server)
        held, holder = runtime.lifespans_of(server), object()
        held.add(holder)
        try:
            async with asyncio.timeout(seconds):
                await held.entered(holder)
        except BaseException:
            await held.release(holder)
            runtime.forget(server)
            raise
        old, retired = self.server, _RetiredDefinition(runtime, self.server, self._requests)
        runtime.replace(server, held)
        self._retire(retired)
        self.server, self._requests = server, requests
        await held.release(holder)
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
        for retired in retiring.values():
            # Again, because a task that is cancelled before its first step does nothing.
            await retired.stop()
        await self.server.aclose()

    def _retire(self, retired: _RetiredDefinition) -> None:
        task = asyncio.get_running_loop().create_task(retired.wait())
        self._retiring[task] = retired
        task.add_done_callback(lambda done: self._retiring.pop(done, None))


class _RetiredDefinition:
    """A definition that was replaced, until its last running request has finished."""

    def __init__(self, runtime: ServerRuntime, server: Server, running: _RunningRequests) -> None:
        self._runtime = runtime
        self._server = server
        self._running = running
        self._held = runtime.held
        #: Those that the new definition has too; tasks release their lifespans themselves.
        self._holders = [holder for holder in self._held.holders if not runtime.is_task(holder)]

    async def wait(self) -> None:
        """Wait for the running requests, then exit the lifespans."""
        try:
            # Requests that wait for a lifespan are not counted yet. They began to wait earlier, so they are resumed
            # before this task.
            for holder in self._holders:
                with suppress(Exception):
                    await self._held.entered(holder)
            await self._running.wait()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Exit the lifespans; a second call does nothing."""
        for holder in self._holders:
            await self._held.release(holder)
        self._runtime.forget(self._server)


def _prepare(server: Server) -> _RunningRequests:
    """Announce all lists, so that items of a kind that was empty can be added later, and count requests."""
    # A handshake client is only told of capabilities once, when it connects.
    server.settings.announced = server.settings.announced | {"tools", "prompts", "resources", "completions"}
    requests = _RunningRequests()
    server.add_middleware(requests)
    return requests


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
