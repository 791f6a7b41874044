"""Trunkline: the whole Model Context Protocol in one package. Build servers, call them, test them.

The names below are the public API. They are loaded on first access, so that a stdio server starts without the parts it
does not need.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

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
        ServerExited,
        ToolError,
        TrunklineError,
    )
    from trunkline.host.host import Host
    from trunkline.protocol.caller import Principal
    from trunkline.protocol.limits import Limits
    from trunkline.server.context import BlockingContext, Context
    from trunkline.server.dependencies import Depends
    from trunkline.server.results import AssistantMessage, Audio, File, Image, Message, ToolResult, UserMessage
    from trunkline.server.server import Server
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
    "File",
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
    "RequestFailed",
    "RequestTimeout",
    "ResourceError",
    "Server",
    "ServerExited",
    "StaticTokens",
    "StreamLink",
    "ToolError",
    "ToolResult",
    "TrunklineError",
    "UserMessage",
    "memory_pair",
]

__version__ = "0.1.0"

_MODULES = MappingProxyType(
    {
        "trunkline.auth.authorization_server.server": ("AuthorizationServer",),
        "trunkline.auth.introspection": ("IntrospectionVerifier",),
        "trunkline.auth.jwt_verifier": ("JWTVerifier",),
        "trunkline.auth.oauth": ("ApiKey", "BearerToken", "OAuth"),
        "trunkline.auth.authorization_server.oauth_proxy": ("OAuthProxy",),
        "trunkline.auth.static_tokens": ("ApiKeys", "StaticTokens"),
        "trunkline.client.client": ("Client",),
        "trunkline.errors": (
            "ConfigError",
            "MissingCapability",
            "PromptError",
            "RequestFailed",
            "RequestTimeout",
            "ResourceError",
            "ServerExited",
            "ToolError",
            "TrunklineError",
        ),
        "trunkline.host.host": ("Host",),
        "trunkline.protocol.caller": ("Principal",),
        "trunkline.protocol.limits": ("Limits",),
        "trunkline.server.context": ("BlockingContext", "Context"),
        "trunkline.server.dependencies": ("Depends",),
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
        "trunkline.transports.memory": ("memory_pair",),
        "trunkline.transports.stream": ("StreamLink",),
    }
)


def __getattr__(name: str) -> Any:
    """Load a public name on first access (PEP 562)."""
    for home, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'trunkline' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return [*__all__, "__version__"]
