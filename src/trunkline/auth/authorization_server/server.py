"""A small authorization server, for development and for one organisation, that runs beside the MCP endpoint it serves.

``Server(auth=AuthorizationServer(issuer="https://mcp.example.com", users=...))`` is the whole set-up. It issues JWTs
for the configured resources and no others, to clients that are configured, register themselves or are described by a
client ID metadata document, after a user allowed it on a consent page. What it stores is in its own store, or in that
of the server beside it.

The class assembles the parts of this package and is their routing table. It is plain ASGI: mounted by ``routes`` beside
an endpoint, or run as an application of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from trunkline.auth.authorization_server.access_tokens import AccessTokens
from trunkline.auth.authorization_server.authorization_endpoint import (
    AuthorizationEndpoint,
    content_security_policy,
    message_page,
)
from trunkline.auth.authorization_server.clients import AUTH_METHODS, ClientRegistry
from trunkline.auth.authorization_server.records import OAuthClient
from trunkline.auth.authorization_server.settings import (
    IssuerOptions,
    IssuerSettings,
    RateLimitedSignIn,
    Users,
    make_settings,
    make_sign_in,
)
from trunkline.auth.authorization_server.storage import Records
from trunkline.auth.authorization_server.token_endpoint import ASSERTION_ALGORITHMS, TokenEndpoint
from trunkline.auth.authorization_server.web import App, OAuthError, OAuthExchange, PageError, Receive, Scope, Send
from trunkline.auth.verifiers import InvalidToken, bearer_token
from trunkline.errors import ConfigError, StoreUnavailable
from trunkline.protocol.caller import Principal

if TYPE_CHECKING:
    from trunkline.store.interface import Step
    from trunkline.store.server_store import ServerStore, StoreOption

__all__ = ["AuthorizationServer"]

log = logging.getLogger("trunkline.auth")

RequestHandler = Callable[[OAuthExchange], Awaitable[None]]

_METADATA = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class AuthorizationServer:
    """Authorization server that issues the tokens its own MCP server accepts."""

    def __init__(
        self,
        *,
        issuer: str,
        store: StoreOption = None,
        scopes: Mapping[str, str] | Sequence[str] = (),
        users: Users | None = None,
        resource: str | Sequence[str] | None = None,
        clients: Iterable[OAuthClient] = (),
        **options: Unpack[IssuerOptions],
    ) -> None:
        """Validate the options; nothing is started.

        ``store`` is what ``Server(store=)`` accepts: a file, ``redis://…``, or a store. Without it, everything is in
        the store of the server that this one authenticates for, if that outlives the process, else in memory.

        ``issuer`` is published exactly as it is written. ``resource`` is the audience of tokens, by default
        ``<origin>/mcp``. ``users`` are the accounts that may sign in; without it there is one development user, and
        only on loopback.

        Raises:
            ConfigError: an option is not valid; the message says what to change.
        """
        self._set_up(issuer, store, scopes, resource, clients, options)
        self._users: RateLimitedSignIn | None = make_sign_in(users, self._settings, self._records)
        self._authorization = AuthorizationEndpoint(self._settings, self._records, self._registry, sign_in=self._users)

    def _set_up(
        self,
        issuer: str,
        store: StoreOption,
        scopes: Mapping[str, str] | Sequence[str],
        resource: str | Sequence[str] | None,
        clients: Iterable[OAuthClient],
        options: Mapping[str, Any],
    ) -> None:
        given = {"clock": time.time, **options}
        fetcher = given.pop("fetcher", None)
        self._settings = make_settings(issuer=issuer, resource=resource, scopes=scopes, options=given)
        self._records = Records(store, issuer=issuer, keys=options.get("state_keys"), clock=self._settings.clock)
        self._registry = ClientRegistry(self._settings, self._records, clients=clients, fetcher=fetcher)
        self._tokens = AccessTokens(self._settings, self._records)
        self._grants = TokenEndpoint(
            self._settings,
            self._records,
            self._registry,
            tokens=self._tokens,
            renew_with_grant=self._renew_with_grant,
        )

    async def _renew_with_grant(self, grant_id: str) -> Sequence[Step]:
        """Return the steps that renew what is stored beside a grant."""
        return ()

    # --- as a verifier -----------------------------------------------------------------------------------------------

    @property
    def issuer(self) -> str:
        """The issuer of the tokens."""
        return self._settings.issuer

    @property
    def resource(self) -> str:
        """The resource that tokens are issued for."""
        return self._settings.resources[0]

    @property
    def authorization_servers(self) -> Sequence[str]:
        """The issuers of accepted tokens: this server."""
        return (self._settings.issuer,)

    @property
    def scopes_supported(self) -> Sequence[str]:
        """The scopes this server knows."""
        return tuple(self._settings.scopes)

    @property
    def required_scopes(self) -> Sequence[str]:
        """The scopes that every request needs."""
        return tuple(sorted(self._settings.required_scopes))

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the principal of a request's token; None if the request has no token.

        Raises:
            InvalidToken: the token was not issued here, is not for this resource, has expired or was revoked.
        """
        token = bearer_token(headers)
        if token is None:
            return None
        principal = await self._tokens.check(token)
        if principal is None:
            raise InvalidToken("The token was not issued here, has expired or was revoked")
        return principal

    def _share(self, state: ServerStore) -> None:
        """Use the store of a server that this one authenticates for; called by that server."""
        self._records.share(state)

    # --- as an application -------------------------------------------------------------------------------------------

    def routes(self) -> Mapping[str, App]:
        """Return the ASGI applications by the paths at which they are served."""
        if self._users is not None and self._settings.auto_approve is None:
            self._users.announce()
        return {path: _Endpoint(self._settings, verbs) for path, verbs in self._table().items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve as an ASGI application of its own."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(OAuthExchange(scope, receive, send), scope, receive, send)
        else:
            raise ConfigError(f"an authorization server serves HTTP, not {scope['type']}")

    async def aclose(self) -> None:
        """Close the store and the HTTP client."""
        await self._registry.aclose()
        await self._records.aclose()

    def _table(self) -> dict[str, dict[str, RequestHandler]]:
        """Return the handlers by path and HTTP method."""
        base = self._settings.path
        table: dict[str, dict[str, RequestHandler]] = {
            f"{_METADATA}{base}": {"GET": self._metadata},
            f"{_OPENID}{base}": {"GET": self._openid},
            f"{base}{_OPENID}": {"GET": self._openid},
            f"{base}/authorize": {"GET": self._authorization.ask, "POST": self._authorization.decide},
            f"{base}/token": {"POST": self._grants.token},
            f"{base}/revoke": {"POST": self._grants.revoke},
            f"{base}/jwks": {"GET": self._jwks},
        }
        if self._settings.registration:
            table[f"{base}/register"] = {"POST": self._register}
        return table

    async def _serve(self, exchange: OAuthExchange, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._has_own_host(exchange):
            await exchange.answer_json(
                403, {"error": "invalid_request", "error_description": "The Host header names another server"}
            )
            return
        app = self.routes().get(exchange.path)
        if app is None:
            await exchange.answer_json(
                404, {"error": "invalid_request", "error_description": "No endpoint at this path"}
            )
            return
        await app(scope, receive, send)

    def _has_own_host(self, exchange: OAuthExchange) -> bool:
        """Return True if the Host header names this server; any other name may be a DNS rebinding attack."""
        host = (exchange.header(b"host") or "").lower()
        if self._settings.is_loopback:
            try:
                return urlsplit(f"//{host}").hostname in _LOOPBACK
            except ValueError:
                # Brackets that do not enclose an IPv6 address.
                return False
        # Clients leave the default port out, also if the issuer has it.
        ours = urlsplit(self._settings.origin).netloc.lower()
        return host.removesuffix(":443") == ours.removesuffix(":443")

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "lifespan.startup":
            self.routes()
            await send({"type": "lifespan.startup.complete"})
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    # --- what is published -------------------------------------------------------------------------------------------

    def metadata(self) -> dict[str, Any]:
        """Return the authorization server metadata (RFC 8414)."""
        settings, base = self._settings, self._settings.base
        published: dict[str, Any] = {
            "issuer": settings.issuer,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "revocation_endpoint": f"{base}/revoke",
            "jwks_uri": f"{base}/jwks",
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": self._registry.grant_types,
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": AUTH_METHODS,
            "token_endpoint_auth_signing_alg_values_supported": ASSERTION_ALGORITHMS,
            "revocation_endpoint_auth_methods_supported": AUTH_METHODS,
            "revocation_endpoint_auth_signing_alg_values_supported": ASSERTION_ALGORITHMS,
            "client_id_metadata_document_supported": settings.documents,
            "authorization_response_iss_parameter_supported": True,
            "protected_resources": settings.resources,
        }
        if settings.registration:
            published["registration_endpoint"] = f"{base}/register"
        if settings.scopes:
            published["scopes_supported"] = list(settings.scopes)
        return published

    async def _metadata(self, exchange: OAuthExchange) -> None:
        await exchange.answer_json(200, self.metadata(), headers=_SHORT_CACHE)

    async def _openid(self, exchange: OAuthExchange) -> None:
        """Serve the same metadata at the OpenID Connect path, with the members that its clients require."""
        more = {"subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"]}
        await exchange.answer_json(200, {**self.metadata(), **more}, headers=_SHORT_CACHE)

    async def _jwks(self, exchange: OAuthExchange) -> None:
        await exchange.answer_json(200, await self._tokens.published(), headers=_SHORT_CACHE)

    async def _register(self, exchange: OAuthExchange) -> None:
        answer = await self._registry.register(await exchange.json(), address=exchange.address)
        await exchange.answer_json(201, answer)


_SHORT_CACHE = (("cache-control", "max-age=60"),)


class _Endpoint:
    """The ASGI application of one path: dispatches by HTTP method, and turns errors into responses."""

    __slots__ = ("_settings", "_verbs")

    def __init__(self, settings: IssuerSettings, verbs: Mapping[str, RequestHandler]) -> None:
        self._settings = settings
        self._verbs = verbs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = OAuthExchange(scope, receive, send)
        try:
            answer = self._verbs.get("GET" if exchange.method == "HEAD" else exchange.method)
            if answer is None:
                allow = (("allow", ", ".join(self._verbs)),)
                raise OAuthError("invalid_request", "Method not allowed", status=405, headers=allow)
            await answer(exchange)
        except PageError as fault:
            page = message_page(self._settings.name, fault.title, fault.sentence)
            await exchange.answer_html(fault.status, page, policy=content_security_policy(), headers=fault.headers)
        except OAuthError as fault:
            answered = {"error": fault.error, "error_description": fault.description}
            await exchange.answer_json(fault.status, answered, headers=fault.headers)
        except StoreUnavailable:
            await self._unavailable(exchange)

    async def _unavailable(self, exchange: OAuthExchange) -> None:
        """Answer a request while what the workers share cannot be reached."""
        retry = (("retry-after", "1"),)
        if "text/html" in (exchange.header(b"accept") or ""):
            page = message_page(self._settings.name, "Not available now", "Reload this page in a moment.")
            await exchange.answer_html(503, page, policy=content_security_policy(), headers=retry)
            return
        answered = {"error": "temporarily_unavailable", "error_description": "The server cannot store anything now"}
        await exchange.answer_json(503, answered, headers=retry)
