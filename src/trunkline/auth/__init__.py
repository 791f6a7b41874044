"""Authorization: who may call a server, and how a client obtains the credentials to call one.

Import from here: the modules inside are not part of the public API, whatever their names. Names are loaded on first
access, because some of them (signatures, key stores) take longer to import than a small server takes to start. Nothing
here knows transports.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trunkline._lazy import lazy_exports

if TYPE_CHECKING:
    from trunkline.auth.authorization_server.oauth_proxy import OAuthProxy, ProxyOptions
    from trunkline.auth.authorization_server.records import OAuthClient
    from trunkline.auth.authorization_server.server import AuthorizationServer
    from trunkline.auth.authorization_server.settings import IssuerOptions, hash_password
    from trunkline.auth.client import LoggedOut, log_out
    from trunkline.auth.credential_store import (
        CredentialStore,
        FileStore,
        KeyringStore,
        MemoryStore,
        default_folder,
        find_store,
        try_lock,
    )
    from trunkline.auth.introspection import IntrospectionVerifier
    from trunkline.auth.jwt_verifier import JWTVerifier
    from trunkline.auth.oauth import ApiKey, BearerToken, OAuth
    from trunkline.auth.static_tokens import ApiKeys, StaticTokens
    from trunkline.auth.verifiers import Authenticate, InvalidToken, ServerAuth, Verifier
    from trunkline.protocol.caller import Principal

__all__ = [
    "ApiKey",
    "ApiKeys",
    "Authenticate",
    "AuthorizationServer",
    "BearerToken",
    "CredentialStore",
    "FileStore",
    "IntrospectionVerifier",
    "InvalidToken",
    "IssuerOptions",
    "JWTVerifier",
    "KeyringStore",
    "LoggedOut",
    "MemoryStore",
    "OAuth",
    "OAuthClient",
    "OAuthProxy",
    "Principal",
    "ProxyOptions",
    "ServerAuth",
    "StaticTokens",
    "Verifier",
    "default_folder",
    "find_store",
    "hash_password",
    "log_out",
    "try_lock",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "trunkline.auth.authorization_server.oauth_proxy": ("OAuthProxy", "ProxyOptions"),
            "trunkline.auth.authorization_server.server": ("AuthorizationServer",),
            "trunkline.auth.authorization_server.settings": ("IssuerOptions", "hash_password"),
            "trunkline.auth.authorization_server.records": ("OAuthClient",),
            "trunkline.auth.client": ("LoggedOut", "log_out"),
            "trunkline.auth.credential_store": (
                "CredentialStore",
                "FileStore",
                "KeyringStore",
                "MemoryStore",
                "default_folder",
                "find_store",
                "try_lock",
            ),
            "trunkline.auth.introspection": ("IntrospectionVerifier",),
            "trunkline.auth.jwt_verifier": ("JWTVerifier",),
            "trunkline.auth.oauth": ("ApiKey", "BearerToken", "OAuth"),
            "trunkline.auth.static_tokens": ("ApiKeys", "StaticTokens"),
            "trunkline.auth.verifiers": ("Authenticate", "InvalidToken", "ServerAuth", "Verifier"),
            "trunkline.protocol.caller": ("Principal",),
        },
    )
