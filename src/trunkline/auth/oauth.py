"""How a client proves who asks: the values of ``Client(auth=...)`` for servers that are reached by a URL.

``OAuth`` holds everything a login may need and checks that it fits together; it does nothing itself. None of these
shows a secret when it is printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from trunkline.auth.addresses import may_carry_secrets, split
from trunkline.auth.store import Store
from trunkline.errors import ConfigError

__all__ = ["ApiKey", "BearerToken", "Grant", "OAuth", "Secret"]

Grant: TypeAlias = Literal["authorization_code", "client_credentials", "jwt_bearer", "enterprise"]
#: A secret, or a function that gives one when it is needed.
Secret: TypeAlias = str | Callable[[], str | Awaitable[str]]

_VISIBLE = re.compile(r"[\x21-\x7e]+")
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
#: What each grant cannot do without.
_NEEDED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("authorization_code", ()),
    ("client_credentials", ("client_id", "issuer")),
    ("jwt_bearer", ("assertion", "issuer")),
    ("enterprise", ("client_id", "id_token", "issuer")),
)


class BearerToken(Struct, frozen=True):
    """A token, sent as ``Authorization: Bearer``, or a function that gives a new one when the last is refused."""

    token: Secret

    def __post_init__(self) -> None:
        """Check that it can be sent."""
        if not callable(self.token) and (not isinstance(self.token, str) or not _VISIBLE.fullmatch(self.token)):
            raise ConfigError("BearerToken takes a token of visible ASCII characters, or a function that gives one.")

    def __repr__(self) -> str:
        """Show no token."""
        return "BearerToken(…)"


class ApiKey(Struct, frozen=True):
    """A key that is sent in a header of its own, such as ``X-API-Key``."""

    header: str
    key: str

    def __post_init__(self) -> None:
        """Check that both can be sent."""
        if not isinstance(self.header, str) or not _NAME.fullmatch(self.header):
            raise ConfigError(f"ApiKey takes the name of a header first, such as X-API-Key; {self.header!r} is none.")
        if not isinstance(self.key, str) or not _VISIBLE.fullmatch(self.key):
            raise ConfigError("ApiKey takes a key of visible ASCII characters.")

    def __repr__(self) -> str:
        """Show no key."""
        return f"ApiKey({self.header!r}, …)"


class OAuth(Struct, frozen=True, kw_only=True):
    """Log in with OAuth 2.1: find the authorization server, register, let the user approve, keep and renew tokens."""

    #: How tokens are had. ``authorization_code``: a person logs in. ``client_credentials``: this program logs in as
    #: itself. ``jwt_bearer``: with an assertion of its platform. ``enterprise``: with the user's ID token, which the
    #: company's identity provider exchanges.
    grant: Grant = "authorization_code"
    #: Of a client that is registered already.
    client_id: str | None = None
    client_secret: str | None = None
    #: In the place of a secret: the private key (PEM) that client assertions are signed with.
    private_key: str | None = None
    signing_algorithm: str = "ES256"
    #: The one authorization server that may be given these credentials, or a function that says whether one may.
    issuer: str | Callable[[str], bool] | None = None
    #: The https URL of a document that describes this client, for servers that take such a URL as the client's id.
    client_metadata_url: str | None = None
    #: How the client is called on the page where the user approves.
    client_name: str = "Trunkline"
    client_uri: str | None = None
    #: What to ask for; None leaves it to what the server says it needs.
    scopes: Sequence[str] | None = None
    #: Where the redirect comes to: a port of this machine, 0 for any that is free, or a URI of your own (then
    #: ``open_browser`` has to give back the URL that the browser was sent to).
    redirect_port: int = 0
    redirect_uri: str | None = None
    #: Shows a URL to the user; gives None if the redirect will come to this machine by itself, or else the URL (or the
    #: code alone) that the login ended with. May be async. False: there is nobody to ask.
    open_browser: Callable[[str], Any] | bool | None = None
    #: How long a person may take.
    login_seconds: float = 300.0
    #: Where tokens are kept: a store, a file, "memory"; None is the keyring, or an encrypted file where there is none.
    store: Store | str | os.PathLike[str] | None = None
    #: Bind tokens to a key of ours: "auto" where the server asks for it.
    dpop: bool | Literal["auto"] = "auto"
    #: The authorization server does PKCE with S256, although its metadata does not say so.
    assume_pkce: bool = False
    #: The authorization server may be in a private network; None: if the server itself is.
    allow_private: bool | None = None
    #: ``jwt_bearer``: what the platform gave this program to show who it is.
    assertion: Secret | None = None
    #: ``enterprise``: the user's ID token, and the identity provider that exchanges it.
    id_token: Secret | None = None
    idp_token_endpoint: str | None = None
    idp_issuer: str | None = None
    idp_client_id: str | None = None
    idp_client_secret: str | None = None

    def __post_init__(self) -> None:
        """Check that it fits together.

        Raises:
            ConfigError: something is missing or makes no sense; the message says what to give.
        """
        _check_grant(self)
        _check_client(self)
        _check_places(self)

    def __repr__(self) -> str:
        """Show which login it is and no secret."""
        return f"OAuth(grant={self.grant!r}, client_id={self.client_id!r})"

    def trusts(self, issuer: str) -> bool:
        """Tell whether an authorization server may be given the credentials that are written here."""
        if self.issuer is None:
            return True
        return self.issuer == issuer if isinstance(self.issuer, str) else bool(self.issuer(issuer))


def _check_grant(given: OAuth) -> None:
    needed = dict(_NEEDED)
    if given.grant not in needed:
        raise ConfigError(f"grant={given.grant!r} is none: give one of {', '.join(needed)}.")
    for name in needed[given.grant]:
        if getattr(given, name) is None:
            why = ", the authorization server that these credentials are for" if name == "issuer" else ""
            raise ConfigError(f'OAuth(grant="{given.grant}") needs {name}={why}.')
    if given.grant == "client_credentials" and given.client_secret is None and given.private_key is None:
        raise ConfigError('OAuth(grant="client_credentials") needs client_secret= or private_key=.')
    if given.grant == "enterprise" and given.idp_token_endpoint is None and given.idp_issuer is None:
        raise ConfigError('OAuth(grant="enterprise") needs idp_issuer= or idp_token_endpoint=.')


def _check_client(given: OAuth) -> None:
    secret = given.client_secret is not None or given.private_key is not None
    if secret and given.client_id is None:
        raise ConfigError("A client_secret or private_key goes with a client_id.")
    if secret and given.issuer is None:
        raise ConfigError(
            "A client_secret or private_key needs issuer=, the authorization server that it is for: else any server "
            "that is connected to could name another one, and be given it."
        )
    if given.client_secret is not None and given.private_key is not None:
        raise ConfigError("client_secret= and private_key= say the same thing: give one of them.")
    for scope in given.scopes or ():
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise ConfigError(f"scopes= has {scope!r}, which is no scope.")
    if isinstance(given.scopes, str):
        raise ConfigError("scopes= is a list of texts.")


def _check_places(given: OAuth) -> None:
    document = given.client_metadata_url
    if document is not None:
        parts = split(document)
        if parts is None or parts.scheme != "https" or parts.path in ("", "/") or parts.fragment:
            raise ConfigError(f"client_metadata_url={document!r} has to be an https URL with a path.")
    if given.redirect_uri is not None:
        if given.redirect_port:
            raise ConfigError("redirect_uri= and redirect_port= say the same thing: give one of them.")
        if not may_carry_secrets(given.redirect_uri):
            raise ConfigError(f"redirect_uri={given.redirect_uri!r} has to be https, or on this machine.")
    for name in ("idp_token_endpoint", "idp_issuer"):
        url = getattr(given, name)
        if url is not None and not may_carry_secrets(url):
            raise ConfigError(f"{name}={url!r} has to be an https URL.")
    if given.dpop not in (True, False, "auto"):
        raise ConfigError('dpop= is True, False or "auto".')
