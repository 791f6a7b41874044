"""Keeps a client connected to its server: connects, reconnects after a loss, closes; owns what outlives a connection.

There is one connection at a time, opened by one task that all waiting calls share; a call that stops waiting does not
disturb the others. What is known of the server (its era, its tools, cached results) is kept here. It raises one
exception at a time, and any task may close it, at any moment and more than once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from msgspec import Raw

import trunkline.types as t
from trunkline.client.cache import ResponseCache
from trunkline.client.callbacks import Callbacks
from trunkline.client.contact import Contact
from trunkline.client.listening import Hub
from trunkline.client.notices import Notices
from trunkline.client.opening import connect
from trunkline.client.options import Settings
from trunkline.client.state import Life, State
from trunkline.client.targets import Target
from trunkline.client.tool_facts import ToolFacts
from trunkline.connection import Patience
from trunkline.errors import (
    ConnectionLost,
    LinkError,
    LocalProtocolError,
    RequestFailed,
    RequestTimeout,
    SessionExpired,
)
from trunkline.protocol.deadlines import Deadline
from trunkline.protocol.negotiation import Agreement
from trunkline.protocol.revisions import Revision, find
from trunkline.timekeeper import Timekeeper
from trunkline.types import ProgressNotificationParams

__all__ = ["Core"]

log = logging.getLogger("trunkline")
T = TypeVar("T")
_CLOSED = "the client was closed"


class Core:
    """Connects to one target and keeps what is known of its server."""

    def __init__(self, target: Target, settings: Settings) -> None:
        """Start without a connection."""
        self.settings = settings
        self.limits = settings.limits
        self.target = target
        self.life = Life(settings.on_state)
        #: The open connection, if there is one that calls may use.
        self.contact: Contact | None = None
        self.cache = ResponseCache(settings.limits.cache_entries if settings.cache else 0)
        self.facts = ToolFacts()
        self.hub = Hub()
        self.callbacks = Callbacks(settings.limits.notices)
        self.log_level: t.LoggingLevel | None = settings.log_level
        self._notices = Notices(settings, cache=self.cache, facts=self.facts, hub=self.hub, callbacks=self.callbacks)
        self._timekeeper: Timekeeper | None = None
        self._opening: asyncio.Task[Contact] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._finishing: set[asyncio.Task[None]] = set()
        #: The last negotiated agreement, kept after a loss and after the close.
        self.agreement: Agreement | None = None
        #: A revision that the server is known to speak by other means than an agreement here: from an earlier run, or
        #: from a late answer to the era probe. It decides how the next connection begins.
        self.known: Revision | None = None
        #: Whether the last connection began with known information about the server, rather than with a probe.
        self.was_known = False
        #: Called with the revision when such a late answer arrives.
        self.on_discovered: Callable[[Revision], None] | None = None
        self._held: Counter[str] = Counter()
        self._entered = False
        self._dropped = 0

    @property
    def clock(self) -> Timekeeper:
        """The timers that measure all timeouts of this client."""
        if self._timekeeper is None:
            self._timekeeper = Timekeeper(self.settings.clock)
        return self._timekeeper

    @property
    def dropped(self) -> int:
        """The number of messages of the server that were dropped: they matched nothing, or arrived too fast."""
        now = 0 if self.contact is None else self.contact.connection.peer.dropped
        return self._dropped + now + self._notices.dropped + self.callbacks.dropped

    # --- connecting --------------------------------------------------------------------------------------------------

    async def enter(self) -> None:
        """Open the first connection; if that fails, nothing is left running."""
        if self.life.state is State.TERMINATED and not self.target.reopens:
            raise ConnectionLost(f"{_CLOSED}, and its target cannot be opened a second time")
        try:
            await self._open_shared()
        except BaseException:
            await self._close()
            raise
        self._entered = True

    async def reach(self) -> Contact:
        """Return the open session, or open one.

        Raises:
            LocalProtocolError: the client was never entered.
            LinkError: it is closed, or the server is gone and may not be restarted.
            TrunklineError: connecting failed.
        """
        if self.contact is not None:
            return self.contact
        if self.life.state is State.TERMINATED:
            raise ConnectionLost(_CLOSED)
        if self._opening is None and not self._entered:
            raise LocalProtocolError("The client is not connected: use it inside `async with client:`.")
        if self.life.reason is not None and not self._reopens:
            raise self.life.reason
        return await self._open_shared()

    @property
    def _reopens(self) -> bool:
        # An expired session is not a dead process: the specification requires a new session.
        return self.target.reopens and (self.settings.restart or isinstance(self.life.reason, SessionExpired))

    async def _open_shared(self) -> Contact:
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            # The exception reaches every waiter; if none is left, it must not be reported as never retrieved.
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Contact:
        """Connect within the connect timeout; the only way to the state ``active``."""
        self.life.move(State.CONNECTING)
        late = False
        row: Deadline
        task = asyncio.current_task()
        assert task is not None

        def expire() -> None:
            nonlocal late, row
            if self.target.asking is not None and self.target.asking():
                # The user is logging in, which has its own timeout.
                row = self.clock.after(self.limits.connect_seconds, expire)
                return
            late = True
            task.cancel()

        row = self.clock.after(self.limits.connect_seconds, expire)
        try:
            contact = await connect(
                self.target, self, settings=self.settings, timekeeper=self.clock, remembered=self._remembered()
            )
            self._remember(contact)
            self.life.move(State.INITIALIZED)
            await self._restore(contact)
        except asyncio.CancelledError:
            error = self._timed_out() if late else ConnectionLost(_CLOSED)
            self.life.move(State.FAILED, error)
            raise error from None
        except Exception as error:
            self.life.move(State.FAILED, error)
            raise
        finally:
            row.cancel()
            self._opening = None
        self.contact = contact
        self.life.move(State.ACTIVE)
        return contact

    def _timed_out(self) -> RequestTimeout:
        seconds = self.limits.connect_seconds
        return RequestTimeout(
            f"{self.target.name}: not connected after {seconds:g} s", clock="connect", seconds=seconds
        )

    async def _restore(self, contact: Contact) -> None:
        """Restore on a new connection what the server knew before a loss: the log level and the subscriptions."""
        patience = Patience(self.limits.idle_seconds, self.limits.connect_seconds)
        contact.set_log_level(self.log_level)
        try:
            if self.log_level is not None and "logging/setLevel" in contact.allowed:
                await contact.call("logging/setLevel", t.SetLevelRequestParams(level=self.log_level), patience=patience)
            for uri in list(self._held) if "resources/subscribe" in contact.allowed else ():
                await contact.call("resources/subscribe", t.SubscribeRequestParams(uri=uri), patience=patience)
        except RequestFailed as failure:
            log.warning("%s rejected a setting that it had accepted before: %s", self.target.name, failure)
        except BaseException:
            await contact.connection.aclose()
            raise
        if contact.lost is not None:
            await contact.connection.aclose()
            raise contact.lost

    # --- the era -----------------------------------------------------------------------------------------------------

    def _remembered(self) -> Revision | None:
        memory, fingerprint = self.settings.era_memory, self.target.fingerprint
        known, self.known = self.known, None
        self.was_known = known is not None or self.agreement is not None
        if known is not None:
            return known
        if self.agreement is not None:
            return self.agreement.revision
        found = None if memory is None or fingerprint is None else find(memory.get(fingerprint, ""))
        self.was_known = found is not None
        return found

    def _remember(self, contact: Contact) -> None:
        self.agreement = contact.agreement
        self._note_era(self.known or contact.revision)

    def _note_era(self, revision: Revision) -> None:
        if self.settings.era_memory is not None and self.target.fingerprint is not None:
            self.settings.era_memory[self.target.fingerprint] = revision.name

    def forget_era(self) -> None:
        """Forget the server's revision, so that the next connection probes it."""
        self.known = self.agreement = None
        if self.settings.era_memory is not None and self.target.fingerprint is not None:
            self.settings.era_memory.pop(self.target.fingerprint, None)

    # --- calls -------------------------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        params: Any,
        *,
        patience: Patience,
        on_progress: Callable[[ProgressNotificationParams], None] | None = None,
        meta: Mapping[str, Any] | None = None,
        repeat: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> Awaitable[tuple[Any, bool]]:
        """Send a request; with ``repeat``, send it once more if the connection is lost meanwhile."""
        contact = self.contact
        # The fast path: with an open connection and nothing to repeat, no wrapper stands between caller and call.
        if contact is not None and not repeat and not contact.renews:
            return contact.call(method, params, patience=patience, on_progress=on_progress, meta=meta, headers=headers)
        return self.use(
            lambda contact: contact.call(
                method, params, patience=patience, on_progress=on_progress, meta=meta, headers=headers
            ),
            repeat=repeat,
        )

    def pass_on(self, method: str, params: Any, **how: Any) -> Awaitable[tuple[Any, Raw]]:
        """Forward a request for one round on behalf of another caller; see ``ClientSession.forward``."""
        contact = self.contact
        if contact is not None and not contact.renews:
            return contact.pass_on(method, params, **how)
        return self.use(lambda contact: contact.pass_on(method, params, **how))

    async def use(self, work: Callable[[Contact], Awaitable[T]], *, repeat: bool = False) -> T:
        """Run ``work`` with the session; once more if the session had expired, or with ``repeat`` if it was lost."""
        contact = self.contact or await self.reach()
        try:
            return await work(contact)
        except SessionExpired as reason:
            # Nothing was executed, so the request may be sent again whatever it was.
            if self.life.state is State.TERMINATED:
                raise
            self._retire(contact, reason)
        except ConnectionLost:
            if not repeat or not self._reopens or self.life.state is State.TERMINATED:
                raise
        return await work(await self.reach())

    async def fetch(self, method: str, params: Any, *, key: str | None, patience: Patience) -> Any:
        """Read from the cache if fresh, else from the server; ``key`` is the parameter that matters."""
        now = self.clock.clock.now
        kept = self.cache.get(method, key, now=now())
        if kept is not None:
            return kept
        epoch = self.cache.epoch(method)
        result, asked = await self.call(method, params, patience=patience, repeat=True)
        # The specification: the result of a retried round depends on answers that are not part of the key.
        if not asked and self.agreement is not None and self.agreement.revision.cache_hints:
            self.cache.put(method, key, result, epoch=epoch, now=now())
        return result

    # --- subscriptions of handshake revisions ------------------------------------------------------------------------

    async def hold(self, uri: str) -> None:
        """Subscribe to a resource, or count one more subscriber."""
        self._held[uri] += 1
        if self._held[uri] > 1:
            return
        try:
            params = t.SubscribeRequestParams(uri=uri)
            await self.call("resources/subscribe", params, patience=self.patience(), repeat=True)
        except BaseException:
            self._let_go(uri)
            raise

    async def release(self, uri: str) -> None:
        """Unsubscribe from a resource that has no subscribers left; a lost server need not be notified."""
        contact = self.contact
        if self._let_go(uri) or contact is None or "resources/unsubscribe" not in contact.allowed:
            return
        params = t.UnsubscribeRequestParams(uri=uri)
        try:
            await contact.call("resources/unsubscribe", params, patience=self.patience())
        except LinkError as error:
            log.debug("not unsubscribed: %s", error)

    def _let_go(self, uri: str) -> bool:
        """Remove one subscriber; return True if others remain."""
        self._held[uri] -= 1
        if self._held[uri] > 0:
            return True
        del self._held[uri]
        return False

    def patience(self, idle: float | None = None, total: float | None = None) -> Patience:
        """Return the timeouts of a request: the given ones, else the client's, else those of the limits."""
        if idle is None:
            idle = self.limits.idle_seconds if self.settings.timeout is None else self.settings.timeout
        # A caller that allows this much silence also means to wait this long in total.
        return Patience(idle, max(self.limits.total_seconds, idle) if total is None else total)

    # --- called by the session ---------------------------------------------------------------------------------------

    def notified(self, contact: Contact, method: str, params: Raw | None) -> None:
        """Called with each notification."""
        self._notices.take(contact, method, params)

    def discovered_late(self, contact: Contact, revision: Revision) -> None:
        """Called when the server answers the era probe after the handshake was tried."""
        self.known = revision
        self._note_era(revision)
        if self.on_discovered is not None:
            self.on_discovered(revision)

    def lost(self, contact: Contact, reason: Exception) -> None:
        """Called when a connection ended by itself; its calls have failed already."""
        if contact is self.contact:
            self._leave(contact, reason)
            self._end(contact)

    def _retire(self, contact: Contact, reason: Exception) -> None:
        """Detach from a connection whose session expired; its other calls may still get their answers."""
        if contact is self.contact:
            self._leave(contact, reason)
            task = asyncio.get_running_loop().create_task(self._let_finish(contact))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)

    def _leave(self, contact: Contact, reason: Exception) -> None:
        self.contact = None
        self._dropped += contact.connection.peer.dropped
        self.facts.forget()
        self.cache.clear()
        self.life.move(State.FAILED, reason)
        self.hub.lost()

    async def _let_finish(self, contact: Contact) -> None:
        """Close a connection once no request waits on it, or when the client is closed."""
        try:
            async with asyncio.timeout(self.limits.total_seconds):
                await contact.link.wait_idle()
        except TimeoutError:
            log.debug("requests of an expired session took too long")
        finally:
            self._end(contact)

    # --- closing -----------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close for good: waiting calls fail, iterators end, a server process is stopped."""
        self.life.move(State.TERMINATED)
        self._entered = False
        self.hub.end()
        await self._close()

    async def _close(self) -> None:
        opening = self._opening
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
        contact, self.contact = self.contact, None
        if contact is not None:
            self._dropped += contact.connection.peer.dropped
            self.facts.forget()
            self.cache.clear()
            self._end(contact)
        for task in self._finishing:
            task.cancel()
        if self._finishing:
            await asyncio.wait(self._finishing)
        if self._closing:
            await asyncio.wait(self._closing)
        await self.callbacks.aclose()
        if self._timekeeper is not None:
            self._timekeeper.close()
            self._timekeeper = None

    def _end(self, contact: Contact) -> None:
        """Close a connection in its own task: a cancelled caller must not leave a process behind."""
        task = asyncio.get_running_loop().create_task(contact.connection.aclose(ConnectionLost(_CLOSED)))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
