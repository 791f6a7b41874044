"""The token and revocation endpoints, with the client authentication they share.

A grant is a family of tokens and is valid while it is stored. A code or refresh token that is presented a second time
was stolen, by the first or by the second presenter: the family is revoked, and the user is asked again. A client that
has credentials is never accepted without them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import re
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from msgspec import Struct

from trunkline.auth.authorization_server.authorization_endpoint import requested_scopes
from trunkline.auth.authorization_server.clients import ClientRegistry
from trunkline.auth.authorization_server.settings import IssuerSettings
from trunkline.auth.authorization_server.storage import (
    AuthorizationCode,
    OAuthClient,
    RecordStore,
    RefreshToken,
    TokenGrant,
    constant_time_equal,
    digest,
    new_secret,
)
from trunkline.auth.authorization_server.web import OAuthError, OAuthExchange
from trunkline.protocol.caller import Principal

__all__ = ["ASSERTION_ALGORITHMS", "GRANT_CLAIM", "AccessTokens", "ClientAuthentication", "TokenEndpoint"]

#: RFC 7523: the client authenticates with a token that it signed.
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
#: Asymmetric algorithms only: with a shared secret, an assertion is no proof.
ASSERTION_ALGORITHMS = ("ES256", "RS256", "PS256", "EdDSA")
_LONGEST_ASSERTION = 8192  # Assertions have about 1 KiB.
# RFC 7523, 3: an expiry unreasonably far in the future may be rejected; clients use 1 to 5 minutes.
_ASSERTION_SECONDS = 600.0
_SKEW = 30.0  # RFC 7519, 4.1.4: usually no more than a few minutes.


class ClientAuthentication:
    """Authenticates the client that sent a form."""

    def __init__(self, settings: IssuerSettings, store: RecordStore, registry: ClientRegistry) -> None:
        """Look clients up in a registry."""
        self._settings = settings
        self._store = store
        self._registry = registry

    async def client(self, exchange: OAuthExchange, form: Mapping[str, str]) -> OAuthClient:
        """Return the authenticated client of a form.

        Raises:
            OAuthError: authentication failed.
        """
        basic = _basic(exchange)
        ways = (basic is not None, "client_secret" in form, "client_assertion" in form)
        if sum(ways) > 1:
            raise OAuthError("invalid_request", "Use only one client authentication method")
        asserted = _unverified_subject(form["client_assertion"]) if "client_assertion" in form else None
        client_id = (basic[0] if basic else None) or form.get("client_id") or asserted
        if client_id is None:
            raise _invalid_client("client_id is missing", basic=False)
        if form.get("client_id", client_id) != client_id:
            raise OAuthError("invalid_request", "client_id is given twice with different values")
        try:
            client = await self._registry.find(client_id, address=exchange.address)
        except OAuthError as fault:
            if fault.status != 429:
                raise _invalid_client(fault.description, basic=basic is not None) from None
            raise
        if "client_assertion" in form:
            await self._check_assertion(client, form, exchange)
        else:
            secret = basic[1] if basic else form.get("client_secret")
            _check_secret(client, secret, basic=basic is not None)
        return client

    async def _check_assertion(self, client: OAuthClient, form: Mapping[str, str], exchange: OAuthExchange) -> None:
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        if form.get("client_assertion_type") != _ASSERTION_TYPE:
            raise OAuthError("invalid_request", f"client_assertion_type must be {_ASSERTION_TYPE}")
        if client.jwks is None and client.jwks_uri is None:
            raise _invalid_client("The client has no keys to verify its assertion with", basic=False)
        keys = await self._registry.keys_of(client, address=exchange.address)
        try:
            public = KeySet.import_key_set(keys)  # type: ignore[arg-type]
            claims = jwt.decode(form["client_assertion"], public, algorithms=list(ASSERTION_ALGORITHMS)).claims
        except (JoseError, ValueError, KeyError, TypeError, AttributeError):
            raise _invalid_client("The assertion is not signed by a key of the client", basic=False) from None
        if fault := await self._claims_fault(client, claims):
            raise _invalid_client(f"The assertion {fault}", basic=False)

    async def _claims_fault(self, client: OAuthClient, claims: Mapping[str, Any]) -> str | None:
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
        made = claims.get("iat", 0)
        if not isinstance(made, int | float) or made < self._store.engine.known_since:
            return "was made before it was known which were used"
        name = digest(f"{client.client_id}\n{jti}")
        if not await self._store.engine.add("assertion", name, RefreshToken(""), until=expires + 2 * _SKEW, now=now):
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
        raise _invalid_client("The client must use another authentication method", basic=basic)
    if secret is None or not constant_time_equal(digest(secret), client.secret_digest):
        raise _invalid_client("The client's secret is wrong or missing", basic=basic)


def _basic(exchange: OAuthExchange) -> tuple[str, str] | None:
    """Parse Basic credentials, whose parts are form-encoded (RFC 6749, 2.3.1)."""
    scheme, _, encoded = (exchange.header(b"authorization") or "").partition(" ")
    if not scheme:
        return None
    try:
        name, colon, secret = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        name = colon = secret = ""
    if scheme.lower() != "basic" or not colon:
        raise _invalid_client("The Authorization header does not contain valid Basic credentials", basic=True)
    return unquote_plus(name), unquote_plus(secret)


def _unverified_subject(assertion: str) -> str | None:
    """Return the subject that an assertion claims; it is verified with that client's keys afterwards."""
    import msgspec

    parts = assertion.split(".")
    if len(parts) != 3 or len(assertion) > _LONGEST_ASSERTION:
        raise _invalid_client("The assertion is not a signed JWT", basic=False)
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        subject = msgspec.json.decode(payload, type=dict[str, Any]).get("sub")
    except (binascii.Error, ValueError):
        raise _invalid_client("The assertion is not a signed JWT", basic=False) from None
    return subject if isinstance(subject, str) else None


def _invalid_client(sentence: str, *, basic: bool) -> OAuthError:
    headers = (("www-authenticate", 'Basic realm="token"'),) if basic else ()
    return OAuthError("invalid_client", sentence, status=401, headers=headers)


if TYPE_CHECKING:
    from joserfc.jwk import ECKey


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


class AccessTokens:
    """Signs and verifies access tokens."""

    def __init__(self, settings: IssuerSettings, store: RecordStore) -> None:
        """Prepare; a key is generated when first needed."""
        self._settings = settings
        self._store = store
        self._keys: dict[str, ECKey] = {}
        #: Verified tokens by digest: principal, expiry and grant.
        self._checked: dict[bytes, tuple[Principal, float, str]] = {}

    # --- keys --------------------------------------------------------------------------------------------------------

    async def published(self) -> dict[str, Any]:
        """Return the public keys as a JWK set."""
        await self._signing_key()
        return {
            "keys": [
                {**self._key(kid, record).as_dict(private=False), "kid": kid, "use": "sig", "alg": _ALGORITHM}
                for kid, record in await self._records()
            ]
        }

    async def _records(self) -> list[tuple[str, _KeyRecord]]:
        found = await self._store.engine.all("key", _KeyRecord, now=self._settings.clock())
        return [(kid, record) for kid, record, _ in found]

    async def _signing_key(self) -> tuple[str, ECKey]:
        now = self._settings.clock()
        for kid, record in await self._records():
            if record.signs_until > now:
                return kid, self._key(kid, record)
        from joserfc.jwk import ECKey

        made = ECKey.generate_key("P-256")
        kid = made.thumbprint()
        record = _KeyRecord(made.as_dict(private=True), now + _SIGNING_SECONDS)  # type: ignore[arg-type]
        # Another process may have generated one too: both are published, and either works.
        await self._store.engine.put(
            "key", kid, record, until=record.signs_until + self._settings.lifetimes.access + 3600
        )
        return kid, self._key(kid, record)

    def _key(self, kid: str, record: _KeyRecord) -> ECKey:
        found = self._keys.get(kid)
        if found is None:
            from joserfc.jwk import ECKey

            found = self._keys[kid] = ECKey.import_key(record.jwk)  # type: ignore[arg-type]
        return found

    # --- tokens ------------------------------------------------------------------------------------------------------

    async def sign(self, grant_id: str, grant: TokenGrant, scopes: tuple[str, ...]) -> str:
        """Sign an access token for a grant and some of its scopes."""
        from joserfc import jwt

        kid, key = await self._signing_key()
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
        return principal if await self._store.engine.has("grant", grant_id, now=now) else None

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
            kid = jws.extract_compact(token.encode()).headers().get("kid")
            record = await self._store.engine.get("key", str(kid), _KeyRecord, now=self._settings.clock())
            if record is None:
                return None
            read = jwt.decode(token, self._key(str(kid), record), algorithms=[_ALGORITHM])
        except (JoseError, ValueError):
            return None
        ours = read.header.get("typ") == _TYPE and read.claims.get("iss") == self._settings.issuer
        return read.claims if ours else None


log = logging.getLogger("trunkline.auth")

# RFC 7636, 4.1.
_VERIFIER = re.compile(r"[A-Za-z0-9\-._~]{43,128}")


class TokenEndpoint:
    """Serves the token endpoint and the revocation endpoint."""

    def __init__(
        self, settings: IssuerSettings, store: RecordStore, registry: ClientRegistry, *, tokens: AccessTokens
    ) -> None:
        """Use the settings, store and clients of the server."""
        self._settings = settings
        self._store = store
        self._registry = registry
        self._tokens = tokens
        self._clients = ClientAuthentication(settings, store, registry)
        self._kinds = {
            "authorization_code": self._by_code,
            "refresh_token": self._by_refresh_token,
            "client_credentials": self._by_itself,
        }

    async def token(self, exchange: OAuthExchange) -> None:
        """Handle a token request.

        Raises:
            OAuthError: no token is issued.
        """
        form = await exchange.form()
        kind = self._kinds.get(form.get("grant_type", ""))
        if kind is None:
            raise OAuthError("unsupported_grant_type", f"grant_type must be one of: {' '.join(self._kinds)}")
        client = await self._clients.client(exchange, form)
        if form["grant_type"] not in client.grant_types:
            raise OAuthError("unauthorized_client", "The client may not use this grant_type")
        answer = await kind(client, form)
        await self._registry.used(client)
        await exchange.answer_json(200, answer, headers=(("cache-control", "no-store"), ("pragma", "no-cache")))

    async def revoke(self, exchange: OAuthExchange) -> None:
        """Revoke the grant of a token; an unknown token counts as revoked (RFC 7009, 2.2).

        Raises:
            OAuthError: client authentication failed, or the token is missing.
        """
        form = await exchange.form()
        client = await self._clients.client(exchange, form)
        token = form.get("token")
        if token is None:
            raise OAuthError("invalid_request", "token is missing")
        refresh = await self._store.engine.get("refresh", digest(token), RefreshToken, now=self._settings.clock())
        if refresh is not None:
            grant_id = refresh.grant_id
        else:
            known = await self._tokens.grant_of(token)
            grant_id = known[0] if known is not None else ""
        grant = await self._store.engine.get("grant", grant_id, TokenGrant, now=self._settings.clock())
        if grant is not None and grant.client_id == client.client_id:
            await self.end(grant_id)
        await exchange.answer(200, [])

    async def end(self, grant_id: str) -> None:
        """Revoke a grant with all its tokens."""
        # Another worker may be storing the grant just now: it must not come back.
        until = self._settings.clock() + self._settings.lifetimes.access
        await self._store.engine.revoke("grant", grant_id, until=until)
        await self._store.engine.drop("upstream", grant_id)

    # --- the grant types ---------------------------------------------------------------------------------------------

    async def _by_code(self, client: OAuthClient, form: Mapping[str, str]) -> dict[str, Any]:
        now, name = self._settings.clock(), digest(form.get("code", ""))
        code = await self._store.engine.get("code", name, AuthorizationCode, now=now)
        if code is None or code.client_id != client.client_id:
            raise OAuthError("invalid_grant", "The code is unknown or has expired")
        if not await self._store.engine.use("code", name):
            log.warning("an authorization code was used twice: its tokens are revoked")
            await self.end(code.grant_id)
            raise OAuthError("invalid_grant", "The code has already been used")
        if code.until <= now or code.until - self._settings.lifetimes.code < self._store.engine.known_since:
            raise OAuthError("invalid_grant", "The code is unknown or has expired")
        if form.get("redirect_uri", code.redirect_uri) != code.redirect_uri:
            raise OAuthError("invalid_grant", "redirect_uri differs from the authorization request")
        if not _verifies(form.get("code_verifier", ""), code.challenge):
            raise OAuthError("invalid_grant", "code_verifier does not match the code_challenge")
        self._check_resource(form, code.resource)
        grant = TokenGrant(subject=code.subject, client_id=code.client_id, resource=code.resource, scopes=code.scopes)
        lifetimes = self._settings.lifetimes
        refreshes = "refresh_token" in client.grant_types
        until = now + (lifetimes.refresh if refreshes else lifetimes.access)
        if not await self._store.engine.add("grant", code.grant_id, grant, until=until, now=now):
            # The same code was used meanwhile, which revoked the grant.
            raise OAuthError("invalid_grant", "The code has already been used")
        return await self._answer(code.grant_id, grant, grant.scopes, refreshes=refreshes)

    async def _by_refresh_token(self, client: OAuthClient, form: Mapping[str, str]) -> dict[str, Any]:
        now, name = self._settings.clock(), digest(form.get("refresh_token", ""))
        refresh = await self._store.engine.get("refresh", name, RefreshToken, now=now)
        grant = (
            None if refresh is None else await self._store.engine.get("grant", refresh.grant_id, TokenGrant, now=now)
        )
        if refresh is None or grant is None or grant.client_id != client.client_id:
            raise OAuthError("invalid_grant", "The refresh token is unknown, has expired or was revoked")
        scopes = _narrowed(grant, form.get("scope"))
        self._check_resource(form, grant.resource)
        if not await self._store.engine.use("refresh", name):
            log.warning("a refresh token was used twice: all tokens of its grant are revoked")
            await self.end(refresh.grant_id)
            raise OAuthError("invalid_grant", "The refresh token has already been used; the user must approve again")
        for kind in ("grant", "upstream"):
            await self._store.engine.extend(kind, refresh.grant_id, now + self._settings.lifetimes.refresh)
        return await self._answer(refresh.grant_id, grant, scopes, refreshes=True)

    async def _by_itself(self, client: OAuthClient, form: Mapping[str, str]) -> dict[str, Any]:
        if client.is_public:
            raise OAuthError("unauthorized_client", "client_credentials needs client authentication")
        resource = self._settings.resource(form.get("resource"))
        if resource is None:
            raise OAuthError("invalid_target", f"resource must be one of: {' '.join(self._settings.resources)}")
        grant = TokenGrant(
            # The prefix keeps clients apart from users: a client must not be able to take a user's name.
            subject=f"client:{client.client_id}",
            client_id=client.client_id,
            resource=resource,
            scopes=requested_scopes(self._settings, client, form.get("scope")),
        )
        now, grant_id = self._settings.clock(), new_secret()
        await self._store.engine.add("grant", grant_id, grant, until=now + self._settings.lifetimes.access, now=now)
        return await self._answer(grant_id, grant, grant.scopes, refreshes=False)

    # --- shared by the grant types -----------------------------------------------------------------------------------

    async def _answer(
        self, grant_id: str, grant: TokenGrant, scopes: tuple[str, ...], *, refreshes: bool
    ) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "access_token": await self._tokens.sign(grant_id, grant, scopes),
            "token_type": "Bearer",
            "expires_in": int(self._settings.lifetimes.access),
        }
        if scopes:
            answer["scope"] = " ".join(scopes)
        if refreshes:
            refresh = answer["refresh_token"] = new_secret()
            until = self._settings.clock() + self._settings.lifetimes.refresh
            await self._store.engine.put("refresh", digest(refresh), RefreshToken(grant_id), until=until)
        return answer

    def _check_resource(self, form: Mapping[str, str], granted: str) -> None:
        if "resource" in form and self._settings.resource(form["resource"]) != granted:
            raise OAuthError("invalid_target", "resource differs from the approved one")


def _verifies(verifier: str, challenge: str) -> bool:
    if not _VERIFIER.fullmatch(verifier):
        return False
    found = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    return constant_time_equal(found, challenge)


def _narrowed(grant: TokenGrant, scope: str | None) -> tuple[str, ...]:
    """Return the scopes of a refreshed token: all that were approved, or a subset."""
    if scope is None:
        return grant.scopes
    asked = tuple(dict.fromkeys(scope.split()))
    if not set(asked) <= set(grant.scopes):
        raise OAuthError("invalid_scope", "scope exceeds what was approved")
    return asked
