"""The two documents that say who gives out tokens: the protected resource's and the authorization server's.

Where they are looked for, in which order, what they must say, and whether they may be believed. Both are strangers'
words: a document that does not name the very thing it was asked about is refused.
"""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.auth.addresses import canonical, covers, may_carry_secrets, openable, origin, split
from trunkline.errors import AuthError
from trunkline.net import Fetched
from trunkline.net.addresses import is_loopback

__all__ = [
    "ResourceMetadata",
    "ServerMetadata",
    "default_server",
    "read_resource",
    "read_server",
    "resource_urls",
    "server_urls",
]

_RESOURCE = "/.well-known/oauth-protected-resource"
_SERVER = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
T = TypeVar("T", bound=Struct)


class ResourceMetadata(Struct, frozen=True):
    """What a protected server says of itself (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] | None = None
    dpop_bound_access_tokens_required: bool = False


class ServerMetadata(Struct, frozen=True):
    """What an authorization server says of itself (RFC 8414, OpenID Connect Discovery)."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: tuple[str, ...] | None = None
    grant_types_supported: tuple[str, ...] | None = None
    code_challenge_methods_supported: tuple[str, ...] | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] | None = None
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False
    dpop_signing_alg_values_supported: tuple[str, ...] | None = None


# --- the protected resource -------------------------------------------------------------------------------------------


def resource_urls(server: str) -> list[str]:
    """List where a server's metadata may be if it does not say: for its path, then at the root."""
    root, path = origin(server) + _RESOURCE, urlsplit(server).path.rstrip("/")
    return [root + path, root] if path else [root]


def read_resource(answer: Fetched, *, url: str, server: str) -> ResourceMetadata:
    """Read the metadata of a server.

    Raises:
        AuthError: it is malformed, speaks of another server, or names no authorization server.
    """
    said = _read(answer, ResourceMetadata, f"The server {server}", url)
    # RFC 9728, 3.3: it must name the resource it was asked about, else a token for a third party would end up here.
    # A document among the well-known ones is the host's own word, and may speak of a folder that the server is in.
    own = split(url) is not None and origin(url) == origin(server) and urlsplit(url).path.startswith(_RESOURCE)
    good = split(said.resource) is not None and not urlsplit(said.resource).fragment
    if not good or not (covers(said.resource, server) if own else canonical(said.resource) == canonical(server)):
        raise AuthError(
            f"The metadata at {url} speaks of {said.resource[:200]!r} and not of {server}: no token was asked for. "
            "Whoever runs the server has to correct the resource in it."
        )
    if not said.authorization_servers:
        raise AuthError(
            f"The metadata at {url} names no authorization server; whoever runs {server} has to add "
            "authorization_servers."
        )
    return said


# --- the authorization server -----------------------------------------------------------------------------------------


def server_urls(issuer: str) -> list[str]:
    """List where an authorization server's metadata may be, in the order of the specification."""
    root, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    if not path:
        return [root + _SERVER, root + _OPENID]
    return [root + _SERVER + path, root + _OPENID + path, root + path + _OPENID]


def read_server(answer: Fetched, *, url: str, issuer: str) -> ServerMetadata:
    """Read the metadata of an authorization server.

    Raises:
        AuthError: it is malformed, is of another issuer, or has endpoints that cannot be trusted.
    """
    who = f"The authorization server {issuer}"
    said = _read(answer, ServerMetadata, who, url)
    if said.issuer != issuer:
        # RFC 8414, 3.3: identical, or the document must not be used.
        raise AuthError(
            f"The metadata at {url} is of the issuer {said.issuer[:200]!r} and not of {issuer}: it is not used. "
            "Whoever runs the authorization server, or the server that names it, has to correct that."
        )
    for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"):
        endpoint = getattr(said, name)
        if endpoint is None:
            continue
        # Nobody but this machine itself may send us to this machine.
        here = not is_loopback(urlsplit(issuer).hostname) and is_loopback(urlsplit(endpoint).hostname)
        if not may_carry_secrets(endpoint) or urlsplit(endpoint).fragment or here:
            raise AuthError(
                f"{who} has the {name} {endpoint[:200]!r}, which is no https URL of the web: it is not used."
            )
    if said.authorization_endpoint is not None and not openable(said.authorization_endpoint):
        raise AuthError(
            f"{who} has the authorization_endpoint {said.authorization_endpoint[:200]!r}, to which no browser is sent."
        )
    _check_mix_up(said)
    return said


def _check_mix_up(said: ServerMetadata) -> None:
    """Refuse a server that sends the user to one party and the code to another, where nothing would show it."""
    page, token = said.authorization_endpoint, said.token_endpoint
    if page is None or token is None or said.authorization_response_iss_parameter_supported:
        return
    if origin(page) not in (origin(said.issuer), origin(token)):
        raise AuthError(
            f"The authorization server {said.issuer} has its login page at {origin(page)} and its token_endpoint at "
            f"{origin(token)}, and does not say who answers (iss): the code could reach the wrong party. Nothing was "
            "sent; whoever runs it has to turn the iss parameter on."
        )


def default_server(server: str) -> ServerMetadata:
    """Give the endpoints of a server that has no metadata at all, as the first revision with authorization had them."""
    root = origin(server)
    return ServerMetadata(
        issuer=root,
        authorization_endpoint=f"{root}/authorize",
        token_endpoint=f"{root}/token",
        registration_endpoint=f"{root}/register",
        code_challenge_methods_supported=("S256",),
        token_endpoint_auth_methods_supported=("none", "client_secret_post", "client_secret_basic"),
    )


def _read(answer: Fetched, kind: type[T], who: str, url: str) -> T:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AuthError(f"{who}: its metadata at {url} is malformed ({str(error)[:200]}).") from None
