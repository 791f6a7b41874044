"""A verifier that asks the issuer about each token (RFC 7662), for opaque tokens.

A response is cached for a short while, so that not every request causes another; concurrent requests with the same
token share one. If the issuer is unreachable, too slow, or its response is malformed, the token is not accepted.
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

from trunkline.auth.dpop import DPoPMode, DPoPPolicy
from trunkline.auth.verifiers import (
    InvalidToken,
    PrincipalCache,
    check_audience,
    check_times,
    check_token_syntax,
    first_url_audience,
    make_principal,
    presented_token,
    read_audience,
)
from trunkline.errors import ConfigError, FetchError
from trunkline.net.addresses import is_loopback
from trunkline.protocol.caller import Principal, parse_scopes

if TYPE_CHECKING:
    from trunkline.net import Fetcher

__all__ = ["IntrospectionVerifier"]

log = logging.getLogger("trunkline.auth")

_LEEWAY = 30.0  # RFC 7519, 4.1.4: a few minutes at most; servers with NTP differ by less than a second.
_ANSWER_BYTES = 256 * 1024  # Responses have a few KiB, or tens with all groups of a user.
# Anyone can send made-up tokens; beyond this many concurrent introspections, further tokens are rejected unchecked.
_MAX_PENDING = 64
_UNAVAILABLE = "The token cannot be checked at the moment; try again later"


class IntrospectionVerifier:
    """Accepts tokens that their issuer reports as active and meant for this server."""

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
        dpop: DPoPMode = "off",
        dpop_nonces: bool | str = False,
        fetcher: Fetcher | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Introspect tokens at this URL, with this server's own client credentials.

        Raises:
            ConfigError: an option is not valid.
        """
        for name, value in (("url", url), ("issuer", issuer)):
            if not isinstance(value, str) or not value.startswith(("https://", "http://")):
                raise ConfigError(f"{name}={value!r}: must be a URL of the authorization server")
        self.issuer = issuer
        self.required_scopes: tuple[str, ...] = parse_scopes(required_scopes, "required_scopes")
        self.scopes_supported: Sequence[str] = parse_scopes(scopes_supported, "scopes_supported")
        self.authorization_servers: Sequence[str] = (issuer,)
        self._audience = read_audience(audience)
        #: The resource URI that clients request tokens for, if it is known.
        self.resource: str | None = resource or first_url_audience(self._audience)
        self._url = url
        self._credentials = _basic(client_id, client_secret)
        self._cache_seconds = cache_seconds
        self._timeout = timeout
        self._fetcher = fetcher or _fetcher(url)
        self._now = now
        #: How tokens that are bound to a key are treated.
        self.binding: DPoPPolicy = DPoPPolicy(dpop, nonces=dpop_nonces, now=now)
        self._remembered = PrincipalCache()
        self._asking: dict[bytes, asyncio.Task[Principal]] = {}

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the principal of a request, from its ``Authorization`` header and, for a bound token, the DPoP proof.

        Raises:
            InvalidToken: the token is not valid here, or cannot be checked; the message says which.
        """
        shown = presented_token(headers, self.binding.schemes)
        if shown is None:
            return None
        check_token_syntax(shown.token)
        principal = self._remembered.find(shown.token, self._now())
        if principal is None:
            # Shielded: a cancelled request must not cancel the introspection that others wait for.
            principal = await asyncio.shield(self._question(shown.token))
        await self.binding.check(principal, shown, headers)
        return principal

    def _question(self, token: str) -> asyncio.Task[Principal]:
        """Return the running introspection of a token, or start one."""
        digest, loop = sha256(token.encode()).digest(), asyncio.get_running_loop()
        asking = self._asking.get(digest)
        if asking is not None and asking.get_loop() is loop:
            return asking
        if len(self._asking) >= _MAX_PENDING:
            raise InvalidToken(_UNAVAILABLE)
        asking = self._asking[digest] = loop.create_task(self._ask(token))
        asking.add_done_callback(lambda task: self._answered(digest, task))
        return asking

    def _answered(self, digest: bytes, task: asyncio.Task[Principal]) -> None:
        self._asking.pop(digest, None)
        if not task.cancelled():
            # The waiting requests see the exception; retrieved here, it is not reported as unhandled if none waits.
            task.exception()

    async def _ask(self, token: str) -> Principal:
        claims = await self._answer(token)
        if claims.get("active") is not True:
            raise InvalidToken("The token is not active")
        if claims.get("iss", self.issuer) != self.issuer:
            raise InvalidToken("The token is from another issuer")
        now = self._now()
        check_audience(claims, self._audience)
        until = check_times(claims, now, leeway=_LEEWAY, expires=False)
        principal = make_principal(claims, issuer=self.issuer, bound=self.binding.accepts_bound_tokens)
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
            raise InvalidToken(_UNAVAILABLE) from error
        claims = _object(answer.body) if answer.status == 200 else None
        if claims is None:
            log.warning("introspection at %s answered %d without a JSON object", self._url, answer.status)
            raise InvalidToken(_UNAVAILABLE)
        return claims


def _object(body: bytes) -> Mapping[str, Any] | None:
    try:
        found = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _basic(client_id: str, client_secret: str) -> str:
    """Format Basic credentials as RFC 6749, 2.3.1, demands: form-encoded before they are Base64-encoded."""
    return "Basic " + b64encode(f"{quote_plus(client_id)}:{quote_plus(client_secret)}".encode()).decode()


def _fetcher(url: str) -> Fetcher:
    from trunkline.net import Fetcher

    # An issuer on this machine means development.
    return Fetcher(allow_loopback=is_loopback(urlsplit(url).hostname))
