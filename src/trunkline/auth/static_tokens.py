"""Verifiers for listed tokens and API keys: for small deployments, and for servers behind a component that has them.

A token is digested under a random key of this process and looked up by the digest, so that timing reveals nothing about
how close a guess was; the tokens themselves are not kept.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from trunkline.auth.verifiers import InvalidToken, bearer_token
from trunkline.errors import ConfigError
from trunkline.protocol.caller import Principal, parse_scopes

__all__ = ["ApiKeys", "StaticTokens"]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_READABLE = re.compile(r"[\x21-\x7e]+")
_MEMBERS = frozenset({"subject", "issuer", "client", "client_id", "scopes", "claims"})


class _TokenTable:
    """Principals by the digests of their secrets."""

    def __init__(self, given: Mapping[str, Any], what: str) -> None:
        self._key = secrets.token_bytes(32)
        if not given:
            raise ConfigError(f"{what} has no entries: no request could be accepted")
        self._principals = {self._digest(_secret(secret, what)): _principal(who) for secret, who in given.items()}

    def find(self, secret: str) -> Principal:
        """Return the principal of a secret.

        Raises:
            InvalidToken: the secret is not listed.
        """
        found = self._principals.get(self._digest(secret))
        if found is None:
            raise InvalidToken("The token is not known here")
        return found

    def _digest(self, secret: str) -> bytes:
        return hmac.digest(self._key, secret.encode(), "sha256")


class StaticTokens:
    """Accepts bearer tokens from a list: ``{"a-long-random-token": "alice"}``.

    A token maps to a subject, a ``Principal``, or a mapping with ``subject`` and optionally ``scopes``.
    """

    def __init__(
        self, tokens: Mapping[str, str | Principal | Mapping[str, Any]], *, required_scopes: str | Sequence[str] = ()
    ) -> None:
        """Load the tokens.

        Raises:
            ConfigError: there are none, or an entry is not valid.
        """
        self._listed = _TokenTable(tokens, "StaticTokens")
        self.required_scopes: tuple[str, ...] = parse_scopes(required_scopes, "required_scopes")
        self.scopes_supported: Sequence[str] = ()
        #: No authorization server issues these tokens.
        self.authorization_servers: Sequence[str] = ()

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the principal of the token in a request's ``Authorization`` header.

        Raises:
            InvalidToken: the token is not listed.
        """
        token = bearer_token(headers)
        return None if token is None else self._listed.find(token)


class ApiKeys:
    """Accepts keys from a list, in their own header: ``ApiKeys({"a-long-random-key": "alice"})``."""

    #: The scheme in a challenge.
    scheme = "ApiKey"

    def __init__(
        self,
        keys: Mapping[str, str | Principal | Mapping[str, Any]],
        *,
        header: str = "X-API-Key",
        required_scopes: str | Sequence[str] = (),
    ) -> None:
        """Load the keys, and set the name of the header.

        Raises:
            ConfigError: there are none, or an entry is not valid.
        """
        if not _HEADER_NAME.fullmatch(header) or header.lower() == "authorization":
            raise ConfigError(
                f"header={header!r}: must be a header name other than Authorization, for which there is StaticTokens"
            )
        self.header: str = header.lower()
        self._listed = _TokenTable(keys, "ApiKeys")
        self.required_scopes: tuple[str, ...] = parse_scopes(required_scopes, "required_scopes")
        self.scopes_supported: Sequence[str] = ()
        self.authorization_servers: Sequence[str] = ()

    async def verify(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the principal of the key in a request's header.

        Raises:
            InvalidToken: the key is not listed.
        """
        key = headers.get(self.header)
        return None if key is None else self._listed.find(key.strip(" \t"))


def _secret(secret: Any, what: str) -> str:
    if not isinstance(secret, str) or not _READABLE.fullmatch(secret):
        raise ConfigError(f"{what}: a token must consist of visible ASCII characters, without spaces")
    return secret


def _principal(who: Any) -> Principal:
    if isinstance(who, Principal):
        return who
    if isinstance(who, str) and who:
        return Principal(subject=who)
    if not isinstance(who, Mapping) or not set(who) <= _MEMBERS:
        raise ConfigError(
            "a token must map to a subject, a Principal, or a mapping with subject, scopes, client, issuer and claims"
        )
    subject, client = who.get("subject", who.get("client_id")), who.get("client", who.get("client_id"))
    if not isinstance(subject, str) or not subject:
        raise ConfigError("the mapping of a token lacks its subject")
    scopes = frozenset(parse_scopes(who.get("scopes"), f"the scopes of {subject!r}"))
    return Principal(subject=subject, issuer=who.get("issuer"), client=client, scopes=scopes, claims=who.get("claims"))
