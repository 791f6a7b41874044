"""Access tokens: JWTs that the authorization server signs, and verifies for the MCP server beside it.

A token names its grant, and is valid while that is. Keys are records like all others: any process that shares the store
verifies what another one signed.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from trunkline.auth.authorization_server.records import TokenGrant
from trunkline.auth.authorization_server.settings import IssuerSettings
from trunkline.auth.authorization_server.storage import Records
from trunkline.protocol.caller import Principal

if TYPE_CHECKING:
    from joserfc.jwk import ECKey

__all__ = ["GRANT_CLAIM", "AccessTokens"]

log = logging.getLogger("trunkline.auth")

#: The claim that names the grant.
GRANT_CLAIM = "grant_id"
_ALGORITHM = "ES256"
_TYPE = "at+jwt"
_SIGNING_SECONDS = 90 * 24 * 3600.0  # Keys are rotated each quarter, as is usual.
_LONGEST = 8192  # Tokens issued here have about 1 KiB.
_REMEMBERED = 1024  # Verified tokens kept, so that a signature is checked once: more than one server's active clients.


class _KeyRecord(Struct, frozen=True):
    jwk: dict[str, str]
    signs_until: float


class _SigningKey(NamedTuple):
    """A key that was imported, which takes longer than signing with it."""

    kid: str
    key: ECKey
    signs_until: float


class AccessTokens:
    """Signs and verifies access tokens."""

    def __init__(self, settings: IssuerSettings, records: Records) -> None:
        """Prepare; a key is generated when first needed."""
        self._settings = settings
        self._records = records
        #: The keys that were read from the store, where one is never changed.
        self._keys: dict[str, _SigningKey] = {}
        #: Verified tokens by digest: principal, expiry and grant.
        self._checked: dict[bytes, tuple[Principal, float, str]] = {}
        records.on_lost_writes(self._forget)

    def _forget(self) -> None:
        """Called when the store may have lost keys: what they sign can be verified by no other process."""
        self._keys.clear()
        self._checked.clear()

    # --- keys --------------------------------------------------------------------------------------------------------

    async def published(self) -> dict[str, Any]:
        """Return the public keys as a JWK set."""
        await self._signing_key()
        return {
            "keys": [
                {**known.key.as_dict(private=False), "kid": known.kid, "use": "sig", "alg": _ALGORITHM}
                for known in await self._stored_keys()
            ]
        }

    async def _stored_keys(self) -> list[_SigningKey]:
        """Return all keys, those that sign for longest first."""
        keys = [self._imported(kid, stored.record) async for kid, stored in self._records.all("key", _KeyRecord)]
        return sorted(keys, key=lambda known: -known.signs_until)

    async def _signing_key(self) -> _SigningKey:
        now = self._settings.clock()
        for known in self._keys.values():
            if known.signs_until > now:
                return known
        for known in await self._stored_keys():
            if known.signs_until > now:
                return known
        return await self._new_key(now)

    async def _new_key(self, now: float) -> _SigningKey:
        from joserfc.jwk import ECKey

        if not self._settings.is_loopback and not (await self._records.ready()).durable:
            log.warning(
                "what the authorization server stores ends with the process: all users must sign in again after a "
                "restart; set store="
            )
        made = ECKey.generate_key("P-256")
        kid = made.thumbprint()
        record = _KeyRecord(made.as_dict(private=True), now + _SIGNING_SECONDS)  # type: ignore[arg-type]
        # Another process may have generated one too: both are published, and either works.
        seconds = _SIGNING_SECONDS + self._settings.lifetimes.access + 3600
        await self._records.commit(
            self._records.put("key", kid, record, seconds=seconds), self._records.listed("key", kid, seconds=seconds)
        )
        return self._imported(kid, record)

    def _imported(self, kid: str, record: _KeyRecord) -> _SigningKey:
        known = self._keys.get(kid)
        if known is None:
            from joserfc.jwk import ECKey

            known = self._keys[kid] = _SigningKey(kid, ECKey.import_key(record.jwk), record.signs_until)  # type: ignore[arg-type]
        return known

    # --- tokens ------------------------------------------------------------------------------------------------------

    async def sign(self, grant_id: str, grant: TokenGrant, scopes: tuple[str, ...]) -> str:
        """Sign an access token for a grant and some of its scopes."""
        from joserfc import jwt

        kid, key, _ = await self._signing_key()
        now = int(self._settings.clock())
        claims = {
            "iss": self._settings.issuer,
            "sub": grant.subject,
            "aud": grant.resource,
            "client_id": grant.client_id,
            "scope": " ".join(scopes),
            "iat": now,
            "exp": now + int(self._settings.lifetimes.access),
            "jti": secrets.token_urlsafe(16),
            GRANT_CLAIM: grant_id,
        }
        return jwt.encode({"alg": _ALGORITHM, "typ": _TYPE, "kid": kid}, claims, key, algorithms=[_ALGORITHM])

    async def check(self, token: str, *, audience: str | None = None) -> Principal | None:
        """Return the principal of a token; None if it is not ours, has another audience, expired or was revoked."""
        if len(token) > _LONGEST or not token.isascii():
            return None
        name = hashlib.sha256(token.encode()).digest()
        found = self._checked.get(name)
        if found is None:
            found = await self._read(token)
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
        return principal if await self._records.has_grant(grant_id) else None

    async def grant_of(self, token: str) -> tuple[str, str] | None:
        """Return the grant and client of a token that was issued here, even if it has expired."""
        claims = await self._claims(token) if len(token) <= _LONGEST and token.isascii() else None
        return None if claims is None else (claims[GRANT_CLAIM], claims["client_id"])

    async def _read(self, token: str) -> tuple[Principal, float, str] | None:
        claims = await self._claims(token)
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

    async def _claims(self, token: str) -> dict[str, Any] | None:
        """Return the claims of a token that one of our keys signed; else None."""
        from joserfc import jws, jwt
        from joserfc.errors import JoseError

        try:
            known = await self._key(str(jws.extract_compact(token.encode()).headers().get("kid")))
            if known is None:
                return None
            read = jwt.decode(token, known.key, algorithms=[_ALGORITHM])
        except (JoseError, ValueError):
            return None
        ours = read.header.get("typ") == _TYPE and read.claims.get("iss") == self._settings.issuer
        return read.claims if ours else None

    async def _key(self, kid: str) -> _SigningKey | None:
        """Return one of our keys."""
        known = self._keys.get(kid)
        if known is not None:
            return known
        stored = await self._records.get("key", kid, _KeyRecord)
        return None if stored is None else self._imported(kid, stored.record)
