"""Monitors one running server: listens for changes, refreshes lists, checks health, detects idleness.

Five small loops, each a task, run until one of them, or the loss of the connection, reports that the run is over and
why. None of them stops the server: that is up to its ``ServerTask``. Failing to listen for changes does not end a run.

Health is checked only when nothing else shows it. Any response, or progress, is a sign of life; while a call is in
progress, the server may be as silent as that call allows. When it is quiet, or a call timed out, it is sent a ``ping``
(in stateless revisions ``server/discover``). After two in a row without an answer, and no other call within its
deadline, it counts as hanging. A check that runs much too late was delayed by a sleeping machine and is skipped.
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
from trunkline.client.contact import pause
from trunkline.errors import MissingCapability, RequestTimeout, TrunklineError
from trunkline.host.catalog.keeping import KeptCatalogs
from trunkline.host.catalog.offerings import Offering
from trunkline.host.clocks import within
from trunkline.host.supervision.backoff import Backoff, Reopening
from trunkline.host.supervision.clients import progress_at, start_seconds
from trunkline.host.supervision.condition import Condition
from trunkline.host.supervision.health import SLEPT_SECONDS, find_silence, idle_seconds
from trunkline.host.supervision.listing import EVERYTHING, Bounds, Debounce, failed_kinds, list_offering
from trunkline.protocol.revisions import NEWEST, Feature, find
from trunkline.timekeeper import Timekeeper

__all__ = ["Ending", "Serving", "keep", "running_state"]

log = logging.getLogger("trunkline.host")

_LIST_TRIES = 3


class Ending(Struct, frozen=True):
    """Why the run of a server is over: it must be stopped, or has exited."""

    kind: Literal["hung", "idle", "login", "lost"]
    error: Exception | str


class Serving:
    """Monitors one server from its connection to the end of its run."""

    def __init__(
        self,
        condition: Condition,
        client: Client,
        *,
        timekeeper: Timekeeper,
        spread: Callable[[], float],
        cache: KeptCatalogs | None,
    ) -> None:
        """Set a connected client; nothing happens before ``run``."""
        self._condition = condition
        self._client = client
        self._timekeeper = timekeeper
        self._now = timekeeper.clock.now
        self._spread = spread
        self._cache = cache
        self._settings = condition.entry.settings
        self._bounds = Bounds(seconds=start_seconds(condition.entry))
        self._ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self._changes = Debounce()
        self._news = asyncio.Event()
        self._look_now = asyncio.Event()

    async def run(self) -> Ending:
        """Monitor the server until the run is over; return why."""
        condition = self._condition
        condition.on_trouble = self._doubt
        condition.on_change = self._note
        loops = (self._follow, self._keep_listed, self._check_health, self._mind_idleness, self._keep_era)
        tasks = [asyncio.get_running_loop().create_task(self._guarded(loop)) for loop in loops]
        try:
            return await self._ending
        finally:
            condition.on_trouble = condition.on_change = None
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def conclude(self, ending: Ending) -> None:
        """End the run; the first reason counts. The client is no longer handed out."""
        self._condition.client = None
        if not self._ending.done():
            self._ending.set_result(ending)

    def renewed(self) -> None:
        """Called when the client reconnected by itself: the server may be a different one."""
        self._note(EVERYTHING)

    async def _guarded(self, loop: Callable[[], Awaitable[None]]) -> None:
        try:
            await loop()
        except Exception:
            log.exception("monitoring %s failed", self._condition.entry.name)

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
                log.debug("%s cannot be listened to: %s", self._condition.entry.name, error)
            await pause(self._timekeeper, reopening.closed(lived=self._now() - opened, now=self._now()))
            self._note(EVERYTHING)

    async def _listen(self) -> None:
        revision = find(self._client.revision or "") or NEWEST
        async with self._client.listen() as changes:
            if Feature.LISTEN in revision.features:
                # Changes between the first listing and the opening of this stream are not announced.
                self._note(EVERYTHING)
            async for change in changes:
                if change.kind != "missed":
                    self._note({change.kind})
                    continue
                self._note(EVERYTHING)
                if Feature.LISTEN in revision.features:
                    # The client has reopened a closed stream; how often that may happen is decided here.
                    return

    def _note(self, kinds: Collection[str]) -> None:
        self._changes.note(kinds, self._now())
        self._news.set()

    # --- lists -------------------------------------------------------------------------------------------------------

    async def _keep_listed(self) -> None:
        """Refresh lists that changed, and retry failed ones a few times."""
        condition = self._condition
        backoff, tries = Backoff(first=1.0), 0
        while True:
            failed = failed_kinds(condition.offering)
            wait = backoff.next(self._spread()) if failed and tries < _LIST_TRIES else None
            kinds = await self._changed_within(wait)
            if kinds:
                backoff.reset()
            tries = 0 if kinds else tries + 1
            await self._list(kinds or failed)

    async def _list(self, kinds: frozenset[str]) -> None:
        condition = self._condition
        offering = await list_offering(
            self._client,
            condition.offering,
            kinds=kinds,
            listed_at=time.time(),
            bounds=self._bounds,
            timekeeper=self._timekeeper,
        )
        if self._ending.done():
            return
        condition.offer(offering)
        condition.move(*running_state(offering, condition))
        await self._keep(offering)

    async def _changed_within(self, seconds: float | None) -> frozenset[str]:
        """Wait until changed lists are due; return an empty set on timeout."""
        try:
            return await within(self._timekeeper, seconds, self._changed())
        except RequestTimeout:
            return frozenset()

    async def _changed(self) -> frozenset[str]:
        while True:
            due, now = self._changes.due_at(), self._now()
            if due is None:
                self._news.clear()
                await self._news.wait()
            elif due > now:
                await pause(self._timekeeper, due - now)
            else:
                return self._changes.take(now)

    async def _keep(self, offering: Offering | None) -> None:
        await keep(self._cache, self._condition, offering)

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
                self.conclude(ending)
                return

    async def _time_to_look(self, seconds: float | None) -> None:
        try:
            await within(self._timekeeper, seconds, self._look_now.wait())
        except RequestTimeout:
            return

    def _shows_life(self, every: float) -> bool:
        """Return True if the server gave a recent sign of life, or is busy with a call that may still be silent."""
        silence = self._now() - self._heard_at()
        return silence < (max(every, idle_seconds(self._settings)) if self._condition.uses else every)

    def _heard_at(self) -> float:
        """Return when the server last gave a sign of life: an answer, or progress of a call."""
        return max(self._condition.heard_at, progress_at(self._client))

    async def _examine(self) -> Ending | None:
        """Check for signs of life; return the outcome that ends the run if there are none.

        Meanwhile no further call is sent: it would wait in vain if the server hangs. Calls that were sent before are
        waited for, within their deadlines, since many servers answer nothing else while they work.
        """
        condition = self._condition
        self._hold()
        ending: Ending | None = None
        try:
            ending = await self._silence()
            return ending
        finally:
            condition.held = None
            if ending is None and not self._ending.done():
                condition.client = self._client
                condition.move(*running_state(condition.offering, condition))

    async def _silence(self) -> Ending | None:
        condition = self._condition

        def wait(why: str) -> None:
            condition.move(condition.state, f"{why}; it is restarted unless a call under way is answered")

        try:
            why = await find_silence(
                self._client,
                self._settings,
                timekeeper=self._timekeeper,
                heard_at=lambda: condition.heard_at,
                on_wait=wait,
            )
        except TrunklineError as error:
            return Ending("login", error)
        if why is not None:
            return Ending("hung", why)
        condition.heard_at = self._now()
        return None

    def _doubt(self) -> None:
        """Called when a call timed out or was refused: check the server before any other call is sent."""
        if not self._ending.done():
            self._hold()
            self._look_now.set()

    def _hold(self) -> None:
        self._condition.held, self._condition.client = self._client, None

    async def _keep_era(self) -> None:
        """Cache a late answer to the era probe for the next run."""
        await self._condition.discovers.wait()
        if not self._condition.discovers_kept:
            await self._keep(self._condition.offering)

    # --- idleness ----------------------------------------------------------------------------------------------------

    async def _mind_idleness(self) -> None:
        after = self._settings.idle_stop
        if after is None:
            return
        condition = self._condition
        while True:
            left = after if condition.wanted else condition.used_at + after - self._now()
            if left <= 0:
                self.conclude(Ending("idle", f"stopped after {after:g} s without use; it starts again when it is used"))
                return
            await pause(self._timekeeper, left)


def running_state(offering: Offering | None, condition: Condition) -> tuple[Literal["ready", "partial"], str | None]:
    """Return the state of a running server after listing, and the reason."""
    state, reason = _listed_state(offering, condition)
    return state, "; ".join(each for each in (condition.remark, reason) if each) or None


def _listed_state(offering: Offering | None, condition: Condition) -> tuple[Literal["ready", "partial"], str | None]:
    if offering is None:
        return "ready", None
    redact = condition.secrets.hide
    if offering.failures:
        failed = "; ".join(f"{method} failed: {reason}" for method, reason in sorted(offering.failures.items()))
        return "partial", redact(f"connected, but {failed}")
    if offering.unreadable:
        return "ready", redact(f"{len(offering.unreadable)} items cannot be read; {offering.unreadable[0]}")
    if "tools" in offering.capabilities and not offering.tools:
        return "ready", "it declares tools and lists none"
    return "ready", None


async def keep(cache: KeptCatalogs | None, condition: Condition, offering: Offering | None) -> None:
    """Cache what a server offers for the next run, if there is a cache."""
    if cache is None or offering is None or condition.entry.target is not None:
        return
    async with condition.keeping:
        discovers = condition.discovers.is_set()
        put = partial(
            cache.put, probed_at=condition.probed_at, discovers=discovers, holds_secret=condition.secrets.holds
        )
        try:
            await asyncio.to_thread(put, condition.entry, offering)
        except OSError as error:
            log.warning("the catalog of %s is not cached: %s", condition.entry.name, error)
        condition.discovers_kept = discovers
