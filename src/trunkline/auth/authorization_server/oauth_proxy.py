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
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from msgspec import Struct

from trunkline.auth.authorization_server.access_tokens import GRANT_CLAIM
from trunkline.auth.authorization_server.authorization_endpoint import (
    AuthorizationEndpoint,
    content_security_policy,
    continue_page,
)
from trunkline.auth.authorization_server.clients import ClientRegistry, is_loopback_uri
from trunkline.auth.authorization_server.records import AuthorizationRequest, OAuthClient, digest, new_secret
from trunkline.auth.authorization_server.server import AuthorizationServer, RequestHandler
from trunkline.auth.authorization_server.settings import IssuerOptions, IssuerSettings
from trunkline.auth.authorization_server.storage import Records
from trunkline.auth.authorization_server.upstream_provider import (
    IdentifyUser,
    UpstreamDenied,
    UpstreamProvider,
    UpstreamSettings,
)
from trunkline.auth.authorization_server.upstream_tokens import UpstreamTokenStore
from trunkline.auth.authorization_server.web import OAuthError, OAuthExchange, PageError
from trunkline.errors import AuthError, ConfigError
from trunkline.protocol.caller import Principal

if TYPE_CHECKING:
    from trunkline.store.interface import Step
    from trunkline.store.server_store import StoreOption

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
    #: the others decrypt older tokens. By default ``client_secret``; without one, the file ``<store>.key``. In Redis,
    #: by default the keys that encrypt everything there.
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
        store: StoreOption = None,
        scopes: Mapping[str, str] | Sequence[str] = (),
        **options: Unpack[ProxyOptions],
    ) -> None:
        """Validate the options; register ``<issuer>/callback`` as the redirect URI at the provider.

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
        )
        self._upstream_tokens = UpstreamTokenStore(
            self._records,
            issuer=issuer,
            storage_key=options.get("storage_key"),
            client_secret=client_secret,
            seconds=self._settings.lifetimes.refresh,
            clock=self._settings.clock,
        )
        self._authorization = self._proxied = _ProxyAuthorizationEndpoint(
            self._settings, self._records, self._registry, self._upstream, self._upstream_tokens
        )

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the principal of a request's token; None if the request has no token.

        Raises:
            InvalidToken: the token was not issued here, is not for this resource, has expired or was revoked.
        """
        principal = await super().verify(headers)
        if principal is not None:
            # With the first request after a start, tokens of an older key are encrypted again.
            await self._upstream_tokens.prepare()
        return principal

    async def _renew_with_grant(self, grant_id: str) -> Sequence[Step]:
        return await self._upstream_tokens.renewal(grant_id)

    async def upstream_token(self, principal: Principal) -> str | None:
        """Return the provider's token for a caller, to call the provider's API on their behalf; None if there is none.

        It is meant for the provider only: never put it into a result.

        Raises:
            AuthError: the provider could not be reached to refresh it.
        """
        grant_id = str((principal.claims or {}).get(GRANT_CLAIM, ""))
        tokens = await self._upstream_tokens.get(grant_id)
        if tokens is None or self._upstream.is_fresh(tokens):
            return None if tokens is None else tokens.access_token
        # One at a time: the provider may accept each refresh token once.
        async with await self._records.lock(f"upstream:{grant_id}"):
            tokens = await self._upstream_tokens.get(grant_id)
            if tokens is None:
                return None
            try:
                fresh = await self._upstream.refreshed(tokens)
            except UpstreamDenied as problem:
                log.warning("a user must sign in again: %s", problem)
                await self._grants.end(grant_id)
                return None
            if fresh is not tokens:
                await self._upstream_tokens.replace(grant_id, fresh)
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
        self,
        settings: IssuerSettings,
        records: Records,
        registry: ClientRegistry,
        upstream: UpstreamProvider,
        tokens: UpstreamTokenStore,
    ) -> None:
        super().__init__(settings, records, registry, sign_in=None)
        self._upstream = upstream
        self._upstream_tokens = tokens
        self.sign_in_url = upstream.settings.authorize

    async def finish(
        self,
        exchange: OAuthExchange,
        client: OAuthClient,
        request: AuthorizationRequest,
        subject: str | None,
        *,
        steps: tuple[Step, ...] = (),
    ) -> None:
        """Commit a decision, and send the user to the provider."""
        state, verifier = new_secret(), new_secret()
        name, login = digest(state), _PendingLogin(request, verifier)
        await self.commit(
            *steps,
            self.records.add("login", name, login, seconds=_STATE_SECONDS),
            self.records.listed("login", name, seconds=_STATE_SECONDS, most=_STATES),
        )
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
        request, verifier = await self._started(exchange, given.get("state", ""))
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
        grant_id = new_secret()
        code, stored = await self.make_code(request, subject=subject, grant_id=grant_id)
        await self.commit(stored, *await self._upstream_tokens.new(grant_id, tokens))
        await exchange.redirect(self.back(request, {"code": code}))

    async def _started(self, exchange: OAuthExchange, state: str) -> tuple[AuthorizationRequest, str]:
        """Return the login that a state belongs to, which is used up."""
        name = digest(state)
        login = await self.records.get("login", name, _PendingLogin)
        generation = (await self.records.ready()).generation
        # After a loss of writes it is not known whether it was used.
        if login is None or login.record.request.generation != generation:
            raise PageError(400, "This page has expired", "Go back to the application and start again.")
        request, verifier = login.record.request, login.record.verifier
        if digest(exchange.cookie(self.settings.cookie) or "") != request.browser:
            log.warning("a sign-in was finished in another browser than the one it was started in; it was rejected")
            raise PageError(
                403, "Started in another browser", "This sign-in was started in another browser. Start again here."
            )
        dropped = self.records.drop("login", name, login.value)
        if not (await self.records.commit(dropped, self.records.unlisted("login", name))).done:
            raise PageError(400, "Already used", "Go back to the application and start again.")
        return request, verifier
