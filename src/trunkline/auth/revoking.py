"""Token revocation at the authorization server that issued them (RFC 7009), as a flow: no I/O.

The refresh token is revoked first, since it is worth more than the access token. Each is sent, with the client's
authentication, only to the revocation endpoint that the server published when the login was made.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from trunkline.auth.grants import Asking, client_shown
from trunkline.auth.oauth import OAuth
from trunkline.auth.registration import given_client
from trunkline.auth.steps import Flow, Sources, post_form, shown
from trunkline.auth.tokens import Login
from trunkline.errors import AuthError, FetchError
from trunkline.net import Fetched

__all__ = ["revoke"]

_KINDS = ("refresh_token", "access_token")


class _Error(Struct, frozen=True):
    error: str
    error_description: str | None = None


def revoke(login: Login, options: OAuth, *, sources: Sources) -> Flow[None]:
    """Revoke the tokens of a login.

    Raises:
        AuthError: there is no revocation endpoint, it cannot be reached, or not all tokens were revoked.
    """
    server, tokens = login.server, login.tokens
    who = f"The authorization server {server.issuer}"
    if server.revocation_endpoint is None:
        raise AuthError(f"{who} has no revocation_endpoint: the tokens stay valid until they expire.")
    client = given_client(options, server) or (login.client if login.client.client_id else None)
    asking = Asking(server, client, tokens.resource, options, sources)
    problems: list[str] = []
    for kind in _KINDS:
        token: str | None = getattr(tokens, kind)
        if token is None:
            continue
        head, fields = client_shown(asking)
        form = {"token": token, "token_type_hint": kind, **fields}
        answer = yield from post_form(server.revocation_endpoint, form, headers=head)
        if isinstance(answer, FetchError):
            raise AuthError(f"{who} cannot be reached to revoke the tokens: {answer}") from answer
        problem = _problem(answer)
        if problem is not None:
            problems.append(f"the {kind.replace('_', ' ')}: {problem}")
    if problems:
        raise AuthError(f"{who} did not revoke {'; '.join(problems)}.")


def _problem(answer: Fetched) -> str | None:
    """Return why a token was not revoked; None if it was, or was unknown there (RFC 7009, 2.2)."""
    if 200 <= answer.status < 300:
        return None
    try:
        said = msgspec.json.decode(answer.body, type=_Error)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"status {answer.status} and no reason"
    text = shown(said.error_description or "")
    return f"{said.error[:80]!a}" + (f' ("{text}")' if text else "")
