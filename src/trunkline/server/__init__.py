"""What the author of a server works with: the server, its context, and the types their methods take and return.

The names are loaded when first used, so that a server over stdio starts without the parts it does not need.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trunkline.connection import Connection, Exchange
    from trunkline.protocol.access import read_scopes
    from trunkline.protocol.caller import Caller, Origin, Principal, Session
    from trunkline.protocol.json_schema import SchemaError, Validator, compile_schema
    from trunkline.protocol.limits import Limits
    from trunkline.server.addresses import Address, read_address, shown_url
    from trunkline.server.asking import (
        MAX_ELICITATION_ID_LENGTH,
        AcceptedElicitation,
        CancelledElicitation,
        DeclinedElicitation,
        ElicitationResult,
        ModelChoice,
        SamplingResult,
    )
    from trunkline.server.catalog import OnDuplicate
    from trunkline.server.context import BlockingContext, ClientView, Context, HandlerLeft
    from trunkline.server.dependencies import Depends
    from trunkline.server.http import AsgiOptions, HttpOptions
    from trunkline.server.listing import Visible
    from trunkline.server.middleware import CallNext, Middleware, ServerRequest
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
    from trunkline.timekeeper import Clock, Timer
    from trunkline.transports.http.endpoint import Endpoint

__all__ = [
    "MAX_ELICITATION_ID_LENGTH",
    "AcceptedElicitation",
    "Address",
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
    "HandlerLeft",
    "HttpOptions",
    "Image",
    "Limits",
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
    "Timer",
    "ToolDefinition",
    "ToolKeywords",
    "ToolOptions",
    "ToolResult",
    "UserMessage",
    "Validator",
    "Visible",
    "compile_schema",
    "read_address",
    "read_scopes",
    "run_loop",
    "shown_url",
]

_HOMES = MappingProxyType(
    {
        "trunkline.connection": (
            "Connection",
            "Exchange",
        ),
        "trunkline.protocol.access": ("read_scopes",),
        "trunkline.protocol.caller": (
            "Caller",
            "Origin",
            "Principal",
            "Session",
        ),
        "trunkline.protocol.json_schema": (
            "SchemaError",
            "Validator",
            "compile_schema",
        ),
        "trunkline.protocol.limits": ("Limits",),
        "trunkline.server.addresses": (
            "Address",
            "read_address",
            "shown_url",
        ),
        "trunkline.server.asking": (
            "AcceptedElicitation",
            "CancelledElicitation",
            "DeclinedElicitation",
            "ElicitationResult",
            "MAX_ELICITATION_ID_LENGTH",
            "ModelChoice",
            "SamplingResult",
        ),
        "trunkline.server.catalog": ("OnDuplicate",),
        "trunkline.server.context": (
            "BlockingContext",
            "ClientView",
            "Context",
            "HandlerLeft",
        ),
        "trunkline.server.dependencies": ("Depends",),
        "trunkline.server.http": (
            "AsgiOptions",
            "HttpOptions",
        ),
        "trunkline.server.listing": ("Visible",),
        "trunkline.server.middleware": (
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
        "trunkline.timekeeper": (
            "Clock",
            "Timer",
        ),
        "trunkline.transports.http.endpoint": ("Endpoint",),
    }
)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first asked for (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'trunkline.server' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return list(__all__)
