"""The authorizers of HTTP links: the credentials a client sends, its reaction to a rejection, and logging out.

Requests that are rejected at the same time share one login. A token is refreshed first, then the user is asked; each is
tried once per rejection, and a newly issued token that is rejected ends the attempt. Scopes are requested again only if
the server names one that was not requested before.

Logging out revokes the tokens of a login at the authorization server that issued them (RFC 7009), and deletes it
locally. The refresh token is revoked first, since it is worth more than the access token. Each is sent, with the
client's authentication, only to the revocation endpoint that the server published when the login was made.

Deleting never depends on the authorization server: if it is unreachable, refuses or is too slow, that is reported, and
the login is deleted all the same.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.auth.credential_store import CredentialStore, find_store
from trunkline.auth.driver import FetchFunction, drive
from trunkline.auth.jose import ProofKey
from trunkline.auth.login_flow import LoginRequest, configured_client, log_in, refresh
from trunkline.auth.oauth import BearerToken, OAuth, Secret, canonical_url, is_private, split_web_url
from trunkline.auth.steps import ClockAndRandom, Fetch, Flow, post_form, printable_excerpt
from trunkline.auth.token_store import LoginReference, LoginStore, delete_logins, login_references
from trunkline.auth.tokens import Login, TokenEndpointError, TokenRequestContext, client_credentials_fields
from trunkline.auth.www_authenticate import TokenChallenge, parse_token_challenge
from trunkline.errors import AuthError, AuthRequired, ConfigError, FetchError
from trunkline.net import Fetcher, FetchResponse
from trunkline.net.addresses import is_loopback

__all__ = ["BearerAuthorizer", "LoggedOut", "OAuthAuthorizer", "guarded_fetch", "log_out", "revoke"]

log = logging.getLogger("trunkline.auth")

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_LONGEST_NONCE = 1024  # Nonces have about 50 characters; it is sent back with every request.
# Errors of an authorization server that no longer knows the client.
_CLIENT_UNKNOWN = frozenset({"invalid_client", "unauthorized_client"})
# Errors after which a later attempt may succeed.
_TEMPORARY_ERRORS = frozenset({"server_error", "slow_down", "temporarily_unavailable"})


class OAuthAuthorizer:
    """The login at one server, used by all requests of a client."""

    def __init__(
        self,
        url: str,
        options: OAuth,
        *,
        fetch: FetchFunction | None = None,
        ca_file: str | None = None,
        proxy: str | None = None,
        sources: ClockAndRandom | None = None,
    ) -> None:
        """Prepare without any I/O; ``fetch`` replaces the network in tests."""
        self._url = url
        self._options = options
        self._fetch = fetch or guarded_fetch(url, options, ca_file=ca_file, proxy=proxy)
        self._sources = sources or ClockAndRandom()
        self._login_store: LoginStore | None = None
        self._login: Login | None = None
        self._key: ProofKey | None = None
        #: The login is new, and no request has been accepted with it yet.
        self._untried = False
        #: The same for a token that was refreshed.
        self._renewed = False
        self._loaded = False
        self._shared: asyncio.Task[None] | None = None
        self._waiting = 0

    def __repr__(self) -> str:
        """Show the server and no secret."""
        return f"OAuthAuthorizer({canonical_url(self._url)!r})"

    # --- for each request --------------------------------------------------------------------------------------------

    @property
    def is_logging_in(self) -> bool:
        """Whether a login or refresh is running, during which request timeouts should not count."""
        return self._shared is not None

    @property
    def stale(self) -> bool:
        """Whether ``prepare`` should be called before the next request."""
        if not self._loaded:
            return True
        login = self._login
        return login is not None and login.tokens.is_expiring(self._sources.now()) and self._renewable(login)

    def _renewable(self, login: Login) -> bool:
        return login.tokens.refresh_token is not None or self._options.grant != "authorization_code"

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the authorization headers of a request; none without a login."""
        if self._login is None:
            return _NO_HEADERS
        tokens = self._login.tokens
        if self._key is None:
            return {"Authorization": f"Bearer {tokens.access_token}"}
        nonce = self._key.nonces.get(self._url)
        proof = self._key.proof(method, url, nonce=nonce, token=tokens.access_token)
        return {"Authorization": f"DPoP {tokens.access_token}", "DPoP": proof}

    def accepted(self, nonce: str | None) -> None:
        """Called when a request was accepted; the response may carry the nonce for the next proof."""
        self._untried = self._renewed = False
        if nonce is not None:
            self._note(nonce)

    def _note(self, nonce: str | None) -> bool:
        if nonce is None or self._key is None or len(nonce) > _LONGEST_NONCE:
            return False
        self._key.nonces[self._url] = nonce
        return True

    async def prepare(self) -> None:
        """Load the login from the store, and refresh it if it has expired; the user is not asked.

        Raises:
            AuthError: the store cannot be read.
        """
        if self.stale:
            await self._share(self._prepare)

    async def refused(
        self, status: int, challenges: list[str], *, shown: str | None, nonce: str | None, quietly: bool = False
    ) -> bool:
        """Handle a rejected request; return True if it should be retried.

        ``shown`` is the Authorization header of the rejected request. ``quietly`` starts no login: the request only
        ends a session.

        Raises:
            AuthError: the login failed.
            AuthRequired: the server rejects a newly issued token, or the scopes it wants were not granted.
        """
        challenge = parse_token_challenge(challenges)
        if status == 401 and challenge.error == "use_dpop_nonce" and self._note(nonce):
            return True
        if status == 403 and challenge.error != "insufficient_scope":
            return False
        token = None if shown is None else shown.partition(" ")[2]
        if self._login is not None and token != self._login.tokens.access_token:
            # Another rejected request has led to a new login already.
            return True
        if quietly:
            return False
        if status == 403:
            # The token itself was accepted; only the scope is missing.
            self.accepted(nonce)
        self._check_hopeless(status, challenge)
        await self._share(lambda: self._renew(challenge, step_up=status == 403))
        return True

    def _check_hopeless(self, status: int, challenge: TokenChallenge) -> None:
        login, who = self._login, canonical_url(self._url)
        if login is None:
            return
        asked = set(login.tokens.requested)
        if status == 403 and (not challenge.scopes or set(challenge.scopes) <= asked):
            what = " ".join(challenge.scopes) or "not named"
            raise AuthRequired(
                f"{who} requires more scopes ({what[:200]}), which were requested and not granted by "
                f"{login.server.issuer}: ask its operator for access, or log in as another user "
                "(trunkline auth logout).",
                status=status,
            )
        if status == 401 and self._untried:
            raise AuthRequired(
                f"{who} does not accept the token that {login.server.issuer} has just issued for it: the server's "
                "operator must check which issuer and audience it accepts.",
                status=status,
            )

    # --- one login shared by all waiting requests --------------------------------------------------------------------

    async def _share(self, work: Callable[[], Awaitable[None]]) -> None:
        """Join the running login, or start one; it is cancelled only when no request waits for it any more."""
        if self._shared is None:
            self._shared = asyncio.ensure_future(work())
            self._shared.add_done_callback(self._over)
        task = self._shared
        self._waiting += 1
        try:
            await asyncio.shield(task)
        finally:
            self._waiting -= 1
            if self._waiting == 0 and not task.done():
                # The next request starts a new login instead of joining the cancelled one.
                self._shared = None
                task.cancel()

    def _over(self, task: asyncio.Future[None]) -> None:
        if self._shared is task:
            self._shared = None
        if not task.cancelled():
            # The waiting requests see the exception; retrieved here, it is not reported as unhandled if none waits.
            task.exception()

    async def _prepare(self) -> None:
        if self._login_store is None:
            # Finding the system keyring may take a while.
            store = await asyncio.to_thread(find_store, self._options.store)
            self._login_store = LoginStore(store, self._url, self._options)
        if not self._loaded:
            self._set_login(await self._login_store.load())
            self._loaded = True
        login = self._login
        if login is None or not login.tokens.is_expiring(self._sources.now()):
            return
        if self._options.grant != "authorization_code":
            await self._enter(TokenChallenge())
        elif login.tokens.refresh_token is not None:
            await self._refresh(login)

    async def _renew(self, challenge: TokenChallenge, *, step_up: bool) -> None:
        await self._prepare()
        login = self._login
        renewable = login is not None and login.tokens.refresh_token is not None
        if login is not None and renewable and not step_up and not self._renewed and await self._refresh(login):
            return
        await self._enter(challenge)

    async def _refresh(self, login: Login) -> bool:
        """Refresh the token, unless another process has done so; return True if there is a new token."""
        assert self._login_store is not None
        async with self._login_store.lock():
            kept = await self._login_store.load()
            if kept is not None and kept.tokens.access_token != login.tokens.access_token:
                self._set_login(kept)
                return True
            try:
                flow = refresh(login, self._options, key=self._key, sources=self._sources)
                renewed = await drive(flow, fetch=self._fetch, options=self._options)
            except TokenEndpointError as error:
                if error.code in _TEMPORARY_ERRORS:
                    raise
                log.info("token refresh failed: %s", error)
                # The client registration and the requested scopes are still of use.
                self._login = replace(login, tokens=replace(login.tokens, refresh_token=None))
                await self._login_store.forget()
                return False
            await self._save(renewed)
        self._login, self._renewed = renewed, True
        return True

    async def _save(self, login: Login) -> None:
        assert self._login_store is not None
        try:
            await self._login_store.save(login)
        except AuthError as error:
            log.warning("the login could not be stored and is lost when this program exits: %s", error)

    async def _enter(self, challenge: TokenChallenge) -> None:
        """Log in again."""
        old = self._login
        try:
            login, key = await self._try_entering(challenge, old)
        except TokenEndpointError as error:
            if old is None or not old.client.dynamic or error.code not in _CLIENT_UNKNOWN:
                raise
            # The authorization server no longer knows the client that it registered dynamically.
            login, key = await self._try_entering(challenge, None)
        self._login, self._key, self._untried = login, key, True
        await self._save(login)

    async def _try_entering(self, challenge: TokenChallenge, old: Login | None) -> tuple[Login, ProofKey | None]:
        options = self._options
        secret = options.assertion if options.grant == "jwt_bearer" else options.id_token
        request = LoginRequest(
            url=self._url,
            challenge=challenge,
            options=options,
            before=() if old is None else old.tokens.requested,
            known=() if old is None else (old.client,),
            secret=await _resolve_secret(secret),
            sources=self._sources,
        )
        return await drive(log_in(request), fetch=self._fetch, options=options)

    def _set_login(self, login: Login | None) -> None:
        self._login = login
        if login is None or login.key is None:
            self._key = None
        elif self._key is None or self._key.stored != login.key:
            self._key = ProofKey(login.key, sources=self._sources)


async def _resolve_secret(secret: Secret | None) -> str | None:
    given: Any = secret() if callable(secret) else secret
    value: str | None = await given if inspect.isawaitable(given) else given
    return value


def guarded_fetch(url: str, options: OAuth, *, ca_file: str | None = None, proxy: str | None = None) -> FetchFunction:
    """Return the function by which a login sends requests: guarded, since servers choose the URLs.

    Loopback and private addresses are reachable only if the server itself is at one.
    """
    parts = split_web_url(url)
    host = None if parts is None else parts.hostname
    private = is_private(host) and not is_loopback(host) if options.allow_private is None else options.allow_private
    loopback = is_loopback(host)

    async def fetch(step: Fetch) -> FetchResponse:
        through = _environment_proxy(step.url) if proxy is None else proxy or None
        async with Fetcher(allow_private=private, allow_loopback=loopback, ca_file=ca_file, proxy=through) as net:
            return await net.fetch(step.method, step.url, headers=step.headers, body=step.body)

    return fetch


def _environment_proxy(url: str) -> str | None:
    """Return the proxy from the environment for a URL, as for the connection to the server itself."""
    from urllib.request import getproxies, proxy_bypass

    parts = split_web_url(url)
    if parts is None or is_loopback(parts.hostname):
        return None
    found = getproxies()
    proxy = found.get(parts.scheme) or found.get("all")
    return None if not proxy or proxy_bypass(parts.netloc) else proxy


class BearerAuthorizer:
    """A bearer token from a user's function, which is called again when the server rejects the token."""

    #: There is no login to wait for.
    is_logging_in = False

    def __init__(self, url: str, bearer: BearerToken) -> None:
        """Prepare without calling the function."""
        self._url = url
        self._bearer = bearer
        self._token: str | None = None

    def __repr__(self) -> str:
        """Show no token."""
        return f"BearerAuthorizer({canonical_url(self._url)!r})"

    @property
    def stale(self) -> bool:
        """Whether there is no token yet."""
        return self._token is None

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Return the authorization header of a request."""
        return {"Authorization": f"Bearer {self._token}"}

    def accepted(self, nonce: str | None) -> None:
        """Called when a request was accepted."""

    async def prepare(self) -> None:
        """Get the token.

        Raises:
            ConfigError: the function did not return a valid token.
        """
        token = await _resolve_secret(self._bearer.token)
        # The same check as for a token that was given as a string.
        BearerToken(token or "")
        self._token = token

    async def refused(
        self, status: int, challenges: list[str], *, shown: str | None, nonce: str | None, quietly: bool = False
    ) -> bool:
        """Get another token; return True if it differs from the rejected one."""
        if status != 401:
            return False
        if shown == f"Bearer {self._token}":
            await self.prepare()
        return shown != f"Bearer {self._token}"


_KINDS = ("refresh_token", "access_token")


class _RevocationError(Struct, frozen=True):
    error: str
    error_description: str | None = None


def revoke(login: Login, options: OAuth, *, sources: ClockAndRandom) -> Flow[None]:
    """Revoke the tokens of a login.

    Raises:
        AuthError: there is no revocation endpoint, it cannot be reached, or not all tokens were revoked.
    """
    server, tokens = login.server, login.tokens
    who = f"The authorization server {server.issuer}"
    if server.revocation_endpoint is None:
        raise AuthError(f"{who} has no revocation_endpoint: the tokens stay valid until they expire.")
    client = configured_client(options, server) or (login.client if login.client.client_id else None)
    context = TokenRequestContext(server, client, tokens.resource, options, sources)
    problems: list[str] = []
    for kind in _KINDS:
        token: str | None = getattr(tokens, kind)
        if token is None:
            continue
        head, fields = client_credentials_fields(context)
        form = {"token": token, "token_type_hint": kind, **fields}
        answer = yield from post_form(server.revocation_endpoint, form, headers=head)
        if isinstance(answer, FetchError):
            raise AuthError(f"{who} cannot be reached to revoke the tokens: {answer}") from answer
        problem = _problem(answer)
        if problem is not None:
            problems.append(f"the {kind.replace('_', ' ')}: {problem}")
    if problems:
        raise AuthError(f"{who} did not revoke {'; '.join(problems)}.")


def _problem(answer: FetchResponse) -> str | None:
    """Return why a token was not revoked; None if it was, or was unknown there (RFC 7009, 2.2)."""
    if 200 <= answer.status < 300:
        return None
    try:
        said = msgspec.json.decode(answer.body, type=_RevocationError)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return f"status {answer.status} and no reason"
    text = printable_excerpt(said.error_description or "")
    return f"{said.error[:80]!a}" + (f' ("{text}")' if text else "")


#: How long a logout waits for one authorization server.
_SECONDS = 10.0


class LoggedOut(Struct, frozen=True):
    """A login that was deleted, and whether its tokens were revoked."""

    url: str
    issuer: str | None = None
    #: Whether the authorization server revoked the tokens.
    revoked: bool = False
    #: Why revocation failed, if it was attempted.
    problem: str | None = None


async def log_out(
    url: str | None = None,
    *,
    options: OAuth | None = None,
    store: CredentialStore | str | os.PathLike[str] | None = None,
    local: bool = False,
    ca_file: str | None = None,
    seconds: float = _SECONDS,
    fetch: FetchFunction | None = None,
) -> list[LoggedOut]:
    """Log out of one server, or of all: revoke the tokens and delete them; ``local`` only deletes.

    ``options`` supply the secret of a configured client, and the store if ``store`` is not given; ``fetch`` replaces
    the network in tests.

    Raises:
        AuthError: the login cannot be deleted from the store.
    """
    options = options or OAuth()
    # Finding the system keyring may take a while.
    kept = await asyncio.to_thread(find_store, options.store if store is None else store)
    wanted = None if url is None else canonical_url(url)
    found = [place for place in await login_references(kept) if wanted in (None, place.url)]
    work = [
        _log_out_one(kept, place, options, local=local, ca_file=ca_file, seconds=seconds, fetch=fetch)
        for place in found
    ]
    gone = await asyncio.gather(*work, return_exceptions=True)
    # Records that cannot be decoded are useless, and are deleted as well.
    if url is not None:
        await delete_logins(kept, url)
    else:
        for key in await kept.keys():
            await kept.delete(key)
    return _joined(gone)


async def _log_out_one(
    store: CredentialStore,
    place: LoginReference,
    options: OAuth,
    *,
    local: bool,
    ca_file: str | None,
    seconds: float,
    fetch: FetchFunction | None,
) -> LoggedOut | None:
    # Another process must not refresh the login meanwhile: its new tokens would outlive the logout.
    async with store.lock(place.name):
        login = await place.load(store)
        problem = None
        try:
            if login is not None and not local:
                send = fetch or guarded_fetch(place.url, options, ca_file=ca_file)
                problem = await _try_revoke(login, options, seconds=seconds, fetch=send)
        finally:
            await place.forget(store)
    if login is None:
        return None
    return LoggedOut(place.url, login.tokens.issuer, not local and problem is None, problem)


async def _try_revoke(login: Login, options: OAuth, *, seconds: float, fetch: FetchFunction) -> str | None:
    """Revoke the tokens of a login; return the reason if that failed."""
    try:
        async with asyncio.timeout(seconds):
            await drive(revoke(login, options, sources=ClockAndRandom()), fetch=fetch, options=options)
    except TimeoutError:
        return f"The authorization server {login.server.issuer} did not answer within {seconds:g} s."
    except (AuthError, ConfigError) as error:
        return str(error)
    return None


def _joined(gone: Sequence[LoggedOut | BaseException | None]) -> list[LoggedOut]:
    """Return the deleted logins; raise the first exception; leave out records without a login."""
    for each in gone:
        if isinstance(each, BaseException):
            raise each
    return [each for each in gone if isinstance(each, LoggedOut)]
