"""What a client shows a server, and what it does when that is refused: the authorizers that HTTP links ask.

Many requests may be refused at the same time; they share one login. A token is renewed first, then the user is asked;
each way is tried once for one refusal, and a token that was just issued and is refused again ends it. Scopes are asked
for again only if the server names one that was not asked for before.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from trunkline.auth.addresses import canonical, is_private, split
from trunkline.auth.demands import Demand, read_demand
from trunkline.auth.drive import Fetching, drive
from trunkline.auth.flows import Wish, log_in, renew
from trunkline.auth.keeping import Keeper
from trunkline.auth.oauth import BearerToken, OAuth, Secret
from trunkline.auth.signing import ProofKey
from trunkline.auth.steps import Fetch, Sources
from trunkline.auth.store import find_store
from trunkline.auth.tokens import Login, TokenRefused
from trunkline.errors import AuthError, AuthRequired
from trunkline.net import Fetched, Fetcher
from trunkline.net.addresses import is_loopback

__all__ = ["BearerAuthorizer", "OAuthAuthorizer", "guarded_fetch"]

log = logging.getLogger("trunkline.auth")

_NOTHING: Mapping[str, str] = MappingProxyType({})
_LONGEST_NONCE = 1024
# What an authorization server says of credentials that it does not know any more.
_FORGOTTEN = frozenset({"invalid_client", "unauthorized_client"})
# What it says when it may well agree later.
_PASSING = frozenset({"server_error", "slow_down", "temporarily_unavailable"})


class OAuthAuthorizer:
    """One server's login, used by all requests of a client."""

    def __init__(
        self,
        url: str,
        options: OAuth,
        *,
        fetch: Fetching | None = None,
        ca_file: str | None = None,
        proxy: str | None = None,
        sources: Sources | None = None,
    ) -> None:
        """Ask nobody yet; ``fetch`` stands in for the network in tests."""
        self._url = url
        self._options = options
        self._fetch = fetch or guarded_fetch(url, options, ca_file=ca_file, proxy=proxy)
        self._sources = sources or Sources()
        self._keeper: Keeper | None = None
        self._login: Login | None = None
        self._key: ProofKey | None = None
        #: The login came from a person or a grant just now, and no request was let in with it yet.
        self._untried = False
        #: The same, of a token that was renewed.
        self._renewed = False
        self._loaded = False
        self._shared: asyncio.Task[None] | None = None
        self._waiting = 0

    def __repr__(self) -> str:
        """Show the server and no secret."""
        return f"OAuthAuthorizer({canonical(self._url)!r})"

    # --- for each request --------------------------------------------------------------------------------------------

    @property
    def asking(self) -> bool:
        """Whether a login or a renewal is under way, so that the clocks of whoever waits should stand still."""
        return self._shared is not None

    @property
    def stale(self) -> bool:
        """Whether ``prepare`` should be called before the next request."""
        if not self._loaded:
            return True
        login = self._login
        return login is not None and login.tokens.ends(self._sources.now()) and self._renewable(login)

    def _renewable(self, login: Login) -> bool:
        return login.tokens.refresh_token is not None or self._options.grant != "authorization_code"

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Give what shows a request to be allowed; nothing if there is no login."""
        if self._login is None:
            return _NOTHING
        tokens = self._login.tokens
        if self._key is None:
            return {"Authorization": f"Bearer {tokens.access_token}"}
        nonce = self._key.nonces.get(self._url)
        proof = self._key.proof(method, url, nonce=nonce, token=tokens.access_token)
        return {"Authorization": f"DPoP {tokens.access_token}", "DPoP": proof}

    def accepted(self, nonce: str | None) -> None:
        """Learn that a request was let in; the answer may carry the nonce for the next proof."""
        self._untried = self._renewed = False
        if nonce is not None:
            self._note(nonce)

    def _note(self, nonce: str | None) -> bool:
        if nonce is None or self._key is None or len(nonce) > _LONGEST_NONCE:
            return False
        self._key.nonces[self._url] = nonce
        return True

    async def prepare(self) -> None:
        """Take the login from the store, and renew it if it is over; the user is not asked for anything.

        Raises:
            AuthError: the store cannot be read.
        """
        if self.stale:
            await self._share(self._prepare)

    async def refused(
        self, status: int, challenges: list[str], *, shown: str | None, nonce: str | None, quietly: bool = False
    ) -> bool:
        """Do something about a refusal; tell whether the request is worth another try.

        ``shown`` is the Authorization header of the refused request. ``quietly`` asks nobody: the request is a
        farewell.

        Raises:
            AuthError: the login failed.
            AuthRequired: the server refuses what a new login gave, or more cannot be had.
        """
        demand = read_demand(challenges)
        if status == 401 and demand.error == "use_dpop_nonce" and self._note(nonce):
            return True
        if status == 403 and demand.error != "insufficient_scope":
            return False
        token = None if shown is None else shown.partition(" ")[2]
        if self._login is not None and token != self._login.tokens.access_token:
            # Another request's refusal has led to a new login already.
            return True
        if quietly:
            return False
        if status == 403:
            # Who asks is known and let in; only this is not allowed.
            self.accepted(nonce)
        self._check_hopeless(status, demand)
        await self._share(lambda: self._renew(demand, step_up=status == 403))
        return True

    def _check_hopeless(self, status: int, demand: Demand) -> None:
        login, who = self._login, canonical(self._url)
        if login is None:
            return
        asked = set(login.tokens.requested)
        if status == 403 and (not demand.scopes or set(demand.scopes) <= asked):
            what = " ".join(demand.scopes) or "which it does not name"
            raise AuthRequired(
                f"{who} wants more scopes ({what[:200]}), which were asked for and not granted by "
                f"{login.server.issuer}: ask whoever runs it for access, or log in as somebody else "
                "(trunkline auth logout).",
                status=status,
            )
        if status == 401 and self._untried:
            raise AuthRequired(
                f"{who} does not accept the token that {login.server.issuer} has just issued for it: whoever runs the "
                "server has to check which issuer and audience it accepts.",
                status=status,
            )

    # --- one login for all who wait ----------------------------------------------------------------------------------

    async def _share(self, work: Callable[[], Awaitable[None]]) -> None:
        """Join the login that is under way, or begin one; it ends early only when nobody waits any more."""
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
                # Whoever comes next begins anew, and does not join what is ending.
                self._shared = None
                task.cancel()

    def _over(self, task: asyncio.Future[None]) -> None:
        if self._shared is task:
            self._shared = None
        if not task.cancelled():
            # Those who wait are told; if nobody does any more, it is nobody's surprise.
            task.exception()

    async def _prepare(self) -> None:
        if self._keeper is None:
            # Finding the system's keyring may take a while.
            store = await asyncio.to_thread(find_store, self._options.store)
            self._keeper = Keeper(store, self._url, self._options)
        if not self._loaded:
            self._take(await self._keeper.load())
            self._loaded = True
        login = self._login
        if login is None or not login.tokens.ends(self._sources.now()):
            return
        if self._options.grant != "authorization_code":
            await self._enter(Demand())
        elif login.tokens.refresh_token is not None:
            await self._refresh(login)

    async def _renew(self, demand: Demand, *, step_up: bool) -> None:
        await self._prepare()
        login = self._login
        renewable = login is not None and login.tokens.refresh_token is not None
        if login is not None and renewable and not step_up and not self._renewed and await self._refresh(login):
            return
        await self._enter(demand)

    async def _refresh(self, login: Login) -> bool:
        """Renew by the refresh token, unless another process has done so; tell whether there is a new token."""
        assert self._keeper is not None
        async with self._keeper.lock():
            kept = await self._keeper.load()
            if kept is not None and kept.tokens.access_token != login.tokens.access_token:
                self._take(kept)
                return True
            try:
                flow = renew(login, self._options, key=self._key, sources=self._sources)
                renewed = await drive(flow, fetch=self._fetch, options=self._options)
            except TokenRefused as error:
                if error.code in _PASSING:
                    raise
                log.info("a login could not be renewed: %s", error)
                # As whom we are registered, and for what, is still of use.
                self._login = replace(login, tokens=replace(login.tokens, refresh_token=None))
                await self._keeper.forget()
                return False
            await self._keep(renewed)
        self._login, self._renewed = renewed, True
        return True

    async def _keep(self, login: Login) -> None:
        assert self._keeper is not None
        try:
            await self._keeper.save(login)
        except AuthError as error:
            log.warning("the login is good for this program only: %s", error)

    async def _enter(self, demand: Demand) -> None:
        """Log in anew."""
        old = self._login
        try:
            login, key = await self._try_entering(demand, old)
        except TokenRefused as error:
            if old is None or not old.client.dynamic or error.code not in _FORGOTTEN:
                raise
            # It does not know the client any more that it registered itself.
            login, key = await self._try_entering(demand, None)
        self._login, self._key, self._untried = login, key, True
        await self._keep(login)

    async def _try_entering(self, demand: Demand, old: Login | None) -> tuple[Login, ProofKey | None]:
        options = self._options
        secret = options.assertion if options.grant == "jwt_bearer" else options.id_token
        wish = Wish(
            url=self._url,
            demand=demand,
            options=options,
            before=() if old is None else old.tokens.requested,
            known=() if old is None else (old.client,),
            secret=await _resolved(secret),
            sources=self._sources,
        )
        return await drive(log_in(wish), fetch=self._fetch, options=options)

    def _take(self, login: Login | None) -> None:
        self._login = login
        if login is None or login.key is None:
            self._key = None
        elif self._key is None or self._key.stored != login.key:
            self._key = ProofKey(login.key, sources=self._sources)


async def _resolved(secret: Secret | None) -> str | None:
    given: Any = secret() if callable(secret) else secret
    value: str | None = await given if inspect.isawaitable(given) else given
    return value


def guarded_fetch(url: str, options: OAuth, *, ca_file: str | None = None, proxy: str | None = None) -> Fetching:
    """Make the function by which a login reaches the network: guarded, since servers choose where it leads.

    What is in this machine or its network is reached only if the server itself is.
    """
    parts = split(url)
    host = None if parts is None else parts.hostname
    private = is_private(host) and not is_loopback(host) if options.allow_private is None else options.allow_private
    loopback = is_loopback(host)

    async def fetch(step: Fetch) -> Fetched:
        through = _environment_proxy(step.url) if proxy is None else proxy or None
        async with Fetcher(allow_private=private, allow_loopback=loopback, ca_file=ca_file, proxy=through) as net:
            return await net.fetch(step.method, step.url, headers=step.headers, body=step.body)

    return fetch


def _environment_proxy(url: str) -> str | None:
    """Find the proxy that the environment names for a URL, as the connection to the server itself does."""
    from urllib.request import getproxies, proxy_bypass

    parts = split(url)
    if parts is None or is_loopback(parts.hostname):
        return None
    found = getproxies()
    proxy = found.get(parts.scheme) or found.get("all")
    return None if not proxy or proxy_bypass(parts.netloc) else proxy


class BearerAuthorizer:
    """A token that a function of the user gives, asked for again when the server refuses it."""

    #: Nobody is asked who takes long.
    asking = False

    def __init__(self, url: str, bearer: BearerToken) -> None:
        """Ask for no token yet."""
        self._url = url
        self._bearer = bearer
        self._token: str | None = None

    def __repr__(self) -> str:
        """Show no token."""
        return f"BearerAuthorizer({canonical(self._url)!r})"

    @property
    def stale(self) -> bool:
        """Whether there is no token yet."""
        return self._token is None

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        """Give what shows a request to be allowed."""
        return {"Authorization": f"Bearer {self._token}"}

    def accepted(self, nonce: str | None) -> None:
        """Learn that a request was let in."""

    async def prepare(self) -> None:
        """Ask for the token.

        Raises:
            ConfigError: what was given is none.
        """
        token = await _resolved(self._bearer.token)
        # The same check as for a token that was given at once.
        BearerToken(token or "")
        self._token = token

    async def refused(
        self, status: int, challenges: list[str], *, shown: str | None, nonce: str | None, quietly: bool = False
    ) -> bool:
        """Ask for another token; tell whether it is one."""
        if status != 401:
            return False
        if shown == f"Bearer {self._token}":
            await self.prepare()
        return shown != f"Bearer {self._token}"
