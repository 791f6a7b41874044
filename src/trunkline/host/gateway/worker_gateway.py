"""The gateway in one of several workers: what belongs to a client is the same at all of them.

The taint of a handshake session and the answers given for it are kept in the store: loaded before each request of
the session, and saved before its result leaves, so that the next request finds them whichever worker it reaches. An
answer for so many uses is counted there at each use.
Changed lists are announced once, when every worker has them: each worker reports them to the broker. Calls per minute
are counted in the store; concurrent calls are counted by each worker.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import StoreUnavailable
from trunkline.host.authorization.grants import Grant
from trunkline.host.gateway.gateway import Gateway
from trunkline.host.requester import Requester
from trunkline.host.session import HostSession
from trunkline.host.upstreams.broker.messages import ListsChanged
from trunkline.host.upstreams.broker.worker import BrokerConnection
from trunkline.protocol.caller import Caller, Session
from trunkline.server.handlers import session_of
from trunkline.server.subscriptions import ChangeListener
from trunkline.store.interface import Store

__all__ = ["SharedSession", "WorkerGateway"]

T = TypeVar("T")
#: A session lasts a day at most; see the facts of shared sessions.
_SECONDS = 24 * 3600.0
_ATTEMPTS = 20  # How often a change is tried again when another worker changed the session at the same time.


class _SessionState(Struct, frozen=True, array_like=True):
    """What all workers know of a session."""

    taint: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    log_level: t.LoggingLevel | None = None


class WorkerGateway(Gateway):
    """A gateway among several workers."""

    broker: BrokerConnection | None = None
    store: Store | None = None

    def __init__(self, *given: Any, **options: Any) -> None:
        """Serve a host; see ``Gateway``."""
        self._subscribing: set[asyncio.Task[None]] = set()
        super().__init__(*given, **options)

    def share(self, broker: BrokerConnection, store: Store) -> None:
        """Share sessions and changes with the other workers."""
        self.broker = broker
        self.store = store
        self.sessions.is_shared = True
        broker.announcers[self.name] = self._announce
        self.hub.is_shared = True
        self.hub.on_join = self._joined

    async def aclose(self) -> None:
        """Stop serving."""
        if self.broker is not None:
            self.broker.announcers.pop(self.name, None)
        await super().aclose()
        if self.store is not None:
            await self.store.aclose()

    # --- changes -----------------------------------------------------------------------------------------------------

    def _catalog_changed(self, kinds: tuple[str, ...]) -> None:
        self._refresh_registry()
        if self.broker is not None:
            self.broker.tell(ListsChanged(gateway=self.name, kinds=kinds))
        self.subscriptions.follow_soon()

    def _announce(self, kinds: tuple[str, ...]) -> None:
        for kind in kinds:
            self.hub.notify_change((kind, None))

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def _run_for(self, exchange: Exchange, server: str, work: Callable[[Requester], Awaitable[T]]) -> T:
        caller: Caller = exchange.admitted.caller
        session = self.sessions.session(exchange)
        if self.options.per_minute is not None:
            await self._admit(session)
        if caller.session is None or self.store is None:
            return await super()._run_for(exchange, server, work)
        shared = self._shared(session)
        await shared.load()
        self._follow_resources(caller.session)
        try:
            return await super()._run_for(exchange, server, work)
        finally:
            await shared.save()

    async def _sets_level(self, exchange: Exchange, params: t.SetLevelRequestParams) -> Any:
        session, own = self.sessions.session(exchange), session_of(exchange)
        if own.store is None or self.store is None:
            return await super()._sets_level(exchange, params)
        shared = self._shared(session)
        await shared.load()
        await own.store.set_log_level(params.level)
        session.log_level = params.level
        await shared.save()
        await self.subscriptions.refresh(own)
        return t.EmptyResult()

    def _joined(self, listener: ChangeListener) -> None:
        """Called when a client begins to listen at this worker."""
        session = getattr(listener, "session", None)
        if session is not None:
            self._follow_resources(session)

    def _follow_resources(self, session: Session) -> None:
        """Subscribe at the servers to what a session subscribed to at another worker, which may have ended."""
        if session.subscriptions and not self.subscriptions.has(session) and self.store is not None:
            caller = session.caller
            work = self.subscriptions.subscribe(
                session, self.sessions.of_caller(caller), caller, uris=lambda: session.subscriptions, added=()
            )
            task = asyncio.get_running_loop().create_task(work)
            self._subscribing.add(task)
            task.add_done_callback(self._subscribing.discard)

    async def _admit(self, session: HostSession) -> None:
        """Count a call against the limit of its caller, for all workers; if the store is away, for this one alone.

        Raises:
            TooManyRequests: the caller made too many calls in the last minute.
        """
        budget, per_minute = session.budget, self.options.per_minute
        assert per_minute is not None
        assert self.store is not None
        principal = None if session.principal is None else session.principal.identity
        who = session.shared_key if principal is None else _digest([self.options.profile, principal])
        try:
            wait = await self.store.admit(f"rate:{who}", rate=per_minute / 60, burst=max(1, int(per_minute)))
        except StoreUnavailable:
            budget.counted_elsewhere = False
            return
        budget.counted_elsewhere = True
        if wait > 0:
            raise budget.too_many(wait)

    def _shared(self, session: HostSession) -> SharedSession:
        shared: SharedSession | None = session.shared
        if shared is None:
            assert self.store is not None
            shared = session.shared = SharedSession(session, self.store)
            session.grants.count_use = shared.count_use
        return shared


class SharedSession:
    """What all workers know of a session: a value in the store that is changed only by compare-and-set.

    Several requests of the session may run at this worker at once. What each of them adds is merged with what other
    workers have saved.
    """

    def __init__(self, session: HostSession, store: Store) -> None:
        """Share a session; nothing is loaded yet."""
        self._session = session
        self._store = store
        self._key = f"host-session:{session.shared_key}"
        #: The value as it was last read or written.
        self._stored: bytes | None = None
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Load what other workers know.

        Raises:
            StoreUnavailable: it cannot be loaded: the session might be tainted.
        """
        async with self._lock:
            await self._read()

    async def save(self) -> None:
        """Save what was added here, unless nothing was; changes of other workers meanwhile are kept.

        Raises:
            StoreUnavailable: it cannot be saved.
        """
        async with self._lock:
            for _ in range(_ATTEMPTS):
                own = _state_of(self._session)
                if own == _decoded(self._stored) or await self._write(own, own):
                    return
                await self._read()
        raise _too_many_changes()

    async def count_use(self, grant: Grant) -> bool:
        """Use a grant once, for all workers; return False if it is used up or revoked.

        Raises:
            StoreUnavailable: it is unknown now whether a use is left.
        """
        async with self._lock:
            for _ in range(_ATTEMPTS):
                await self._read()
                own = _state_of(self._session)
                grants = {each.id: each for each in own.grants}
                kept = grants.get(grant.id)
                if kept is None or kept.uses == 0:
                    return False
                if kept.uses is not None:
                    grants[grant.id] = replace(kept, uses=kept.uses - 1)
                if await self._write(own, replace(own, grants=tuple(grants.values()))):
                    return True
        raise _too_many_changes()

    async def _read(self) -> None:
        found = await self._store.get(self._key)
        before, self._stored = _decoded(self._stored), found
        self._apply(before, _decoded(found))

    async def _write(self, own: _SessionState, after: _SessionState) -> bool:
        """Replace the stored value; ``own`` is the state of the session that ``after`` was made from."""
        data = msgspec.msgpack.encode(after)
        if self._stored is None:
            saved = await self._store.put(self._key, data, ttl=_SECONDS, only_if_absent=True)
        else:
            saved = await self._store.replace(self._key, self._stored, data, ttl=_SECONDS)
        if saved:
            self._stored = data
            # A request may have changed the session meanwhile.
            self._apply(own, after)
        return saved

    def _apply(self, before: _SessionState, latest: _SessionState) -> None:
        session = self._session
        merged = _merged(before, _state_of(session), latest)
        session.taint.sources |= frozenset(merged.taint)
        session.grants.replace(merged.grants)
        session.log_level = merged.log_level


def _too_many_changes() -> StoreUnavailable:
    return StoreUnavailable("too many workers change one session at the same time; try again")


def _decoded(found: bytes | None) -> _SessionState:
    return _SessionState() if found is None else msgspec.msgpack.decode(found, type=_SessionState)


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


def _state_of(session: HostSession) -> _SessionState:
    grants = sorted(session.grants.all(), key=lambda each: each.id)
    return _SessionState(tuple(sorted(session.taint.sources)), tuple(grants), session.log_level)


def _merged(before: _SessionState, own: _SessionState, latest: _SessionState) -> _SessionState:
    """Apply our changes to what other workers have saved since; a grant that one side has revoked is gone."""
    old, new = {each.id: each for each in before.grants}, {each.id: each for each in own.grants}
    grants = {each.id: each for each in latest.grants if each.id in new or each.id not in old}
    grants |= {id: each for id, each in new.items() if id not in old and id not in grants}
    level = own.log_level if own.log_level != before.log_level else latest.log_level
    ordered = tuple(grants[id] for id in sorted(grants))
    return _SessionState(tuple(sorted({*latest.taint, *own.taint})), ordered, level)
