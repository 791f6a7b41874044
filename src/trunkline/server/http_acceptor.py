"""A server behind an HTTP endpoint: who serves its links, and how its sessions hear of changes.

Changes are announced in a log of the store, once for each turn of the event loop, whatever the number of sessions and
workers. The listen streams of this worker hear of its changes at once, those of other workers when the announcement
arrives. The sessions of handshake clients hear of every change by its announcement, also of this worker's own, so that
each hears of it wherever and whenever it listens.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from trunkline.connection import Connection
from trunkline.protocol.caller import Session
from trunkline.protocol.request_validation import ValidatedRequest
from trunkline.server.dispatch import ServerConnection
from trunkline.server.runtime import ServerRuntime, has_shared_store, runtime_for, server_store
from trunkline.server.subscriptions import ChangeNotice, SubscriptionStream
from trunkline.service import TaskFactory, task_factory
from trunkline.store.server_store import ServerStore
from trunkline.timers import Timers
from trunkline.transports.http.server.sessions.facts import SessionIds
from trunkline.transports.http.server.sessions.worker import SessionWorker
from trunkline.transports.link import AcceptedConnection, Link

if TYPE_CHECKING:
    from trunkline.auth.verifiers import ServerAuth
    from trunkline.server.server import Server

__all__ = ["ServerAcceptor", "make_worker"]

log = logging.getLogger("trunkline")

_PURPOSE = b"\x03"
#: The lists that may have changed if announcements are missing.
_LISTS = ("tools", "prompts", "resources")


class _Announcement(Struct, frozen=True, array_like=True):
    """What has changed, or a custom notification to every handshake client."""

    notices: tuple[ChangeNotice, ...] = ()
    method: str = ""
    params: bytes = b""


_decoder = msgspec.msgpack.Decoder(_Announcement)


def _read_announcement(body: bytes) -> _Announcement | None:
    """Return an announcement; None for one that a worker of another version made: anything may have changed."""
    try:
        return _decoder.decode(body)
    except msgspec.DecodeError:
        log.warning("an announcement of another worker cannot be read; all lists count as changed")
        return None


def make_worker(server: Server, *, shares_sessions: bool) -> SessionWorker:
    """Return the worker that serves the sessions of a server.

    With ``shares_sessions`` they are in its store if other processes may use that, and so serve the next request;
    otherwise they are in memory of their own, which only this endpoint uses.

    Raises:
        ConfigError: the store cannot be opened, or needs a key that is not configured.
    """
    is_alone = not (shares_sessions and has_shared_store(server))
    state = ServerStore(name=server.name) if is_alone else server_store(server)
    state.check()
    store = state.store

    async def close() -> None:
        if state.is_shared:
            await state.close(store)

    return SessionWorker(
        store,
        SessionIds(state.seal_for(_PURPOSE), now=time.time, random=os.urandom),
        now=time.time,
        random=os.urandom,
        connect=lambda: state.connect(store),
        close=close,
        is_alone=is_alone,
    )


def _share(server: Server, auth: object) -> None:
    """Let the authentication of a server keep what several workers need in their store."""
    for part in (auth, getattr(auth, "binding", None)):
        share: Callable[[ServerStore], None] | None = getattr(part, "_share", None)
        if share is not None:
            share(server_store(server))


class ServerAcceptor:
    """Accepts the links of an endpoint on behalf of a server."""

    __slots__ = ("_create_task", "_held", "_relay", "_runtime", "_server", "_timers", "_worker", "on_start")

    def __init__(self, server: Server, worker: SessionWorker, auth: ServerAuth | None = None) -> None:
        """Create the acceptor of a worker; lifespans are acquired with the first link.

        ``auth`` is what authenticates the callers.
        """
        self._server = server
        self._worker = worker
        if not worker.is_alone:
            _share(server, auth)
        self._relay: _Relay | None = None
        self._held = False
        #: Serves the links: that of the event loop of the first one, until ``release``.
        self._runtime: ServerRuntime = None  # type: ignore[assignment]
        self._timers: Timers | None = None
        self._create_task: TaskFactory | None = None
        #: Called with the first link.
        self.on_start: Callable[[], None] = lambda: None

    # --- links -------------------------------------------------------------------------------------------------------

    def accept(self, link: Link) -> Connection:
        """Start serving a link that lasts for several requests."""
        self._acquire()
        return self._runtime.accept(link, create_task=self._create_task)

    def accept_one(
        self, link: Link, session: Session | None, prefix: str, create_task: TaskFactory | None
    ) -> Connection:
        """Start serving a link that delivers one message; it uses the lifespans of this acceptor."""
        if not self._held:
            self._acquire()
        runtime = self._runtime
        connection = Connection(
            link,
            _SingleRequestConnection(runtime, session),
            limits=runtime.limits,
            timers=self._timers,  # type: ignore[arg-type]
            prefix=prefix,
            create_task=create_task or self._create_task,
        )
        connection.holder = self
        link.attach(connection)
        return connection

    def resume(self, link: Link, session: Session, prefix: str) -> Connection:
        """Serve the standing link of a session that any worker may have opened."""
        self._acquire()
        service = _SessionConnection(self._runtime, session)
        return self._runtime.accept(link, service, prefix=prefix, create_task=self._create_task)

    # --- changes -----------------------------------------------------------------------------------------------------

    def announced(self, announcements: list[bytes] | None) -> None:
        """Deliver announcements of other workers to the listen streams of this one."""
        hub = self.runtime().hub
        if announcements is None:
            for kind in _LISTS:
                hub.deliver_change((kind, None))
            for listener in hub.listeners():
                if isinstance(listener, SubscriptionStream):
                    for uri in sorted(listener.uris):
                        listener.resource_updated(uri)
        for body in announcements or ():
            announced = _read_announcement(body)
            if announced is None:
                self.announced(None)
                continue
            for notice in announced.notices:
                hub.deliver_change(notice)

    def notify(self, connection: AcceptedConnection, announcement: bytes | None) -> bool:
        """Send one session the notices of an announcement; None if some are missing, and anything may have changed.

        Return whether they may be repeated, since they say only that something has changed.
        """
        assert isinstance(connection, Connection)
        assert isinstance(connection.service, _SessionConnection)
        announced = None if announcement is None else _read_announcement(announcement)
        connection.service.send_announcement(announced)
        connection.flush()
        return announced is None or not announced.method

    # --- life --------------------------------------------------------------------------------------------------------

    def runtime(self) -> ServerRuntime:
        """Return the runtime of the running event loop, which is kept from now on."""
        self._runtime = runtime_for(self._server)
        return self._runtime

    def start(self) -> None:
        """Announce changes and take over tasks from now on; needs a running event loop."""
        self._attach_relay()
        if (tasks := self.runtime().tasks) is not None:
            tasks.start()

    def end_subscriptions(self) -> None:
        """End all subscriptions with a result; called when the endpoint begins to stop."""
        self.runtime().begin_drain()

    async def drain(self, seconds: float) -> None:
        """Wait, with a timeout, for running tasks that would end with the process."""
        await self.runtime().drain(seconds)

    async def leave(self) -> None:
        """Hand the running tasks over to other workers."""
        if not self._worker.is_alone and (tasks := self.runtime().tasks) is not None:
            await tasks.leave()

    async def release(self) -> None:
        """Release the lifespans."""
        runtime, self._held, self._runtime = self._runtime, False, None  # type: ignore[assignment]
        if runtime is not None:
            runtime.hub.remove_relay(self._relay)
            await runtime.held.release(self)
        self._relay = None

    def _acquire(self) -> None:
        if not self._held:
            self._attach_relay()
            self.on_start()
            self._server._check_apps()
            runtime = self.runtime()
            runtime.find_telemetry()
            self._held = True
            self._timers = runtime.timers
            self._create_task = task_factory(runtime.loop)
            runtime.hold(self)

    def _attach_relay(self) -> None:
        runtime = self.runtime()
        if self._relay is None or self._relay.loop is not runtime.loop:
            self._relay = _Relay(self._worker, runtime.loop)
        runtime.hub.add_relay(self._relay)


class _Relay:
    """Announces the changes of one turn of the event loop together."""

    __slots__ = ("_pending", "_worker", "log", "loop")

    def __init__(self, worker: SessionWorker, loop: asyncio.AbstractEventLoop) -> None:
        self._worker = worker
        self.loop = loop
        #: Names the log of announcements: that of a store which other workers read has the name of the server.
        self.log: object = worker if worker.is_alone else "shared"
        self._pending: dict[ChangeNotice, None] = {}

    def change(self, notice: ChangeNotice) -> None:
        if asyncio._get_running_loop() is self.loop:
            self._add(notice)
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._add, notice)

    def notification(self, method: str, params: object) -> None:
        try:
            encoded = msgspec.json.encode(params)
        except Exception:
            # As on a connection: what cannot be encoded is logged, and affects no other notification.
            log.exception("the notification %s cannot be encoded", method)
            return
        self._worker.announce(msgspec.msgpack.encode(_Announcement((), method, encoded)))

    def _add(self, notice: ChangeNotice) -> None:
        if not self._pending:
            self.loop.call_soon(self.flush)
        self._pending[notice] = None

    def flush(self) -> None:
        pending, self._pending = self._pending, {}
        if pending:
            self._worker.announce(msgspec.msgpack.encode(_Announcement(tuple(pending))))


class _SingleRequestConnection(ServerConnection):
    """The service of a connection for one message, which is not notified of later changes."""

    __slots__ = ()

    def _open(self, admitted: ValidatedRequest) -> None:
        self.session = admitted.caller.session


class _SessionConnection(ServerConnection):
    """The service of a session's standing connection: it hears of changes by their announcements."""

    __slots__ = ()

    hears_announcements = True

    def __init__(self, runtime: ServerRuntime, session: Session) -> None:
        super().__init__(runtime, session)
        self._declared = tuple(runtime.table.capabilities(session.revision))
        runtime.hub.attach(self)

    def notify_change(self, notice: ChangeNotice) -> None:
        """Do nothing: the announcement of the change follows."""

    def send_announcement(self, announced: _Announcement | None) -> None:
        """Send the client what was announced; None if that is not known, and anything may have changed."""
        if announced is None:
            for notice in [*((kind, None) for kind in _LISTS), *(("resource", uri) for uri in sorted(self.uris))]:
                self.send_notice(notice)
            return
        for notice in announced.notices:
            if self.runtime.hub.hears(self, notice):
                self.send_notice(notice)
        if announced.method:
            self._custom(announced.method, msgspec.json.decode(announced.params))

    def _custom(self, method: str, params: Any) -> None:
        from trunkline.server.extension_methods import may_notify

        if self.session is not None and may_notify(self.server, self.session.caller, method):
            self.notify(method, params)
