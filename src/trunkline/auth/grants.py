"""Token requests: the request of each grant, and how the client authenticates. Flows, no I/O.

Every request goes to the one token endpoint that its authorization server published, names the resource the token is
for, and is never redirected. With a DPoP key each request carries a proof, with the nonce the server asked for.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from urllib.parse import quote_plus

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from trunkline.auth.metadata import ServerMetadata
from trunkline.auth.oauth import OAuth
from trunkline.auth.signing import ProofKey, client_assertion
from trunkline.auth.steps import Flow, Sources, post_form
from trunkline.auth.tokens import Registered, TokenAnswer, TokenSet, read_token_answer
from trunkline.errors import AuthError, FetchError
from trunkline.net import Fetched

__all__ = ["Asking", "client_shown", "exchange_id_token", "request_token", "token_set"]

_JWT_BEARER = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TOKEN_TYPE = "urn:ietf:params:oauth:token-type:"
_ID_JAG = f"{_TOKEN_TYPE}id-jag"
_LONGEST_NONCE = 1024


class Asking(Struct, frozen=True):
    """What all token requests of a login share: authorization server, client, resource and key."""

    server: ServerMetadata
    #: None if the grant itself identifies the client.
    client: Registered | None
    resource: str
    options: OAuth
    sources: Sources
    #: The key to bind the token to.
    key: ProofKey | None = None


class _Error(Struct):
    error: str = ""


_error_decoder = Decoder(_Error)


def request_token(asking: Asking, form: Mapping[str, str]) -> Flow[TokenAnswer]:
    """Request a token with a grant's form.

    Raises:
        TokenEndpointError: the authorization server answered with an error.
        AuthError: it cannot be reached, or its response is malformed.
    """
    server, who = asking.server, f"The authorization server {asking.server.issuer}"
    if server.token_endpoint is None:
        raise AuthError(f"{who} publishes no token_endpoint; its operator must add it.")
    whole = {**form, "resource": asking.resource}
    answer = yield from _post(asking, whole)
    wanted = _wanted_nonce(answer)
    if wanted is not None and asking.key is not None:
        asking.key.nonces[server.token_endpoint] = wanted
        answer = yield from _post(asking, whole)
    if isinstance(answer, FetchError):
        raise AuthError(f"{who} cannot be reached for a token: {answer}") from answer
    nonce = answer.headers.get("dpop-nonce", "")
    if asking.key is not None and 0 < len(nonce) <= _LONGEST_NONCE:
        asking.key.nonces[server.token_endpoint] = nonce
    return read_token_answer(answer, who)


def _post(asking: Asking, form: Mapping[str, str]) -> Flow[Fetched | FetchError]:
    url = asking.server.token_endpoint
    assert url is not None
    head, shown = client_shown(asking)
    if asking.key is not None:
        head["DPoP"] = asking.key.proof("POST", url, nonce=asking.key.nonces.get(url))
    return (yield from post_form(url, {**form, **shown}, headers=head))


def client_shown(asking: Asking) -> tuple[dict[str, str], dict[str, str]]:
    """Return the headers and form fields that authenticate the client."""
    client = asking.client
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
        options = asking.options
        assertion = client_assertion(
            client.client_id,
            client.issuer,
            key=options.private_key or "",
            algorithm=options.signing_algorithm,
            sources=asking.sources,
        )
        return {}, {
            "client_id": client.client_id,
            "client_assertion_type": _JWT_BEARER,
            "client_assertion": assertion,
        }
    return {}, {"client_id": client.client_id}


def _wanted_nonce(answer: Fetched | FetchError) -> str | None:
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
    answer: TokenAnswer, asking: Asking, *, requested: Sequence[str], before: TokenSet | None = None
) -> TokenSet:
    """Build the record of an issued token; ``before`` is the one it replaces.

    Raises:
        AuthError: the token has a type that was not requested.
    """
    issuer, kind = asking.server.issuer, answer.token_type.lower()
    if kind not in ("bearer", "dpop"):
        raise AuthError(f"The authorization server {issuer} issued a token of the unknown type {kind[:40]!r}.")
    if (kind == "dpop") != (asking.key is not None):
        done = "bound to a key that we do not have" if asking.key is None else "that is not bound to our key"
        raise AuthError(
            f"The authorization server {issuer} issued a token {done}: it is not used. Its operator must check the "
            "DPoP settings; set OAuth(dpop=False) if the server does not need DPoP."
        )
    now = asking.sources.now()
    return TokenSet(
        access_token=answer.access_token,
        token_type="DPoP" if kind == "dpop" else "Bearer",
        expires_at=None if answer.expires_in is None else now + max(0.0, answer.expires_in),
        # OAuth 2.1, 4.3.2: without a new refresh token, the old one stays valid.
        refresh_token=answer.refresh_token or (None if before is None else before.refresh_token),
        scope=answer.scope or (None if before is None else before.scope),
        requested=tuple(requested),
        issuer=issuer,
        resource=asking.resource,
        client_id="" if asking.client is None else asking.client.client_id,
    )


def exchange_id_token(asking: Asking, *, endpoint: str, id_token: str, scopes: Sequence[str]) -> Flow[str]:
    """Exchange the user's ID token at the company's identity provider for a grant at the authorization server.

    Raises:
        AuthError: the identity provider cannot be reached, refuses, or returns another kind of token.
    """
    options, who = asking.options, f"The identity provider at {endpoint}"
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": _ID_JAG,
        "audience": asking.server.issuer,
        "resource": asking.resource,
        "subject_token": id_token,
        "subject_token_type": f"{_TOKEN_TYPE}id_token",
        **({"scope": " ".join(scopes)} if scopes else {}),
        **({"client_id": options.idp_client_id} if options.idp_client_id else {}),
        **({"client_secret": options.idp_client_secret} if options.idp_client_secret else {}),
    }
    answer = yield from post_form(endpoint, form)
    if isinstance(answer, FetchError):
        raise AuthError(f"{who} cannot be reached: {answer}") from answer
    said = read_token_answer(answer, who)
    if said.issued_token_type != _ID_JAG:
        raise AuthError(f"{who} returned another kind of token than the requested grant (id-jag).")
    return said.access_token
