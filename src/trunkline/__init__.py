"""Trunkline: the whole Model Context Protocol in one package. Build servers, call them, test them.

The public API is what these packages list in their ``__all__``: ``trunkline`` (the names most programs need),
``trunkline.types`` (the data of the protocol), ``trunkline.errors``, ``trunkline.server``, ``trunkline.client``,
``trunkline.store``, ``trunkline.auth``, ``trunkline.host``, ``trunkline.extensions``, ``trunkline.transports``,
``trunkline.net``, ``trunkline.testing`` and ``trunkline.cli``. Import from them and from nothing deeper: the modules
inside are not part of the public API, whatever their names, and may change in any release. One name means one thing:
the same name in two of these packages is the same object.

Names are loaded on first access, so that a stdio server starts without the parts it does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._lazy import lazy_exports

if TYPE_CHECKING:
    from trunkline.auth.authorization_server.oauth_proxy import OAuthProxy
    from trunkline.auth.authorization_server.server import AuthorizationServer
    from trunkline.auth.introspection import IntrospectionVerifier
    from trunkline.auth.jwt_verifier import JWTVerifier
    from trunkline.auth.oauth import ApiKey, BearerToken, OAuth
    from trunkline.auth.static_tokens import ApiKeys, StaticTokens
    from trunkline.client.client import Client
    from trunkline.errors import (
        ConfigError,
        MissingCapability,
        PromptError,
        RequestFailed,
        RequestTimeout,
        ResourceError,
        ResourceNotFound,
        ServerExited,
        ToolError,
        TrunklineError,
    )
    from trunkline.host.host import Host
    from trunkline.protocol.caller import Principal
    from trunkline.protocol.extension_definition import Extension
    from trunkline.protocol.limits import Limits
    from trunkline.protocol.rate_limit import RateLimit
    from trunkline.server.blocking_context import BlockingContext
    from trunkline.server.context import Context
    from trunkline.server.dependencies import Depends
    from trunkline.server.handles import Handle
    from trunkline.server.results import AssistantMessage, Audio, File, Image, Message, ToolResult, UserMessage
    from trunkline.server.server import Server
    from trunkline.server.task_options import TaskOptions, TaskSettings
    from trunkline.transports.memory import memory_pair
    from trunkline.transports.stream import StreamLink

__all__ = [
    "ApiKey",
    "ApiKeys",
    "AssistantMessage",
    "Audio",
    "AuthorizationServer",
    "BearerToken",
    "BlockingContext",
    "Client",
    "ConfigError",
    "Context",
    "Depends",
    "Extension",
    "File",
    "Handle",
    "Host",
    "Image",
    "IntrospectionVerifier",
    "JWTVerifier",
    "Limits",
    "Message",
    "MissingCapability",
    "OAuth",
    "OAuthProxy",
    "Principal",
    "PromptError",
    "RateLimit",
    "RequestFailed",
    "RequestTimeout",
    "ResourceError",
    "ResourceNotFound",
    "Server",
    "ServerExited",
    "StaticTokens",
    "StreamLink",
    "TaskOptions",
    "TaskSettings",
    "ToolError",
    "ToolResult",
    "TrunklineError",
    "UserMessage",
    "memory_pair",
]

__version__ = "0.1.0"

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "trunkline.auth.authorization_server.oauth_proxy": ("OAuthProxy",),
            "trunkline.auth.authorization_server.server": ("AuthorizationServer",),
            "trunkline.auth.introspection": ("IntrospectionVerifier",),
            "trunkline.auth.jwt_verifier": ("JWTVerifier",),
            "trunkline.auth.oauth": ("ApiKey", "BearerToken", "OAuth"),
            "trunkline.auth.static_tokens": ("ApiKeys", "StaticTokens"),
            "trunkline.client.client": ("Client",),
            "trunkline.errors": (
                "ConfigError",
                "MissingCapability",
                "PromptError",
                "RequestFailed",
                "RequestTimeout",
                "ResourceError",
                "ResourceNotFound",
                "ServerExited",
                "ToolError",
                "TrunklineError",
            ),
            "trunkline.host.host": ("Host",),
            "trunkline.protocol.caller": ("Principal",),
            "trunkline.protocol.extension_definition": ("Extension",),
            "trunkline.protocol.limits": ("Limits",),
            "trunkline.protocol.rate_limit": ("RateLimit",),
            "trunkline.server.blocking_context": ("BlockingContext",),
            "trunkline.server.context": ("Context",),
            "trunkline.server.dependencies": ("Depends",),
            "trunkline.server.handles": ("Handle",),
            "trunkline.server.results": (
                "AssistantMessage",
                "Audio",
                "File",
                "Image",
                "Message",
                "ToolResult",
                "UserMessage",
            ),
            "trunkline.server.server": ("Server",),
            "trunkline.server.task_options": ("TaskOptions", "TaskSettings"),
            "trunkline.transports.memory": ("memory_pair",),
            "trunkline.transports.stream": ("StreamLink",),
        },
        "__version__",
    )
