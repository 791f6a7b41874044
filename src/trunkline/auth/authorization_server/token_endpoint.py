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
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn
from urllib.parse import unquote_plus

from msgspec.structs import replace

from trunkline.auth.authorization_server.access_tokens import AccessTokens
from trunkline.auth.authorization_server.authorization_endpoint import requested_scopes
from trunkline.auth.authorization_server.clients import ClientRegistry
from trunkline.auth.authorization_server.records import (
    AuthorizationCode,
    OAuthClient,
    RefreshToken,
    TokenGrant,
    constant_time_equal,
    digest,
    new_secret,
)
from trunkline.auth.authorization_server.settings import IssuerSettings
from trunkline.auth.authorization_server.storage import Records, Stored
from trunkline.auth.authorization_server.web import OAuthError, OAuthExchange
from trunkline.errors import StoreUnavailable
from trunkline.store.interface import Step

__all__ = ["ASSERTION_ALGORITHMS", "ClientAuthentication", "TokenEndpoint"]

log = logging.getLogger("trunkline.auth")

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

    def __init__(self, settings: IssuerSettings, records: Records, registry: ClientRegistry) -> None:
        """Look clients up in a registry."""
        self._settings = settings
        self._records = records
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
        if not isinstance(made, int | float) or made < self._records.known_since:
            return "was made before it was known which were used"
        name = digest(f"{client.client_id}\n{jti}")
        spent = self._records.spend("assertion", name, seconds=expires + 2 * _SKEW - now)
        return None if (await self._records.commit(spent)).done else "was used before"


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


# RFC 7636, 4.1.
_VERIFIER = re.compile(r"[A-Za-z0-9\-._~]{43,128}")
RenewWithGrant = Callable[[str], Awaitable[Sequence[Step]]]
#: How often a refresh is tried again if what it read was changed meanwhile: few ever do.
_ATTEMPTS = 16


class TokenEndpoint:
    """Serves the token endpoint and the revocation endpoint.

    A request reads what it needs and then commits once: what was used, the grant, and the next refresh token.
    """

    def __init__(
        self,
        settings: IssuerSettings,
        records: Records,
        registry: ClientRegistry,
        *,
        tokens: AccessTokens,
        renew_with_grant: RenewWithGrant,
    ) -> None:
        """Use the settings, records and clients of the server.

        ``renew_with_grant`` returns the steps that renew what else belongs to a grant.
        """
        self._settings = settings
        self._records = records
        self._registry = registry
        self._tokens = tokens
        self._renew_with_grant = renew_with_grant
        self._clients = ClientAuthentication(settings, records, registry)
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
        refresh = await self._records.get("refresh", digest(token), RefreshToken)
        if refresh is not None:
            grant_id = refresh.record.grant_id
        else:
            known = await self._tokens.grant_of(token)
            grant_id = known[0] if known is not None else ""
        grant = await self._records.get("grant", grant_id, TokenGrant)
        if grant is not None and grant.record.client_id == client.client_id:
            await self.end(grant_id)
        await exchange.answer(200, [])

    async def end(self, grant_id: str) -> None:
        """Revoke a grant with all its tokens."""
        await self._records.commit(*self._records.revoke(grant_id))

    # --- the grant types ---------------------------------------------------------------------------------------------

    async def _by_code(self, client: OAuthClient, form: Mapping[str, str]) -> dict[str, Any]:
        name = digest(form.get("code", ""))
        stored = await self._records.get("code", name, AuthorizationCode)
        if stored is None or stored.record.client_id != client.client_id:
            raise OAuthError("invalid_grant", "The code is unknown or has expired")
        code = stored.record
        lifetimes = self._settings.lifetimes
        # Stored longer than it is valid, so that a second use is detected.
        used = self._records.put("code", name, replace(code, used=True), seconds=lifetimes.access, old=stored.value)
        fault = await self._code_fault(code, form)
        if fault is not None:
            # A code that was presented wrongly is used up too: whoever has it may be guessing.
            if code.used or not (await self._records.commit(used)).done:
                await self._reused_code(code)
            raise fault
        grant = TokenGrant(subject=code.subject, client_id=code.client_id, resource=code.resource, scopes=code.scopes)
        refreshes = "refresh_token" in client.grant_types
        seconds = lifetimes.refresh if refreshes else lifetimes.access
        answer, steps = await self._issue(code.grant_id, grant, grant.scopes, refreshes=refreshes)
        stored_grant = self._records.add("grant", code.grant_id, grant, seconds=seconds)
        if not (await self._records.commit(used, stored_grant, *steps, *self._registry.renewal(client))).done:
            await self._reused_code(code)
        return answer

    async def _code_fault(self, code: AuthorizationCode, form: Mapping[str, str]) -> OAuthError | None:
        """Return why a code must not be exchanged."""
        if code.used:
            return OAuthError("invalid_grant", "The code has already been used")
        generation = (await self._records.ready()).generation
        if code.until <= self._settings.clock() or code.generation != generation:
            return OAuthError("invalid_grant", "The code is unknown or has expired")
        if form.get("redirect_uri", code.redirect_uri) != code.redirect_uri:
            return OAuthError("invalid_grant", "redirect_uri differs from the authorization request")
        if not _verifies(form.get("code_verifier", ""), code.challenge):
            return OAuthError("invalid_grant", "code_verifier does not match the code_challenge")
        return self._resource_fault(form, code.resource)

    async def _reused_code(self, code: AuthorizationCode) -> NoReturn:
        log.warning("an authorization code was used twice: its tokens are revoked")
        await self.end(code.grant_id)
        raise OAuthError("invalid_grant", "The code has already been used")

    async def _by_refresh_token(self, client: OAuthClient, form: Mapping[str, str]) -> dict[str, Any]:
        name = digest(form.get("refresh_token", ""))
        for _ in range(_ATTEMPTS):
            refresh = await self._records.get("refresh", name, RefreshToken)
            grant_id = "" if refresh is None else refresh.record.grant_id
            grant = None if refresh is None else await self._records.get("grant", grant_id, TokenGrant)
            if refresh is None or grant is None or grant.record.client_id != client.client_id:
                raise OAuthError("invalid_grant", "The refresh token is unknown, has expired or was revoked")
            scopes = _narrowed(grant.record, form.get("scope"))
            if fault := self._resource_fault(form, grant.record.resource):
                raise fault
            await self._check_unused(refresh.record)
            answer, steps = await self._issue(grant_id, grant.record, scopes, refreshes=True)
            renewal = await self._renewal(name, refresh, grant)
            if (await self._records.commit(*renewal, *steps, *self._registry.renewal(client))).done:
                return answer
            # The token was used, or the grant changed, since they were read: read them again.
        raise StoreUnavailable("a grant is being changed by too many requests at once")

    async def _check_unused(self, refresh: RefreshToken) -> None:
        if refresh.used:
            log.warning("a refresh token was used twice: all tokens of its grant are revoked")
            await self.end(refresh.grant_id)
            raise OAuthError("invalid_grant", "The refresh token has already been used; the user must approve again")
        if refresh.generation != (await self._records.ready()).generation:
            # The store lost writes, perhaps the one that marked this token as used.
            raise OAuthError("invalid_grant", "The refresh token is of no use any more; the user must approve again")

    async def _renewal(self, name: str, refresh: Stored[RefreshToken], grant: Stored[TokenGrant]) -> list[Step]:
        """Return the steps that use a refresh token and renew its grant, if neither has changed."""
        put, seconds, grant_id = self._records.put, self._settings.lifetimes.refresh, refresh.record.grant_id
        steps: list[Step] = [
            put("refresh", name, replace(refresh.record, used=True), seconds=seconds, old=refresh.value),
            put("grant", grant_id, grant.record, seconds=seconds, old=grant.value),
        ]
        return [*steps, *await self._renew_with_grant(grant_id)]

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
        grant_id = new_secret()
        answer, steps = await self._issue(grant_id, grant, grant.scopes, refreshes=False)
        added = self._records.add("grant", grant_id, grant, seconds=self._settings.lifetimes.access)
        await self._records.commit(added, *steps)
        return answer

    # --- shared by the grant types -----------------------------------------------------------------------------------

    async def _issue(
        self, grant_id: str, grant: TokenGrant, scopes: tuple[str, ...], *, refreshes: bool
    ) -> tuple[dict[str, Any], Sequence[Step]]:
        """Return the response with new tokens, and the steps that make them valid."""
        answer: dict[str, Any] = {
            "access_token": await self._tokens.sign(grant_id, grant, scopes),
            "token_type": "Bearer",
            "expires_in": int(self._settings.lifetimes.access),
        }
        if scopes:
            answer["scope"] = " ".join(scopes)
        if not refreshes:
            return answer, ()
        refresh = answer["refresh_token"] = new_secret()
        record = RefreshToken(grant_id=grant_id, generation=(await self._records.ready()).generation)
        return answer, [self._records.put("refresh", digest(refresh), record, seconds=self._settings.lifetimes.refresh)]

    def _resource_fault(self, form: Mapping[str, str], granted: str) -> OAuthError | None:
        if "resource" in form and self._settings.resource(form["resource"]) != granted:
            return OAuthError("invalid_target", "resource differs from the approved one")
        return None


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
