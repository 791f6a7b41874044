"""One connection of a server.

Requests are validated in the order in which they arrive, then pass through the middleware and the handler, and the
result is adapted to the caller's revision. The same path serves every method, revision and transport. A session that
the client has opened belongs to the connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Container, Coroutine, Mapping, Sequence
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Connection, Exchange
from trunkline.errors import (
    HandlerError,
    InternalError,
    InvalidHandle,
    InvalidParams,
    MethodNotFound,
    MissingCapability,
    RequestFailed,
    ToolError,
)
from trunkline.protocol.caller import Caller, Origin, Session
from trunkline.protocol.downgrade import adapt_params, adapt_result
from trunkline.protocol.methods import capability_needed
from trunkline.protocol.peer import NotificationReceived
from trunkline.protocol.request_validation import RejectedRequest, ValidatedRequest, validate_request
from trunkline.protocol.revisions import Feature
from trunkline.server.context import Context, wants_level
from trunkline.server.handler_functions import TRACEBACKS, find_caller_error, users_traceback
from trunkline.server.subscriptions import ChangeNotice, change_notification
from trunkline.service import ErrorReply
from trunkline.types import RequestParams

if TYPE_CHECKING:
    from trunkline.server.dispatch_table import DispatchTable
    from trunkline.server.registry import Definition
    from trunkline.server.runtime import ServerRuntime
    from trunkline.server.server import Server
    from trunkline.types.json_values import JsonInput

__all__ = [
    "CallNext",
    "Middleware",
    "ServerConnection",
    "ServerRequest",
    "call_in_middleware",
    "call_mounted",
    "check_middleware_result",
    "dispatch",
    "error_for_caller",
    "root_server",
    "runtime_of",
    "wrap_middleware",
]

log = logging.getLogger("trunkline")

T = TypeVar("T")
P = TypeVar("P", bound=t.RequestParams)

#: The methods that are served while the server stops: ``ping``, and the methods of the tasks that it waits for.
_WHILE_STOPPING = frozenset({"ping", "tasks/get", "tasks/result", "tasks/update", "tasks/cancel"})


class ServerRequest(Struct, frozen=True):
    """A request on its way through middleware: the method, its typed params, and the context of its handler."""

    method: str
    params: Any
    context: Context

    @property
    def round(self) -> int:
        """The number of earlier rounds of this call; middleware runs in each round."""
        return self.context.round

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a tool call or a prompt, decoded; empty for other requests."""
        arguments = getattr(self.params, "arguments", None)
        value = msgspec.json.decode(arguments) if isinstance(arguments, Raw) else arguments
        return dict(value) if isinstance(value, dict) else {}

    def with_params(self, params: RequestParams) -> ServerRequest:
        """Return the same request with other params."""
        return replace(self, params=params)

    def with_arguments(self, arguments: Mapping[str, Any]) -> ServerRequest:
        """Return the same tool call or prompt with other arguments; a TypeError for any other method."""
        is_tool = isinstance(self.params, t.CallToolRequestParams)
        if not is_tool and not isinstance(self.params, t.GetPromptRequestParams):
            raise TypeError(f"{self.method} has no arguments; check request.method first")
        value = Raw(msgspec.json.encode(arguments)) if is_tool else dict(arguments)
        return self.with_params(replace(self.params, arguments=value))


CallNext = Callable[[ServerRequest], Awaitable[Any]]
Middleware = Callable[[ServerRequest, CallNext], Awaitable[Any]]


def wrap_middleware(middleware: Sequence[Middleware], last: CallNext) -> CallNext:
    """Wrap middleware around a handler, the first outermost."""
    for each in reversed(middleware):
        last = _wrap(each, last)
    return last


def _wrap(outer: Middleware, inner: CallNext) -> CallNext:
    async def call(request: ServerRequest) -> Any:
        return await outer(request, inner)

    return call


def check_middleware_result(result: object, method: str) -> None:
    """Raise for what is no result of a method of the protocol: a return or an await is missing in middleware.

    The text is for the log; the caller gets an internal error.
    """
    if result is None or isinstance(result, str | CoroutineType):
        if isinstance(result, CoroutineType):
            # What is wrong is said here; Python would warn of it some time later.
            result.close()
        raise TypeError(
            f"middleware returned {'None' if result is None else f'a {type(result).__name__}'} for {method}: "
            "return the result of `await call_next(request)`, or one of the same type"
        )


class ServerConnection:
    """The service of one connection to a server."""

    __slots__ = ("__weakref__", "_declared", "connection", "runtime", "session", "stopping", "table")

    def __init__(self, runtime: ServerRuntime, session: Session | None = None) -> None:
        """Serve a connection, within a session that another connection opened, if one is given."""
        self.runtime: ServerRuntime = runtime
        #: That of the definition; the runtime replaces it with the definition.
        self.table: DispatchTable = runtime.table
        self._declared: Container[str] = ()
        self.session = session
        self.connection: Connection | None = None
        #: Whether new requests are rejected, except pings and those about tasks; running ones are still answered.
        self.stopping: bool = False

    # --- as the service of a connection ------------------------------------------------------------------------------

    def request_received(self, exchange: Exchange, origin: Origin) -> Coroutine[Any, Any, Any] | ErrorReply:
        """Validate a request; return the coroutine that produces its result, or the error to respond with."""
        if self.stopping and exchange.method not in _WHILE_STOPPING:
            # The same code as over HTTP: the request is not at fault, but JSON-RPC has no code for this.
            return self._rejected(exchange, ErrorReply(-32600, "The server is stopping"))
        admitted = validate_request(exchange, self.session, origin, self.table.profile)
        if type(admitted) is RejectedRequest:
            return self._rejected(exchange, ErrorReply(admitted.code, admitted.message, admitted.data))
        exchange.admitted = admitted  # type: ignore[assignment]  # an isinstance check of a struct is slower
        if exchange.method == "initialize":
            self._open(exchange.admitted)
        if self.runtime.telemetry is None:
            return dispatch(self.table, exchange)
        return self.runtime.telemetry.serve(exchange, dispatch, self.table)

    def _rejected(self, exchange: Exchange, error: ErrorReply) -> ErrorReply:
        if self.runtime.telemetry is not None:
            self.runtime.telemetry.rejected(exchange.method, error.code)
        return error

    @property
    def server(self) -> Server:
        """The definition that serves the next request."""
        return self.table.server

    def notification_received(self, event: NotificationReceived, origin: Origin) -> None:
        """Handle a notification; unknown ones are ignored."""
        if event.method == "notifications/initialized":
            if self.session is not None:
                self.session.ready()
            return
        self.server._notification_received(event, origin, self.session, self.runtime.running_handlers)

    def accepts_batches(self) -> bool:
        """Return whether the session's revision has batches."""
        return self.session is not None and Feature.BATCHES in self.session.revision.features

    def input_ended(self) -> None:
        """Called when the input has ended; end the streams, which can no longer be cancelled by the client."""
        exchanges = {} if self.connection is None else self.connection.exchanges
        for exchange in tuple(exchanges.values()):
            if hasattr(exchange, "admitted") and exchange.admitted.row.stream and exchange.task is not None:
                exchange.task.cancel()
        self.runtime.hub.detach(self)

    # --- as a listener of the change hub -----------------------------------------------------------------------------

    #: Whether changes, and notifications to every client, reach it by an announcement instead of from the hub.
    hears_announcements = False

    def notify_change(self, notice: ChangeNotice) -> None:
        """Notify the client of a change."""
        self.send_notice(notice)

    def send_notice(self, notice: ChangeNotice) -> None:
        """Notify only this handshake client of a change, once it has sent ``notifications/initialized``."""
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
        """Send only this handshake client a notification, once it has sent ``notifications/initialized``."""
        if self.session is not None and self.session.initialized and self.connection is not None:
            self.connection.notify(method, params)

    # --- as a subscriber ---------------------------------------------------------------------------------------------

    @property
    def uris(self) -> Collection[str]:
        """The resources that the session is subscribed to."""
        return () if self.session is None else self.session.subscriptions

    def resource_updated(self, uri: str) -> None:
        """Notify the session of a changed resource, if it is subscribed to it."""
        self.send_notice(("resource", uri))

    def log(self, level: t.LoggingLevel, message: JsonInput, *, logger_name: str | None = None) -> None:
        """Send the session a log message outside of any request, if its log level includes it."""
        session = self.session
        if session is not None and wants_level(session.log_level, level):
            params = t.LoggingMessageNotificationParams(level=level, logger=logger_name, data=message)
            self.notify("notifications/message", adapt_params(params, session.revision))

    def end(self, reason: str) -> None:
        """Do nothing: a session has no subscription stream to end."""

    def _open(self, admitted: ValidatedRequest) -> None:
        self.session = admitted.caller.session
        self._declared = tuple(self.table.capabilities(admitted.caller.revision))
        self.runtime.hub.attach(self)


async def dispatch(table: DispatchTable, exchange: Exchange) -> Any:
    """Serve one validated request and return its result, adapted to the caller's revision."""
    admitted = exchange.admitted
    params = admitted.params
    if exchange.method in table.undeclared:
        needed = capability_needed(admitted.row, admitted.caller.revision)
        raise MethodNotFound(
            f"Method not found: {exchange.method} (this server did not declare {needed})",
            data={"method": exchange.method},
        )
    if admitted.row.input_required and (params.request_state is not None or params.input_responses):
        from trunkline.server.channels import resume_call

        await resume_call(exchange)
    route = table.handlers[exchange.method]
    try:
        if table.calls_directly:
            result = await route(exchange, params)
        else:
            result = await call_in_middleware(table, exchange, params, route)
    except asyncio.CancelledError:
        if not _awaits_input(exchange):
            raise
        # The channel cancelled the handler so that its requests to the caller can be sent.
        assert exchange.task is not None
        exchange.task.uncancel()
        assert exchange.channel is not None
        result = await exchange.channel.input_required()
    except RequestFailed:
        raise
    except Exception as error:
        if not isinstance(error, ToolError) or exchange.method != "tools/call":
            translated = error_for_caller(error, admitted.caller)
            if translated is error:
                _raise_with_traceback(exchange, error)
                raise
            raise translated from error
        # Raised by middleware: a result that the model reads, as from the tool itself.
        result = t.CallToolResult(content=[t.TextContent(text=str(error))], is_error=True)
    else:
        if exchange.channel is not None and _awaits_input(exchange):
            log.warning("a handler of %s suppressed its cancellation; its result is dropped", exchange.method)
            result = await exchange.channel.input_required()
    return adapt_result(result, admitted.caller.revision, table.stamp)


async def call_in_middleware(table: DispatchTable, exchange: Exchange, params: P, route: Callable[..., Any]) -> Any:
    """Run a handler inside the middleware, once the lifespans have been entered."""
    await runtime_of(exchange).enter_lifespans(table.server, exchange.connection.holder)
    if not table.middleware:
        return await route(exchange, params)
    result = await _run_middleware([table.server], exchange, params, lambda given: route(exchange, given))
    if exchange.method not in table.custom_methods:
        check_middleware_result(result, exchange.method)
    return result


async def call_mounted(definition: Definition, exchange: Exchange, params: P, last: Callable[[P], Awaitable[T]]) -> T:
    """Run a mounted definition inside the middleware of the servers it was mounted with."""
    result: T = await _run_middleware(definition.mounted_by, exchange, params, last)
    check_middleware_result(result, exchange.method)
    return result


async def _run_middleware(
    servers: Sequence[Server], exchange: Exchange, params: P, last: Callable[[P], Awaitable[Any]]
) -> Any:
    async def handle(request: ServerRequest) -> Any:
        return await last(request.params)

    chain = wrap_middleware([function for server in servers for function in server.table.middleware], handle)
    return await chain(ServerRequest(exchange.method, params, Context(servers[-1], exchange)))


def error_for_caller(error: Exception, caller: Caller) -> Exception:
    """Return the error response for an error meant for the caller; any other error is returned unchanged."""
    if isinstance(error, ExceptionGroup):
        error = find_caller_error(error) or error
    if isinstance(error, InvalidHandle):
        return InvalidParams(f"Invalid params: {error}")
    if isinstance(error, HandlerError) or (isinstance(error, MissingCapability) and caller.revision.handshake):
        return RequestFailed(str(error))
    return error


def _raise_with_traceback(exchange: Exchange, error: Exception) -> None:
    """Raise an error response that has the traceback of an unexpected error, if its author reads the response."""
    if os.environ.get(TRACEBACKS) and not isinstance(error, MissingCapability):
        log.error("%s failed (request %r)", exchange.method, exchange.id, exc_info=error)
        message = f"Internal error: {type(error).__name__}: {error}"
        raise InternalError(message, data={"traceback": users_traceback(error)}) from error


def _awaits_input(exchange: Exchange) -> bool:
    """Return whether the handler was cancelled to send its requests; one that ends before needs no input."""
    return exchange.channel is not None and exchange.channel.interrupted and exchange.open


def runtime_of(exchange: Exchange) -> ServerRuntime:
    """Return the runtime that serves the connection of a request."""
    service = exchange.connection.service
    assert isinstance(service, ServerConnection)
    return service.runtime


def root_server(exchange: Exchange) -> Server:
    """Return the server that serves the connection of a request; with composition, the outermost one."""
    service = exchange.connection.service
    assert isinstance(service, ServerConnection)
    return service.server
