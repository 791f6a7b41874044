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
    from trunkline.connection import Connection, Exchange
    from trunkline.keywords import CompatibilityWarning
    from trunkline.net.addresses import ListenAddress, parse_listen_address, reachable_url
    from trunkline.pending_requests import Timeouts
    from trunkline.protocol.caller import Caller, Origin, Principal, Session, parse_scopes
    from trunkline.protocol.json_schema import SchemaError, SchemaViolation, Validator, compile_schema
    from trunkline.protocol.limits import Limits
    from trunkline.protocol.rate_limit import RateLimit
    from trunkline.protocol.secret_patterns import holds_secret, looks_secret, names_secret
    from trunkline.server.app_options import AppKeywords, ToolApp
    from trunkline.server.blocking_context import BlockingContext, HandlerAborted
    from trunkline.server.client_requests import (
        MAX_ELICITATION_ID_LENGTH,
        AcceptedElicitation,
        CancelledElicitation,
        DeclinedElicitation,
        ElicitationResult,
        ModelChoice,
        SamplingResult,
    )
    from trunkline.server.client_view import ClientView
    from trunkline.server.components import OnDuplicate
    from trunkline.server.context import Context
    from trunkline.server.dependencies import Depends
    from trunkline.server.dispatch import CallNext, Middleware, ServerRequest
    from trunkline.server.handles import BlockingHandle, Handle
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
    from trunkline.server.server import Server
    from trunkline.server.server_options import ServerOptions
    from trunkline.server.subscriptions import Subscriber
    from trunkline.server.task_options import TaskOptions, TaskSettings
    from trunkline.server.tools import ToolDefinition, ToolOptions
    from trunkline.timers import Clock, TimerHandle
    from trunkline.transports.http.server.endpoint import Endpoint

__all__ = [
    "MAX_ELICITATION_ID_LENGTH",
    "AcceptedElicitation",
    "AppKeywords",
    "AsgiOptions",
    "AssistantMessage",
    "Audio",
    "BlockingContext",
    "BlockingHandle",
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
    "Handle",
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
    "RateLimit",
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
    "TaskOptions",
    "TaskSettings",
    "TemplateDefinition",
    "Timeouts",
    "TimerHandle",
    "ToolApp",
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
            "trunkline.keywords": ("CompatibilityWarning",),
            "trunkline.connection": ("Connection", "Exchange"),
            "trunkline.net.addresses": ("ListenAddress", "parse_listen_address", "reachable_url"),
            "trunkline.pending_requests": ("Timeouts",),
            "trunkline.protocol.caller": ("Caller", "Origin", "Principal", "Session", "parse_scopes"),
            "trunkline.protocol.json_schema": ("SchemaError", "SchemaViolation", "Validator", "compile_schema"),
            "trunkline.protocol.limits": ("Limits",),
            "trunkline.protocol.rate_limit": ("RateLimit",),
            "trunkline.protocol.secret_patterns": ("holds_secret", "looks_secret", "names_secret"),
            "trunkline.server.app_options": ("AppKeywords", "ToolApp"),
            "trunkline.server.blocking_context": ("BlockingContext", "HandlerAborted"),
            "trunkline.server.client_requests": (
                "MAX_ELICITATION_ID_LENGTH",
                "AcceptedElicitation",
                "CancelledElicitation",
                "DeclinedElicitation",
                "ElicitationResult",
                "ModelChoice",
                "SamplingResult",
            ),
            "trunkline.server.client_view": ("ClientView",),
            "trunkline.server.components": ("OnDuplicate",),
            "trunkline.server.context": ("Context",),
            "trunkline.server.dependencies": ("Depends",),
            "trunkline.server.dispatch": ("CallNext", "Middleware", "ServerRequest"),
            "trunkline.server.handles": ("BlockingHandle", "Handle"),
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
            "trunkline.server.server": ("Server",),
            "trunkline.server.server_options": ("ServerOptions",),
            "trunkline.server.subscriptions": ("Subscriber",),
            "trunkline.server.task_options": ("TaskOptions", "TaskSettings"),
            "trunkline.server.tools": ("ToolDefinition", "ToolOptions"),
            "trunkline.timers": ("Clock", "TimerHandle"),
            "trunkline.transports.http.server.endpoint": ("Endpoint",),
        },
    )
