"""The handlers of the protocol's own methods: from typed params to a neutral result.

One function a method, each told nothing about eras: what a method looks like in a revision was decided by admission and
will be decided by shaping.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

import trunkline.types as t
from trunkline.connection import Exchange
from trunkline.errors import InsufficientScope, InvalidParams, InvalidRequest, RequestFailed, ResourceNotFound
from trunkline.protocol.caller import Caller, Session
from trunkline.protocol.revisions import Feature
from trunkline.server.scopes import demand
from trunkline.server.subscriptions import accepted, listen
from trunkline.server.tools import tool_route

if TYPE_CHECKING:
    from trunkline.server.resources import ResourceDefinition, TemplateDefinition
    from trunkline.server.server import Server

__all__ = ["Route", "find_resource", "make_routes", "read_resource", "session_of"]

Route = Callable[[Exchange, Any], Awaitable[Any]]


def make_routes(server: Server) -> dict[str, Route]:
    """Give the handler of each method that the protocol has and a server answers."""

    async def prompts_get(exchange: Exchange, params: t.GetPromptRequestParams) -> Any:
        prompt = server.registry.prompts.get(params.name)
        if prompt is None or not server.listing.sees(exchange.admitted.caller, prompt):
            raise InvalidParams(f"Unknown prompt: {params.name}", data={"name": params.name})
        if prompt.scopes:
            demand(exchange, prompt.scopes, server.hierarchy)
        if prompt.owners:
            return await server.through(prompt, exchange, params, lambda p: prompt.get(exchange, p.arguments))
        return await prompt.get(exchange, params.arguments)

    async def resources_read(exchange: Exchange, params: t.ReadResourceRequestParams) -> Any:
        return await read_resource(server, exchange, params)

    async def lists(exchange: Exchange, params: t.PaginatedRequestParams) -> Any:
        return server.listing.page(
            exchange.method,
            server.registry,
            exchange.admitted.caller,
            cursor=params.cursor,
            stamp=server.stamp,
        )

    return {
        "tools/call": tool_route(server),
        "tools/list": lists,
        "prompts/get": prompts_get,
        "prompts/list": lists,
        "resources/read": resources_read,
        "resources/list": lists,
        "resources/templates/list": lists,
        **_more_routes(server),
    }


def _more_routes(server: Server) -> dict[str, Route]:
    """Give the handlers of everything but what is listed and used."""

    async def completes(exchange: Exchange, params: t.CompleteRequestParams) -> Any:
        return await _complete(server, exchange, params)

    async def subscribes(exchange: Exchange, params: t.SubscribeRequestParams) -> Any:
        find_resource(server, exchange, params.uri)
        session_of(exchange).subscribe(params.uri)
        return t.EmptyResult()

    async def unsubscribes(exchange: Exchange, params: t.UnsubscribeRequestParams) -> Any:
        session_of(exchange).unsubscribe(params.uri)
        return t.EmptyResult()

    def listens(exchange: Exchange, params: t.SubscriptionsListenRequestParams) -> Awaitable[Any]:
        if not exchange.connection.streams:
            raise InvalidRequest(
                "Invalid request: subscriptions/listen answers with a stream; accept text/event-stream"
            )
        wanted = accepted(params.notifications, server.capabilities(exchange.admitted.caller.revision))
        if server.hides and wanted.resource_subscriptions:
            seen = [uri for uri in wanted.resource_subscriptions if _sees(server, exchange, uri)]
            wanted = replace(wanted, resource_subscriptions=seen)
        # It may last for long; the bytes it was asked with are not looked at again.
        exchange.params = None
        return listen(exchange, server.hub, wanted=wanted, most=server.limits.notices)

    async def initializes(exchange: Exchange, params: t.InitializeRequestParams) -> Any:
        return server.initialized(exchange.admitted.caller)

    async def discovers(exchange: Exchange, params: t.RequestParams) -> Any:
        return server.discovered(exchange.admitted.caller)

    async def sets_level(exchange: Exchange, params: t.SetLevelRequestParams) -> Any:
        session_of(exchange).log_level = params.level
        return t.EmptyResult()

    async def pings(exchange: Exchange, params: t.RequestParams) -> Any:
        return t.EmptyResult()

    return {
        "resources/subscribe": subscribes,
        "resources/unsubscribe": unsubscribes,
        "completion/complete": completes,
        "subscriptions/listen": listens,
        "logging/setLevel": sets_level,
        "initialize": initializes,
        "server/discover": discovers,
        "ping": pings,
    }


async def read_resource(
    server: Server, exchange: Exchange, params: t.ReadResourceRequestParams
) -> t.ReadResourceResult:
    """Read a resource: the one with this URI, else the first template it belongs to.

    A handler that knows better says ``ResourceNotFound``, which every revision has a code for.
    """
    found, values = find_resource(server, exchange, params.uri)
    try:
        if found.owners:
            return await server.through(found, exchange, params, lambda p: _read(found, exchange, p.uri, values))
        return await _read(found, exchange, params.uri, values)
    except ResourceNotFound as error:
        data = {"uri": params.uri} if error.data is None else error.data
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
    """Find what a caller may read under a URI: a resource, or a template and what its variables stand for.

    Raises:
        InsufficientScope: the caller may not read it.
        RequestFailed: there is no such resource, as far as this caller sees.
    """
    caller = exchange.admitted.caller
    fixed = server.registry.resources.get(uri)
    if fixed is not None and server.listing.sees(caller, fixed):
        if fixed.scopes:
            demand(exchange, fixed.scopes, server.hierarchy)
        return fixed, None
    for template in server.registry.templates.values():
        values = template.matches(uri)
        if values is not None and server.listing.sees(caller, template):
            if template.scopes:
                demand(exchange, template.scopes, server.hierarchy)
            return template, values
    raise _not_found(caller, f"Resource not found: {uri}", {"uri": uri})


def session_of(exchange: Exchange) -> Session:
    """Return the caller's session; only for methods that no stateless revision has."""
    session = exchange.admitted.caller.session
    assert session is not None, f"{exchange.method} was admitted without a session"
    return session


def _not_found(caller: Caller, message: str, data: object) -> RequestFailed:
    kind = InvalidParams if Feature.NOT_FOUND_IS_INVALID_PARAMS in caller.revision.features else ResourceNotFound
    return kind(message, data=data)


def _sees(server: Server, exchange: Exchange, uri: str) -> bool:
    try:
        find_resource(server, exchange, uri)
    except (InsufficientScope, InvalidParams, ResourceNotFound):
        return False
    return True


async def _complete(server: Server, exchange: Exchange, params: t.CompleteRequestParams) -> t.CompleteResult:
    from trunkline.server.completion import check_argument, complete_otherwise

    registry, caller, argument = server.registry, exchange.admitted.caller, params.argument
    if isinstance(params.ref, t.PromptReference):
        ref = params.ref.name
        prompt = registry.prompts.get(ref)
        if prompt is None or not server.listing.sees(caller, prompt):
            raise InvalidParams(f"Unknown prompt: {ref}", data={"name": ref})
        if prompt.scopes:
            demand(exchange, prompt.scopes, server.hierarchy)
        check_argument([each.name for each in prompt.function.signature.parameters], argument.name, ref)
    else:
        ref = params.ref.uri
        template = registry.templates.get(ref)
        if template is not None and server.listing.sees(caller, template):
            if template.scopes:
                demand(exchange, template.scopes, server.hierarchy)
            check_argument(template.template.names, argument.name, ref)
        elif not _sees(server, exchange, ref):
            raise InvalidParams(f"Unknown resource template: {ref}", data={"uri": ref})
    completion = registry.completions.get((ref, argument.name))
    if completion is None:
        return await complete_otherwise(server.complete_any, exchange, params)
    found, arguments = completion, (params.context.arguments if params.context is not None else None) or {}
    if found.owners:
        return await server.through(
            found, exchange, params, lambda given: found.complete(exchange, given.argument.value, arguments)
        )
    return await found.complete(exchange, argument.value, arguments)
