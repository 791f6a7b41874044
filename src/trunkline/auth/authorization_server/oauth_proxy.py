"""An authorization server in front of an identity provider that knows a single client: this proxy.

MCP clients register here, are approved here one by one, and get tokens from here; users sign in at the provider, where
the proxy is an ordinary client. So a client that the user did not approve never benefits from the consent that the
provider remembers for the proxy (the confused deputy), and the provider's tokens stay on the server.

Users are asked before they are sent to the provider. The state that accompanies them is random, valid once and for ten
minutes, created only after they approved, and bound to their browser: another browser cannot finish the login.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack
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
    DEFAULT_FILE,
    AuthorizationRequest,
    OAuthClient,
    RecordStore,
    SqliteRecords,
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
    UpstreamTokens,
    check_storage_key,
    find_storage_secrets,
)
from trunkline.auth.authorization_server.web import OAuthError, OAuthExchange, PageError
from trunkline.errors import AuthError, ConfigError
from trunkline.protocol.caller import Principal

if TYPE_CHECKING:
    from trunkline.protocol.seal import Seal
    from trunkline.store.interface import Store

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
        store: str | None = None,
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
        given = options.get("storage_key")
        self._storage_key = None if given is None else check_storage_key(given)
        self._client_secret = client_secret
        self._path = store or DEFAULT_FILE
        self._authorization = self._proxied = _ProxyAuthorizationEndpoint(
            self._settings, self._store, self._registry, self._upstream, prepare=self._prepare
        )
        if store is not None:
            self._prepare()
            self._store.rest()

    def _share(self, store: Store, seal: Seal) -> None:
        """Store everything in a store; the provider's tokens are encrypted with the keys that all workers share."""
        super()._share(store, seal)
        if not self._store.chosen:
            derived = [key.hex() for key in seal.derived_keys(b"oauth upstream")]
            self._upstream.use_keys(self._storage_key or derived, salt=self._settings.issuer)

    def _prepare(self) -> None:
        """Load the keys for the provider's tokens, once, if they are stored in a file.

        Raises:
            ConfigError: the file, or the key file beside it, cannot be used.
        """
        file = None if self._upstream.has_keys else self._store.file
        if file is None:
            return
        storage = find_storage_secrets(self._storage_key, client_secret=self._client_secret, store=self._path)
        self._upstream.use_keys(storage.secrets, salt=stored_secret(file, "upstream", self._settings.clock()))
        self._reseal(file, without_secret=storage.new_file)

    def _reseal(self, file: SqliteRecords, *, without_secret: bool) -> None:
        """Encrypt tokens again that an older key encrypted, so that the older key can be dropped."""
        lost, moved = 0, 0
        for grant_id, sealed, until in file.all("upstream", EncryptedTokens, now=self._settings.clock()):
            fresh = self._upstream.resealed(grant_id, sealed, without_secret=without_secret)
            if fresh is not None:
                moved += 1
                file.put("upstream", grant_id, fresh, until=until)
            elif self._upstream.unseal(grant_id, sealed) is None:
                lost += 1
        if moved:
            file.erase_traces()
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
        self._prepare()
        grant_id = str((principal.claims or {}).get(GRANT_CLAIM, ""))
        tokens = await self._tokens_of(grant_id)
        if tokens is None or self._upstream.is_fresh(tokens):
            return None if tokens is None else tokens.access_token
        # One at a time: the provider may accept each refresh token once.
        async with self._store.engine.lock(f"upstream:{grant_id}"):
            tokens = await self._tokens_of(grant_id)
            if tokens is None:
                return None
            try:
                fresh = await self._upstream.refreshed(tokens)
            except UpstreamDenied as problem:
                log.warning("a user must sign in again: %s", problem)
                await self._grants.end(grant_id)
                return None
            if fresh is not tokens:
                until = self._settings.clock() + self._settings.lifetimes.refresh
                sealed = self._upstream.seal(grant_id, fresh)
                await self._store.engine.put("upstream", grant_id, sealed, until=until)
            return fresh.access_token

    async def _tokens_of(self, grant_id: str) -> UpstreamTokens | None:
        sealed = await self._store.engine.get("upstream", grant_id, EncryptedTokens, now=self._settings.clock())
        return None if sealed is None else self._upstream.unseal(grant_id, sealed)

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
        store: RecordStore,
        registry: ClientRegistry,
        upstream: UpstreamProvider,
        *,
        prepare: Callable[[], None],
    ) -> None:
        super().__init__(settings, store, registry, sign_in=None)
        self._prepare = prepare
        self._upstream = upstream
        self.sign_in_url = upstream.settings.authorize

    async def finish(
        self, exchange: OAuthExchange, client: OAuthClient, request: AuthorizationRequest, subject: str | None
    ) -> None:
        now, state, verifier = self.settings.clock(), new_secret(), new_secret()
        login, until = _PendingLogin(request, verifier), now + _STATE_SECONDS
        if not await self.store.engine.add("login", digest(state), login, until=until, now=now, most=_STATES):
            raise PageError(
                503, "Too many sign-ins in progress", "Try again in ten minutes.", headers=(("retry-after", "600"),)
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
        self._prepare()
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
        grant_id, now = new_secret(), self.settings.clock()
        await self.store.engine.put(
            "upstream", grant_id, self._upstream.seal(grant_id, tokens), until=now + self.settings.lifetimes.refresh
        )
        await exchange.redirect(
            self.back(request, {"code": await self.make_code(request, subject=subject, grant_id=grant_id)})
        )

    async def _started(self, exchange: OAuthExchange, state: str) -> tuple[AuthorizationRequest, str]:
        login = await self.store.engine.get("login", digest(state), _PendingLogin, now=self.settings.clock())
        if login is None:
            raise PageError(400, "This page has expired", "Go back to the application and start again.")
        if digest(exchange.cookie(self.settings.cookie) or "") != login.request.browser:
            log.warning("a sign-in was finished in another browser than the one it was started in; it was rejected")
            raise PageError(
                403, "Started in another browser", "This sign-in was started in another browser. Start again here."
            )
        if not await self.store.engine.drop("login", digest(state)):
            raise PageError(400, "Already used", "Go back to the application and start again.")
        return login.request, login.verifier
