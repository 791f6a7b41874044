"""Discovery of the authorization server.

Where the metadata of a protected resource (RFC 9728) and of an authorization server (RFC 8414, OpenID Connect
Discovery) is looked for, how it is validated, and the flow that fetches both. A flow, no I/O. Both documents are
untrusted: one that does not name the resource or issuer it was requested for is rejected. A document that exists but
is invalid ends discovery: an older mechanism is never a way around a check.
"""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.auth.oauth import OAuth, canonical_url, covers, is_openable, may_carry_secrets, origin, split_web_url
from trunkline.auth.steps import Flow, get
from trunkline.auth.www_authenticate import TokenChallenge
from trunkline.errors import AuthError, FetchError
from trunkline.net import FetchResponse
from trunkline.net.addresses import is_loopback

__all__ = [
    "AuthorizationServerMetadata",
    "DiscoveryResult",
    "ResourceMetadata",
    "default_server_metadata",
    "discover",
    "discover_server",
    "find_server",
    "parse_resource_metadata",
    "parse_server_metadata",
    "resource_metadata_urls",
    "server_metadata_urls",
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


class AuthorizationServerMetadata(Struct, frozen=True):
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


def resource_metadata_urls(server: str) -> list[str]:
    """List the well-known URLs of a server's metadata: for its path, then at the root."""
    root, path = origin(server) + _RESOURCE, urlsplit(server).path.rstrip("/")
    return [root + path, root] if path else [root]


def parse_resource_metadata(answer: FetchResponse, *, url: str, server: str) -> ResourceMetadata:
    """Parse and validate the metadata of a server.

    Raises:
        AuthError: it is malformed, describes another server, or names no authorization server.
    """
    metadata = _read(answer, ResourceMetadata, f"The server {server}", url)
    # RFC 9728, 3.3: it must name the resource it was requested for, else a token for a third party would be sent here.
    # A document at a well-known URL is published by the host itself, and may describe a parent path of the server.
    own = split_web_url(url) is not None and origin(url) == origin(server) and urlsplit(url).path.startswith(_RESOURCE)
    good = split_web_url(metadata.resource) is not None and not urlsplit(metadata.resource).fragment
    if not good or not (
        covers(metadata.resource, server) if own else canonical_url(metadata.resource) == canonical_url(server)
    ):
        raise AuthError(
            f"The metadata at {url} describes {metadata.resource[:200]!r} and not {server}: no token was requested. "
            "The server's operator must correct its resource member."
        )
    if not metadata.authorization_servers:
        raise AuthError(
            f"The metadata at {url} names no authorization server; the operator of {server} must add "
            "authorization_servers."
        )
    return metadata


# --- the authorization server -----------------------------------------------------------------------------------------


def server_metadata_urls(issuer: str) -> list[str]:
    """List the URLs of an authorization server's metadata, in the order of the specification."""
    root, path = origin(issuer), urlsplit(issuer).path.rstrip("/")
    if not path:
        return [root + _SERVER, root + _OPENID]
    return [root + _SERVER + path, root + _OPENID + path, root + path + _OPENID]


def parse_server_metadata(answer: FetchResponse, *, url: str, issuer: str) -> AuthorizationServerMetadata:
    """Parse and validate the metadata of an authorization server.

    Raises:
        AuthError: it is malformed, belongs to another issuer, or has endpoints that cannot be trusted.
    """
    who = f"The authorization server {issuer}"
    metadata = _read(answer, AuthorizationServerMetadata, who, url)
    if metadata.issuer != issuer:
        # RFC 8414, 3.3: identical, or the document must not be used.
        raise AuthError(
            f"The metadata at {url} has the issuer {metadata.issuer[:200]!r} instead of {issuer}: it is not used. "
            "The operator of the authorization server, or of the server that names it, must correct that."
        )
    for name in ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint"):
        endpoint = getattr(metadata, name)
        if endpoint is None:
            continue
        parts = split_web_url(endpoint)
        # A remote issuer may not direct us to loopback addresses.
        here = parts is not None and not is_loopback(urlsplit(issuer).hostname) and is_loopback(parts.hostname)
        if parts is None or not may_carry_secrets(endpoint) or parts.fragment or here:
            raise AuthError(
                f"{who} has the {name} {endpoint[:200]!r}, which is not a public https URL: it is not used."
            )
    if metadata.authorization_endpoint is not None and not is_openable(metadata.authorization_endpoint):
        raise AuthError(
            f"{who} has the authorization_endpoint {metadata.authorization_endpoint[:200]!r}, which is not safe to "
            "open."
        )
    _check_mix_up(metadata)
    return metadata


def _check_mix_up(metadata: AuthorizationServerMetadata) -> None:
    """Reject a server whose login page and token endpoint differ in origin, unless its redirects name the issuer."""
    page, token = metadata.authorization_endpoint, metadata.token_endpoint
    if page is None or token is None or metadata.authorization_response_iss_parameter_supported:
        return
    if origin(page) not in (origin(metadata.issuer), origin(token)):
        raise AuthError(
            f"The authorization server {metadata.issuer} has its login page at {origin(page)} and its token_endpoint "
            f"at {origin(token)}, and sends no iss parameter: the code could reach the wrong party. Nothing was sent; "
            "its operator must turn the iss parameter on."
        )


def default_server_metadata(server: str) -> AuthorizationServerMetadata:
    """Return the default endpoints of a server without metadata, as in the first revision with authorization."""
    root = origin(server)
    return AuthorizationServerMetadata(
        issuer=root,
        authorization_endpoint=f"{root}/authorize",
        token_endpoint=f"{root}/token",
        registration_endpoint=f"{root}/register",
        code_challenge_methods_supported=("S256",),
        token_endpoint_auth_methods_supported=("none", "client_secret_post", "client_secret_basic"),
    )


def _read(answer: FetchResponse, kind: type[T], who: str, url: str) -> T:
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AuthError(f"{who}: its metadata at {url} is malformed ({str(error)[:200]}).") from None


class DiscoveryResult(Struct, frozen=True):
    """The authorization server of a server, and the resource to request tokens for."""

    server: AuthorizationServerMetadata
    #: As the server published it; sent unchanged.
    resource: str
    #: The scopes the server lists for basic use; None if it lists none.
    scopes: tuple[str, ...] | None
    #: Tokens must be bound to a key.
    bound: bool = False


def discover(url: str, challenge: TokenChallenge, options: OAuth) -> Flow[DiscoveryResult]:
    """Find the authorization server of the server at a URL.

    Raises:
        AuthError: it cannot be found, or its metadata is invalid; the message names the party at fault.
    """
    metadata = yield from _resource(url, challenge)
    if metadata is None:
        server = yield from _old_server(url, options)
        return DiscoveryResult(server, canonical_url(url), None, challenge.scheme == "dpop")
    issuer = _choose(metadata, options, url)
    server = yield from discover_server(issuer)
    bound = metadata.dpop_bound_access_tokens_required or challenge.scheme == "dpop"
    return DiscoveryResult(server, metadata.resource, metadata.scopes_supported, bound)


def _resource(url: str, challenge: TokenChallenge) -> Flow[ResourceMetadata | None]:
    named = challenge.resource_metadata
    if named is not None:
        if split_web_url(named) is None or not may_carry_secrets(named):
            raise AuthError(
                f"The server {canonical_url(url)} says its metadata is at {named[:200]!r}, which is not an https URL. "
                "The server's operator must correct its WWW-Authenticate header."
            )
        answer = _answered((yield from get(named)), f"The server {canonical_url(url)}")
        if answer.status != 200:
            raise AuthError(
                f"The server {canonical_url(url)} says its metadata is at {named}, but a request there returned status "
                f"{answer.status}. The server's operator must correct that."
            )
        return parse_resource_metadata(answer, url=named, server=canonical_url(url))
    for place in resource_metadata_urls(url):
        answer = _answered((yield from get(place)), f"The server {canonical_url(url)}")
        if _is_there(answer):
            return parse_resource_metadata(answer, url=place, server=canonical_url(url))
        _only_missing(answer, place)
    return None


def _answered(answer: FetchResponse | FetchError, who: str) -> FetchResponse:
    if isinstance(answer, FetchError):
        raise AuthError(f"{who}: its metadata could not be fetched: {answer}") from answer
    return answer


def _is_there(answer: FetchResponse) -> bool:
    """Return True if a response is a document; many sites answer unknown paths with an HTML page."""
    return answer.status == 200 and not answer.headers.get("content-type", "").startswith("text/html")


def _only_missing(answer: FetchResponse, place: str) -> None:
    """Accept a "not found" response; a temporary failure must not lead to an older mechanism."""
    if (answer.status != 200 and not 400 <= answer.status < 500) or answer.status == 429:
        raise AuthError(f"The request for metadata at {place} returned status {answer.status}; try again later.")


def _choose(metadata: ResourceMetadata, options: OAuth, url: str) -> str:
    """Choose from the authorization servers that a server names: the first that our credentials are for."""
    for issuer in metadata.authorization_servers:
        if options.trusts(issuer):
            break
    else:
        raise AuthError(
            f"The server {canonical_url(url)} names the authorization server "
            f"{metadata.authorization_servers[0][:200]!r}, which {_trusted(options)} does not trust. No credentials "
            "were sent. If the server has moved, register with the new one and set issuer= and the new credentials."
        )
    parts = split_web_url(issuer)
    if parts is None or not may_carry_secrets(issuer) or parts.query or parts.fragment:
        raise AuthError(
            f"The server {canonical_url(url)} names the authorization server {issuer[:200]!r}, which is not an "
            "https URL."
        )
    return issuer


def _trusted(options: OAuth) -> str:
    return f"OAuth(issuer={options.issuer!r})" if isinstance(options.issuer, str) else "OAuth(issuer=...)"


def discover_server(issuer: str) -> Flow[AuthorizationServerMetadata]:
    """Fetch the metadata of an authorization server, trying its URLs in the specified order.

    Raises:
        AuthError: there is none, or it is invalid.
    """
    found = yield from find_server(issuer)
    if found is None:
        raise AuthError(
            f"The authorization server {issuer} has no metadata at {' or '.join(server_metadata_urls(issuer))}. "
            "Its operator must publish it."
        )
    return found


def find_server(issuer: str) -> Flow[AuthorizationServerMetadata | None]:
    """Fetch the metadata of an authorization server as ``discover_server`` does; return None if there is none.

    Raises:
        AuthError: it is invalid.
    """
    for place in server_metadata_urls(issuer):
        answer = _answered((yield from get(place)), f"The authorization server {issuer}")
        if _is_there(answer):
            return parse_server_metadata(answer, url=place, issuer=issuer)
        _only_missing(answer, place)
    return None


def _old_server(url: str, options: OAuth) -> Flow[AuthorizationServerMetadata]:
    """Use the server itself as the authorization server, with or without metadata."""
    issuer = origin(url)
    if not options.trusts(issuer):
        raise AuthError(
            f"The server {canonical_url(url)} names no authorization server, and {_trusted(options)} does not "
            "trust the server itself. No credentials were sent. Its operator must publish protected resource metadata."
        )
    return (yield from find_server(issuer)) or default_server_metadata(url)
