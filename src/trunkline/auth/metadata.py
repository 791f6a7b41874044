"""The metadata documents that lead to tokens: of the protected resource and of the authorization server.

Where they are looked for, in which order, and how they are validated. Both are untrusted: a document that does not name
the resource or issuer it was requested for is rejected.
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
    """Protected resource metadata (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...] = ()
    scopes_supported: tuple[str, ...] | None = None
    dpop_bound_access_tokens_required: bool = False


class ServerMetadata(Struct, frozen=True):
    """Authorization server metadata (RFC 8414, OpenID Connect Discovery)."""

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
    """List the well-known URLs of a server's metadata: for its path, then at the root."""
    root, path = origin(server) + _RESOURCE, urlsplit(server).path.rstrip("/")
    return [root + path, root] if path else [root]


def read_resource(answer: Fetched, *, url: str, server: str) -> ResourceMetadata:
    """Parse and validate the metadata of a server.

    Raises:
        AuthError: it is malformed, describes another server, or names no authorization server.
    """
    said = _read(answer, ResourceMetadata, f"The server {server}", url)
    # RFC 9728, 3.3: it must name the resource it was requested for, else a token for a third party would be sent here.
    # A document at a well-known URL is published by the host itself, and may describe a parent path of the server.
    own = split(url) is not None and origin(url) == origin(server) and urlsplit(url).path.startswith(_RESOURCE)
    good = split(said.resource) is not None and not urlsplit(said.resource).fragment
    if not good or not (covers(said.resource, server) if own else canonical(said.resource) == canonical(server)):
        raise AuthError(
            f"The metadata at {url} describes {said.resource[:200]!r} and not {server}: no token was requested. "
            "The server's operator must correct its resource member."
        )
    if not said.authorization_servers:
        raise AuthError(
            f"The metadata at {url} names no authorization server; the operator of {server} must add "
            "authorization_servers."
        )
    return said


# --- the authorization server -----------------------------------------------------------------------------------------


def server_urls(issuer: str) -> list[str]:
    """List the URLs of an authorization server's metadata, in the order of the specification."""
    root, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    if not path:
        return [root + _SERVER, root + _OPENID]
    return [root + _SERVER + path, root + _OPENID + path, root + path + _OPENID]


def read_server(answer: Fetched, *, url: str, issuer: str) -> ServerMetadata:
    """Parse and validate the metadata of an authorization server.

    Raises:
        AuthError: it is malformed, belongs to another issuer, or has endpoints that cannot be trusted.
    """
    who = f"The authorization server {issuer}"
    said = _read(answer, ServerMetadata, who, url)
    if said.issuer != issuer:
        # RFC 8414, 3.3: identical, or the document must not be used.
        raise AuthError(
            f"The metadata at {url} has the issuer {said.issuer[:200]!r} instead of {issuer}: it is not used. "
            "The operator of the authorization server, or of the server that names it, must correct that."
        )
    for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"):
        endpoint = getattr(said, name)
        if endpoint is None:
            continue
        # A remote issuer may not direct us to loopback addresses.
        here = not is_loopback(urlsplit(issuer).hostname) and is_loopback(urlsplit(endpoint).hostname)
        if not may_carry_secrets(endpoint) or urlsplit(endpoint).fragment or here:
            raise AuthError(
                f"{who} has the {name} {endpoint[:200]!r}, which is not a public https URL: it is not used."
            )
    if said.authorization_endpoint is not None and not openable(said.authorization_endpoint):
        raise AuthError(
            f"{who} has the authorization_endpoint {said.authorization_endpoint[:200]!r}, which is not safe to open."
        )
    _check_mix_up(said)
    return said


def _check_mix_up(said: ServerMetadata) -> None:
    """Reject a server whose login page and token endpoint differ in origin, unless its redirects name the issuer."""
    page, token = said.authorization_endpoint, said.token_endpoint
    if page is None or token is None or said.authorization_response_iss_parameter_supported:
        return
    if origin(page) not in (origin(said.issuer), origin(token)):
        raise AuthError(
            f"The authorization server {said.issuer} has its login page at {origin(page)} and its token_endpoint at "
            f"{origin(token)}, and sends no iss parameter: the code could reach the wrong party. Nothing was sent; its "
            "operator must turn the iss parameter on."
        )


def default_server(server: str) -> ServerMetadata:
    """Return the default endpoints of a server without metadata, as in the first revision with authorization."""
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
