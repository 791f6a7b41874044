"""FastMCP's middleware: a class with a hook for each kind of message, and the chain that calls them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from trunkline.compat.context import current_context

__all__ = ["CallNext", "GenericCallNext", "Middleware", "MiddlewareContext", "run_middleware"]

T = TypeVar("T")
CallNext = Callable[..., Any]


class GenericCallNext:
    """The next step, for annotations with type parameters."""

    @classmethod
    def __class_getitem__(cls, _: object) -> Any:
        """Ignore type parameters."""
        return cls


@dataclass(kw_only=True, frozen=True)
class MiddlewareContext(Generic[T]):
    """A message on its way through the middleware."""

    message: T
    fastmcp_context: Any = None
    source: str = "client"
    type: str = "request"
    method: str | None = None
    timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))

    @classmethod
    def of(cls, server: Any, message: Any, method: str) -> MiddlewareContext[Any]:
        """Make one for the request being served."""
        context = current_context() or server._context_class(server, None)
        return MiddlewareContext(message=message, fastmcp_context=context, method=method)

    def copy(self, **changes: Any) -> MiddlewareContext[T]:
        """Return a changed copy."""
        return replace(self, **changes)


class Middleware:
    """Something around messages: override a hook, and call ``call_next``."""

    async def __call__(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Run the hooks that apply, the most general outermost."""
        chain: Any = call_next
        for hook in reversed(self._hooks(context)):
            chain = partial(hook, call_next=chain)
        return await chain(context)

    def _hooks(self, context: MiddlewareContext[Any]) -> list[Any]:
        special = _HOOKS.get(context.method or "")
        general = self.on_request if context.type == "request" else self.on_notification
        hooks: list[Any] = [self.on_message, general]
        return [*hooks, getattr(self, special)] if special else hooks

    async def on_message(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle any message."""
        return await call_next(context)

    async def on_request(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle any request."""
        return await call_next(context)

    async def on_notification(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle any notification."""
        return await call_next(context)

    async def on_initialize(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the handshake."""
        return await call_next(context)

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle a call of a tool."""
        return await call_next(context)

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the reading of a resource."""
        return await call_next(context)

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the rendering of a prompt."""
        return await call_next(context)

    async def on_list_tools(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the list of tools."""
        return await call_next(context)

    async def on_list_resources(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the list of resources."""
        return await call_next(context)

    async def on_list_resource_templates(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the list of templates."""
        return await call_next(context)

    async def on_list_prompts(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the list of prompts."""
        return await call_next(context)

    async def on_discover(self, context: MiddlewareContext[Any], call_next: CallNext) -> Any:
        """Handle the question what the server can do."""
        return await call_next(context)


_HOOKS = MappingProxyType(
    {
        "initialize": "on_initialize",
        "server/discover": "on_discover",
        "tools/call": "on_call_tool",
        "tools/list": "on_list_tools",
        "resources/read": "on_read_resource",
        "resources/list": "on_list_resources",
        "resources/templates/list": "on_list_resource_templates",
        "prompts/get": "on_get_prompt",
        "prompts/list": "on_list_prompts",
    }
)


async def run_middleware(middleware: Sequence[Any], context: Any, last: CallNext) -> Any:
    """Run a chain of middleware around a last step, the first given outermost."""
    chain: Any = last
    for each in reversed(middleware):
        chain = partial(_call, each, inner=chain)
    return await chain(context)


async def _call(middleware: Any, context: Any, *, inner: CallNext) -> Any:
    return await middleware(context, inner)
