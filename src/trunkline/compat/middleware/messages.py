"""FastMCP's middleware around messages that name no component: the handshake, discovery, pings, notifications.

The hooks for any message and any request run around them; ``on_initialize`` and ``on_discover`` see typed requests and
results, the others the params as a dictionary, which they may change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

import trunkline.types as t
from trunkline.compat.exceptions import McpError
from trunkline.compat.features.telemetry import server_span
from trunkline.compat.middleware.base import MiddlewareContext, run_middleware
from trunkline.compat.types import model_class, to_model, to_plain, to_struct

__all__ = ["handle_notification", "wrap_handler", "wrap_handlers"]

log = logging.getLogger("fastmcp")

#: Methods whose middleware runs around the component, and one whose answer is a stream.
_OTHERWISE = frozenset(
    {
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "prompts/list",
        "prompts/get",
        "subscriptions/listen",
    }
)
#: The requests that hooks see typed, and their results.
_TYPED: Mapping[str, tuple[str, Any]] = MappingProxyType(
    {
        "initialize": ("InitializeRequest", t.InitializeResult),
        "server/discover": ("DiscoverRequest", t.DiscoverResult),
    }
)


def wrap_handlers(server: Any) -> None:
    """Run the middleware of a server around the handlers of all other methods."""
    for method, handler in tuple(server.handlers.items()):
        if method not in _OTHERWISE:
            server.handlers[method] = wrap_handler(server, method, handler)


def wrap_handler(server: Any, method: str, handler: Any) -> Any:
    """Return a handler with the middleware of a server around it."""

    async def handle(exchange: Any, params: Any) -> Any:
        with server_span(server, method):
            return await around(exchange, params)

    async def around(exchange: Any, params: Any) -> Any:
        if not server.foreign_middleware:
            return await handler(exchange, params)
        answers: list[Any] = []

        async def last(context: Any) -> Any:
            answers.append(await handler(exchange, _params(context.message, params)))
            return to_model(answers[0]) if method in _TYPED else answers[0]

        context = MiddlewareContext.of(server, _message(method, params), method)
        try:
            result = await run_middleware(server.foreign_middleware, context, last)
        except McpError:
            if method != "initialize" or not answers:
                raise
            # The session is open already: the client must not be told that it is not.
            log.exception("a middleware failed after the handshake; the client is answered")
            return answers[0]
        return to_struct(result, _TYPED[method][1]) if method in _TYPED else result

    return handle


def _message(method: str, params: Any) -> Any:
    if method in _TYPED:
        return model_class(_TYPED[method][0])(method=method, params=to_model(params))
    return to_plain(params)


def _params(message: Any, before: Any) -> Any:
    """Return the params that a hook may have changed as ours."""
    if isinstance(message, dict):
        return msgspec.convert(message, type(before))
    changed = getattr(message, "params", None)
    return before if changed is None else to_struct(changed, type(before))


def handle_notification(server: Any, event: Any, last: Any) -> None:
    """Run the middleware of a server around a notification; no caller waits for it."""
    params = None if event.params is None else msgspec.json.decode(event.params)
    context = MiddlewareContext(message=params, type="notification", method=event.method)

    async def run() -> None:
        async def inner(_: Any) -> None:
            last()

        try:
            await run_middleware(server.foreign_middleware, context, inner)
        except Exception:
            log.exception("a middleware failed on %s", event.method)

    task = asyncio.ensure_future(run())
    server._notification_tasks.add(task)
    task.add_done_callback(server._notification_tasks.discard)
