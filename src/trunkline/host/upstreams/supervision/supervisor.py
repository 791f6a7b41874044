"""Keeps the servers of a host running, side by side, each owned by its own task.

All configured servers are started concurrently, without waiting. A new configuration touches only what changed: a
server with the same launch keeps its process; one whose launch changed is stopped before the new one starts. ``state``
draws the states of a server and their transitions, ``server_task`` makes the transitions.

All waits use one clock, which tests can replace. Closing stops all servers concurrently and is bounded; should this
process be killed, the watcher of each server process stops it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import RequestTimeout
from trunkline.host.config.model import NO_FILTERS, ServerEntry, ServerSettings, Source
from trunkline.host.events import EventBus, ServerStateChanged
from trunkline.host.secrets.registry import SecretRegistry
from trunkline.host.secrets.vault import Vault
from trunkline.host.upstreams.catalog.catalog import CatalogCache
from trunkline.host.upstreams.supervision.clients import SandboxLauncher, StoredLogins
from trunkline.host.upstreams.supervision.server_task import SupervisionContext, TrustCheck
from trunkline.host.upstreams.supervision.sharing import ProcessSharing
from trunkline.host.upstreams.supervision.start_queue import IdleProcessors, StartQueue, default_starts
from trunkline.host.upstreams.supervision.upstream import CallMetrics, Upstream
from trunkline.timers import Clock, Timers, wait_within

if TYPE_CHECKING:
    from trunkline.auth.credential_store import CredentialStore

__all__ = ["ServerChanges", "StartProgress", "Supervisor"]

log = logging.getLogger("trunkline.host")

# Longer than killing any server takes.
_CLOSING_SECONDS = 20.0
_KILLING_SECONDS = 5.0  # A killed process is gone at once, unless the kernel holds it.
_PLAIN = ServerSettings()
# A line and a column in a message about a file.
_LINES = re.compile(r":\d+(:\d+)?(?=[:\s]|$)|(?<=\(line )\d+(?=\))")


class StartProgress(Struct, frozen=True):
    """How far the start of the enabled servers is."""

    servers: int = 0
    #: Those whose start succeeded or failed.
    done: int = 0
    #: Those that are starting, and of which no catalog is cached.
    unlisted: int = 0
    #: The tools listed so far.
    tools: int = 0
    #: The names of those that are starting.
    waiting: tuple[str, ...] = ()


class ServerChanges(Struct, frozen=True):
    """What a new configuration changed, by names of servers."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


class Supervisor:
    """Keeps servers running; made and used inside an event loop."""

    def __init__(
        self,
        *,
        trust: TrustCheck,
        events: EventBus,
        on_offering: Callable[[Upstream], None],
        cache: CatalogCache | None = None,
        clock: Clock | None = None,
        spread: Callable[[], float] = random.random,
        client_options: Callable[[ServerEntry], Mapping[str, Any]] | None = None,
        logins: CredentialStore | None = None,
        vault: Vault | None = None,
        secrets: SecretRegistry | None = None,
        sandboxed: SandboxLauncher | None = None,
        starts_at_once: int | None = None,
        hold_starts: bool = False,
        sharing: ProcessSharing | None = None,
    ) -> None:
        """Start with no server.

        ``trust`` decides whether a server may run; ``on_offering`` is called when the offering of a server changes;
        ``logins`` and ``vault`` replace the default stores of logins and secrets; ``secrets`` collects what must not be
        shown; ``sandboxed`` returns how to launch a sandboxed server; ``starts_at_once`` bounds how many processes
        start at the same time, by default four per processor; with ``hold_starts`` none does before
        ``release_starts``; ``sharing`` shares processes with other hosts.
        """
        self._events = events
        self._on_offering = on_offering
        self._timers = Timers(clock)
        self._context = SupervisionContext(
            trust=trust,
            cache=cache,
            timers=self._timers,
            spread=spread,
            client_options=client_options,
            logins=StoredLogins(logins),
            secret=(Vault() if vault is None else vault).read,
            secrets=SecretRegistry() if secrets is None else secrets,
            eras={},
            starts=_start_queue(starts_at_once, self._timers),
            sandboxed=sandboxed,
            sharing=sharing,
        )
        self._context.starts.held = hold_starts
        self._upstreams: dict[str, Upstream] = {}
        #: The servers, by name, in the order of the configuration.
        self.upstreams: Mapping[str, Upstream] = MappingProxyType(self._upstreams)
        self._call_metrics: CallMetrics | None = None
        self._leaving: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()

    # --- the configuration -------------------------------------------------------------------------------------------

    async def apply(self, entries: Mapping[str, ServerEntry]) -> ServerChanges:
        """Apply a new set of servers; returns at once, while servers start and others stop."""
        before = dict(self._upstreams)
        added: list[str] = []
        changed: list[str] = []
        kept: list[str] = []
        self._upstreams.clear()
        for name, entry in entries.items():
            upstream = before.get(name)
            if upstream is None:
                added.append(name)
                self._add(entry)
            elif _launch(upstream.entry) == _launch(entry):
                (changed if entries_differ(upstream.entry, entry) else kept).append(name)
                self._keep(upstream, entry)
            else:
                changed.append(name)
                self._add(entry, after=self._dismiss(upstream))
        removed = [name for name in before if name not in entries]
        for name in removed:
            self._dismiss(before[name])
        return ServerChanges(tuple(added), tuple(removed), tuple(changed), tuple(kept))

    def _add(self, entry: ServerEntry, *, after: asyncio.Task[None] | None = None) -> None:
        upstream = Upstream(entry, self._context, on_move=self._tell, on_offering=self._on_offering, after=after)
        upstream.call_metrics = self._call_metrics
        self._upstreams[entry.name] = upstream
        status = upstream.status
        self._tell(ServerStateChanged(entry.name, status.state, status.reason))
        upstream.begin()

    def measure_calls(self, metrics: CallMetrics | None) -> None:
        """Measure the calls of all servers, also of those that are added later; None ends it."""
        self._call_metrics = metrics
        for upstream in self._upstreams.values():
            upstream.call_metrics = metrics

    def _keep(self, upstream: Upstream, entry: ServerEntry) -> None:
        self._upstreams[entry.name] = upstream
        changed = entries_differ(upstream.entry, entry)
        upstream.update_entry(entry)
        if changed:
            self._on_offering(upstream)
        upstream.retry()

    def _dismiss(self, upstream: Upstream) -> asyncio.Task[None]:
        task = upstream.end()
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    def _tell(self, event: ServerStateChanged) -> None:
        self._events.publish(event)
        self._moved.set()

    # --- waiting -----------------------------------------------------------------------------------------------------

    async def settled(self, timeout: float | None = None, *, everything: bool = False) -> bool:
        """Wait until no server is starting, or all required ones are ready; return False on timeout.

        With ``everything``, wait also for servers that are not required.
        """
        try:
            await wait_within(self._timers, timeout, self._until_settled(everything))
        except RequestTimeout:
            return False
        return True

    @property
    def is_settled(self) -> bool:
        """Whether no server is starting, or all required ones are ready."""
        return self._is_settled(everything=False)

    @property
    def start_progress(self) -> StartProgress:
        """How far the start of the enabled servers is."""
        upstreams = [upstream for upstream in self._upstreams.values() if not upstream.entry.disabled]
        return StartProgress(
            servers=len(upstreams),
            done=sum(not upstream.busy for upstream in upstreams),
            unlisted=sum(upstream.busy and upstream.offering is None for upstream in upstreams),
            tools=sum(len(upstream.offering.tools) for upstream in upstreams if upstream.offering is not None),
            waiting=tuple(upstream.entry.name for upstream in upstreams if upstream.busy),
        )

    def release_starts(self) -> None:
        """Start the processes that were held."""
        self._context.starts.release()

    async def _until_settled(self, everything: bool) -> None:
        while not self._is_settled(everything):
            self._moved.clear()
            await self._moved.wait()

    def _is_settled(self, everything: bool) -> bool:
        upstreams = self._upstreams.values()
        required = [upstream for upstream in upstreams if upstream.entry.settings.required]
        if required and not everything and all(upstream.state in ("ready", "partial") for upstream in required):
            return True
        return not any(upstream.busy for upstream in upstreams)

    async def recalled(self, timeout: float | None = None) -> None:
        """Wait until the cached catalog of each server was read; nothing is started for that."""
        with suppress(RequestTimeout):
            await wait_within(self._timers, timeout, self._until_recalled())

    async def _until_recalled(self) -> None:
        while any(upstream.state == "known" and upstream.busy for upstream in self._upstreams.values()):
            self._moved.clear()
            await self._moved.wait()

    async def listed(self, seconds: float, names: Collection[str] | None = None, *, fresh: bool = False) -> None:
        """Wait until the servers that start for the first time are listed.

        Each is waited for up to ``seconds`` after it was added, or as its entry sets; with ``names``, only these.
        ``fresh``: wait also for servers whose cached list is shown meanwhile.
        """
        now = self._timers.clock.now
        while True:
            upstreams = [each for name, each in self._upstreams.items() if names is None or name in names]
            left = [wait for each in upstreams if (wait := each.list_deadline(seconds, fresh=fresh) - now()) > 0]
            if not left:
                return
            self._moved.clear()
            with suppress(RequestTimeout):
                await wait_within(self._timers, min(left), self._moved.wait())

    # --- closing -----------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Stop all servers concurrently; when it returns, none of their processes is left."""
        upstreams = list(self._upstreams.values())
        self._upstreams.clear()
        tasks = {self._dismiss(upstream) for upstream in upstreams} | self._leaving
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_CLOSING_SECONDS)
            for task in late:
                log.warning("a server takes too long to end; its task is cancelled")
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=_KILLING_SECONDS)
        self._timers.close()


def _start_queue(given: int | None, timers: Timers) -> StartQueue:
    """Return the start queue; a number set by the user is never exceeded, even while processors are idle."""
    if given is not None:
        return StartQueue(given, timers)
    return StartQueue(default_starts(), timers, IdleProcessors)


def entries_differ(before: ServerEntry, after: ServerEntry) -> bool:
    """Return True if an entry changed; a move to another line is not a change."""
    return _without_lines(before) != _without_lines(after)


def _without_lines(entry: ServerEntry) -> ServerEntry:
    """Return an entry without line numbers, in its source and in the reason why it cannot run."""
    problem = None if entry.problem is None else _LINES.sub("", entry.problem)
    return replace(entry, source=Source(entry.source.scope, entry.source.file), problem=problem)


def _launch(entry: ServerEntry) -> ServerEntry:
    """Return an entry without what does not affect its running server: its line, and settings of the host alone."""
    settings = replace(
        entry.settings,
        tools=NO_FILTERS,
        prompts=NO_FILTERS,
        resources=NO_FILTERS,
        trusted=_PLAIN.trusted,
        always_load=_PLAIN.always_load,
        pins=_PLAIN.pins,
        required=_PLAIN.required,
        wait=_PLAIN.wait,
        concurrency=_PLAIN.concurrency,
        share=_PLAIN.share,
        per_user=_PLAIN.per_user,
        dedicated_idle=_PLAIN.dedicated_idle,
        dedicated_most=_PLAIN.dedicated_most,
    )
    # The scope decides whether it may run; the line in the file does not.
    return _without_lines(replace(entry, settings=settings))
