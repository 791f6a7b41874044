"""Building servers: ``Server``, the context of its handlers, and the types their methods take and return.

Also what servers often need beside: JSON Schema validation, listen addresses, and the detection of secrets in text.
Import from here: the modules inside are not part of the public API, whatever their names. Names are loaded on first
access, so that a stdio server starts without the parts it does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._lazy import lazy_exports

if TYPE_CHECKING:
    from trunkline.auth.verifiers import ServerAuth
    from trunkline.compat.keywords import CompatibilityWarning
    from trunkline.connection import Connection, Exchange
    from trunkline.net.addresses import ListenAddress, parse_listen_address, reachable_url
    from trunkline.pending_requests import Timeouts
    from trunkline.protocol.caller import Caller, Origin, Principal, Session, parse_scopes
    from trunkline.protocol.json_schema import SchemaError, SchemaViolation, Validator, compile_schema
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
    "CompatibilityWarning",
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
    "SchemaViolation",
    "Server",
    "ServerAuth",
    "ServerOptions",
    "ServerRequest",
    "Session",
    "Subscriber",
    "TemplateDefinition",
    "Timeouts",
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

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "trunkline.auth.verifiers": ("ServerAuth",),
            "trunkline.compat.keywords": ("CompatibilityWarning",),
            "trunkline.connection": ("Connection", "Exchange"),
            "trunkline.net.addresses": ("ListenAddress", "parse_listen_address", "reachable_url"),
            "trunkline.pending_requests": ("Timeouts",),
            "trunkline.protocol.caller": ("Caller", "Origin", "Principal", "Session", "parse_scopes"),
            "trunkline.protocol.json_schema": ("SchemaError", "SchemaViolation", "Validator", "compile_schema"),
            "trunkline.protocol.limits": ("Limits",),
            "trunkline.protocol.secret_patterns": ("holds_secret", "looks_secret", "names_secret"),
            "trunkline.server.client_requests": (
                "MAX_ELICITATION_ID_LENGTH",
                "AcceptedElicitation",
                "CancelledElicitation",
                "DeclinedElicitation",
                "ElicitationResult",
                "ModelChoice",
                "SamplingResult",
            ),
            "trunkline.server.components": ("OnDuplicate",),
            "trunkline.server.context": ("BlockingContext", "ClientView", "Context", "HandlerAborted"),
            "trunkline.server.dependencies": ("Depends",),
            "trunkline.server.dispatch": ("CallNext", "Middleware", "ServerRequest"),
            "trunkline.server.http": ("AsgiOptions", "HttpOptions"),
            "trunkline.server.listing": ("VisibilityFilter",),
            "trunkline.server.options": ("PromptKeywords", "ResourceKeywords", "ToolKeywords"),
            "trunkline.server.prompts": ("PromptDefinition", "PromptOptions"),
            "trunkline.server.resources": ("ResourceDefinition", "ResourceOptions", "TemplateDefinition"),
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
            "trunkline.server.server": ("Server", "ServerOptions"),
            "trunkline.server.subscriptions": ("Subscriber",),
            "trunkline.server.tools": ("ToolDefinition", "ToolOptions"),
            "trunkline.timers": ("Clock", "TimerHandle"),
            "trunkline.transports.http.server.endpoint": ("Endpoint",),
        },
    )
