"""Monitors one running server: listens for changes, refreshes lists, checks health, detects idleness.

Five small loops, each a task, run until one of them, or the loss of the connection, reports that the run is over and
why. None of them stops the server: that is up to its ``ServerTask``. Failing to listen for changes does not end a run.

Health is checked only when nothing else shows it. Any response, or progress, is a sign of life; while a call is in
progress, the server may be as silent as that call allows. When it is quiet, or a call timed out, it is sent a ``ping``
(in stateless revisions ``server/discover``). After two in a row without an answer it counts as hanging, unless another
call is within its deadline: the server may be busy with that, so the check waits for it. A check that runs much too
late was delayed by a sleeping machine and is skipped.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Literal

from msgspec import Struct

from trunkline.client.client import Client
from trunkline.client.session import sleep
from trunkline.errors import LinkError, MissingCapability, RequestTimeout, TrunklineError
from trunkline.host.config.model import ServerSettings
from trunkline.host.upstreams.catalog.catalog import CatalogCache
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.supervision.clients import (
    ALL_LISTS,
    Debounce,
    ListBounds,
    failed_kinds,
    in_flight,
    list_offering,
    progress_at,
    requires_login,
    start_timeout,
)
from trunkline.host.upstreams.supervision.start_queue import Backoff, Reopening
from trunkline.host.upstreams.supervision.state import UpstreamState
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST, Feature, find_revision
from trunkline.timers import Timers, wait_within

__all__ = [
    "SLEPT_SECONDS",
    "RunOutcome",
    "ServerMonitor",
    "cache_offering",
    "idle_seconds",
    "running_state",
    "unresponsive_reason",
]

#: If a timer fires this late, the machine slept; a busy loop alone does not delay it so much.
SLEPT_SECONDS = 5.0

_PING_SECONDS = 10.0  # A ping takes milliseconds, unless the server is busy with a call.
# A busy machine may need this long to answer a ping, however short the server's timeout is.
_SHORTEST_PING = 2.0
_MOST_MISSES = 2  # One miss may be a pause of the machine.
# How often a silent server is checked again while calls are within their deadlines.
_AGAIN_SECONDS = 1.0


def idle_seconds(settings: ServerSettings) -> float:
    """Return how long a call of a server may be silent."""
    return Limits().idle_seconds if settings.timeout is None else settings.timeout


async def unresponsive_reason(
    client: Client,
    settings: ServerSettings,
    *,
    timers: Timers,
    last_activity_at: Callable[[], float],
    on_wait: Callable[[str], None] | None = None,
) -> str | None:
    """Return why a server counts as unresponsive; None if it gave a sign of life.

    ``last_activity_at`` returns the time of the last sign of life that the caller noted. ``on_wait`` is called while
    the server is silent and a call in flight is waited for.

    Raises:
        TrunklineError: the server requires a login.
    """
    now = timers.clock.now
    began = now()

    def is_alive() -> bool:
        return max(last_activity_at(), progress_at(client)) > began

    why = await _missed_pings(client, settings, timers=timers, is_alive=is_alive)
    while why is not None and in_flight(client):
        if on_wait is not None:
            on_wait(why)
        await sleep(timers, _AGAIN_SECONDS)
        if is_alive():
            return None
    return why


async def _missed_pings(
    client: Client, settings: ServerSettings, *, timers: Timers, is_alive: Callable[[], bool]
) -> str | None:
    """Ping twice; return why the server counts as silent, or None if anything came back."""
    seconds = min(_PING_SECONDS, max(_SHORTEST_PING, idle_seconds(settings)))
    failure: LinkError | None = None
    for _ in range(_MOST_MISSES):
        asked = timers.clock.now()
        try:
            await wait_within(timers, seconds, client.ping())
        except TrunklineError as error:
            if requires_login(error):
                raise
            slept = timers.clock.now() - asked > seconds + SLEPT_SECONDS
            if not isinstance(error, LinkError) or slept or is_alive():
                return None
            failure = error
        else:
            return None
    return f"it did not answer {_MOST_MISSES} pings: {failure}"


log = logging.getLogger("trunkline.host")

_LIST_TRIES = 3  # A list that fails three times is reported; the next change notification starts anew.


class RunOutcome(Struct, frozen=True):
    """Why the run of a server is over: it must be stopped, or has exited."""

    kind: Literal["hung", "idle", "login", "lost"]
    error: Exception | str


class ServerMonitor:
    """Monitors one server from its connection to the end of its run."""

    def __init__(
        self,
        server_state: UpstreamState,
        client: Client,
        *,
        timers: Timers,
        spread: Callable[[], float],
        cache: CatalogCache | None,
    ) -> None:
        """Set a connected client; nothing happens before ``run``."""
        self._state = server_state
        self._client = client
        self._timers = timers
        self._now = timers.clock.now
        self._spread = spread
        self._cache = cache
        self._settings = server_state.entry.settings
        self._bounds = ListBounds(seconds=start_timeout(server_state.entry))
        self._ending: asyncio.Future[RunOutcome] = asyncio.get_running_loop().create_future()
        self._changes = Debounce()
        self._news = asyncio.Event()
        self._look_now = asyncio.Event()

    async def run(self) -> RunOutcome:
        """Monitor the server until the run is over; return why."""
        server_state = self._state
        server_state.on_suspected_failure = self._suspect
        server_state.on_change = self._note
        loops = (self._follow, self._keep_listed, self._check_health, self._watch_idleness, self._keep_era)
        tasks = [asyncio.get_running_loop().create_task(self._guarded(loop)) for loop in loops]
        try:
            return await self._ending
        finally:
            server_state.on_suspected_failure = server_state.on_change = None
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def finish(self, ending: RunOutcome) -> None:
        """End the run; the first reason counts. The client is no longer handed out."""
        self._state.client = None
        if not self._ending.done():
            self._ending.set_result(ending)

    def reconnected(self) -> None:
        """Called when the client reconnected by itself: the server may be a different one."""
        self._note(ALL_LISTS)

    async def _guarded(self, loop: Callable[[], Awaitable[None]]) -> None:
        try:
            await loop()
        except Exception:
            log.exception("monitoring %s failed", self._state.entry.name)

    # --- changes -----------------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Listen for changes for as long as the server announces any."""
        reopening = Reopening()
        while True:
            opened = self._now()
            try:
                await self._listen()
            except MissingCapability:
                return
            except TrunklineError as error:
                log.debug("%s cannot be listened to: %s", self._state.entry.name, error)
            await sleep(self._timers, reopening.closed(lived=self._now() - opened, now=self._now()))
            self._note(ALL_LISTS)

    async def _listen(self) -> None:
        revision = find_revision(self._client.revision or "") or NEWEST
        async with self._client.listen() as changes:
            if Feature.LISTEN in revision.features:
                # Changes between the first listing and the opening of this stream are not announced.
                self._note(ALL_LISTS)
            async for change in changes:
                if change.kind != "missed":
                    self._note({change.kind})
                    continue
                self._note(ALL_LISTS)
                if Feature.LISTEN in revision.features:
                    # The client has reopened a closed stream; how often that may happen is decided here.
                    return

    def _note(self, kinds: Collection[str]) -> None:
        self._changes.note(kinds, self._now())
        self._news.set()

    # --- lists -------------------------------------------------------------------------------------------------------

    async def _keep_listed(self) -> None:
        """Refresh lists that changed, and retry failed ones a few times."""
        server_state = self._state
        backoff, tries = Backoff(first=1.0), 0
        while True:
            failed = failed_kinds(server_state.offering)
            wait = backoff.next(self._spread()) if failed and tries < _LIST_TRIES else None
            kinds = await self._changed_within(wait)
            if kinds:
                backoff.reset()
            tries = 0 if kinds else tries + 1
            await self._list(kinds or failed)

    async def _list(self, kinds: frozenset[str]) -> None:
        server_state = self._state
        offering = await list_offering(
            self._client,
            server_state.offering,
            kinds=kinds,
            listed_at=time.time(),
            bounds=self._bounds,
            timers=self._timers,
        )
        if self._ending.done():
            return
        server_state.offer(offering)
        server_state.transition_to(*running_state(offering, server_state))
        await self._keep(offering)

    async def _changed_within(self, seconds: float | None) -> frozenset[str]:
        """Wait until changed lists are due; return an empty set on timeout."""
        try:
            return await wait_within(self._timers, seconds, self._changed())
        except RequestTimeout:
            return frozenset()

    async def _changed(self) -> frozenset[str]:
        while True:
            due, now = self._changes.due_at(), self._now()
            if due is None:
                self._news.clear()
                await self._news.wait()
            elif due > now:
                await sleep(self._timers, due - now)
            else:
                return self._changes.take(now)

    async def _keep(self, offering: Offering | None) -> None:
        await cache_offering(self._cache, self._state, offering)

    # --- health ------------------------------------------------------------------------------------------------------

    async def _check_health(self) -> None:
        every = self._settings.health_seconds
        while True:
            due = self._now() + every
            await self._time_to_look(every if every > 0 else None)
            if self._look_now.is_set():
                self._look_now.clear()
            elif self._now() - due > SLEPT_SECONDS or self._shows_life(every):
                continue
            ending = await self._examine()
            if ending is not None:
                self.finish(ending)
                return

    async def _time_to_look(self, seconds: float | None) -> None:
        try:
            await wait_within(self._timers, seconds, self._look_now.wait())
        except RequestTimeout:
            return

    def _shows_life(self, every: float) -> bool:
        """Return True if the server gave a recent sign of life, or is busy with a call that may still be silent."""
        silence = self._now() - self._last_activity_at()
        return silence < (max(every, idle_seconds(self._settings)) if self._state.active_calls else every)

    def _last_activity_at(self) -> float:
        """Return when the server last gave a sign of life: an answer, or progress of a call."""
        return max(self._state.last_activity_at, progress_at(self._client))

    async def _examine(self) -> RunOutcome | None:
        """Check for signs of life; return the outcome that ends the run if there are none.

        Meanwhile no further call is sent: it would wait in vain if the server hangs. Calls that were sent before are
        waited for, within their deadlines, since many servers answer nothing else while they work.
        """
        server_state = self._state
        self._hold()
        ending: RunOutcome | None = None
        try:
            ending = await self._silence()
            return ending
        finally:
            server_state.held = None
            if ending is None and not self._ending.done():
                server_state.client = self._client
                server_state.transition_to(*running_state(server_state.offering, server_state))

    async def _silence(self) -> RunOutcome | None:
        server_state = self._state

        def wait(why: str) -> None:
            server_state.transition_to(
                server_state.state, f"{why}; it is restarted unless a call under way is answered"
            )

        try:
            why = await unresponsive_reason(
                self._client,
                self._settings,
                timers=self._timers,
                last_activity_at=lambda: server_state.last_activity_at,
                on_wait=wait,
            )
        except TrunklineError as error:
            return RunOutcome("login", error)
        if why is not None:
            return RunOutcome("hung", why)
        server_state.last_activity_at = self._now()
        return None

    def _suspect(self) -> None:
        """Called when a call timed out or was refused: check the server before any other call is sent."""
        if not self._ending.done():
            self._hold()
            self._look_now.set()

    def _hold(self) -> None:
        self._state.held, self._state.client = self._client, None

    async def _keep_era(self) -> None:
        """Cache a late answer to the era probe for the next run."""
        await self._state.discovers.wait()
        if not self._state.discovery_cached:
            await self._keep(self._state.offering)

    # --- idleness ----------------------------------------------------------------------------------------------------

    async def _watch_idleness(self) -> None:
        after = self._settings.idle_stop
        if after is None:
            return
        server_state = self._state
        while True:
            left = after if server_state.is_needed else server_state.used_at + after - self._now()
            if left <= 0:
                self.finish(
                    RunOutcome("idle", f"stopped after {after:g} s without use; it starts again when it is used")
                )
                return
            await sleep(self._timers, left)


def running_state(
    offering: Offering | None, server_state: UpstreamState
) -> tuple[Literal["ready", "partial"], str | None]:
    """Return the state of a running server after listing, and the reason."""
    state, reason = _listed_state(offering, server_state)
    return state, "; ".join(each for each in (server_state.remark, reason) if each) or None


def _listed_state(
    offering: Offering | None, server_state: UpstreamState
) -> tuple[Literal["ready", "partial"], str | None]:
    if offering is None:
        return "ready", None
    redact = server_state.secrets.hide
    if offering.failures:
        failed = "; ".join(f"{method} failed: {reason}" for method, reason in sorted(offering.failures.items()))
        return "partial", redact(f"connected, but {failed}")
    if offering.unreadable:
        return "ready", redact(f"{len(offering.unreadable)} items cannot be read; {offering.unreadable[0]}")
    if "tools" in offering.capabilities and not offering.tools:
        return "ready", "it declares tools and lists none"
    return "ready", None


async def cache_offering(cache: CatalogCache | None, server_state: UpstreamState, offering: Offering | None) -> None:
    """Cache what a server offers for the next run, if there is a cache."""
    if cache is None or offering is None or server_state.entry.target is not None:
        return
    async with server_state.cache_lock:
        discovers = server_state.discovers.is_set()
        put = partial(
            cache.put, probed_at=server_state.probed_at, discovers=discovers, holds_secret=server_state.secrets.holds
        )
        try:
            await asyncio.to_thread(put, server_state.entry, offering)
        except OSError as error:
            log.warning("the catalog of %s is not cached: %s", server_state.entry.name, error)
        server_state.discovery_cached = discovers
