"""A whole login, and a token refresh, as generators: they yield what to do and are sent the result.

No connection, browser or file is opened here. Everything the user, the server and the authorization server send is
validated before anything secret leaves: the issuer before a registration, the redirect before the code is used. The
client identity is chosen in the order of the specification: a pre-registered client, a client ID metadata document,
and last dynamic registration; a client known to one authorization server is never shown to another.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from urllib.parse import urlencode

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.auth.discovery import AuthorizationServerMetadata, DiscoveryResult, discover, discover_server
from trunkline.auth.jose import ProofKey, digest
from trunkline.auth.oauth import OAuth, canonical_url, split_web_url
from trunkline.auth.steps import ClockAndRandom, Flow, ListenForRedirect, VisitPage, post_json, printable_excerpt
from trunkline.auth.tokens import (
    ClientAuthMethod,
    Login,
    RegisteredClient,
    TokenRequestContext,
    TokenResponse,
    exchange_id_token,
    request_token,
    token_set,
)
from trunkline.auth.www_authenticate import TokenChallenge
from trunkline.errors import AuthError, FetchError
from trunkline.net.addresses import is_loopback

__all__ = ["LoginRequest", "choose_client", "configured_client", "log_in", "refresh"]

#: The supported methods, in order of preference for a public client.
_METHODS: tuple[ClientAuthMethod, ...] = ("none", "client_secret_basic", "client_secret_post")
_SECRET_METHODS: tuple[ClientAuthMethod, ...] = ("client_secret_basic", "client_secret_post")


class _RegistrationResponse(Struct, frozen=True):
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None


class _RegistrationError(Struct, frozen=True):
    error: str
    error_description: str | None = None


def configured_client(options: OAuth, server: AuthorizationServerMetadata) -> RegisteredClient | None:
    """Return the configured client; None if there is none.

    Raises:
        AuthError: the credentials are for another authorization server, or this one does not accept their kind.
    """
    if options.client_id is None:
        return None
    if not options.trusts(server.issuer):
        raise AuthError(
            f"client_id {options.client_id!r} is not registered at {server.issuer} (issuer= names another server). "
            "Set issuer= or remove client_id=."
        )
    return RegisteredClient(
        issuer=server.issuer,
        client_id=options.client_id,
        client_secret=options.client_secret,
        method=_own_method(options, server),
        redirect_uri=options.redirect_uri,
    )


def _own_method(options: OAuth, server: AuthorizationServerMetadata) -> ClientAuthMethod:
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


def choose_client(
    options: OAuth, server: AuthorizationServerMetadata, *, stored: RegisteredClient | None, scopes: Sequence[str]
) -> Flow[RegisteredClient]:
    """Choose the client to log in as, and start listening for its redirect.

    Raises:
        AuthError: there is no way to become a client of this authorization server.
    """
    given = configured_client(options, server)
    if given is not None:
        return msgspec.structs.replace(given, redirect_uri=(yield from _receive(options.redirect_uri)))
    if options.client_metadata_url is not None and server.client_id_metadata_document_supported:
        redirect_uri = yield from _receive(options.redirect_uri)
        return RegisteredClient(issuer=server.issuer, client_id=options.client_metadata_url, redirect_uri=redirect_uri)
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


def _still_fits(stored: RegisteredClient, server: AuthorizationServerMetadata, scopes: Sequence[str]) -> bool:
    covered = stored.scopes is None or set(scopes) <= set(stored.scopes)
    return stored.dynamic and stored.issuer == server.issuer and covered


def _receive(preferred: str | None) -> Flow[str]:
    answer = yield ListenForRedirect(preferred)
    assert isinstance(answer, str)
    return answer


def _register(
    options: OAuth, server: AuthorizationServerMetadata, *, redirect_uri: str, scopes: Sequence[str]
) -> Flow[RegisteredClient]:
    assert server.registration_endpoint is not None
    parts = split_web_url(redirect_uri)
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
        response = msgspec.json.decode(answer.body, type=_RegistrationResponse)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise AuthError(f"{who} answered the registration without a client_id.") from None
    return RegisteredClient(
        issuer=server.issuer,
        client_id=response.client_id,
        client_secret=response.client_secret,
        method=_negotiated_auth_method(response, asked, who),
        dynamic=True,
        redirect_uri=redirect_uri,
        scopes=tuple(scopes) or None,
    )


def _method(server: AuthorizationServerMetadata) -> ClientAuthMethod:
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


def _negotiated_auth_method(
    response: _RegistrationResponse, requested: ClientAuthMethod, label: str
) -> ClientAuthMethod:
    method = response.token_endpoint_auth_method or requested
    for known in _METHODS:
        if method == known and (known == "none" or response.client_secret is not None):
            return known
    raise AuthError(
        f"{label} registered this client for {method[:80]!r}, which is not supported or lacks a client_secret."
    )


def _reason(body: bytes) -> str:
    try:
        said = msgspec.json.decode(body, type=_RegistrationError)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    text = f"{said.error}: {said.error_description}" if said.error_description else said.error
    return f' ("{printable_excerpt(text)}")'


_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_OFFLINE = "offline_access"


class LoginRequest(Struct, frozen=True, kw_only=True):
    """A login to perform: the server, its challenge, and what is known from before."""

    #: The server's URL.
    url: str
    #: The challenge of the rejected request.
    challenge: TokenChallenge
    options: OAuth
    #: The scopes that were requested in earlier logins.
    before: tuple[str, ...] = ()
    #: The clients that are registered already.
    known: tuple[RegisteredClient, ...] = ()
    #: The assertion or ID token that the grant needs.
    secret: str | None = None
    sources: ClockAndRandom = ClockAndRandom()

    def __repr__(self) -> str:
        """Show no secret."""
        return f"LoginRequest({self.url!r}, …)"


def log_in(request: LoginRequest) -> Flow[tuple[Login, ProofKey | None]]:
    """Obtain a token for a server.

    Raises:
        AuthError: the login failed; the message names the party at fault and the next step.
    """
    options = request.options
    found = yield from discover(request.url, request.challenge, options)
    scopes = _scopes(request, found)
    if options.grant == "authorization_code":
        return (yield from _authorization_code(request, found, scopes))
    context = _token_request_context(request, found, configured_client(options, found.server))
    answer = yield from _GRANTS[options.grant](context, request.secret or "", scopes)
    return _login(context, answer, scopes)


def _token_request_context(
    request: LoginRequest, found: DiscoveryResult, client: RegisteredClient | None
) -> TokenRequestContext:
    options = request.options
    key = None
    if options.dpop is True or (options.dpop == "auto" and found.bound):
        offered = found.server.dpop_signing_alg_values_supported
        if offered is None or "ES256" not in offered:
            raise AuthError(
                f"The server {canonical_url(request.url)} requires tokens that are bound to a key (DPoP), but its "
                f"authorization server {found.server.issuer} does not support that with ES256."
            )
        key = ProofKey(sources=request.sources)
    return TokenRequestContext(found.server, client, found.resource, options, request.sources, key)


def _login(context: TokenRequestContext, answer: TokenResponse, scopes: Sequence[str]) -> tuple[Login, ProofKey | None]:
    client = context.client or RegisteredClient(issuer=context.server.issuer, client_id="")
    if not client.dynamic:
        # A configured secret is configured next time too, so it need not be stored.
        client = replace(client, client_secret=None)
    tokens = token_set(answer, context, requested=scopes)
    key = None if context.key is None else context.key.stored
    return Login(tokens=tokens, client=client, server=context.server, key=key), context.key


def _scopes(request: LoginRequest, found: DiscoveryResult) -> tuple[str, ...]:
    """Choose the scopes to request: the user's, else the challenge's, else those the server lists for basic use.

    Scopes of earlier logins are kept; after an ``insufficient_scope`` challenge its scopes are added.
    """
    options, challenge = request.options, request.challenge
    base: Sequence[str] = challenge.scopes or found.scopes or ()
    if options.scopes is not None:
        base = (*options.scopes, *(challenge.scopes if challenge.error == "insufficient_scope" else ()))
    elif request.before and not challenge.scopes:
        base = ()
    wanted = dict.fromkeys((*request.before, *base))
    offline = options.grant == "authorization_code" and _OFFLINE in (found.server.scopes_supported or ())
    if wanted and offline and options.scopes is None:
        wanted[_OFFLINE] = None
    return tuple(wanted)


# --- the user logs in -------------------------------------------------------------------------------------------------


def _authorization_code(
    request: LoginRequest, found: DiscoveryResult, scopes: tuple[str, ...]
) -> Flow[tuple[Login, ProofKey | None]]:
    server = found.server
    _check_authorization_endpoint(server, request.options)
    stored = next((client for client in request.known if client.issuer == server.issuer), None)
    registered = tuple(dict.fromkeys((*scopes, *(found.scopes or ())))) if scopes else ()
    client = yield from choose_client(request.options, server, stored=stored, scopes=registered)
    context = _token_request_context(request, found, client)
    state, verifier = request.sources.token(), request.sources.token() + request.sources.token()
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
        **({} if context.key is None else {"dpop_jkt": context.key.thumbprint}),
    }
    page = server.authorization_endpoint or ""
    redirect = yield VisitPage(f"{page}{'&' if '?' in page else '?'}{urlencode(query)}", state)
    assert isinstance(redirect, Mapping)
    form = {
        "grant_type": "authorization_code",
        "code": _code(redirect, server, state),
        "redirect_uri": client.redirect_uri or "",
        "code_verifier": verifier,
    }
    return _login(context, (yield from request_token(context, form)), scopes)


def _check_authorization_endpoint(server: AuthorizationServerMetadata, options: OAuth) -> None:
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


def _code(redirect: Mapping[str, str], server: AuthorizationServerMetadata, state: str) -> str:
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
    return printable_excerpt(text)


# --- grants without a user --------------------------------------------------------------------------------------------


def _client_credentials(context: TokenRequestContext, secret: str, scopes: Sequence[str]) -> Flow[TokenResponse]:
    return (yield from request_token(context, {"grant_type": "client_credentials", **_scope(scopes)}))


def _jwt_bearer(context: TokenRequestContext, secret: str, scopes: Sequence[str]) -> Flow[TokenResponse]:
    return (yield from request_token(context, {"grant_type": _JWT_BEARER, "assertion": secret, **_scope(scopes)}))


def _enterprise(context: TokenRequestContext, secret: str, scopes: Sequence[str]) -> Flow[TokenResponse]:
    endpoint = context.options.idp_token_endpoint
    if endpoint is None:
        idp = yield from discover_server(context.options.idp_issuer or "")
        endpoint = idp.token_endpoint
    if endpoint is None:
        raise AuthError(f"The identity provider {context.options.idp_issuer} publishes no token_endpoint.")
    grant = yield from exchange_id_token(context, endpoint=endpoint, id_token=secret, scopes=scopes)
    return (yield from _jwt_bearer(context, grant, scopes))


_GRANTS = MappingProxyType(
    {"client_credentials": _client_credentials, "jwt_bearer": _jwt_bearer, "enterprise": _enterprise}
)


def _scope(scopes: Sequence[str]) -> dict[str, str]:
    return {"scope": " ".join(scopes)} if scopes else {}


# --- refreshing -------------------------------------------------------------------------------------------------------


def refresh(login: Login, options: OAuth, *, key: ProofKey | None, sources: ClockAndRandom) -> Flow[Login]:
    """Refresh a token, at the authorization server that issued it and at no other.

    Raises:
        TokenEndpointError: the authorization server answered with an error.
        AuthError: it cannot be reached, or its response is malformed.
    """
    old = login.tokens
    client = configured_client(options, login.server) or login.client
    context = TokenRequestContext(login.server, client, old.resource, options, sources, key)
    form = {"grant_type": "refresh_token", "refresh_token": old.refresh_token or ""}
    answer = yield from request_token(context, form)
    tokens = token_set(answer, context, requested=old.requested, before=old)
    return Login(tokens=tokens, client=login.client, server=login.server, key=login.key)
