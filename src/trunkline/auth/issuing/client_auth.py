"""Client authentication at the token endpoint, by the registered method: a secret, a signed assertion, or none.

A client that has credentials is never accepted without them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_plus

from trunkline.auth.issuing.client_book import ClientBook
from trunkline.auth.issuing.faults import OAuthFault
from trunkline.auth.issuing.records import OAuthClient, Refresh, digest, same
from trunkline.auth.issuing.settings import Settings
from trunkline.auth.issuing.store import Store
from trunkline.auth.issuing.web import Exchange

__all__ = ["ASSERTION_ALGORITHMS", "ClientAuthentication"]

#: RFC 7523: the client authenticates with a token that it signed.
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
#: Asymmetric algorithms only: with a shared secret, an assertion is no proof.
ASSERTION_ALGORITHMS = ("ES256", "RS256", "PS256", "EdDSA")
_LONGEST_ASSERTION = 8192
_ASSERTION_SECONDS = 600.0
_SKEW = 30.0


class ClientAuthentication:
    """Authenticates the client that sent a form."""

    def __init__(self, settings: Settings, store: Store, book: ClientBook) -> None:
        """Look clients up in a registry."""
        self._settings = settings
        self._store = store
        self._book = book

    async def client(self, exchange: Exchange, form: Mapping[str, str]) -> OAuthClient:
        """Return the authenticated client of a form.

        Raises:
            OAuthError: authentication failed.
        """
        basic = _basic(exchange)
        ways = (basic is not None, "client_secret" in form, "client_assertion" in form)
        if sum(ways) > 1:
            raise OAuthFault("invalid_request", "Use only one client authentication method")
        asserted = _unverified_subject(form["client_assertion"]) if "client_assertion" in form else None
        client_id = (basic[0] if basic else None) or form.get("client_id") or asserted
        if client_id is None:
            raise _refused("client_id is missing", basic=False)
        if form.get("client_id", client_id) != client_id:
            raise OAuthFault("invalid_request", "client_id is given twice with different values")
        try:
            client = await self._book.find(client_id, address=exchange.address)
        except OAuthFault as fault:
            if fault.status != 429:
                raise _refused(fault.description, basic=basic is not None) from None
            raise
        if "client_assertion" in form:
            await self._check_assertion(client, form, exchange)
        else:
            secret = basic[1] if basic else form.get("client_secret")
            _check_secret(client, secret, basic=basic is not None)
        return client

    async def _check_assertion(self, client: OAuthClient, form: Mapping[str, str], exchange: Exchange) -> None:
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        if form.get("client_assertion_type") != _ASSERTION_TYPE:
            raise OAuthFault("invalid_request", f"client_assertion_type must be {_ASSERTION_TYPE}")
        if client.jwks is None and client.jwks_uri is None:
            raise _refused("The client has no keys to verify its assertion with", basic=False)
        keys = await self._book.keys_of(client, address=exchange.address)
        try:
            public = KeySet.import_key_set(keys)  # type: ignore[arg-type]
            claims = jwt.decode(form["client_assertion"], public, algorithms=list(ASSERTION_ALGORITHMS)).claims
        except (JoseError, ValueError, KeyError, TypeError, AttributeError):
            raise _refused("The assertion is not signed by a key of the client", basic=False) from None
        if fault := self._claims_fault(client, claims):
            raise _refused(f"The assertion {fault}", basic=False)

    def _claims_fault(self, client: OAuthClient, claims: Mapping[str, Any]) -> str | None:
        now = self._settings.clock()
        if claims.get("iss") != client.client_id or claims.get("sub") != client.client_id:
            return "must have the client_id as iss and sub"
        ours = {self._settings.issuer, f"{self._settings.base}/token"}
        audience = claims.get("aud")
        if audience not in ours if isinstance(audience, str) else not _one_of(audience, ours):
            return "has another audience: aud must be the issuer"
        expires, jti = claims.get("exp"), claims.get("jti")
        if isinstance(expires, bool) or not isinstance(expires, int | float):
            return "has no exp"
        if not now - _SKEW < expires <= now + _ASSERTION_SECONDS:
            return "has expired, or is valid for longer than ten minutes"
        starts = claims.get("nbf", 0)
        if not isinstance(starts, int | float) or starts > now + _SKEW:
            return "is not valid yet"
        if not isinstance(jti, str) or not jti:
            return "has no jti"
        name = digest(f"{client.client_id}\n{jti}")
        if not self._store.add("assertion", name, Refresh(""), until=expires + 2 * _SKEW, now=now):
            return "was used before"
        return None


def _one_of(audience: object, ours: set[str]) -> bool:
    """Return True if a list of audiences names only us."""
    return (
        isinstance(audience, list) and bool(audience) and all(isinstance(one, str) and one in ours for one in audience)
    )


def _check_secret(client: OAuthClient, secret: str | None, *, basic: bool) -> None:
    if client.secret_digest is None:
        if secret is None and client.is_public:
            return
        raise _refused("The client must use another authentication method", basic=basic)
    if secret is None or not same(digest(secret), client.secret_digest):
        raise _refused("The client's secret is wrong or missing", basic=basic)


def _basic(exchange: Exchange) -> tuple[str, str] | None:
    """Parse Basic credentials, whose parts are form-encoded (RFC 6749, 2.3.1)."""
    scheme, _, encoded = (exchange.header(b"authorization") or "").partition(" ")
    if not scheme:
        return None
    try:
        name, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        name = colon = secret = ""
    if scheme.lower() != "basic" or not colon:
        raise _refused("The Authorization header does not contain valid Basic credentials", basic=True)
    return unquote_plus(name), unquote_plus(secret)


def _unverified_subject(assertion: str) -> str | None:
    """Return the subject that an assertion claims; it is verified with that client's keys afterwards."""
    import msgspec

    parts = assertion.split(".")
    if len(parts) != 3 or len(assertion) > _LONGEST_ASSERTION:
        raise _refused("The assertion is not a signed JWT", basic=False)
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        subject = msgspec.json.decode(payload, type=dict[str, Any]).get("sub")
    except (binascii.Error, ValueError):
        raise _refused("The assertion is not a signed JWT", basic=False) from None
    return subject if isinstance(subject, str) else None


def _refused(sentence: str, *, basic: bool) -> OAuthFault:
    headers = (("www-authenticate", 'Basic realm="token"'),) if basic else ()
    return OAuthFault("invalid_client", sentence, status=401, headers=headers)
