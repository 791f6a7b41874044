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
from weakref import WeakValueDictionary

from msgspec import Raw

import trunkline.types as t
from trunkline.client.changes import ListenerRegistry
from trunkline.client.connect import connect
from trunkline.client.notifications import CallbackRunner, NotificationDispatcher
from trunkline.client.options import CallOptions, ClientSettings, ClientState, Lifecycle
from trunkline.client.request_handlers import ExtensionResult
from trunkline.client.session import ClientSession
from trunkline.client.targets import Target
from trunkline.client.tool_cache import ResponseCache, ToolCache
from trunkline.connection import Timeouts
from trunkline.errors import (
    ConnectionLost,
    LinkError,
    LocalProtocolError,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
    SessionExpired,
)
from trunkline.protocol.negotiation import Agreement
from trunkline.protocol.revisions import Revision, find_revision
from trunkline.timers import Deadline, Timers
from trunkline.types import ProgressNotificationParams

__all__ = ["Connector"]

log = logging.getLogger("trunkline")
T = TypeVar("T")
_CLOSED = "the client was closed"


class Connector:
    """Connects to one target and keeps what is known of its server."""

    def __init__(self, target: Target, settings: ClientSettings) -> None:
        """Start without a connection."""
        self.settings = settings
        self.limits = settings.limits
        #: The options of calls that have none of their own.
        self.options = CallOptions(self._timeouts())
        self.target = target
        self.lifecycle = Lifecycle(settings.on_state)
        #: The open connection, if there is one that calls may use.
        self.session: ClientSession | None = None
        self.cache = ResponseCache(settings.limits.cache_entries if settings.cache else 0)
        self.tool_cache = ToolCache()
        self.listeners = ListenerRegistry()
        self.callbacks = CallbackRunner(settings.limits.notices)
        self.log_level: t.LoggingLevel | None = settings.log_level
        self._notifications = NotificationDispatcher(
            settings, cache=self.cache, tool_cache=self.tool_cache, listeners=self.listeners, callbacks=self.callbacks
        )
        self._timers: Timers | None = None
        self._opening: asyncio.Task[ClientSession] | None = None
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
        self._subscriptions: Counter[str] = Counter()
        self._subscription_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._entered = False
        self._dropped = 0

    @property
    def clock(self) -> Timers:
        """The timers that measure all timeouts of this client."""
        if self._timers is None:
            self._timers = Timers(self.settings.clock)
        return self._timers

    @property
    def dropped(self) -> int:
        """The number of messages of the server that were dropped: they matched nothing, or arrived too fast."""
        now = 0 if self.session is None else self.session.connection.peer.dropped
        return self._dropped + now + self._notifications.dropped + self.callbacks.dropped

    # --- connecting --------------------------------------------------------------------------------------------------

    async def enter(self) -> None:
        """Open the first connection; if that fails, nothing is left running."""
        if self.lifecycle.state is ClientState.TERMINATED and not self.target.can_reopen:
            raise ConnectionLost(f"{_CLOSED}, and its target cannot be opened a second time")
        try:
            await self._open_shared()
        except BaseException:
            await self._close()
            raise
        self._entered = True

    async def get_session(self) -> ClientSession:
        """Return the open session, or open one.

        Raises:
            LocalProtocolError: the client was never entered.
            LinkError: it is closed, or the server is gone and may not be restarted.
            TrunklineError: connecting failed.
        """
        if self.session is not None:
            return self.session
        if self.lifecycle.state is ClientState.TERMINATED:
            raise ConnectionLost(_CLOSED)
        if self._opening is None and not self._entered:
            raise LocalProtocolError("The client is not connected: use it inside `async with client:`.")
        if self.lifecycle.reason is not None and not self._can_reopen:
            raise self.lifecycle.reason
        return await self._open_shared()

    @property
    def _can_reopen(self) -> bool:
        # An expired session is not a dead process: the specification requires a new session.
        return self.target.can_reopen and (self.settings.restart or isinstance(self.lifecycle.reason, SessionExpired))

    async def _open_shared(self) -> ClientSession:
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._open())
            # The exception reaches every waiter; if none is left, it must not be reported as never retrieved.
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._opening)

    async def _open(self) -> ClientSession:
        """Connect within the connect timeout; the only way to the state ``active``."""
        self.lifecycle.move(ClientState.CONNECTING)
        late = False
        row: Deadline
        task = asyncio.current_task()
        assert task is not None

        def expire() -> None:
            nonlocal late, row
            if self.target.is_logging_in is not None and self.target.is_logging_in():
                # The user is logging in, which has its own timeout.
                row = self.clock.after(self.limits.connect_seconds, expire)
                return
            late = True
            task.cancel()

        row = self.clock.after(self.limits.connect_seconds, expire)
        try:
            session = await connect(
                self.target, self, settings=self.settings, timers=self.clock, remembered=self._remembered()
            )
            self._remember(session)
            self.lifecycle.move(ClientState.INITIALIZED)
            await self._restore(session)
        except asyncio.CancelledError:
            error = self._timed_out() if late else ConnectionLost(_CLOSED)
            self.lifecycle.move(ClientState.FAILED, error)
            raise error from None
        except Exception as error:
            self.lifecycle.move(ClientState.FAILED, error)
            raise
        finally:
            row.cancel()
            self._opening = None
        self.session = session
        self.lifecycle.move(ClientState.ACTIVE)
        return session

    def _timed_out(self) -> RequestTimeout:
        seconds = self.limits.connect_seconds
        message = f"{self.target.name}: not connected after {seconds:g} s{self.target.timeout_hint()}"
        return RequestTimeout(message, clock="connect", seconds=seconds)

    async def _restore(self, session: ClientSession) -> None:
        """Restore on a new connection what the server knew before a loss: the log level and the subscriptions."""
        options = CallOptions(Timeouts(self.limits.idle_seconds, self.limits.connect_seconds))
        session.set_log_level(self.log_level)
        try:
            if self.log_level is not None and "logging/setLevel" in session.allowed:
                await session.call("logging/setLevel", t.SetLevelRequestParams(level=self.log_level), options)
            for uri in list(self._subscriptions) if "resources/subscribe" in session.allowed else ():
                await session.call("resources/subscribe", t.SubscribeRequestParams(uri=uri), options)
        except RequestFailed as failure:
            log.warning("%s rejected a setting that it had accepted before: %s", self.target.name, failure)
        except BaseException:
            await session.connection.aclose()
            raise
        if session.lost is not None:
            await session.connection.aclose()
            raise session.lost

    # --- the era -----------------------------------------------------------------------------------------------------

    def _remembered(self) -> Revision | None:
        memory, fingerprint = self.settings.era_memory, self.target.fingerprint
        known, self.known = self.known, None
        self.was_known = known is not None or self.agreement is not None
        if known is not None:
            return known
        if self.agreement is not None:
            return self.agreement.revision
        found = None if memory is None or fingerprint is None else find_revision(memory.get(fingerprint, ""))
        self.was_known = found is not None
        return found

    def _remember(self, session: ClientSession) -> None:
        self.agreement = session.agreement
        self._note_era(self.known or session.revision)

    def _note_era(self, revision: Revision) -> None:
        if self.settings.era_memory is not None and self.target.fingerprint is not None:
            self.settings.era_memory[self.target.fingerprint] = revision.name

    def forget_era(self) -> None:
        """Forget the server's revision, so that the next connection probes it."""
        self.known = self.agreement = None
        if self.settings.era_memory is not None and self.target.fingerprint is not None:
            self.settings.era_memory.pop(self.target.fingerprint, None)

    # --- calls -------------------------------------------------------------------------------------------------------

    def call_options(
        self,
        timeout: float | None = None,
        total_timeout: float | None = None,
        on_progress: Callable[[ProgressNotificationParams], None] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> CallOptions:
        """Return the options of a call; those that are None are the client's."""
        if timeout is not None or total_timeout is not None:
            return CallOptions(self._timeouts(timeout, total_timeout), on_progress, meta, task_timeout=total_timeout)
        if on_progress is not None or meta is not None:
            return CallOptions(self.options.timeouts, on_progress, meta)
        return self.options

    def _timeouts(self, idle: float | None = None, total: float | None = None) -> Timeouts:
        """Return the timeouts of a request: the given ones, else the client's, else those of the limits."""
        if idle is None:
            idle = self.limits.idle_seconds if self.settings.timeout is None else self.settings.timeout
        # A caller that allows this much silence also means to wait this long in total.
        return Timeouts(idle, max(self.limits.total_seconds, idle) if total is None else total)

    def call(self, method: str, params: Any, options: CallOptions | None = None) -> Awaitable[tuple[Any, bool]]:
        """Send a request; if the connection is lost meanwhile, send it once more unless a tool may then act twice."""
        session = self.session
        if options is None:
            options = self.options
        repeat = method != "tools/call" or self.tool_cache.repeatable(params.name)
        # The fast path: with an open connection and nothing to repeat, no wrapper stands between caller and call.
        if session is not None and not repeat and not session.renews:
            return session.call(method, params, options)
        return self.with_session(lambda session: session.call(method, params, options), repeat=repeat)

    def forward(self, method: str, params: Any, options: CallOptions) -> Awaitable[tuple[Any, Raw]]:
        """Forward a request for one round on behalf of another caller; see ``ClientSession.forward``."""
        session = self.session
        if session is not None and not session.renews:
            return session.forward(method, params, options)
        return self.with_session(lambda session: session.forward(method, params, options))

    async def with_session(self, work: Callable[[ClientSession], Awaitable[T]], *, repeat: bool = False) -> T:
        """Run ``work`` with the session; once more if the session had expired, or with ``repeat`` if it was lost."""
        session = self.session or await self.get_session()
        try:
            return await work(session)
        except SessionExpired as reason:
            # Nothing was executed, so the request may be sent again whatever it was.
            if self.lifecycle.state is ClientState.TERMINATED:
                raise
            self._retire(session, reason)
        except ConnectionLost:
            if not repeat or not self._can_reopen or self.lifecycle.state is ClientState.TERMINATED:
                raise
        return await work(await self.get_session())

    async def fetch(self, method: str, params: Any, *, key: str | None) -> Any:
        """Read from the cache if fresh, else from the server; ``key`` is the parameter that matters."""
        now = self.clock.clock.now
        kept = self.cache.get(method, key, now=now())
        if kept is not None:
            return kept
        epoch = self.cache.epoch(method)
        result, asked = await self.call(method, params)
        if isinstance(result, ExtensionResult) and method != "resources/read":
            raise RemoteProtocolError(f"The server returned a list of the kind {result.kind!r}; lists have no kinds.")
        # The specification: the result of a retried round depends on answers that are not part of the key.
        if not asked and self.agreement is not None and self.agreement.revision.cache_hints:
            self.cache.put(method, key, result, epoch=epoch, now=now())
        return result

    # --- subscriptions of handshake revisions ------------------------------------------------------------------------

    async def add_subscription(self, uri: str) -> None:
        """Subscribe to a resource, or count one more subscriber."""
        # One at a time for each URI: a second subscriber may not rely on a request that is rejected or cancelled later.
        async with self._subscription_lock(uri):
            self._subscriptions[uri] += 1
            if self._subscriptions[uri] > 1:
                return
            try:
                await self.call("resources/subscribe", t.SubscribeRequestParams(uri=uri))
            except BaseException:
                self._drop_reference(uri)
                raise

    async def drop_subscription(self, uri: str) -> None:
        """Unsubscribe from a resource that has no subscribers left; a lost server need not be notified."""
        if self._drop_reference(uri):
            return
        async with self._subscription_lock(uri):
            session = self.session
            if uri in self._subscriptions or session is None or "resources/unsubscribe" not in session.allowed:
                return
            params = t.UnsubscribeRequestParams(uri=uri)
            try:
                await session.call("resources/unsubscribe", params, self.options)
            except LinkError as error:
                log.debug("not unsubscribed: %s", error)

    def _subscription_lock(self, uri: str) -> asyncio.Lock:
        """Return the lock of a URI, which exists while it is held or waited for."""
        return self._subscription_locks.setdefault(uri, asyncio.Lock())

    def _drop_reference(self, uri: str) -> bool:
        """Remove one subscriber; return True if others remain."""
        self._subscriptions[uri] -= 1
        if self._subscriptions[uri] > 0:
            return True
        del self._subscriptions[uri]
        return False

    # --- called by the session ---------------------------------------------------------------------------------------

    def notified(self, session: ClientSession, method: str, params: Raw | None) -> None:
        """Called with each notification."""
        self._notifications.dispatch(session, method, params)

    def discovered_late(self, session: ClientSession, revision: Revision) -> None:
        """Called when the server answers the era probe after the handshake was tried."""
        self.known = revision
        self._note_era(revision)
        if self.on_discovered is not None:
            self.on_discovered(revision)

    def lost(self, session: ClientSession, reason: Exception) -> None:
        """Called when a connection ended by itself; its calls have failed already."""
        if session is self.session:
            self._detach(session, reason)
            self._close_in_background(session)

    def _retire(self, session: ClientSession, reason: Exception) -> None:
        """Detach from a connection whose session expired; its other calls may still get their answers."""
        if session is self.session:
            self._detach(session, reason)
            task = asyncio.get_running_loop().create_task(self._let_finish(session))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)

    def _detach(self, session: ClientSession, reason: Exception) -> None:
        self.session = None
        self._dropped += session.connection.peer.dropped
        self.tool_cache.forget()
        self.cache.clear()
        self.lifecycle.move(ClientState.FAILED, reason)
        self.listeners.lost()

    async def _let_finish(self, session: ClientSession) -> None:
        """Close a connection once no request waits on it, or when the client is closed."""
        try:
            async with asyncio.timeout(self.limits.total_seconds):
                await session.link.wait_idle()
        except TimeoutError:
            log.debug("requests of an expired session took too long")
        finally:
            self._close_in_background(session)

    # --- closing -----------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close for good: waiting calls fail, iterators end, a server process is stopped."""
        self.lifecycle.move(ClientState.TERMINATED)
        self._entered = False
        self.listeners.end()
        await self._close()

    async def _close(self) -> None:
        opening = self._opening
        if opening is not None:
            opening.cancel()
            await asyncio.wait([opening])
        session, self.session = self.session, None
        if session is not None:
            self._dropped += session.connection.peer.dropped
            self.tool_cache.forget()
            self.cache.clear()
            self._close_in_background(session)
        for task in self._finishing:
            task.cancel()
        if self._finishing:
            await asyncio.wait(self._finishing)
        if self._closing:
            await asyncio.wait(self._closing)
        await self.callbacks.aclose()
        if self._timers is not None:
            self._timers.close()
            self._timers = None

    def _close_in_background(self, session: ClientSession) -> None:
        """Close a connection in its own task: a cancelled caller must not leave a process behind."""
        task = asyncio.get_running_loop().create_task(session.connection.aclose(ConnectionLost(_CLOSED)))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
