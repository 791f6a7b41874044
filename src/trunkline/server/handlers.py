"""The handlers of the protocol's methods, of custom methods and of notifications, and the declared capabilities.

Each handler takes typed params and returns a result that is not yet adapted to a revision: request validation has
chosen the revision, and ``dispatch`` adapts the result.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InsufficientScope, InvalidParams, InvalidRequest, RequestFailed, ResourceNotFound
from trunkline.protocol.caller import Caller, Session
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.extensions import require_extension
from trunkline.protocol.methods import METHODS
from trunkline.protocol.peer import NotificationReceived
from trunkline.protocol.revisions import Feature
from trunkline.server.context import Context
from trunkline.server.dispatch import call_mounted, root_server, runtime_of
from trunkline.server.handler_functions import HandlerFunction
from trunkline.server.msgspec_types import encode_hook
from trunkline.server.scopes import check_scopes
from trunkline.server.subscriptions import serve_subscription, supported_filter
from trunkline.server.tools import make_tool_handler
from trunkline.server.validation_errors import InvalidArguments
from trunkline.types import RequestParams

__all__ = [
    "MethodHandler",
    "answer_method",
    "discover_result",
    "find_resource",
    "handle_notification",
    "initialize_result",
    "make_custom_handler",
    "make_handlers",
    "read_resource",
    "session_of",
]

if TYPE_CHECKING:
    from trunkline.server.resources import ResourceDefinition, TemplateDefinition
    from trunkline.server.server import Server

log = logging.getLogger("trunkline")

MethodHandler = Callable[[Exchange, Any], Awaitable[Any]]


def make_handlers(server: Server) -> dict[str, MethodHandler]:
    """Return the handlers of the protocol's methods that a server answers."""

    async def prompts_get(exchange: Exchange, params: t.GetPromptRequestParams) -> Any:
        prompt = server.registry.prompts.get(params.name)
        if prompt is None or not server.table.listing.is_visible(exchange.admitted.caller, prompt):
            raise InvalidParams(f"Unknown prompt: {params.name}", data={"name": params.name})
        if prompt.scopes:
            check_scopes(exchange, prompt.scopes, server.settings.hierarchy)
        if prompt.mounted_by:
            return await call_mounted(prompt, exchange, params, lambda p: prompt.get(exchange, p.arguments))
        return await prompt.get(exchange, params.arguments)

    async def resources_read(exchange: Exchange, params: t.ReadResourceRequestParams) -> Any:
        return await read_resource(server, exchange, params)

    async def lists(exchange: Exchange, params: t.PaginatedRequestParams) -> Any:
        return server.table.listing.page(
            exchange.method,
            server.registry,
            exchange.admitted.caller,
            cursor=params.cursor,
            stamp=server.table.stamp,
            # Middleware reads and changes results.
            encoded=not server.table.middleware,
        )

    return {
        "tools/call": make_tool_handler(server),
        "tools/list": lists,
        "prompts/get": prompts_get,
        "prompts/list": lists,
        "resources/read": resources_read,
        "resources/list": lists,
        "resources/templates/list": lists,
        **_more_handlers(server),
    }


async def _unsubscribe(exchange: Exchange, params: t.UnsubscribeRequestParams) -> t.EmptyResult:
    session = session_of(exchange)
    if session.store is not None:
        await session.store.unsubscribe(params.uri)
    session.unsubscribe(params.uri)
    return t.EmptyResult()


async def _set_level(exchange: Exchange, params: t.SetLevelRequestParams) -> t.EmptyResult:
    session = session_of(exchange)
    if session.store is not None:
        await session.store.set_log_level(params.level)
    session.log_level = params.level
    return t.EmptyResult()


def _more_handlers(server: Server) -> dict[str, MethodHandler]:
    """Return the handlers that neither list nor use a definition."""

    async def complete(exchange: Exchange, params: t.CompleteRequestParams) -> Any:
        return await _complete(server, exchange, params)

    async def subscribe(exchange: Exchange, params: t.SubscribeRequestParams) -> Any:
        find_resource(server, exchange, params.uri)
        session = session_of(exchange)
        if session.store is not None:
            await session.store.subscribe(params.uri)
        session.subscribe(params.uri)
        return t.EmptyResult()

    def listen(exchange: Exchange, params: t.SubscriptionsListenRequestParams) -> Awaitable[Any]:
        if not exchange.connection.link.can_stream:
            raise InvalidRequest(
                "Invalid request: subscriptions/listen answers with a stream; accept text/event-stream"
            )
        wanted = supported_filter(params.notifications, server.table.capabilities(exchange.admitted.caller.revision))
        if server.table.has_hidden and wanted.resource_subscriptions:
            readable = [uri for uri in wanted.resource_subscriptions if _is_readable(server, exchange, uri)]
            wanted = replace(wanted, resource_subscriptions=readable)
        # A subscription may last long, and its raw params are not needed again.
        exchange.params = None
        runtime = runtime_of(exchange)
        return serve_subscription(
            exchange,
            runtime.hub,
            wanted=replace(wanted, task_ids=params.notifications.task_ids),
            max_pending=server.limits.notices,
            tasks=runtime.tasks,
        )

    async def initialize(exchange: Exchange, params: t.InitializeRequestParams) -> Any:
        return initialize_result(server, exchange.admitted.caller)

    async def discover(exchange: Exchange, params: t.RequestParams) -> Any:
        return discover_result(server, exchange.admitted.caller)

    async def ping(exchange: Exchange, params: t.RequestParams) -> Any:
        return t.EmptyResult()

    return {
        "resources/subscribe": subscribe,
        "resources/unsubscribe": _unsubscribe,
        "completion/complete": complete,
        "subscriptions/listen": listen,
        "logging/setLevel": _set_level,
        "initialize": initialize,
        "server/discover": discover,
        "ping": ping,
    }


async def read_resource(
    server: Server, exchange: Exchange, params: t.ReadResourceRequestParams
) -> t.ReadResourceResult:
    """Read the resource with a URI, or else with the first template that matches it.

    A handler may raise ``ResourceNotFound``, for which every revision has an error code.
    """
    found, values = find_resource(server, exchange, params.uri)
    try:
        if found.mounted_by:
            return await call_mounted(found, exchange, params, lambda p: _read(found, exchange, p.uri, values))
        return await _read(found, exchange, params.uri, values)
    except ResourceNotFound as error:
        # Clients tell an unknown resource from other invalid params by the URI.
        data = {"uri": params.uri, **error.data} if isinstance(error.data, dict) else error.data or {"uri": params.uri}
        raise _not_found(exchange.admitted.caller, error.message, data) from error


async def _read(
    found: ResourceDefinition | TemplateDefinition, exchange: Exchange, uri: str, values: dict[str, object] | None
) -> t.ReadResourceResult:
    if values is None:
        return await found.read(exchange)  # type: ignore[call-arg]
    return await found.read(exchange, uri, values)  # type: ignore[call-arg]


def find_resource(
    server: Server, exchange: Exchange, uri: str
) -> tuple[ResourceDefinition | TemplateDefinition, dict[str, Any] | None]:
    """Return the resource with a URI, or the template that matches it and the values of its variables.

    Raises:
        InsufficientScope: the caller lacks a scope.
        RequestFailed: there is no such resource that is visible to the caller.
    """
    caller = exchange.admitted.caller
    fixed = server.registry.resources.get(uri)
    if fixed is not None and server.table.listing.is_visible(caller, fixed):
        if fixed.scopes:
            check_scopes(exchange, fixed.scopes, server.settings.hierarchy)
        return fixed, None
    if server.table.skills is not None and (file := server.table.skills.find_file(exchange, uri)) is not None:
        return file, None
    for template in server.registry.templates.values():
        values = template.matches(uri)
        if values is not None and server.table.listing.is_visible(caller, template):
            if template.scopes:
                check_scopes(exchange, template.scopes, server.settings.hierarchy)
            return template, values
    raise _not_found(caller, f"Resource not found: {uri}", {"uri": uri})


def session_of(exchange: Exchange) -> Session:
    """Return the caller's session; only for methods that stateless revisions do not have."""
    session = exchange.admitted.caller.session
    assert session is not None, f"{exchange.method} was admitted without a session"
    return session


def _not_found(caller: Caller, message: str, data: object) -> RequestFailed:
    kind = InvalidParams if Feature.NOT_FOUND_IS_INVALID_PARAMS in caller.revision.features else ResourceNotFound
    return kind(message, data=data)


def _is_readable(server: Server, exchange: Exchange, uri: str) -> bool:
    try:
        find_resource(server, exchange, uri)
    except (InsufficientScope, InvalidParams, ResourceNotFound):
        return False
    return True


async def _complete(server: Server, exchange: Exchange, params: t.CompleteRequestParams) -> t.CompleteResult:
    from trunkline.server.prompts import check_argument, complete_with_fallback

    registry, caller, argument = server.registry, exchange.admitted.caller, params.argument
    if isinstance(params.ref, t.PromptReference):
        ref = params.ref.name
        prompt = registry.prompts.get(ref)
        if prompt is None or not server.table.listing.is_visible(caller, prompt):
            raise InvalidParams(f"Unknown prompt: {ref}", data={"name": ref})
        if prompt.scopes:
            check_scopes(exchange, prompt.scopes, server.settings.hierarchy)
        check_argument([each.name for each in prompt.function.signature.parameters], argument.name, ref)
    else:
        ref = params.ref.uri
        template = registry.templates.get(ref)
        if template is not None and server.table.listing.is_visible(caller, template):
            if template.scopes:
                check_scopes(exchange, template.scopes, server.settings.hierarchy)
            check_argument(template.template.names, argument.name, ref)
        elif not _is_readable(server, exchange, ref):
            raise InvalidParams(f"Unknown resource template: {ref}", data={"uri": ref})
    completion = registry.completions.get((ref, argument.name))
    if completion is None:
        return await complete_with_fallback(server.table.fallback_completion, exchange, params)
    found, arguments = completion, (params.context.arguments if params.context is not None else None) or {}
    if found.mounted_by:
        return await call_mounted(
            found, exchange, params, lambda given: found.complete(exchange, given.argument.value, arguments)
        )
    return await found.complete(exchange, argument.value, arguments)


#: The capability that methods with this beginning belong to.
_KINDS = MappingProxyType(
    {"tools": "tools", "prompts": "prompts", "resources": "resources", "completion": "completions"}
)


def answer_method(server: Server, method: str, handler: Callable[[Context, Any], Awaitable[Any]]) -> None:
    """Answer a method of the protocol with a handler that takes the context and the params.

    Raises:
        ValueError: clients do not call such a method.
    """
    if not any(row.name == method and row.kind == "request" and row.to_server for row in METHODS):
        raise ValueError(f"the protocol has no method {method!r} for clients to call; for your own, use @server.method")

    async def serve(exchange: Exchange, params: t.RequestParams) -> Any:
        return await handler(Context(server, exchange), params)

    server.table.handlers[method] = serve
    server.settings.answered = server.settings.answered | {method}
    if (kind := _KINDS.get(method.partition("/")[0])) is not None:
        server.settings.announced = server.settings.announced | {kind}
    server._refresh()


def initialize_result(server: Server, caller: Caller) -> t.InitializeResult:
    """Return the result of ``initialize``; request validation has chosen the revision."""
    return t.InitializeResult(
        protocol_version=caller.revision.name,
        capabilities=server.table.capabilities(caller.revision, caller),
        server_info=adapt_params(server.settings.info, caller.revision),
        instructions=server.instructions,
    )


def discover_result(server: Server, caller: Caller) -> t.DiscoverResult:
    """Return the result of ``server/discover``; the server's name and version are added to every result."""
    return t.DiscoverResult(
        supported_versions=list(server.table.profile.revisions),
        capabilities=server.table.capabilities(caller.revision, caller),
        instructions=server.instructions,
        ttl_ms=server.settings.cache_ttl_ms,
        cache_scope="private",
    )


def make_custom_handler(
    function: HandlerFunction, scopes: tuple[str, ...] = (), extension: str | None = None
) -> MethodHandler:
    """Return the handler of a custom method; its result is sent as an object.

    Callers need the scopes, and must have declared the method's extension.
    """

    async def serve(exchange: Exchange, params: RequestParams) -> Any:
        if extension is not None:
            require_extension(exchange.admitted.caller.capabilities, extension)
        if scopes:
            check_scopes(exchange, scopes, root_server(exchange).settings.hierarchy)
        members = _params_as_dict(exchange.params)
        if [each.name for each in function.signature.parameters] == ["params"]:
            members = {"params": members}
        try:
            kwargs = function.signature.bind(msgspec.json.encode(members))
        except InvalidArguments as error:
            raise InvalidParams(f"Invalid params: {error}") from error
        value = msgspec.to_builtins(await function.run(exchange, kwargs), enc_hook=encode_hook)
        return value if isinstance(value, dict) else {} if value is None else {"result": value}

    return serve


def handle_notification(
    function: Callable[..., object], event: NotificationReceived, running: set[asyncio.Future[object]]
) -> None:
    """Call the handler of a notification; its errors are logged, and its task is kept in ``running`` until done."""
    try:
        members = _params_as_dict(event.params)
        names = list(inspect.signature(function).parameters)
        result = function(members) if names == ["params"] else function(**members)
    except Exception:
        log.exception("the handler of %s failed", event.method)
        return
    if inspect.isawaitable(result):
        task = asyncio.ensure_future(result)
        running.add(task)
        task.add_done_callback(lambda done: _report(done, event.method, running))


def _report(done: asyncio.Future[object], method: str, running: set[asyncio.Future[object]]) -> None:
    running.discard(done)
    if not done.cancelled() and done.exception() is not None:
        log.error("the handler of %s failed", method, exc_info=done.exception())


def _params_as_dict(params: Raw | None) -> dict[str, Any]:
    members: dict[str, Any] = {} if params is None else msgspec.json.decode(params, type=dict[str, Any])
    members.pop("_meta", None)
    return members
