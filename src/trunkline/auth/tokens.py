"""Tokens of a client: the records that are stored (``Login`` and its parts), and the token requests of each grant.

Flows, no I/O. Each request goes to the one token endpoint that the authorization server published, names the
resource, and is never redirected; with a DPoP key it carries a proof. No ``repr`` shows a secret.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias
from urllib.parse import quote_plus

import msgspec
from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from trunkline.auth.discovery import AuthorizationServerMetadata
from trunkline.auth.jose import ProofKey, client_assertion
from trunkline.auth.oauth import OAuth
from trunkline.auth.steps import ClockAndRandom, Flow, post_form, printable_excerpt
from trunkline.errors import AuthError, FetchError
from trunkline.net import FetchResponse

__all__ = [
    "ClientAuthMethod",
    "Login",
    "RegisteredClient",
    "TokenEndpointError",
    "TokenRequestContext",
    "TokenResponse",
    "TokenSet",
    "client_credentials_fields",
    "exchange_id_token",
    "parse_token_response",
    "request_token",
    "token_set",
]

#: How a client authenticates at the token endpoint.
ClientAuthMethod: TypeAlias = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]

_VISIBLE = re.compile(r"[\x21-\x7e]+")
# A token is not used in its last seconds: it could expire in transit.
_MARGIN = 30.0


class RegisteredClient(Struct, frozen=True, kw_only=True):
    """A client as registered at one authorization server; never used at another."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    method: ClientAuthMethod = "none"
    #: Whether it was registered dynamically.
    dynamic: bool = False
    redirect_uri: str | None = None
    #: The scopes it was registered for; None if unknown.
    scopes: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        """Show no secret."""
        return f"RegisteredClient({self.client_id!r} at {self.issuer!r})"


class TokenSet(Struct, frozen=True, kw_only=True):
    """An access token, its resource and its expiry."""

    access_token: str
    #: ``Bearer`` or ``DPoP``.
    token_type: str = "Bearer"
    #: In seconds since 1970; None if unknown.
    expires_at: float | None = None
    refresh_token: str | None = None
    #: The granted scopes, if the server named them.
    scope: str | None = None
    #: The scopes requested in this and all earlier logins.
    requested: tuple[str, ...] = ()
    issuer: str
    resource: str
    client_id: str

    def __repr__(self) -> str:
        """Show no token."""
        return f"TokenSet({self.token_type} of {self.issuer!r} for {self.resource!r}, …)"

    def is_expiring(self, now: float) -> bool:
        """Return True if it has expired or is about to."""
        return self.expires_at is not None and self.expires_at - _MARGIN <= now


class Login(Struct, frozen=True, kw_only=True):
    """A login as stored: tokens, the client they were issued to, the authorization server, and the DPoP key."""

    tokens: TokenSet
    client: RegisteredClient
    server: AuthorizationServerMetadata
    #: The private key (JWK) that the token is bound to.
    key: dict[str, Any] | None = None

    def __repr__(self) -> str:
        """Show neither token nor key."""
        return f"Login({self.tokens!r})"


class TokenEndpointError(AuthError):
    """A token endpoint answered with an error; ``code`` is the OAuth error code."""

    def __init__(self, message: str, *, code: str) -> None:
        """Keep the error code."""
        super().__init__(message)
        self.code = code


class TokenResponse(Struct, frozen=True):
    """The response of a token endpoint."""

    access_token: str
    token_type: str = "Bearer"
    expires_in: float | None = None
    refresh_token: str | None = None
    scope: str | None = None
    issued_token_type: str | None = None

    def __repr__(self) -> str:
        """Show no token."""
        return f"TokenResponse({self.token_type}, …)"


class _ErrorResponse(Struct, frozen=True):
    error: str
    error_description: str | None = None


def parse_token_response(answer: FetchResponse, who: str) -> TokenResponse:
    """Parse the response of a token endpoint; ``who`` names the party in messages.

    Raises:
        TokenEndpointError: the response is an OAuth error.
        AuthError: the response is malformed.
    """
    if answer.status != 200:
        raise _refused(answer, who)
    try:
        said = msgspec.json.decode(answer.body, type=TokenResponse, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # The decoder's message could quote a token.
        raise AuthError(
            f"{who} answered the token request with a malformed response; its operator must look into it."
        ) from None
    refresh = said.refresh_token
    if not _VISIBLE.fullmatch(said.access_token) or (refresh is not None and not _VISIBLE.fullmatch(refresh)):
        raise AuthError(f"{who} issued a token that cannot be sent in a header.")
    return said


def _refused(answer: FetchResponse, who: str) -> AuthError:
    try:
        said = msgspec.json.decode(answer.body, type=_ErrorResponse)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return AuthError(f"{who} answered the token request with status {answer.status} and no reason.")
    text = printable_excerpt(said.error_description or "")
    message = f"{who} refused to issue a token: {said.error[:80]!a}" + (f' ("{text}")' if text else "")
    return TokenEndpointError(f"{message}.", code=said.error)


_JWT_BEARER = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:"
_ID_JAG = f"{_TOKEN_TYPE}id-jag"
_LONGEST_NONCE = 1024  # Nonces have about 50 characters; it is sent back with every request.


class TokenRequestContext(Struct, frozen=True):
    """What all token requests of a login share: authorization server, client, resource and key."""

    server: AuthorizationServerMetadata
    #: None if the grant itself identifies the client.
    client: RegisteredClient | None
    resource: str
    options: OAuth
    sources: ClockAndRandom
    #: The key to bind the token to.
    key: ProofKey | None = None


class _ErrorCode(Struct):
    error: str = ""


_error_decoder = Decoder(_ErrorCode)


def request_token(context: TokenRequestContext, form: Mapping[str, str]) -> Flow[TokenResponse]:
    """Request a token with a grant's form.

    Raises:
        TokenEndpointError: the authorization server answered with an error.
        AuthError: it cannot be reached, or its response is malformed.
    """
    server, who = context.server, f"The authorization server {context.server.issuer}"
    if server.token_endpoint is None:
        raise AuthError(f"{who} publishes no token_endpoint; its operator must add it.")
    whole = {**form, "resource": context.resource}
    answer = yield from _post(context, whole)
    wanted = _requested_nonce(answer)
    if wanted is not None and context.key is not None:
        context.key.nonces[server.token_endpoint] = wanted
        answer = yield from _post(context, whole)
    if isinstance(answer, FetchError):
        raise AuthError(f"{who} cannot be reached for a token: {answer}") from answer
    nonce = answer.headers.get("dpop-nonce", "")
    if context.key is not None and 0 < len(nonce) <= _LONGEST_NONCE:
        context.key.nonces[server.token_endpoint] = nonce
    return parse_token_response(answer, who)


def _post(context: TokenRequestContext, form: Mapping[str, str]) -> Flow[FetchResponse | FetchError]:
    url = context.server.token_endpoint
    assert url is not None
    head, shown = client_credentials_fields(context)
    if context.key is not None:
        head["DPoP"] = context.key.proof("POST", url, nonce=context.key.nonces.get(url))
    return (yield from post_form(url, {**form, **shown}, headers=head))


def client_credentials_fields(context: TokenRequestContext) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers and form fields that authenticate the client."""
    client = context.client
    if client is None:
        return {}, {}
    if client.method == "client_secret_basic":
        # RFC 6749, 2.3.1: both are form-encoded before they are joined.
        pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret or '')}"
        # Some servers expect client_id in the form as well.
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, {"client_id": client.client_id}
    if client.method == "client_secret_post":
        return {}, {"client_id": client.client_id, "client_secret": client.client_secret or ""}
    if client.method == "private_key_jwt":
        options = context.options
        assertion = client_assertion(
            client.client_id,
            client.issuer,
            key=options.private_key or "",
            algorithm=options.signing_algorithm,
            sources=context.sources,
        )
        return {}, {
            "client_id": client.client_id,
            "client_assertion_type": _JWT_BEARER,
            "client_assertion": assertion,
        }
    return {}, {"client_id": client.client_id}


def _requested_nonce(answer: FetchResponse | FetchError) -> str | None:
    """Return the nonce that an error response asks for in the proof."""
    if isinstance(answer, FetchError) or answer.status not in (400, 401):
        return None
    try:
        said = _error_decoder.decode(answer.body)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        return None
    nonce = answer.headers.get("dpop-nonce", "")
    return nonce if said.error == "use_dpop_nonce" and 0 < len(nonce) <= _LONGEST_NONCE else None


def token_set(
    answer: TokenResponse, context: TokenRequestContext, *, requested: Sequence[str], before: TokenSet | None = None
) -> TokenSet:
    """Build the record of an issued token; ``before`` is the one it replaces.

    Raises:
        AuthError: the token has a type that was not requested.
    """
    issuer, kind = context.server.issuer, answer.token_type.lower()
    if kind not in ("bearer", "dpop"):
        raise AuthError(f"The authorization server {issuer} issued a token of the unknown type {kind[:40]!r}.")
    if (kind == "dpop") != (context.key is not None):
        done = "bound to a key that we do not have" if context.key is None else "that is not bound to our key"
        raise AuthError(
            f"The authorization server {issuer} issued a token {done}: it is not used. Its operator must check the "
            "DPoP settings; set OAuth(dpop=False) if the server does not need DPoP."
        )
    now = context.sources.now()
    return TokenSet(
        access_token=answer.access_token,
        token_type="DPoP" if kind == "dpop" else "Bearer",
        expires_at=None if answer.expires_in is None else now + max(0.0, answer.expires_in),
        # OAuth 2.1, 4.3.2: without a new refresh token, the old one stays valid.
        refresh_token=answer.refresh_token or (None if before is None else before.refresh_token),
        scope=answer.scope or (None if before is None else before.scope),
        requested=tuple(requested),
        issuer=issuer,
        resource=context.resource,
        client_id="" if context.client is None else context.client.client_id,
    )


def exchange_id_token(
    context: TokenRequestContext, *, endpoint: str, id_token: str, scopes: Sequence[str]
) -> Flow[str]:
    """Exchange the user's ID token at the company's identity provider for a grant at the authorization server.

    Raises:
        AuthError: the identity provider cannot be reached, refuses, or returns another kind of token.
    """
    options, who = context.options, f"The identity provider at {endpoint}"
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": _ID_JAG,
        "audience": context.server.issuer,
        "resource": context.resource,
        "subject_token": id_token,
        "subject_token_type": f"{_TOKEN_TYPE}id_token",
        **({"scope": " ".join(scopes)} if scopes else {}),
        **({"client_id": options.idp_client_id} if options.idp_client_id else {}),
        **({"client_secret": options.idp_client_secret} if options.idp_client_secret else {}),
    }
    answer = yield from post_form(endpoint, form)
    if isinstance(answer, FetchError):
        raise AuthError(f"{who} cannot be reached: {answer}") from answer
    said = parse_token_response(answer, who)
    if said.issued_token_type != _ID_JAG:
        raise AuthError(f"{who} returned another kind of token than the requested grant (id-jag).")
    return said.access_token
