"""A whole login, and a token refresh, as generators: they yield what to do and are sent the result.

No connection, browser or file is opened here. What the user, the server and the authorization server send is validated
before anything secret leaves: the issuer before a registration, the redirect before the code is used.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from trunkline.auth.addresses import canonical
from trunkline.auth.demands import Demand
from trunkline.auth.discovery import Found, discover, discover_server
from trunkline.auth.grants import Asking, exchange_id_token, request_token, token_set
from trunkline.auth.metadata import ServerMetadata
from trunkline.auth.oauth import OAuth
from trunkline.auth.registration import given_client, identify
from trunkline.auth.signing import ProofKey, digest
from trunkline.auth.steps import Flow, Sources, Visit, shown
from trunkline.auth.tokens import Login, Registered, TokenAnswer
from trunkline.errors import AuthError

__all__ = ["Wish", "log_in", "renew"]

_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_OFFLINE = "offline_access"


class Wish(Struct, frozen=True, kw_only=True):
    """A login to perform: the server, its challenge, and what is known from before."""

    #: The server's URL.
    url: str
    #: The challenge of the rejected request.
    demand: Demand
    options: OAuth
    #: The scopes that were requested in earlier logins.
    before: tuple[str, ...] = ()
    #: The clients that are registered already.
    known: tuple[Registered, ...] = ()
    #: The assertion or ID token that the grant needs.
    secret: str | None = None
    sources: Sources = Sources()

    def __repr__(self) -> str:
        """Show no secret."""
        return f"LoginRequest({self.url!r}, …)"


def log_in(wish: Wish) -> Flow[tuple[Login, ProofKey | None]]:
    """Obtain a token for a server.

    Raises:
        AuthError: the login failed; the message names the party at fault and the next step.
    """
    options = wish.options
    found = yield from discover(wish.url, wish.demand, options)
    scopes = _scopes(wish, found)
    if options.grant == "authorization_code":
        return (yield from _with_a_person(wish, found, scopes))
    asking = _asking(wish, found, given_client(options, found.server))
    answer = yield from _GRANTS[options.grant](asking, wish.secret or "", scopes)
    return _login(asking, answer, scopes)


def _asking(wish: Wish, found: Found, client: Registered | None) -> Asking:
    options = wish.options
    key = None
    if options.dpop is True or (options.dpop == "auto" and found.bound):
        offered = found.server.dpop_signing_alg_values_supported
        if offered is None or "ES256" not in offered:
            raise AuthError(
                f"The server {canonical(wish.url)} requires tokens that are bound to a key (DPoP), but its "
                f"authorization server {found.server.issuer} does not support that with ES256."
            )
        key = ProofKey(sources=wish.sources)
    return Asking(found.server, client, found.resource, options, wish.sources, key)


def _login(asking: Asking, answer: TokenAnswer, scopes: Sequence[str]) -> tuple[Login, ProofKey | None]:
    client = asking.client or Registered(issuer=asking.server.issuer, client_id="")
    if not client.dynamic:
        # A configured secret is configured next time too, so it need not be stored.
        client = replace(client, client_secret=None)
    tokens = token_set(answer, asking, requested=scopes)
    key = None if asking.key is None else asking.key.stored
    return Login(tokens=tokens, client=client, server=asking.server, key=key), asking.key


def _scopes(wish: Wish, found: Found) -> tuple[str, ...]:
    """Choose the scopes to request: the user's, else the challenge's, else those the server lists for basic use.

    Scopes of earlier logins are kept; after an ``insufficient_scope`` challenge its scopes are added.
    """
    options, demand = wish.options, wish.demand
    base: Sequence[str] = demand.scopes or found.scopes or ()
    if options.scopes is not None:
        base = (*options.scopes, *(demand.scopes if demand.error == "insufficient_scope" else ()))
    elif wish.before and not demand.scopes:
        base = ()
    wanted = dict.fromkeys((*wish.before, *base))
    offline = options.grant == "authorization_code" and _OFFLINE in (found.server.scopes_supported or ())
    if wanted and offline and options.scopes is None:
        wanted[_OFFLINE] = None
    return tuple(wanted)


# --- the user logs in -------------------------------------------------------------------------------------------------


def _with_a_person(wish: Wish, found: Found, scopes: tuple[str, ...]) -> Flow[tuple[Login, ProofKey | None]]:
    server = found.server
    _check_page(server, wish.options)
    stored = next((client for client in wish.known if client.issuer == server.issuer), None)
    registered = tuple(dict.fromkeys((*scopes, *(found.scopes or ())))) if scopes else ()
    client = yield from identify(wish.options, server, stored=stored, scopes=registered)
    asking = _asking(wish, found, client)
    state, verifier = wish.sources.token(), wish.sources.token() + wish.sources.token()
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": client.redirect_uri or "",
        "state": state,
        "code_challenge": digest(verifier),
        "code_challenge_method": "S256",
        "resource": found.resource,
        **({"scope": " ".join(scopes)} if scopes else {}),
        # OpenID Connect, 11: without it, the request for offline access is ignored.
        **({"prompt": "consent"} if _OFFLINE in scopes else {}),
        **({} if asking.key is None else {"dpop_jkt": asking.key.thumbprint}),
    }
    page = server.authorization_endpoint or ""
    redirect = yield Visit(f"{page}{'&' if '?' in page else '?'}{urlencode(query)}", state)
    assert isinstance(redirect, Mapping)
    form = {
        "grant_type": "authorization_code",
        "code": _code(redirect, server, state),
        "redirect_uri": client.redirect_uri or "",
        "code_verifier": verifier,
    }
    return _login(asking, (yield from request_token(asking, form)), scopes)


def _check_page(server: ServerMetadata, options: OAuth) -> None:
    who = f"The authorization server {server.issuer}"
    if server.authorization_endpoint is None or server.token_endpoint is None:
        raise AuthError(f"{who} publishes no authorization_endpoint or no token_endpoint; its operator must add it.")
    methods = server.code_challenge_methods_supported
    if methods is None and options.assume_pkce:
        return
    if "S256" not in (methods or ()):
        # Security Considerations, Authorization Code Protection: then clients must refuse to proceed.
        raise AuthError(
            f"{who} does not announce PKCE with S256 (code_challenge_methods_supported), so the login was not started. "
            "Its operator must turn that on; if it is on and only not announced, set OAuth(assume_pkce=True)."
        )


def _code(redirect: Mapping[str, str], server: ServerMetadata, state: str) -> str:
    """Return the code of a redirect, once the redirect is known to belong to our request.

    Raises:
        AuthError: it belongs to another request, or says that the login failed.
    """
    who = f"The authorization server {server.issuer}"
    if not hmac.compare_digest(redirect.get("state", "").encode(), state.encode()):
        raise AuthError(
            "The login ended with a redirect of another login (state does not match), which was ignored. Try again."
        )
    issuer = redirect.get("iss")
    # 2026-07-28, basic/authorization, Authorization Response Validation: compared as plain text, before anything else
    # of the redirect is acted on or shown.
    if issuer is None and server.authorization_response_iss_parameter_supported:
        raise AuthError(
            f"{who} announces the iss parameter, but its redirect has none: the login was stopped. Try again."
        )
    if issuer is not None and issuer != server.issuer:
        raise AuthError(
            f"The login ended with a redirect that is not from {server.issuer} (iss): the login was stopped."
        )
    if "error" in redirect:
        raise AuthError(f"{who} ended the login: {_shown(redirect)}. Log in again if that was not intended.")
    code = redirect.get("code")
    if not code:
        raise AuthError(f"{who} ended the login without a code and without a reason. Try again.")
    return code


def _shown(redirect: Mapping[str, str]) -> str:
    text = f"{redirect['error']} {redirect.get('error_description', '')}".strip()
    return shown(text)


# --- grants without a user --------------------------------------------------------------------------------------------


def _client_credentials(asking: Asking, secret: str, scopes: Sequence[str]) -> Flow[TokenAnswer]:
    return (yield from request_token(asking, {"grant_type": "client_credentials", **_scope(scopes)}))


def _jwt_bearer(asking: Asking, secret: str, scopes: Sequence[str]) -> Flow[TokenAnswer]:
    return (yield from request_token(asking, {"grant_type": _JWT_BEARER, "assertion": secret, **_scope(scopes)}))


def _enterprise(asking: Asking, secret: str, scopes: Sequence[str]) -> Flow[TokenAnswer]:
    endpoint = asking.options.idp_token_endpoint
    if endpoint is None:
        idp = yield from discover_server(asking.options.idp_issuer or "")
        endpoint = idp.token_endpoint
    if endpoint is None:
        raise AuthError(f"The identity provider {asking.options.idp_issuer} publishes no token_endpoint.")
    grant = yield from exchange_id_token(asking, endpoint=endpoint, id_token=secret, scopes=scopes)
    return (yield from _jwt_bearer(asking, grant, scopes))


_GRANTS = MappingProxyType(
    {"client_credentials": _client_credentials, "jwt_bearer": _jwt_bearer, "enterprise": _enterprise}
)


def _scope(scopes: Sequence[str]) -> dict[str, str]:
    return {"scope": " ".join(scopes)} if scopes else {}


# --- refreshing -------------------------------------------------------------------------------------------------------


def renew(login: Login, options: OAuth, *, key: ProofKey | None, sources: Sources) -> Flow[Login]:
    """Refresh a token, at the authorization server that issued it and at no other.

    Raises:
        TokenEndpointError: the authorization server answered with an error.
        AuthError: it cannot be reached, or its response is malformed.
    """
    old = login.tokens
    client = given_client(options, login.server) or login.client
    asking = Asking(login.server, client, old.resource, options, sources, key)
    form = {"grant_type": "refresh_token", "refresh_token": old.refresh_token or ""}
    answer = yield from request_token(asking, form)
    tokens = token_set(answer, asking, requested=old.requested, before=old)
    return Login(tokens=tokens, client=login.client, server=login.server, key=login.key)
