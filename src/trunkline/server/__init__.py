"""The public interface for authors of servers: the server, its context, and the types that their methods use.

The names are imported on first use, so that a server over stdio starts without the parts that it does not need.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trunkline.connection import Connection, Exchange
    from trunkline.net.addresses import ListenAddress, parse_listen_address, reachable_url
    from trunkline.protocol.caller import Caller, Origin, Principal, Session, parse_scopes
    from trunkline.protocol.json_schema import SchemaError, Validator, compile_schema
    from trunkline.protocol.limits import Limits
    from trunkline.protocol.secret_patterns import holds_secret, looks_secret, names_secret
    from trunkline.server.client_requests import (
        MAX_ELICITATION_ID_LENGTH,
        AcceptedElicitation,
        CancelledElicitation,
        DeclinedElicitation,
        ElicitationResult,
        ModelChoice,
        SamplingResult,
    )
    from trunkline.server.components import OnDuplicate
    from trunkline.server.context import BlockingContext, ClientView, Context, HandlerAborted
    from trunkline.server.dependencies import Depends
    from trunkline.server.dispatch import CallNext, Middleware, ServerRequest
    from trunkline.server.http import AsgiOptions, HttpOptions
    from trunkline.server.listing import VisibilityFilter
    from trunkline.server.options import PromptKeywords, ResourceKeywords, ToolKeywords
    from trunkline.server.prompts import PromptDefinition, PromptOptions
    from trunkline.server.resources import ResourceDefinition, ResourceOptions, TemplateDefinition
    from trunkline.server.results import (
        AssistantMessage,
        Audio,
        File,
        Image,
        Message,
        ResourceContent,
        ResourceValue,
        ToolResult,
        UserMessage,
    )
    from trunkline.server.run import run_loop
    from trunkline.server.server import Server, ServerOptions
    from trunkline.server.subscriptions import Subscriber
    from trunkline.server.tools import ToolDefinition, ToolOptions
    from trunkline.timers import Clock, TimerHandle
    from trunkline.transports.http.server.endpoint import Endpoint

__all__ = [
    "MAX_ELICITATION_ID_LENGTH",
    "AcceptedElicitation",
    "AsgiOptions",
    "AssistantMessage",
    "Audio",
    "BlockingContext",
    "CallNext",
    "Caller",
    "CancelledElicitation",
    "ClientView",
    "Clock",
    "Connection",
    "Context",
    "DeclinedElicitation",
    "Depends",
    "ElicitationResult",
    "Endpoint",
    "Exchange",
    "File",
    "HandlerAborted",
    "HttpOptions",
    "Image",
    "Limits",
    "ListenAddress",
    "Message",
    "Middleware",
    "ModelChoice",
    "OnDuplicate",
    "Origin",
    "Principal",
    "PromptDefinition",
    "PromptKeywords",
    "PromptOptions",
    "ResourceContent",
    "ResourceDefinition",
    "ResourceKeywords",
    "ResourceOptions",
    "ResourceValue",
    "SamplingResult",
    "SchemaError",
    "Server",
    "ServerOptions",
    "ServerRequest",
    "Session",
    "Subscriber",
    "TemplateDefinition",
    "TimerHandle",
    "ToolDefinition",
    "ToolKeywords",
    "ToolOptions",
    "ToolResult",
    "UserMessage",
    "Validator",
    "VisibilityFilter",
    "compile_schema",
    "holds_secret",
    "looks_secret",
    "names_secret",
    "parse_listen_address",
    "parse_scopes",
    "reachable_url",
    "run_loop",
]

_HOMES = MappingProxyType(
    {
        "trunkline.connection": (
            "Connection",
            "Exchange",
        ),
        "trunkline.protocol.caller": (
            "Caller",
            "Origin",
            "Principal",
            "Session",
            "parse_scopes",
        ),
        "trunkline.protocol.json_schema": (
            "SchemaError",
            "Validator",
            "compile_schema",
        ),
        "trunkline.protocol.limits": ("Limits",),
        "trunkline.protocol.secret_patterns": (
            "holds_secret",
            "looks_secret",
            "names_secret",
        ),
        "trunkline.net.addresses": (
            "ListenAddress",
            "parse_listen_address",
            "reachable_url",
        ),
        "trunkline.server.client_requests": (
            "AcceptedElicitation",
            "CancelledElicitation",
            "DeclinedElicitation",
            "ElicitationResult",
            "MAX_ELICITATION_ID_LENGTH",
            "ModelChoice",
            "SamplingResult",
        ),
        "trunkline.server.components": ("OnDuplicate",),
        "trunkline.server.context": (
            "BlockingContext",
            "ClientView",
            "Context",
            "HandlerAborted",
        ),
        "trunkline.server.dependencies": ("Depends",),
        "trunkline.server.http": (
            "AsgiOptions",
            "HttpOptions",
        ),
        "trunkline.server.listing": ("VisibilityFilter",),
        "trunkline.server.dispatch": (
            "CallNext",
            "Middleware",
            "ServerRequest",
        ),
        "trunkline.server.options": (
            "PromptKeywords",
            "ResourceKeywords",
            "ToolKeywords",
        ),
        "trunkline.server.prompts": (
            "PromptDefinition",
            "PromptOptions",
        ),
        "trunkline.server.resources": (
            "ResourceDefinition",
            "ResourceOptions",
            "TemplateDefinition",
        ),
        "trunkline.server.results": (
            "AssistantMessage",
            "Audio",
            "File",
            "Image",
            "Message",
            "ResourceContent",
            "ResourceValue",
            "ToolResult",
            "UserMessage",
        ),
        "trunkline.server.run": ("run_loop",),
        "trunkline.server.server": (
            "Server",
            "ServerOptions",
        ),
        "trunkline.server.subscriptions": ("Subscriber",),
        "trunkline.server.tools": (
            "ToolDefinition",
            "ToolOptions",
        ),
        "trunkline.timers": (
            "Clock",
            "TimerHandle",
        ),
        "trunkline.transports.http.server.endpoint": ("Endpoint",),
    }
)


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'trunkline.server' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
