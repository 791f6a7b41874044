"""Tokens and API keys that are simply listed: for small deployments, and for servers behind something that has them.

What is given is digested under a key of this process and looked up by the digest, so that the time it takes says
nothing about how near a guess was; the tokens themselves are not kept.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from trunkline.auth.verifiers import InvalidToken, bearer_token
from trunkline.errors import ConfigError
from trunkline.protocol.access import read_scopes
from trunkline.protocol.caller import Principal

__all__ = ["ApiKeys", "StaticTokens"]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_READABLE = re.compile(r"[\x21-\x7e]+")
_MEMBERS = frozenset({"subject", "issuer", "client", "client_id", "scopes", "claims"})


class _Listed:
    """Principals by the digests of their secrets."""

    def __init__(self, given: Mapping[str, Any], what: str) -> None:
        self._key = secrets.token_bytes(32)
        if not given:
            raise ConfigError(f"{what} has no entries: nobody could come in")
        self._principals = {self._digest(_secret(secret, what)): _principal(who) for secret, who in given.items()}

    def find(self, secret: str) -> Principal:
        """Give whom a secret is of.

        Raises:
            InvalidToken: nobody's.
        """
        found = self._principals.get(self._digest(secret))
        if found is None:
            raise InvalidToken("Nobody here has this token")
        return found

    def _digest(self, secret: str) -> bytes:
        return hmac.digest(self._key, secret.encode(), "sha256")


class StaticTokens:
    """Takes bearer tokens from a list: ``{"a-long-random-token": "alice"}``.

    Behind a token stands a name, a ``Principal``, or a mapping with ``subject`` and perhaps ``scopes``.
    """

    def __init__(
        self, tokens: Mapping[str, str | Principal | Mapping[str, Any]], *, required_scopes: str | Sequence[str] = ()
    ) -> None:
        """Take the list.

        Raises:
            ConfigError: it is empty, or an entry makes no sense.
        """
        self._listed = _Listed(tokens, "StaticTokens")
        self.required_scopes = read_scopes(required_scopes, "required_scopes")
        self.scopes_supported: Sequence[str] = ()
        #: These tokens are not to be had from anybody.
        self.authorization_servers: Sequence[str] = ()

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Say who sends a request, by the token in its ``Authorization`` header.

        Raises:
            InvalidToken: nobody has that token.
        """
        token = bearer_token(headers)
        return None if token is None else self._listed.find(token)


class ApiKeys:
    """Takes keys from a list, in a header of their own: ``ApiKeys({"a-long-random-key": "alice"})``."""

    #: What these are called in a challenge.
    scheme = "ApiKey"

    def __init__(
        self,
        keys: Mapping[str, str | Principal | Mapping[str, Any]],
        *,
        header: str = "X-API-Key",
        required_scopes: str | Sequence[str] = (),
    ) -> None:
        """Take the list, and the name of the header.

        Raises:
            ConfigError: it is empty, or an entry makes no sense.
        """
        if not _HEADER_NAME.fullmatch(header) or header.lower() == "authorization":
            raise ConfigError(f"header={header!r}: it is a header of its own; for Authorization use StaticTokens")
        self.header = header.lower()
        self._listed = _Listed(keys, "ApiKeys")
        self.required_scopes = read_scopes(required_scopes, "required_scopes")
        self.scopes_supported: Sequence[str] = ()
        self.authorization_servers: Sequence[str] = ()

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Say who sends a request, by the key in its header.

        Raises:
            InvalidToken: nobody has that key.
        """
        key = headers.get(self.header)
        return None if key is None else self._listed.find(key.strip(" \t"))


def _secret(secret: Any, what: str) -> str:
    if not isinstance(secret, str) or not _READABLE.fullmatch(secret):
        raise ConfigError(f"{what}: a token is a text of ASCII letters, digits and signs, without spaces")
    return secret


def _principal(who: Any) -> Principal:
    if isinstance(who, Principal):
        return who
    if isinstance(who, str) and who:
        return Principal(subject=who)
    if not isinstance(who, Mapping) or not set(who) <= _MEMBERS:
        raise ConfigError(
            "behind a token stands a name, a Principal, or a mapping with subject, scopes, client, issuer and claims"
        )
    subject, client = who.get("subject", who.get("client_id")), who.get("client", who.get("client_id"))
    if not isinstance(subject, str) or not subject:
        raise ConfigError("behind a token stands somebody: its subject is missing")
    scopes = frozenset(read_scopes(who.get("scopes"), f"the scopes of {subject!r}"))
    return Principal(subject=subject, issuer=who.get("issuer"), client=client, scopes=scopes, claims=who.get("claims"))
