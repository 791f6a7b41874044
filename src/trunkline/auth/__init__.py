"""Authorization: who may call a server, and how a client obtains the credentials to call one.

The names below are the public API of the package. Each is loaded on first use, because some of them (signatures, key
stores) take longer to import than a small server takes to start. Nothing here knows transports.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trunkline.auth.authorization_server.oauth_proxy import OAuthProxy
    from trunkline.auth.authorization_server.server import AuthorizationServer
    from trunkline.auth.authorization_server.settings import hash_password
    from trunkline.auth.authorization_server.storage import OAuthClient
    from trunkline.auth.client import LoggedOut, log_out
    from trunkline.auth.credential_store import default_folder, try_lock
    from trunkline.auth.introspection import IntrospectionVerifier
    from trunkline.auth.jwt_verifier import JWTVerifier
    from trunkline.auth.oauth import ApiKey, BearerToken, OAuth
    from trunkline.auth.static_tokens import ApiKeys, StaticTokens
    from trunkline.auth.verifiers import InvalidToken, Verifier
    from trunkline.protocol.caller import Principal

__all__ = [
    "ApiKey",
    "ApiKeys",
    "AuthorizationServer",
    "BearerToken",
    "IntrospectionVerifier",
    "InvalidToken",
    "JWTVerifier",
    "LoggedOut",
    "OAuth",
    "OAuthClient",
    "OAuthProxy",
    "Principal",
    "StaticTokens",
    "Verifier",
    "default_folder",
    "hash_password",
    "log_out",
    "try_lock",
]

_HOMES = MappingProxyType(
    {
        "trunkline.auth.authorization_server.server": ("AuthorizationServer",),
        "trunkline.auth.introspection": ("IntrospectionVerifier",),
        "trunkline.auth.authorization_server.storage": ("OAuthClient",),
        "trunkline.auth.authorization_server.settings": ("hash_password",),
        "trunkline.auth.jwt_verifier": ("JWTVerifier",),
        "trunkline.auth.client": ("LoggedOut", "log_out"),
        "trunkline.auth.credential_store": ("default_folder", "try_lock"),
        "trunkline.auth.oauth": ("ApiKey", "BearerToken", "OAuth"),
        "trunkline.auth.authorization_server.oauth_proxy": ("OAuthProxy",),
        "trunkline.auth.static_tokens": ("ApiKeys", "StaticTokens"),
        "trunkline.auth.verifiers": ("InvalidToken", "Verifier"),
        "trunkline.protocol.caller": ("Principal",),
    }
)


def __getattr__(name: str) -> Any:
    """Load a public name on first access (PEP 562)."""
    for home, names in _HOMES.items():
        if name in names:
            from importlib import import_module

            value = getattr(import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'trunkline.auth' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names."""
    return list(__all__)
