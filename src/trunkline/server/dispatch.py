"""One connection of a server.

Requests are validated in the order they arrive, then run through the middleware and the handler, and the result is
fitted to the caller's revision. The same path serves every method, revision and transport. A session, where the
client opened one, belongs to the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Container, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Connection, ErrorReply, Exchange
from trunkline.errors import HandlerError, MethodNotFound, MissingCapability, RequestFailed
from trunkline.protocol.caller import Origin, Session
from trunkline.protocol.downgrade import adapt_params, adapt_result
from trunkline.protocol.peer import NotificationReceived
from trunkline.protocol.request_validation import RejectedRequest, ValidatedRequest, validate_request
from trunkline.protocol.revisions import Feature
from trunkline.server.context import Context, wants_level
from trunkline.server.handler_functions import find_caller_error
from trunkline.server.subscriptions import ChangeNotice, change_notification
from trunkline.types import RequestParams

__all__ = ["CallNext", "Middleware", "ServerConnection", "ServerRequest", "dispatch", "wrap_middleware"]


class ServerRequest(Struct, frozen=True):
    """A request on its way through middleware: the method, its typed params, and the context of its handler."""

    method: str
    params: Any
    context: Context

    @property
    def round(self) -> int:
        """How often the caller has been asked before in this call: middleware runs in each round."""
        return self.context.round

    def with_params(self, params: RequestParams) -> ServerRequest:
        """Give the same request with other params."""
        return replace(self, params=params)


CallNext = Callable[[ServerRequest], Awaitable[Any]]
Middleware = Callable[[ServerRequest, CallNext], Awaitable[Any]]


def wrap_middleware(middleware: Sequence[Middleware], last: CallNext) -> CallNext:
    """Nest functions around a last one, the first given outermost."""
    for each in reversed(middleware):
        last = _around(each, last)
    return last


def _around(outer: Middleware, inner: CallNext) -> CallNext:
    async def call(request: ServerRequest) -> Any:
        return await outer(request, inner)

    return call


if TYPE_CHECKING:
    from trunkline.server.server import Server
    from trunkline.types.json_values import JsonInput


log = logging.getLogger("trunkline")


class ServerConnection:
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
        self.stopping: bool = False

    # --- what the connection asks ------------------------------------------------------------------------------------

    def request_received(self, exchange: Exchange, origin: Origin) -> Coroutine[Any, Any, Any] | ErrorReply:
        """Admit a request and give the work that answers it."""
        if self.stopping and exchange.method != "ping":
            # As over HTTP: it is no fault of the request, but no code is made for this.
            return ErrorReply(-32600, "The server is stopping")
        admitted = validate_request(exchange, self.session, origin, self._offer)
        if isinstance(admitted, RejectedRequest):
            return ErrorReply(admitted.code, admitted.message, admitted.data)
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

    def notify_change(self, notice: ChangeNotice) -> None:
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
        connection.notify(*change_notification(notice, None))

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
            self.notify("notifications/message", adapt_params(params, session.revision))

    def end(self, reason: str) -> None:
        """Nothing to end: a session has no stream of its own here."""

    def _open(self, admitted: ValidatedRequest) -> None:
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
    route = server.handlers[exchange.method]
    try:
        if server.calls_directly:
            result = await route(exchange, params)
        else:
            result = await server.call_in_middleware(exchange, params, route)
    except asyncio.CancelledError:
        if not _awaits_input(exchange):
            raise
        # The cancellation was ours: the handler has been left so that its questions can go out.
        assert exchange.task is not None
        exchange.task.uncancel()
        assert exchange.questions is not None
        result = exchange.questions.input_required()
    except (HandlerError, MissingCapability, ExceptionGroup) as error:
        refusal = _error_for_caller(error, admitted)
        if refusal is error:
            raise
        raise refusal from error
    else:
        if exchange.questions is not None and _awaits_input(exchange):
            log.warning("a handler of %s swallowed its cancellation; its result is dropped", exchange.method)
            result = exchange.questions.input_required()
    return adapt_result(result, admitted.caller.revision, server_info=server.stamp)


def _error_for_caller(error: Exception, admitted: ValidatedRequest) -> Exception:
    """Give what answers a failure that was meant for the caller; anything else is given back."""
    if isinstance(error, ExceptionGroup):
        error = find_caller_error(error) or error
    if isinstance(error, HandlerError) or (isinstance(error, MissingCapability) and admitted.caller.revision.handshake):
        return RequestFailed(str(error))
    return error


def _awaits_input(exchange: Exchange) -> bool:
    """Tell whether the handler was left for its questions; one that ends before that needs no answers."""
    return exchange.questions is not None and exchange.questions.left and exchange.open
