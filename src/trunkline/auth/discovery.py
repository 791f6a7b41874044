"""Discovery of a server's authorization server: first the server's own metadata, then that of the authorization server.

A flow, no I/O. A server without any metadata is its own authorization server, as in the first revision that had
authorization. A document that exists but is invalid ends discovery: an older mechanism is never a way around a check.
"""

from __future__ import annotations

from msgspec import Struct

from trunkline.auth.addresses import canonical, may_carry_secrets, origin, split
from trunkline.auth.demands import Demand
from trunkline.auth.metadata import (
    ResourceMetadata,
    ServerMetadata,
    default_server,
    read_resource,
    read_server,
    resource_urls,
    server_urls,
)
from trunkline.auth.oauth import OAuth
from trunkline.auth.steps import Flow, get
from trunkline.errors import AuthError, FetchError
from trunkline.net import Fetched

__all__ = ["Found", "discover", "discover_server"]


class Found(Struct, frozen=True):
    """The authorization server of a server, and the resource to request tokens for."""

    server: ServerMetadata
    #: As the server published it; sent unchanged.
    resource: str
    #: The scopes the server lists for basic use; None if it lists none.
    scopes: tuple[str, ...] | None
    #: Tokens must be bound to a key.
    bound: bool = False


def discover(url: str, demand: Demand, options: OAuth) -> Flow[Found]:
    """Find the authorization server of the server at a URL.

    Raises:
        AuthError: it cannot be found, or its metadata is invalid; the message names the party at fault.
    """
    said = yield from _resource(url, demand)
    if said is None:
        server = yield from _old_server(url, options)
        return Found(server, canonical(url), None, demand.scheme == "dpop")
    issuer = _choose(said, options, url)
    server = yield from discover_server(issuer)
    bound = said.dpop_bound_access_tokens_required or demand.scheme == "dpop"
    return Found(server, said.resource, said.scopes_supported, bound)


def _resource(url: str, demand: Demand) -> Flow[ResourceMetadata | None]:
    named = demand.resource_metadata
    if named is not None:
        if split(named) is None or not may_carry_secrets(named):
            raise AuthError(
                f"The server {canonical(url)} says its metadata is at {named[:200]!r}, which is not an https URL. The "
                "server's operator must correct its WWW-Authenticate header."
            )
        answer = _answered((yield from get(named)), f"The server {canonical(url)}")
        if answer.status != 200:
            raise AuthError(
                f"The server {canonical(url)} says its metadata is at {named}, but a request there returned status "
                f"{answer.status}. The server's operator must correct that."
            )
        return read_resource(answer, url=named, server=canonical(url))
    for place in resource_urls(url):
        answer = _answered((yield from get(place)), f"The server {canonical(url)}")
        if _is_there(answer):
            return read_resource(answer, url=place, server=canonical(url))
        _only_missing(answer, place)
    return None


def _answered(answer: Fetched | FetchError, who: str) -> Fetched:
    if isinstance(answer, FetchError):
        raise AuthError(f"{who}: its metadata could not be fetched: {answer}") from answer
    return answer


def _is_there(answer: Fetched) -> bool:
    """Return True if a response is a document; many sites answer unknown paths with an HTML page."""
    return answer.status == 200 and not answer.headers.get("content-type", "").startswith("text/html")


def _only_missing(answer: Fetched, place: str) -> None:
    """Accept a "not found" response; a temporary failure must not lead to an older mechanism."""
    if (answer.status != 200 and not 400 <= answer.status < 500) or answer.status == 429:
        raise AuthError(f"The request for metadata at {place} returned status {answer.status}; try again later.")


def _choose(said: ResourceMetadata, options: OAuth, url: str) -> str:
    """Choose from the authorization servers that a server names: the first that our credentials are for."""
    for issuer in said.authorization_servers:
        if options.trusts(issuer):
            break
    else:
        raise AuthError(
            f"The server {canonical(url)} names the authorization server {said.authorization_servers[0][:200]!r}, but "
            f"the credentials are for {_trusted(options)}: nothing was sent. If the server has moved, register with "
            "the new one and give issuer= and the new credentials."
        )
    parts = split(issuer)
    if parts is None or not may_carry_secrets(issuer) or parts.query or parts.fragment:
        raise AuthError(
            f"The server {canonical(url)} names the authorization server {issuer[:200]!r}, which is not an https URL."
        )
    return issuer


def _trusted(options: OAuth) -> str:
    return options.issuer if isinstance(options.issuer, str) else "others"


def discover_server(issuer: str) -> Flow[ServerMetadata]:
    """Fetch the metadata of an authorization server, trying its URLs in the specified order.

    Raises:
        AuthError: there is none, or it is invalid.
    """
    found = yield from _server(issuer)
    if found is None:
        raise AuthError(
            f"The authorization server {issuer} has no metadata at {' or '.join(server_urls(issuer))}. Its operator "
            "must publish it."
        )
    return found


def _server(issuer: str) -> Flow[ServerMetadata | None]:
    for place in server_urls(issuer):
        answer = _answered((yield from get(place)), f"The authorization server {issuer}")
        if _is_there(answer):
            return read_server(answer, url=place, issuer=issuer)
        _only_missing(answer, place)
    return None


def _old_server(url: str, options: OAuth) -> Flow[ServerMetadata]:
    """Use the server itself as the authorization server, with or without metadata."""
    issuer = origin(url)
    if not options.trusts(issuer):
        raise AuthError(
            f"The server {canonical(url)} names no authorization server, and the credentials are for "
            f"{_trusted(options)}: nothing was sent. The server's operator must publish protected resource metadata."
        )
    return (yield from _server(issuer)) or default_server(url)
