"""Finds out who gives tokens for a server: its own metadata first, then its authorization server's. A flow, no I/O.

Where the server has no metadata at all it is its own authorization server, as in the first revision that had
authorization. A document that is there but wrong ends the search: an older way is never a way around a check.
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
    """Who gives tokens for a server, and under which name it is known there."""

    server: ServerMetadata
    #: As the server published it, to be sent byte for byte.
    resource: str
    #: What the server says is needed for its basic use; None if it does not say.
    scopes: tuple[str, ...] | None
    #: Tokens have to be bound to a key.
    bound: bool = False


def discover(url: str, demand: Demand, options: OAuth) -> Flow[Found]:
    """Find the authorization server of the server at a URL.

    Raises:
        AuthError: it cannot be found, or what was found cannot be believed; the message says whose fault it is.
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
                f"The server {canonical(url)} says its metadata is at {named[:200]!r}, which is no https URL. Whoever "
                "runs it has to correct its WWW-Authenticate header."
            )
        answer = _answered((yield from get(named)), f"The server {canonical(url)}")
        if answer.status != 200:
            raise AuthError(
                f"The server {canonical(url)} says its metadata is at {named}, but there the answer is "
                f"{answer.status}. Whoever runs it has to correct that."
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
        raise AuthError(f"{who}: its metadata cannot be had: {answer}") from answer
    return answer


def _is_there(answer: Fetched) -> bool:
    """Tell whether a place has a document; many sites answer everything they do not know with a page."""
    return answer.status == 200 and not answer.headers.get("content-type", "").startswith("text/html")


def _only_missing(answer: Fetched, place: str) -> None:
    """Go on after an answer that says "not here"; one that says "not now" must not lead to an older way."""
    if (answer.status != 200 and not 400 <= answer.status < 500) or answer.status == 429:
        raise AuthError(f"{place} answered with status {answer.status} where metadata was looked for; try again later.")


def _choose(said: ResourceMetadata, options: OAuth, url: str) -> str:
    """Choose among the authorization servers that a server names: one that our credentials are for, or the first."""
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
            f"The server {canonical(url)} names the authorization server {issuer[:200]!r}, which is no https URL."
        )
    return issuer


def _trusted(options: OAuth) -> str:
    return options.issuer if isinstance(options.issuer, str) else "others"


def discover_server(issuer: str) -> Flow[ServerMetadata]:
    """Find an authorization server's metadata in the specified order of places.

    Raises:
        AuthError: there is none, or it cannot be believed.
    """
    found = yield from _server(issuer)
    if found is None:
        raise AuthError(
            f"The authorization server {issuer} has no metadata at {' or '.join(server_urls(issuer))}. Whoever runs it "
            "has to publish it."
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
    """Take the server itself for the authorization server, with or without metadata."""
    issuer = origin(url)
    if not options.trusts(issuer):
        raise AuthError(
            f"The server {canonical(url)} names no authorization server, and the credentials are for "
            f"{_trusted(options)}: nothing was sent. Whoever runs it has to publish protected resource metadata."
        )
    return (yield from _server(issuer)) or default_server(url)
