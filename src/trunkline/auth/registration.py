"""Choice of the client identity at an authorization server, and dynamic client registration where it is needed.

The order is the specification's: a pre-registered client, a client ID metadata document, and last dynamic registration.
A client that one authorization server knows is never shown to another.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from trunkline.auth.addresses import split
from trunkline.auth.metadata import ServerMetadata
from trunkline.auth.oauth import OAuth
from trunkline.auth.steps import Flow, Receive, post_json, shown
from trunkline.auth.tokens import Method, Registered
from trunkline.errors import AuthError, FetchError
from trunkline.net.addresses import is_loopback

__all__ = ["given_client", "identify"]

#: The supported methods, in order of preference for a public client.
_METHODS: tuple[Method, ...] = ("none", "client_secret_basic", "client_secret_post")
_SECRET_METHODS: tuple[Method, ...] = ("client_secret_basic", "client_secret_post")


class _Answer(Struct, frozen=True):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


class _Error(Struct, frozen=True):
    error: str
    error_description: str | None = None


def given_client(options: OAuth, server: ServerMetadata) -> Registered | None:
    """Return the configured client; None if there is none.

    Raises:
        AuthError: the credentials are for another authorization server, or this one does not accept their kind.
    """
    if options.client_id is None:
        return None
    if not options.trusts(server.issuer):
        raise AuthError(f"The client {options.client_id!r} is not for the authorization server {server.issuer}.")
    return Registered(
        issuer=server.issuer,
        client_id=options.client_id,
        client_secret=options.client_secret,
        method=_own_method(options, server),
        redirect_uri=options.redirect_uri,
    )


def _own_method(options: OAuth, server: ServerMetadata) -> Method:
    if options.private_key is not None:
        return "private_key_jwt"
    if options.client_secret is None:
        return "none"
    # RFC 8414: the default is Basic.
    offered = server.token_endpoint_auth_methods_supported or ("client_secret_basic",)
    for method in _SECRET_METHODS:
        if method in offered:
            return method
    raise AuthError(
        f"The authorization server {server.issuer} accepts no client secret, only {', '.join(offered)[:200]}: register "
        "the client there with one of these methods."
    )


def identify(
    options: OAuth, server: ServerMetadata, *, stored: Registered | None, scopes: Sequence[str]
) -> Flow[Registered]:
    """Choose the client to log in as, and start listening for its redirect.

    Raises:
        AuthError: there is no way to become a client of this authorization server.
    """
    given = given_client(options, server)
    if given is not None:
        return msgspec.structs.replace(given, redirect_uri=(yield from _receive(options.redirect_uri)))
    if options.client_metadata_url is not None and server.client_id_metadata_document_supported:
        redirect_uri = yield from _receive(options.redirect_uri)
        return Registered(issuer=server.issuer, client_id=options.client_metadata_url, redirect_uri=redirect_uri)
    if server.registration_endpoint is None:
        raise AuthError(
            f"The authorization server {server.issuer} has no dynamic registration: register a client there manually "
            "and set OAuth(client_id=...), with issuer= and client_secret= if it has a secret."
        )
    known = stored if stored is not None and _still_fits(stored, server, scopes) else None
    redirect_uri = yield from _receive(options.redirect_uri or (None if known is None else known.redirect_uri))
    if known is not None and known.redirect_uri == redirect_uri:
        return known
    return (yield from _register(options, server, redirect_uri=redirect_uri, scopes=scopes))


def _still_fits(stored: Registered, server: ServerMetadata, scopes: Sequence[str]) -> bool:
    covered = stored.scopes is None or set(scopes) <= set(stored.scopes)
    return stored.dynamic and stored.issuer == server.issuer and covered


def _receive(preferred: str | None) -> Flow[str]:
    answer = yield Receive(preferred)
    assert isinstance(answer, str)
    return answer


def _register(options: OAuth, server: ServerMetadata, *, redirect_uri: str, scopes: Sequence[str]) -> Flow[Registered]:
    assert server.registration_endpoint is not None
    parts = split(redirect_uri)
    asked = _method(server)
    request = {
        "client_name": options.client_name,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": asked,
        # The default is a web application, for which OpenID providers refuse loopback redirects.
        "application_type": "native" if parts is not None and is_loopback(parts.hostname) else "web",
        **({"scope": " ".join(scopes)} if scopes else {}),
        **({"client_uri": options.client_uri} if options.client_uri else {}),
    }
    answer = yield from post_json(server.registration_endpoint, msgspec.json.encode(request))
    who = f"The authorization server {server.issuer}"
    if isinstance(answer, FetchError):
        raise AuthError(f"{who} cannot be reached to register this client: {answer}") from answer
    if answer.status not in (200, 201):
        raise AuthError(
            f"{who} did not register this client{_reason(answer.body)} (status {answer.status}): register one "
            "manually and set OAuth(client_id=...)."
        )
    try:
        said = msgspec.json.decode(answer.body, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise AuthError(f"{who} answered the registration without a client_id.") from None
    return Registered(
        issuer=server.issuer,
        client_id=said.client_id,
        client_secret=said.client_secret,
        method=_agreed(said, asked, who),
        dynamic=True,
        redirect_uri=redirect_uri,
        scopes=tuple(scopes) or None,
    )


def _method(server: ServerMetadata) -> Method:
    """Choose how to authenticate at the token endpoint."""
    offered = server.token_endpoint_auth_methods_supported
    if offered is None:
        return "none"
    for method in _METHODS:
        if method in offered:
            return method
    raise AuthError(
        f"The authorization server {server.issuer} authenticates clients only by {', '.join(offered)[:200]}: register "
        "one manually and set OAuth(client_id=..., private_key=..., issuer=...)."
    )


def _agreed(said: _Answer, asked: Method, who: str) -> Method:
    method = said.token_endpoint_auth_method or asked
    for known in _METHODS:
        if method == known and (known == "none" or said.client_secret is not None):
            return known
    raise AuthError(
        f"{who} registered this client for {method[:80]!r}, which is not supported or lacks a client_secret."
    )


def _reason(body: bytes) -> str:
    try:
        said = msgspec.json.decode(body, type=_Error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    text = f"{said.error}: {said.error_description}" if said.error_description else said.error
    return f' ("{shown(text)}")'
