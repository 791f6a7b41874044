"""The token endpoint and the revocation endpoint: tokens for a code, for a refresh token, or for the client itself.

A grant is a family of tokens and is valid while it is stored. A code or refresh token that is presented a second time
was stolen, by the first or by the second presenter: the family is revoked, and the user must approve again.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
from collections.abc import Mapping
from typing import Any

from trunkline.auth.issuing.authorize import requested_scopes
from trunkline.auth.issuing.client_auth import ClientAuthentication
from trunkline.auth.issuing.client_book import ClientBook
from trunkline.auth.issuing.faults import OAuthFault
from trunkline.auth.issuing.records import Code, Grant, OAuthClient, Refresh, digest, new_secret, same
from trunkline.auth.issuing.settings import Settings
from trunkline.auth.issuing.store import Store
from trunkline.auth.issuing.tokens import AccessTokens
from trunkline.auth.issuing.web import Exchange

__all__ = ["Grants"]

log = logging.getLogger("trunkline.auth")

# RFC 7636, 4.1.
_VERIFIER = re.compile(r"[A-Za-z0-9\-._~]{43,128}")


class Grants:
    """Serves the token endpoint and the revocation endpoint."""

    def __init__(self, settings: Settings, store: Store, book: ClientBook, *, tokens: AccessTokens) -> None:
        """Use the settings, store and clients of the server."""
        self._settings = settings
        self._store = store
        self._book = book
        self._tokens = tokens
        self._clients = ClientAuthentication(settings, store, book)
        self._kinds = {
            "authorization_code": self._by_code,
            "refresh_token": self._by_refresh_token,
            "client_credentials": self._by_itself,
        }

    async def token(self, exchange: Exchange) -> None:
        """Handle a token request.

        Raises:
            OAuthError: no token is issued.
        """
        form = await exchange.form()
        kind = self._kinds.get(form.get("grant_type", ""))
        if kind is None:
            raise OAuthFault("unsupported_grant_type", f"grant_type must be one of: {' '.join(self._kinds)}")
        client = await self._clients.client(exchange, form)
        if form["grant_type"] not in client.grant_types:
            raise OAuthFault("unauthorized_client", "The client may not use this grant_type")
        answer = kind(client, form)
        self._book.used(client)
        await exchange.answer_json(200, answer, headers=(("cache-control", "no-store"), ("pragma", "no-cache")))

    async def revoke(self, exchange: Exchange) -> None:
        """Revoke the grant of a token; an unknown token counts as revoked (RFC 7009, 2.2).

        Raises:
            OAuthError: client authentication failed, or the token is missing.
        """
        form = await exchange.form()
        client = await self._clients.client(exchange, form)
        token = form.get("token")
        if token is None:
            raise OAuthFault("invalid_request", "token is missing")
        refresh = self._store.get("refresh", digest(token), Refresh, now=self._settings.clock())
        if refresh is not None:
            grant_id = refresh.grant_id
        else:
            known = self._tokens.grant_of(token)
            grant_id = known[0] if known is not None else ""
        grant = self._store.get("grant", grant_id, Grant, now=self._settings.clock())
        if grant is not None and grant.client_id == client.client_id:
            self.end(grant_id)
        await exchange.answer(200, [])

    def end(self, grant_id: str) -> None:
        """Revoke a grant with all its tokens."""
        self._store.drop("grant", grant_id)
        self._store.drop("upstream", grant_id)

    # --- the grant types ---------------------------------------------------------------------------------------------

    def _by_code(self, client: OAuthClient, form: Mapping[str, str]) -> dict[str, Any]:
        now, name = self._settings.clock(), digest(form.get("code", ""))
        code = self._store.get("code", name, Code, now=now)
        if code is None or code.client_id != client.client_id:
            raise OAuthFault("invalid_grant", "The code is unknown or has expired")
        if not self._store.use("code", name):
            log.warning("an authorization code was used twice: its tokens are revoked")
            self.end(code.grant_id)
            raise OAuthFault("invalid_grant", "The code has already been used")
        if code.until <= now:
            raise OAuthFault("invalid_grant", "The code is unknown or has expired")
        if form.get("redirect_uri", code.redirect_uri) != code.redirect_uri:
            raise OAuthFault("invalid_grant", "redirect_uri differs from the authorization request")
        if not _verifies(form.get("code_verifier", ""), code.challenge):
            raise OAuthFault("invalid_grant", "code_verifier does not match the code_challenge")
        self._check_resource(form, code.resource)
        grant = Grant(subject=code.subject, client_id=code.client_id, resource=code.resource, scopes=code.scopes)
        lives = self._settings.lives
        refreshes = "refresh_token" in client.grant_types
        self._store.put("grant", code.grant_id, grant, until=now + (lives.refresh if refreshes else lives.access))
        return self._answer(code.grant_id, grant, grant.scopes, refreshes=refreshes)

    def _by_refresh_token(self, client: OAuthClient, form: Mapping[str, str]) -> dict[str, Any]:
        now, name = self._settings.clock(), digest(form.get("refresh_token", ""))
        refresh = self._store.get("refresh", name, Refresh, now=now)
        grant = None if refresh is None else self._store.get("grant", refresh.grant_id, Grant, now=now)
        if refresh is None or grant is None or grant.client_id != client.client_id:
            raise OAuthFault("invalid_grant", "The refresh token is unknown, has expired or was revoked")
        scopes = _narrowed(grant, form.get("scope"))
        self._check_resource(form, grant.resource)
        if not self._store.use("refresh", name):
            log.warning("a refresh token was used twice: all tokens of its grant are revoked")
            self.end(refresh.grant_id)
            raise OAuthFault("invalid_grant", "The refresh token has already been used; the user must approve again")
        for kind in ("grant", "upstream"):
            self._store.extend(kind, refresh.grant_id, now + self._settings.lives.refresh)
        return self._answer(refresh.grant_id, grant, scopes, refreshes=True)

    def _by_itself(self, client: OAuthClient, form: Mapping[str, str]) -> dict[str, Any]:
        if client.is_public:
            raise OAuthFault("unauthorized_client", "client_credentials needs client authentication")
        resource = self._settings.resource(form.get("resource"))
        if resource is None:
            raise OAuthFault("invalid_target", f"resource must be one of: {' '.join(self._settings.resources)}")
        grant = Grant(
            # The prefix keeps clients apart from users: a client must not be able to take a user's name.
            subject=f"client:{client.client_id}",
            client_id=client.client_id,
            resource=resource,
            scopes=requested_scopes(self._settings, client, form.get("scope")),
        )
        now, grant_id = self._settings.clock(), new_secret()
        self._store.add("grant", grant_id, grant, until=now + self._settings.lives.access, now=now)
        return self._answer(grant_id, grant, grant.scopes, refreshes=False)

    # --- shared by the grant types -----------------------------------------------------------------------------------

    def _answer(self, grant_id: str, grant: Grant, scopes: tuple[str, ...], *, refreshes: bool) -> dict[str, Any]:
        answer: dict[str, Any] = {
            "access_token": self._tokens.sign(grant_id, grant, scopes),
            "token_type": "Bearer",
            "expires_in": int(self._settings.lives.access),
        }
        if scopes:
            answer["scope"] = " ".join(scopes)
        if refreshes:
            refresh = answer["refresh_token"] = new_secret()
            until = self._settings.clock() + self._settings.lives.refresh
            self._store.put("refresh", digest(refresh), Refresh(grant_id), until=until)
        return answer

    def _check_resource(self, form: Mapping[str, str], granted: str) -> None:
        if "resource" in form and self._settings.resource(form["resource"]) != granted:
            raise OAuthFault("invalid_target", "resource differs from the approved one")


def _verifies(verifier: str, challenge: str) -> bool:
    if not _VERIFIER.fullmatch(verifier):
        return False
    found = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    return same(found, challenge)


def _narrowed(grant: Grant, scope: str | None) -> tuple[str, ...]:
    """Return the scopes of a refreshed token: all that were approved, or a subset."""
    if scope is None:
        return grant.scopes
    asked = tuple(dict.fromkeys(scope.split()))
    if not set(asked) <= set(grant.scopes):
        raise OAuthFault("invalid_scope", "scope exceeds what was approved")
    return asked
