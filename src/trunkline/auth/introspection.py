"""Verifying tokens by asking whoever issued them: RFC 7662, for tokens that say nothing by themselves.

What the issuer says holds for a short while, so that not every request asks anew; requests with the same token that
come at once ask together. An issuer that is away, slow, or says something that cannot be understood, has not said that
a token is good.
"""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec

from trunkline.auth.claims import check_audience, check_times, first_url, make_principal, read_audience
from trunkline.auth.dpop import Binding, DPoP
from trunkline.auth.verifiers import InvalidToken, Remembered, check_token, presented_token
from trunkline.errors import ConfigError, FetchError
from trunkline.net.addresses import is_loopback
from trunkline.protocol.access import read_scopes
from trunkline.protocol.caller import Principal

if TYPE_CHECKING:
    from trunkline.net import Fetcher

__all__ = ["IntrospectionVerifier"]

log = logging.getLogger("trunkline.auth")

_LEEWAY = 30.0
_ANSWER_BYTES = 256 * 1024
# Anybody can send tokens that nobody has issued; beyond this many questions at once the next are refused unasked.
_MOST_ASKING = 64
_AWAY = "The token cannot be checked now; try again later"


class IntrospectionVerifier:
    """Takes tokens of which their issuer says, when asked, that they are active and for this server."""

    def __init__(
        self,
        url: str,
        *,
        issuer: str,
        audience: str | Sequence[str],
        client_id: str,
        client_secret: str,
        required_scopes: str | Sequence[str] = (),
        scopes_supported: str | Sequence[str] = (),
        resource: str | None = None,
        cache_seconds: float = 30.0,
        timeout: float = 5.0,
        dpop: DPoP = "off",
        dpop_nonces: bool | str = False,
        fetcher: Fetcher | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Ask at this URL, with the credentials that this server was given for it.

        Raises:
            ConfigError: something makes no sense.
        """
        for name, value in (("url", url), ("issuer", issuer)):
            if not isinstance(value, str) or not value.startswith(("https://", "http://")):
                raise ConfigError(f"{name}={value!r}: it is a URL of the authorization server")
        self.issuer = issuer
        self.required_scopes = read_scopes(required_scopes, "required_scopes")
        self.scopes_supported: Sequence[str] = read_scopes(scopes_supported, "scopes_supported")
        self.authorization_servers: Sequence[str] = (issuer,)
        self._audience = read_audience(audience)
        #: The URI under which clients ask for tokens, if it is known.
        self.resource = resource or first_url(self._audience)
        self._url = url
        self._credentials = _basic(client_id, client_secret)
        self._cache_seconds = cache_seconds
        self._timeout = timeout
        self._fetcher = fetcher or _fetcher(url)
        self._now = now
        #: What is done about tokens that are bound to a key.
        self.binding = Binding(dpop, nonces=dpop_nonces, now=now)
        self._remembered = Remembered()
        self._asking: dict[bytes, asyncio.Task[Principal]] = {}

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Say who sends a request, by the token in its ``Authorization`` header and, if need be, the proof beside it.

        Raises:
            InvalidToken: the token is not good here, or cannot be checked; the message says which.
        """
        shown = presented_token(headers, self.binding.schemes)
        if shown is None:
            return None
        check_token(shown.token)
        principal = self._remembered.find(shown.token, self._now())
        if principal is None:
            # Shielded: whoever gives up waiting leaves the question to the others.
            principal = await asyncio.shield(self._question(shown.token))
        self.binding.check(principal, shown, headers)
        return principal

    def _question(self, token: str) -> asyncio.Task[Principal]:
        """Give the question about a token that is under way, or begin one."""
        digest, loop = sha256(token.encode()).digest(), asyncio.get_running_loop()
        asking = self._asking.get(digest)
        if asking is not None and asking.get_loop() is loop:
            return asking
        if len(self._asking) >= _MOST_ASKING:
            raise InvalidToken(_AWAY)
        asking = self._asking[digest] = loop.create_task(self._ask(token))
        asking.add_done_callback(lambda task: self._answered(digest, task))
        return asking

    def _answered(self, digest: bytes, task: asyncio.Task[Principal]) -> None:
        self._asking.pop(digest, None)
        if not task.cancelled():
            # Whoever waited has seen it; if nobody does any more it is no fault.
            task.exception()

    async def _ask(self, token: str) -> Principal:
        claims = await self._answer(token)
        if claims.get("active") is not True:
            raise InvalidToken("The token is not active (any more)")
        if claims.get("iss", self.issuer) != self.issuer:
            raise InvalidToken("The token is from another issuer")
        now = self._now()
        check_audience(claims, self._audience)
        until = check_times(claims, now, leeway=_LEEWAY, expires=False)
        principal = make_principal(claims, issuer=self.issuer, bound=self.binding.takes_bound)
        most = now + self._cache_seconds
        self._remembered.keep(token, principal, until=most if until is None else min(until, most))
        return principal

    async def _answer(self, token: str) -> Mapping[str, Any]:
        form = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        headers = {
            "Authorization": self._credentials,
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        try:
            answer = await self._fetcher.fetch(
                "POST", self._url, headers=headers, body=form, max_bytes=_ANSWER_BYTES, seconds=self._timeout
            )
        except FetchError as error:
            log.warning("introspection failed: %s", error)
            raise InvalidToken(_AWAY) from error
        claims = _object(answer.body) if answer.status == 200 else None
        if claims is None:
            log.warning("introspection at %s answered %d without a JSON object", self._url, answer.status)
            raise InvalidToken(_AWAY)
        return claims


def _object(body: bytes) -> Mapping[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _basic(client_id: str, client_secret: str) -> str:
    """Write credentials as RFC 6749, 2.3.1, has them: encoded once before they are encoded."""
    return "Basic " + b64encode(f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()).decode()


def _fetcher(url: str) -> Fetcher:
    from trunkline.net import Fetcher

    # Whoever names an issuer on this machine is developing.
    return Fetcher(allow_loopback=is_loopback(urlsplit(url).hostname))
