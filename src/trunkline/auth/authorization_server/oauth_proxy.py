"""An authorization server in front of an identity provider that knows a single client: this proxy.

MCP clients register here, are approved here one by one, and get tokens from here; users sign in at the provider, where
the proxy is an ordinary client. So a client that the user did not approve never benefits from the consent that the
provider remembers for the proxy (the confused deputy), and the provider's tokens stay on the server.

Users are asked before they are sent to the provider. The state that accompanies them is random, valid once and for ten
minutes, created only after they approved, and bound to their browser: another browser cannot finish the login.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack
from urllib.parse import urlsplit

from msgspec import Struct

from trunkline.auth.authorization_server.authorization_endpoint import (
    AuthorizationEndpoint,
    content_security_policy,
    continue_page,
)
from trunkline.auth.authorization_server.clients import ClientRegistry, is_loopback_uri
from trunkline.auth.authorization_server.server import AuthorizationServer, RequestHandler
from trunkline.auth.authorization_server.settings import IssuerOptions, IssuerSettings
from trunkline.auth.authorization_server.storage import (
    AuthorizationRequest,
    OAuthClient,
    RecordStore,
    digest,
    new_secret,
    stored_secret,
)
from trunkline.auth.authorization_server.token_endpoint import GRANT_CLAIM
from trunkline.auth.authorization_server.upstream_provider import (
    EncryptedTokens,
    IdentifyUser,
    UpstreamDenied,
    UpstreamProvider,
    UpstreamSettings,
    find_storage_secrets,
)
from trunkline.auth.authorization_server.web import OAuthError, OAuthExchange, PageError
from trunkline.errors import AuthError, ConfigError
from trunkline.protocol.caller import Principal

__all__ = ["OAuthProxy", "ProxyOptions"]

log = logging.getLogger("trunkline.auth")

_STATE_SECONDS = 600.0  # The time a user has to log in at the upstream provider, second factor included.
_STATES = 10_000  # Logins in progress; starting one costs an attacker nothing.
# A consent is remembered for a month; the user logs in at the upstream provider anyway.
_REMEMBER_SECONDS = 30 * 24 * 3600.0


class ProxyOptions(IssuerOptions, total=False):
    """Further options of ``OAuthProxy``."""

    resource: str | Sequence[str] | None
    clients: Iterable[OAuthClient]
    #: What is requested from the provider: scopes, and additional parameters.
    upstream_scopes: Sequence[str]
    upstream_parameters: Mapping[str, str]
    #: How the user is identified: the userinfo endpoint, or a function of the token response; else by the ID token.
    upstream_userinfo: str | None
    identify: IdentifyUser | None
    #: The provider's issuer, compared with ``iss`` in its responses.
    upstream_issuer: str | None
    #: Authenticate at the provider with a Basic header instead of the form.
    upstream_basic: bool
    upstream_fetcher: Any
    #: The key that encrypts the provider's tokens in the store, at least 32 characters. Of several the first encrypts,
    #: the others decrypt older tokens. By default ``client_secret``; without one, the file ``<store>.key``.
    storage_key: str | Sequence[str] | None


class OAuthProxy(AuthorizationServer):
    """Authorization server for its own MCP server whose users sign in at an identity provider."""

    def __init__(
        self,
        *,
        issuer: str,
        upstream_authorize: str,
        upstream_token: str,
        client_id: str,
        client_secret: str | None,
        store: str = "authorization.db",
        scopes: Mapping[str, str] | Sequence[str] = (),
        **options: Unpack[ProxyOptions],
    ) -> None:
        """Open the store; register ``<issuer>/callback`` as the redirect URI at the provider.

        Raises:
            ConfigError: an option is not valid; the message says what to change.
        """
        own = {name: options[name] for name in options if name in IssuerOptions.__annotations__}  # type: ignore[literal-required]
        own.setdefault("remember_seconds", _REMEMBER_SECONDS)
        if unknown := set(options) - set(ProxyOptions.__annotations__):
            raise TypeError(f"OAuthProxy has no option {min(unknown)!r}")
        self._users = None
        self._set_up(issuer, store, scopes, options.get("resource"), options.get("clients", ()), own)
        for name, url in (("upstream_authorize", upstream_authorize), ("upstream_token", upstream_token)):
            if urlsplit(url).scheme != "https" and not is_loopback_uri(url):
                raise ConfigError(f"{name}={url!r} must be an https URL; http is allowed for loopback only")
        storage = find_storage_secrets(options.get("storage_key"), client_secret=client_secret, store=store)
        self._upstream = UpstreamProvider(
            UpstreamSettings(
                authorize=upstream_authorize,
                token=upstream_token,
                client_id=client_id,
                client_secret=client_secret,
                callback=f"{self._settings.base}/callback",
                scopes=tuple(options.get("upstream_scopes", ())),
                parameters=dict(options.get("upstream_parameters", {})),
                userinfo=options.get("upstream_userinfo"),
                issuer=options.get("upstream_issuer"),
                basic=options.get("upstream_basic", False),
            ),
            identify=options.get("identify"),
            fetcher=options.get("upstream_fetcher"),
            clock=self._settings.clock,
            salt=stored_secret(self._store, "upstream", self._settings.clock()),
            storage_secrets=storage.secrets,
        )
        self._reseal(without_secret=storage.new_file)
        self._authorization = self._proxied = _ProxyAuthorizationEndpoint(
            self._settings, self._store, self._registry, self._upstream
        )

    def _reseal(self, *, without_secret: bool) -> None:
        """Encrypt tokens again that an older key encrypted, so that the older key can be dropped."""
        lost, moved = 0, 0
        for grant_id, sealed, until in self._store.all("upstream", EncryptedTokens, now=self._settings.clock()):
            fresh = self._upstream.resealed(grant_id, sealed, without_secret=without_secret)
            if fresh is not None:
                moved += 1
                self._store.put("upstream", grant_id, fresh, until=until)
            elif self._upstream.unseal(grant_id, sealed) is None:
                lost += 1
        if moved:
            self._store.erase_traces()
        if lost:
            log.warning(
                "%d users must sign in again: their provider tokens in the store were encrypted with another key "
                "(storage_key=, client_secret= or the key file changed)",
                lost,
            )

    async def upstream_token(self, principal: Principal) -> str | None:
        """Return the provider's token for a caller, to call the provider's API on their behalf; None if there is none.

        It is meant for the provider only: never put it into a result.

        Raises:
            AuthError: the provider could not be reached to refresh it.
        """
        grant_id = str((principal.claims or {}).get(GRANT_CLAIM, ""))
        now = self._settings.clock()
        sealed = self._store.get("upstream", grant_id, EncryptedTokens, now=now)
        tokens = None if sealed is None else self._upstream.unseal(grant_id, sealed)
        if tokens is None:
            return None
        try:
            fresh = await self._upstream.refreshed(tokens)
        except UpstreamDenied as problem:
            log.warning("a user must sign in again: %s", problem)
            self._grants.end(grant_id)
            return None
        if fresh is not tokens:
            until = now + self._settings.lifetimes.refresh
            self._store.put("upstream", grant_id, self._upstream.seal(grant_id, fresh), until=until)
        return fresh.access_token

    async def aclose(self) -> None:
        """Close the store and the HTTP clients."""
        await self._upstream.aclose()
        await super().aclose()

    def _table(self) -> dict[str, dict[str, RequestHandler]]:
        return {**super()._table(), f"{self._settings.path}/callback": {"GET": self._proxied.handle_callback}}


class _PendingLogin(Struct, frozen=True):
    """A user who was sent to the provider, and the request they approved before."""

    request: AuthorizationRequest
    verifier: str


class _ProxyAuthorizationEndpoint(AuthorizationEndpoint):
    """The authorization endpoint of a proxy: sends users to the provider after consent, and handles their return."""

    def __init__(
        self, settings: IssuerSettings, store: RecordStore, registry: ClientRegistry, upstream: UpstreamProvider
    ) -> None:
        super().__init__(settings, store, registry, sign_in=None)
        self._upstream = upstream
        self.sign_in_url = upstream.settings.authorize

    async def finish(
        self, exchange: OAuthExchange, client: OAuthClient, request: AuthorizationRequest, subject: str | None
    ) -> None:
        now = self.settings.clock()
        self.store.sweep(now)
        if self.store.count("login", now=now) >= _STATES:
            raise PageError(
                503, "Too many sign-ins in progress", "Try again in ten minutes.", headers=(("retry-after", "600"),)
            )
        state, verifier = new_secret(), new_secret()
        self.store.put("login", digest(state), _PendingLogin(request, verifier), until=now + _STATE_SECONDS)
        url = self._upstream.login_url(state=state, verifier=verifier)
        if exchange.method == "POST":
            await exchange.answer_html(200, continue_page(self.settings.name, url), policy=content_security_policy())
        else:
            await exchange.redirect(url)

    async def handle_callback(self, exchange: OAuthExchange) -> None:
        """Handle the redirect from the provider, and redirect the user to the client.

        Raises:
            PageError: the login was not started here, or took too long.
        """
        try:
            given = exchange.query()
        except OAuthError as fault:
            raise PageError(fault.status, "Malformed link", f"{fault.description}.") from None
        request, verifier = self._started(exchange, given.get("state", ""))
        if "error" in given or "code" not in given:
            denied = given.get("error") == "access_denied"
            error = (
                ("access_denied", "The user denied access")
                if denied
                else ("server_error", "The provider sent an error")
            )
            await self.refuse(exchange, request, OAuthError(*error))
            return
        issuer = self._upstream.settings.issuer
        if issuer is not None and given.get("iss", issuer) != issuer:
            raise PageError(
                400, "Wrong provider", "The response came from another provider than the one you signed in at."
            )
        try:
            subject, tokens = await self._upstream.exchange(given["code"], verifier)
        except AuthError as problem:
            log.warning("sign-in at the provider failed: %s", problem)
            await self.refuse(exchange, request, OAuthError("server_error", "The provider did not confirm the sign-in"))
            return
        grant_id, now = new_secret(), self.settings.clock()
        self.store.put(
            "upstream", grant_id, self._upstream.seal(grant_id, tokens), until=now + self.settings.lifetimes.refresh
        )
        await exchange.redirect(
            self.back(request, {"code": self.make_code(request, subject=subject, grant_id=grant_id)})
        )

    def _started(self, exchange: OAuthExchange, state: str) -> tuple[AuthorizationRequest, str]:
        login = self.store.get("login", digest(state), _PendingLogin, now=self.settings.clock())
        if login is None:
            raise PageError(400, "This page has expired", "Go back to the application and start again.")
        if digest(exchange.cookie(self.settings.cookie) or "") != login.request.browser:
            log.warning("a sign-in was finished in another browser than the one it was started in; it was rejected")
            raise PageError(
                403, "Started in another browser", "This sign-in was started in another browser. Start again here."
            )
        if not self.store.drop("login", digest(state)):
            raise PageError(400, "Already used", "Go back to the application and start again.")
        return login.request, login.verifier
