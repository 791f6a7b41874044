"""Access tokens: JWTs as specified in RFC 9068, signed with ES256 by keys in the store.

The newest key signs; older ones stay published until the last token they signed has expired. A token names its grant,
so that revoking the grant takes effect at once where the token is checked here.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from trunkline.auth.issuing.records import Grant
from trunkline.auth.issuing.settings import Settings
from trunkline.auth.issuing.store import Store
from trunkline.protocol.caller import Principal

if TYPE_CHECKING:
    from joserfc.jwk import ECKey

__all__ = ["GRANT_CLAIM", "AccessTokens"]

#: The claim that names the grant.
GRANT_CLAIM = "grant_id"
_ALGORITHM = "ES256"
_TYPE = "at+jwt"
_SIGNING_SECONDS = 90 * 24 * 3600.0
_LONGEST = 8192
_REMEMBERED = 1024


class _KeyRecord(Struct, frozen=True):
    jwk: dict[str, str]
    signs_until: float


class AccessTokens:
    """Signs and verifies access tokens."""

    def __init__(self, settings: Settings, store: Store) -> None:
        """Prepare; a key is generated when first needed."""
        self._settings = settings
        self._store = store
        self._keys: dict[str, ECKey] = {}
        #: Verified tokens by digest: principal, expiry and grant.
        self._checked: dict[bytes, tuple[Principal, float, str]] = {}

    # --- keys --------------------------------------------------------------------------------------------------------

    def published(self) -> dict[str, Any]:
        """Return the public keys as a JWK set."""
        self._signing_key()
        return {
            "keys": [
                {**self._key(kid, record).as_dict(private=False), "kid": kid, "use": "sig", "alg": _ALGORITHM}
                for kid, record in self._records()
            ]
        }

    def _records(self) -> list[tuple[str, _KeyRecord]]:
        found = self._store.all("key", _KeyRecord, now=self._settings.clock())
        return [(kid, record) for kid, record, _ in found]

    def _signing_key(self) -> tuple[str, ECKey]:
        now = self._settings.clock()
        for kid, record in self._records():
            if record.signs_until > now:
                return kid, self._key(kid, record)
        from joserfc.jwk import ECKey

        made = ECKey.generate_key("P-256")
        kid = made.thumbprint()
        record = _KeyRecord(made.as_dict(private=True), now + _SIGNING_SECONDS)  # type: ignore[arg-type]
        # Another process may have generated one too: both are published, and either works.
        self._store.put("key", kid, record, until=record.signs_until + self._settings.lives.access + 3600)
        return kid, self._key(kid, record)

    def _key(self, kid: str, record: _KeyRecord) -> ECKey:
        found = self._keys.get(kid)
        if found is None:
            from joserfc.jwk import ECKey

            found = self._keys[kid] = ECKey.import_key(record.jwk)  # type: ignore[arg-type]
        return found

    # --- tokens ------------------------------------------------------------------------------------------------------

    def sign(self, grant_id: str, grant: Grant, scopes: tuple[str, ...]) -> str:
        """Sign an access token for a grant and some of its scopes."""
        from joserfc import jwt

        kid, key = self._signing_key()
        now = int(self._settings.clock())
        claims = {
            "iss": self._settings.issuer,
            "sub": grant.subject,
            "aud": grant.resource,
            "client_id": grant.client_id,
            "scope": " ".join(scopes),
            "iat": now,
            "exp": now + int(self._settings.lives.access),
            "jti": secrets.token_urlsafe(16),
            GRANT_CLAIM: grant_id,
        }
        return jwt.encode({"alg": _ALGORITHM, "typ": _TYPE, "kid": kid}, claims, key, algorithms=[_ALGORITHM])

    def check(self, token: str, *, audience: str | None = None) -> Principal | None:
        """Return the principal of a token; None if it is not ours, has another audience, expired or was revoked."""
        if len(token) > _LONGEST or not token.isascii():
            return None
        name = hashlib.sha256(token.encode()).digest()
        found = self._checked.get(name)
        if found is None:
            found = self._read(token)
            if found is None:
                return None
            if len(self._checked) >= _REMEMBERED:
                self._checked.clear()
            self._checked[name] = found
        principal, until, grant_id = found
        now = self._settings.clock()
        meant = (principal.claims or {})["aud"]
        if until <= now or meant not in ((audience,) if audience else self._settings.resources):
            return None
        return principal if self._store.has("grant", grant_id, now=now) else None

    def grant_of(self, token: str) -> tuple[str, str] | None:
        """Return the grant and client of a token that was issued here, even if it has expired."""
        claims = self._claims(token) if len(token) <= _LONGEST and token.isascii() else None
        return None if claims is None else (claims[GRANT_CLAIM], claims["client_id"])

    def _read(self, token: str) -> tuple[Principal, float, str] | None:
        claims = self._claims(token)
        if claims is None:
            return None
        principal = Principal(
            subject=claims["sub"],
            issuer=claims["iss"],
            client=claims["client_id"],
            scopes=frozenset(claims["scope"].split()),
            claims=claims,
        )
        return principal, float(claims["exp"]), claims[GRANT_CLAIM]

    def _claims(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token that one of our keys signed; else None."""
        from joserfc import jws, jwt
        from joserfc.errors import JoseError

        try:
            kid = jws.extract_compact(token.encode()).headers().get("kid")
            record = self._store.get("key", str(kid), _KeyRecord, now=self._settings.clock())
            if record is None:
                return None
            read = jwt.decode(token, self._key(str(kid), record), algorithms=[_ALGORITHM])
        except (JoseError, ValueError):
            return None
        ours = read.header.get("typ") == _TYPE and read.claims.get("iss") == self._settings.issuer
        return read.claims if ours else None
