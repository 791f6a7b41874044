"""One connection of a server: admission in receive order, then middleware, the handler, and the result's shape.

The same line for every method, revision and transport. A session, where the client made one, lives here: it is the
connection's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Container, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

import trunkline.types as t
from trunkline.connection import Connection, Exchange, Refusal
from trunkline.errors import HandlerError, MethodNotFound, MissingCapability, RequestFailed
from trunkline.protocol.admission import Admitted, Rejected, admit
from trunkline.protocol.caller import Origin, Session
from trunkline.protocol.events import NotificationReceived
from trunkline.protocol.revisions import Feature
from trunkline.protocol.shaping import shape, shape_params
from trunkline.server.context import wants_level
from trunkline.server.functions import meant_for_caller
from trunkline.server.subscriptions import Notice, message

if TYPE_CHECKING:
    from trunkline.server.server import Server
    from trunkline.types.json_values import JsonInput

__all__ = ["ServedConnection", "dispatch"]

log = logging.getLogger("trunkline")


class ServedConnection:
    """What a server is to one connection."""

    __slots__ = ("__weakref__", "_declared", "_offer", "_server", "connection", "session", "stopping")

    def __init__(self, server: Server, session: Session | None = None) -> None:
        """Serve whatever the connection brings, within a session that another one opened, if given."""
        self._server = server
        self._offer = server.offer
        self._declared: Container[str] = ()
        self.session = session
        self.connection: Connection | None = None
        #: New requests are refused, but for pings; what runs is still answered.
        self.stopping = False

    # --- what the connection asks ------------------------------------------------------------------------------------

    def request_received(self, exchange: Exchange, origin: Origin) -> Coroutine[Any, Any, Any] | Refusal:
        """Admit a request and give the work that answers it."""
        if self.stopping and exchange.method != "ping":
            # As over HTTP: it is no fault of the request, but no code is made for this.
            return Refusal(-32600, "The server is stopping")
        admitted = admit(exchange, self.session, origin, self._offer)
        if isinstance(admitted, Rejected):
            return Refusal(admitted.code, admitted.message, admitted.data)
        exchange.admitted = admitted
        if exchange.method == "initialize":
            self._open(admitted)
        return dispatch(self._server, exchange)

    def notification_received(self, event: NotificationReceived, origin: Origin) -> None:
        """Take a one-way message; what nobody knows is ignored."""
        if event.method == "notifications/initialized":
            if self.session is not None:
                self.session.ready()
            return
        self._server.notification_received(event, origin, self.session)

    def accepts_batches(self) -> bool:
        """Tell whether the session's revision has batches."""
        return self.session is not None and Feature.BATCHES in self.session.revision.features

    def input_ended(self) -> None:
        """End the streams of this connection: nobody can cancel them any more."""
        exchanges = {} if self.connection is None else self.connection.exchanges
        for exchange in tuple(exchanges.values()):
            if hasattr(exchange, "admitted") and exchange.admitted.row.stream and exchange.task is not None:
                exchange.task.cancel()
        self._server.hub.detach(self)

    # --- what the hub tells ------------------------------------------------------------------------------------------

    def notify_change(self, notice: Notice) -> None:
        """Tell a handshake client of a change, once it has said that it is ready."""
        session, connection = self.session, self.connection
        if session is None or connection is None or not session.initialized:
            return
        kind, uri = notice
        if kind == "resource" and uri not in session.subscriptions:
            return
        if kind != "resource" and kind not in self._declared:
            # 2025-11-25, basic/lifecycle: only capabilities that were negotiated are used.
            return
        connection.notify(*message(notice, None))

    def notify(self, method: str, params: Struct | Mapping[str, object] | None) -> None:
        """Send a handshake client a notification of the server's own, once it has said that it is ready."""
        if self.session is not None and self.session.initialized and self.connection is not None:
            self.connection.notify(method, params)

    # --- as a subscriber ---------------------------------------------------------------------------------------------

    @property
    def uris(self) -> Collection[str]:
        """The resources whose changes the session wants to be told of."""
        return () if self.session is None else self.session.subscriptions

    def resource_updated(self, uri: str) -> None:
        """Tell the session of a resource's change, if it wants to know."""
        self.notify_change(("resource", uri))

    def log(self, level: t.LoggingLevel, message: JsonInput, *, logger_name: str | None = None) -> None:
        """Send the session a log message outside of any request, if it wants that level."""
        session = self.session
        if session is not None and wants_level(session.log_level, level):
            params = t.LoggingMessageNotificationParams(level=level, logger=logger_name, data=message)
            self.notify("notifications/message", shape_params(params, session.revision))

    def end(self, reason: str) -> None:
        """Nothing to end: a session has no stream of its own here."""

    def _open(self, admitted: Admitted) -> None:
        self.session = admitted.caller.session
        self._declared = tuple(self._server.capabilities(admitted.caller.revision))
        self._server.hub.attach(self)


async def dispatch(server: Server, exchange: Exchange) -> Any:
    """Serve one admitted request: its result, in the shape of its revision."""
    admitted = exchange.admitted
    params = admitted.params
    if admitted.row.capability in server.undeclared:
        raise MethodNotFound(
            f"Method not found: {exchange.method} (this server did not declare {admitted.row.capability})",
            data={"method": exchange.method},
        )
    if admitted.row.input_required and (params.request_state is not None or params.input_responses):
        server.resume(exchange)
    route = server.routes[exchange.method]
    try:
        if server.plain:
            result = await route(exchange, params)
        else:
            result = await server.around(exchange, params, route)
    except asyncio.CancelledError:
        if not _asked(exchange):
            raise
        # The cancellation was ours: the handler has been left so that its questions can go out.
        assert exchange.task is not None
        exchange.task.uncancel()
        assert exchange.questions is not None
        result = exchange.questions.input_required()
    except (HandlerError, MissingCapability, ExceptionGroup) as error:
        refusal = _refusal(error, admitted)
        if refusal is error:
            raise
        raise refusal from error
    else:
        if exchange.questions is not None and _asked(exchange):
            log.warning("a handler of %s swallowed its cancellation; its result is dropped", exchange.method)
            result = exchange.questions.input_required()
    return shape(result, admitted.caller.revision, server_info=server.stamp)


def _refusal(error: Exception, admitted: Admitted) -> Exception:
    """Give what answers a failure that was meant for the caller; anything else is given back."""
    if isinstance(error, ExceptionGroup):
        error = meant_for_caller(error) or error
    if isinstance(error, HandlerError) or (isinstance(error, MissingCapability) and admitted.caller.revision.handshake):
        return RequestFailed(str(error))
    return error


def _asked(exchange: Exchange) -> bool:
    """Tell whether the handler was left for its questions; one that ends before that needs no answers."""
    return exchange.questions is not None and exchange.questions.left and exchange.open
