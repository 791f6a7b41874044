"""Keeps a client in contact with its server: opens, opens again after a loss, closes; owns what outlives a connection.

One connection at a time, opened by one task that all who wait share; whoever stops waiting disturbs nobody else. What
was learnt of the server (its era, its tools, results still fresh) is kept here. It raises one exception at a time, and
any task may close it, at any moment and more than once.
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
    """A server that is to be reached, and what is known of it."""

    def __init__(self, target: Target, settings: Settings) -> None:
        """Begin without a connection."""
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
        #: What was agreed on last, kept after a loss and after the end.
        self.agreement: Agreement | None = None
        #: A revision that the server is known to speak otherwise than by an agreement here: from an earlier run, or by
        #: an answer to the era probe that came late. It decides how the next connection begins.
        self.known: Revision | None = None
        #: Whether the last connection began with what was known of the server, and not by asking.
        self.was_known = False
        #: Called with the revision when such a late answer comes.
        self.on_discovered: Callable[[Revision], None] | None = None
        self._held: Counter[str] = Counter()
        self._entered = False
        self._dropped = 0

    @property
    def clock(self) -> Timekeeper:
        """What measures all waits of this client."""
        if self._timekeeper is None:
            self._timekeeper = Timekeeper(self.settings.clock)
        return self._timekeeper

    @property
    def dropped(self) -> int:
        """How many messages of the server fitted nothing, or came faster than they were heard."""
        now = 0 if self.contact is None else self.contact.connection.peer.dropped
        return self._dropped + now + self._notices.dropped + self.callbacks.dropped

    # --- opening -----------------------------------------------------------------------------------------------------

    async def enter(self) -> None:
        """Open the first connection; if that fails nothing is left running."""
        if self.life.state is State.TERMINATED and not self.target.reopens:
            raise ConnectionLost(f"{_CLOSED}, and what it was given cannot be opened again")
        try:
            await self._open_shared()
        except BaseException:
            await self._close()
            raise
        self._entered = True

    async def reach(self) -> Contact:
        """Give the open connection, or open one.

        Raises:
            LocalProtocolError: the client was never entered.
            LinkError: it is closed, or the server is gone and may not be started again.
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
        # A session that ended is no process that did: the specification wants a new one.
        return self.target.reopens and (self.settings.restart or isinstance(self.life.reason, SessionExpired))

    async def _open_shared(self) -> Contact:
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            # The task's failure is told to all who wait for it; if nobody does any more, it is nobody's surprise.
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Contact:
        """Connect within the connect clock; the only way to ``active``."""
        self.life.move(State.CONNECTING)
        late = False
        row: Deadline
        task = asyncio.current_task()
        assert task is not None

        def expire() -> None:
            nonlocal late, row
            if self.target.asking is not None and self.target.asking():
                # Somebody is logging in, which has a clock of its own.
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
        """Bring what the server knew before a loss to a new one: the log level and the subscriptions."""
        patience = Patience(self.limits.idle_seconds, self.limits.connect_seconds)
        contact.set_log_level(self.log_level)
        try:
            if self.log_level is not None and "logging/setLevel" in contact.allowed:
                await contact.call("logging/setLevel", t.SetLevelRequestParams(level=self.log_level), patience=patience)
            for uri in list(self._held) if "resources/subscribe" in contact.allowed else ():
                await contact.call("resources/subscribe", t.SubscribeRequestParams(uri=uri), patience=patience)
        except RequestFailed as failure:
            log.warning("%s refused what it had taken before: %s", self.target.name, failure)
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
        """Forget what the server speaks, so that the next connection asks it."""
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
        """Ask the server something; with ``repeat``, once more if the connection is lost over it."""
        contact = self.contact
        # While there is a connection and nothing to repeat, nothing stands between the caller and the call.
        if contact is not None and not repeat and not contact.renews:
            return contact.call(method, params, patience=patience, on_progress=on_progress, meta=meta, headers=headers)
        return self.use(
            lambda contact: contact.call(
                method, params, patience=patience, on_progress=on_progress, meta=meta, headers=headers
            ),
            repeat=repeat,
        )

    def pass_on(self, method: str, params: Any, **how: Any) -> Awaitable[tuple[Any, Raw]]:
        """Ask the server something for one round, on behalf of somebody else; see ``Contact.pass_on``."""
        contact = self.contact
        if contact is not None and not contact.renews:
            return contact.pass_on(method, params, **how)
        return self.use(lambda contact: contact.pass_on(method, params, **how))

    async def use(self, work: Callable[[Contact], Awaitable[T]], *, repeat: bool = False) -> T:
        """Do something with the connection; once more if its session had ended, or with ``repeat`` if it is lost."""
        contact = self.contact or await self.reach()
        try:
            return await work(contact)
        except SessionExpired as reason:
            # Nothing was executed: whatever it was may be sent again.
            if self.life.state is State.TERMINATED:
                raise
            self._retire(contact, reason)
        except ConnectionLost:
            if not repeat or not self._reopens or self.life.state is State.TERMINATED:
                raise
        return await work(await self.reach())

    async def fetch(self, method: str, params: Any, *, key: str | None, patience: Patience) -> Any:
        """Read something, from what is still fresh if possible; ``key`` is the parameter that matters."""
        now = self.clock.clock.now
        kept = self.cache.get(method, key, now=now())
        if kept is not None:
            return kept
        epoch = self.cache.epoch(method)
        result, asked = await self.call(method, params, patience=patience, repeat=True)
        # The specification: what came of a retried round depends on answers that are no part of the key.
        if not asked and self.agreement is not None and self.agreement.revision.cache_hints:
            self.cache.put(method, key, result, epoch=epoch, now=now())
        return result

    # --- subscriptions of handshake revisions ------------------------------------------------------------------------

    async def hold(self, uri: str) -> None:
        """Subscribe to a resource, or note that one more wants it."""
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
        """Unsubscribe from a resource that nobody wants any more; a server that is gone need not be told."""
        contact = self.contact
        if self._let_go(uri) or contact is None or "resources/unsubscribe" not in contact.allowed:
            return
        params = t.UnsubscribeRequestParams(uri=uri)
        try:
            await contact.call("resources/unsubscribe", params, patience=self.patience())
        except LinkError as error:
            log.debug("not unsubscribed: %s", error)

    def _let_go(self, uri: str) -> bool:
        """Count one less; tell whether somebody still wants it."""
        self._held[uri] -= 1
        if self._held[uri] > 0:
            return True
        del self._held[uri]
        return False

    def patience(self, idle: float | None = None, total: float | None = None) -> Patience:
        """Say how long a request may take: what was given, else the client's timeout, else the limits."""
        if idle is None:
            idle = self.limits.idle_seconds if self.settings.timeout is None else self.settings.timeout
        # Whoever allows so much silence means to wait for so long.
        return Patience(idle, max(self.limits.total_seconds, idle) if total is None else total)

    # --- what the contact tells --------------------------------------------------------------------------------------

    def notified(self, contact: Contact, method: str, params: Raw | None) -> None:
        """Take a notification."""
        self._notices.take(contact, method, params)

    def discovered_late(self, contact: Contact, revision: Revision) -> None:
        """Called when the server answers the era probe after the handshake was tried."""
        self.known = revision
        self._note_era(revision)
        if self.on_discovered is not None:
            self.on_discovered(revision)

    def lost(self, contact: Contact, reason: Exception) -> None:
        """Forget a connection that ended by itself; its calls have failed already."""
        if contact is self.contact:
            self._leave(contact, reason)
            self._end(contact)

    def _retire(self, contact: Contact, reason: Exception) -> None:
        """Forget a connection whose session ended; its other calls may still get their answers."""
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
        """Close a connection once nothing waits on it, or when the client is closed."""
        try:
            async with asyncio.timeout(self.limits.total_seconds):
                await contact.link.wait_idle()
        except TimeoutError:
            log.debug("calls of a session that ended took too long")
        finally:
            self._end(contact)

    # --- closing -----------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close for good: calls that wait fail, iterators end, a server process is ended."""
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
        """Close a connection in a task of its own: whoever gives up waiting must not leave a process behind."""
        task = asyncio.get_running_loop().create_task(contact.connection.aclose(ConnectionLost(_CLOSED)))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
