"""A server among several workers: it shares sessions and changes with the others through a store.

Changes are announced: the listen streams of this worker hear of them at once, those of other workers when the
announcement arrives. The sessions of handshake clients hear of every change by its announcement, also of this worker's
own, so that each hears of it once, wherever and whenever it listens. Loaded only if other processes may use the store.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.connection import Connection
from trunkline.protocol.caller import Session
from trunkline.protocol.downgrade import adapt_params
from trunkline.server.context import wants_level
from trunkline.server.dispatch import ServerConnection
from trunkline.server.http import ServerAcceptor
from trunkline.server.runtime import ServerRuntime, server_store
from trunkline.server.subscriptions import ChangeNotice, SubscriptionStream, change_notification
from trunkline.transports.http.server.shared.facts import SessionIds
from trunkline.transports.http.server.shared.worker import SharedWorker
from trunkline.transports.link import AcceptedConnection, Link

if TYPE_CHECKING:
    from trunkline.auth.verifiers import ServerAuth
    from trunkline.server.server import Server
    from trunkline.store.server_store import ServerStore
    from trunkline.types.json_values import JsonInput

__all__ = ["SharedServerAcceptor", "make_worker"]

_PURPOSE = b"\x03"
#: The lists that may have changed if announcements are missing.
_LISTS = ("tools", "prompts", "resources")


class _Announcement(Struct, frozen=True, array_like=True):
    """What has changed, or a custom notification to every handshake client."""

    notices: tuple[ChangeNotice, ...] = ()
    method: str = ""
    params: bytes = b""


def make_worker(server: Server) -> SharedWorker:
    """Return the worker of a server that shares sessions through its store.

    Raises:
        ConfigError: the store cannot be opened, or needs a key that is not configured.
    """
    state = server_store(server)
    state.check()
    store = state.store
    return SharedWorker(
        store,
        SessionIds(state.seal_for(_PURPOSE), now=time.time, random=os.urandom),
        now=time.time,
        random=os.urandom,
        connect=lambda: state.connect(store),
        close=lambda: state.close(store),
    )


def _share(server: Server, auth: object) -> None:
    """Let the authentication of a server keep what several workers need in their store."""
    for part in (auth, getattr(auth, "binding", None)):
        share: Callable[[ServerStore], None] | None = getattr(part, "_share", None)
        if share is not None:
            share(server_store(server))


class SharedServerAcceptor(ServerAcceptor):
    """Accepts the links of an endpoint whose sessions several workers share."""

    __slots__ = ("_auth", "_relay", "_worker", "on_start")

    def __init__(self, server: Server, worker: SharedWorker, auth: ServerAuth | None = None) -> None:
        """Create the acceptor of a worker; ``auth`` is what authenticates its callers."""
        super().__init__(server)
        self._worker = worker
        self._auth = auth
        _share(server, auth)
        self._relay: _Relay | None = None
        #: Called with the first link.
        self.on_start: Callable[[], None] = lambda: None

    def resume(self, link: Link, session: Session, prefix: str) -> Connection:
        """Serve the standing link of a session that any worker may have opened."""
        self._acquire()
        service = _SharedSessionConnection(self._runtime, session)
        return self._runtime.accept(link, service, prefix=prefix, create_task=self._create_task)

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
            for notice in msgspec.msgpack.decode(body, type=_Announcement).notices:
                hub.deliver_change(notice)

    def notify(self, connection: AcceptedConnection, announcement: bytes | None) -> None:
        """Send one session the notices of an announcement."""
        service = getattr(connection, "service", None)
        if isinstance(service, _SharedSessionConnection) and isinstance(connection, Connection):
            service.send_notices(announcement)
            connection.flush()

    async def release(self) -> None:
        """Release the lifespans."""
        hub = self.runtime().hub
        if hub.relay is self._relay:
            hub.relay = None
        self._relay = None
        await super().release()

    def _acquire(self) -> None:
        if not self._held:
            self._attach_relay()
            self.on_start()
        super()._acquire()

    def start(self) -> None:
        """Announce changes and take over tasks from now on; needs a running event loop."""
        self._attach_relay()
        if (tasks := self.runtime().tasks) is not None:
            tasks.start()

    async def leave(self) -> None:
        """Hand the running tasks over to other workers."""
        if (tasks := self.runtime().tasks) is not None:
            await tasks.leave()

    def _attach_relay(self) -> None:
        if self._relay is None:
            self._relay = _Relay(self._worker, asyncio.get_running_loop())
        self.runtime().hub.relay = self._relay


class _Relay:
    """Announces the changes of one iteration of the event loop together."""

    __slots__ = ("_loop", "_pending", "_worker")

    def __init__(self, worker: SharedWorker, loop: asyncio.AbstractEventLoop) -> None:
        self._worker = worker
        self._loop = loop
        self._pending: dict[ChangeNotice, None] = {}

    def change(self, notice: ChangeNotice) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._add, notice)

    def notification(self, method: str, params: object) -> None:
        self._worker.announce(msgspec.msgpack.encode(_Announcement((), method, msgspec.json.encode(params))))

    def _add(self, notice: ChangeNotice) -> None:
        if not self._pending:
            self._loop.call_soon(self._announce)
        self._pending[notice] = None

    def _announce(self) -> None:
        pending, self._pending = self._pending, {}
        self._worker.announce(msgspec.msgpack.encode(_Announcement(tuple(pending))))


class _SharedSessionConnection(ServerConnection):
    """The service of a shared session's standing connection."""

    __slots__ = ()

    def __init__(self, runtime: ServerRuntime, session: Session) -> None:
        super().__init__(runtime, session)
        self._declared = tuple(runtime.table.capabilities(session.revision))
        runtime.hub.attach(self)

    def notify_change(self, notice: ChangeNotice) -> None:
        """Do nothing: a shared session hears of changes by their announcements."""

    def notify(self, method: str, params: Struct | Mapping[str, object] | None) -> None:
        """Do nothing: custom notifications to all clients are announced too."""

    def notify_session(self, method: str, params: Struct | Mapping[str, object] | None) -> None:
        """Send only this client a notification, wherever it listens."""
        if self.session is not None and self.session.initialized and self.connection is not None:
            self.connection.notify(method, params)

    def send_notices(self, announcement: bytes | None) -> None:
        """Send the client what was announced; None if that is not known, and anything may have changed."""
        if announcement is None:
            for notice in [*((kind, None) for kind in _LISTS), *(("resource", uri) for uri in sorted(self.uris))]:
                super().notify_change(notice)
            return
        found = msgspec.msgpack.decode(announcement, type=_Announcement)
        for notice in found.notices:
            super().notify_change(notice)
        if found.method:
            self._custom(found.method, msgspec.json.decode(found.params))

    def _custom(self, method: str, params: Any) -> None:
        from trunkline.server.extension_methods import may_notify

        if self.session is not None and may_notify(self.server, self.session.caller, method):
            super().notify(method, params)

    def resource_updated(self, uri: str) -> None:
        """Notify the session of a changed resource, wherever it listens."""
        if uri in self.uris and self.connection is not None:
            self.connection.notify(*change_notification(("resource", uri), None))

    def log(self, level: t.LoggingLevel, message: JsonInput, *, logger_name: str | None = None) -> None:
        """Send the session a log message outside of any request, wherever it listens."""
        session = self.session
        if session is not None and wants_level(session.log_level, level) and self.connection is not None:
            params = t.LoggingMessageNotificationParams(level=level, logger=logger_name, data=message)
            self.connection.notify("notifications/message", adapt_params(params, session.revision))
