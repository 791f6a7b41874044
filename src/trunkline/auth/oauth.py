"""The credentials of a client (the values of ``Client(auth=...)``), and checks of URLs that other parties supply.

The checks: where secrets may be sent, what a browser may open, and what a URL covers. URLs are compared and split here;
nothing is fetched and no name is resolved.

``OAuth`` holds the options of a login and checks that they are consistent; it does nothing itself. No ``repr`` here
shows a secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from trunkline.auth.credential_store import CredentialStore
from trunkline.errors import ConfigError
from trunkline.net.addresses import is_loopback

__all__ = [
    "ApiKey",
    "BearerToken",
    "GrantType",
    "OAuth",
    "Secret",
    "canonical_url",
    "covers",
    "is_openable",
    "is_private",
    "may_carry_secrets",
    "origin",
    "split_web_url",
]

# The characters of a URI, without those that mean something to a shell and that no endpoint needs.
_PLAIN_URL = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!*+,=%&]+")
_PORTS: Mapping[str, int] = MappingProxyType({"http": 80, "https": 443})


def split_web_url(url: str) -> SplitResult | None:
    """Split an http or https URL; return None if it is not one, or contains user information."""
    try:
        parts = urlsplit(url)
        good = (
            parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
        )
    except ValueError:
        return None
    return parts if good and url.isascii() and url.isprintable() and " " not in url else None


def is_private(host: str | None) -> bool:
    """Return True if a host is an IP address that only this machine or its network can reach."""
    from ipaddress import ip_address

    try:
        return is_loopback(host) or ip_address(host or "").is_private
    except ValueError:
        return False


def may_carry_secrets(url: str) -> bool:
    """Return True if secrets may be sent to a URL: it is https, or on this machine."""
    parts = split_web_url(url)
    return parts is not None and (parts.scheme == "https" or is_loopback(parts.hostname))


def is_openable(url: str) -> bool:
    """Return True if a browser may be sent to a URL: https or loopback, no fragment, and plain characters only."""
    parts = split_web_url(url)
    return (
        parts is not None
        and may_carry_secrets(url)
        and not parts.fragment
        and _PLAIN_URL.fullmatch(url) is not None
        and "&" not in parts.path + parts.netloc
    )


def origin(url: str) -> str:
    """Return scheme, host and port of a URL; the default port is left out."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"


def canonical_url(url: str) -> str:
    """Return a server's URL as tokens are requested for it: without query, fragment and trailing slash."""
    return origin(url) + urlsplit(url).path.rstrip("/")


def covers(resource: str, server: str) -> bool:
    """Return True if a resource is the server, or a parent path of it on the same origin."""
    above, below = canonical_url(resource), canonical_url(server)
    return urlsplit(resource).query == "" and (above == below or below.startswith(above + "/"))


GrantType: TypeAlias = Literal["authorization_code", "client_credentials", "jwt_bearer", "enterprise"]
#: A secret, or a function that returns one when it is needed.
Secret: TypeAlias = str | Callable[[], str | Awaitable[str]]

_VISIBLE = re.compile(r"[\x21-\x7e]+")
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
#: The options that each grant requires.
_NEEDED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("authorization_code", ()),
    ("client_credentials", ("client_id", "issuer")),
    ("jwt_bearer", ("assertion", "issuer")),
    ("enterprise", ("client_id", "id_token", "issuer")),
)


class BearerToken(Struct, frozen=True):
    """A token, sent as ``Authorization: Bearer``, or a function that returns a new one when the last is rejected."""

    token: Secret

    def __post_init__(self) -> None:
        """Check that the token can be sent in a header."""
        if not callable(self.token) and (not isinstance(self.token, str) or not _VISIBLE.fullmatch(self.token)):
            raise ConfigError("BearerToken needs a token of visible ASCII characters, or a function that returns one.")

    def __repr__(self) -> str:
        """Show no token."""
        return "BearerToken(…)"


class ApiKey(Struct, frozen=True):
    """A key that is sent in its own header, such as ``X-API-Key``."""

    header: str
    key: str

    def __post_init__(self) -> None:
        """Check that header and key can be sent."""
        if not isinstance(self.header, str) or not _NAME.fullmatch(self.header):
            raise ConfigError(
                f"ApiKey needs a header name as its first argument, such as X-API-Key; {self.header!r} is not one."
            )
        if not isinstance(self.key, str) or not _VISIBLE.fullmatch(self.key):
            raise ConfigError("ApiKey needs a key of visible ASCII characters.")

    def __repr__(self) -> str:
        """Show no key."""
        return f"ApiKey({self.header!r}, …)"


class OAuth(Struct, frozen=True, kw_only=True):
    """Login with OAuth 2.1: find the authorization server, register, let the user approve, store and refresh tokens."""

    #: How tokens are obtained. ``authorization_code``: the user logs in. ``client_credentials``: this program logs in
    #: as itself. ``jwt_bearer``: with an assertion from its platform. ``enterprise``: with the user's ID token, which
    #: the company's identity provider exchanges.
    grant: GrantType = "authorization_code"
    #: The credentials of a client that is registered already.
    client_id: str | None = None
    client_secret: str | None = None
    #: Instead of a secret: the private key (PEM) that signs client assertions.
    private_key: str | None = None
    signing_algorithm: str = "ES256"
    #: The only authorization server that may receive these credentials, or a function that decides for an issuer.
    issuer: str | Callable[[str], bool] | None = None
    #: The https URL of this client's metadata document, for servers that accept such a URL as client_id.
    client_metadata_url: str | None = None
    #: The name of the client on the consent page.
    client_name: str = "Trunkline"
    client_uri: str | None = None
    #: The scopes to request; None requests those that the server names.
    scopes: Sequence[str] | None = None
    #: Where the redirect is received: a loopback port, 0 for any free one, or a URI of your own (then ``open_browser``
    #: must return the URL that the browser was redirected to).
    redirect_port: int = 0
    redirect_uri: str | None = None
    #: Shows a URL to the user; returns None if the redirect will arrive at the loopback port, or else the URL (or its
    #: query alone) that the login ended with. May be async. False: there is no user to ask.
    open_browser: Callable[[str], Any] | bool | None = None
    #: How long the user may take.
    login_seconds: float = 300.0
    #: Where tokens are stored: a store, a file path, "memory"; None: the keyring, or an encrypted file without one.
    store: CredentialStore | str | os.PathLike[str] | None = None
    #: Bind tokens to a key (DPoP): "auto" if the server requires it.
    dpop: bool | Literal["auto"] = "auto"
    #: The authorization server supports PKCE with S256, although its metadata does not say so.
    assume_pkce: bool = False
    #: The authorization server may have a private address; None: only if the server itself has one.
    allow_private: bool | None = None
    #: ``jwt_bearer``: the assertion from the platform that identifies this program.
    assertion: Secret | None = None
    #: ``enterprise``: the user's ID token, and the identity provider that exchanges it.
    id_token: Secret | None = None
    idp_token_endpoint: str | None = None
    idp_issuer: str | None = None
    idp_client_id: str | None = None
    idp_client_secret: str | None = None

    def __post_init__(self) -> None:
        """Check that the options are consistent.

        Raises:
            ConfigError: an option is missing or not valid; the message says what to set.
        """
        _check_grant(self)
        _check_client(self)
        _check_places(self)

    def __repr__(self) -> str:
        """Show the grant and the client, but no secret."""
        return f"OAuth(grant={self.grant!r}, client_id={self.client_id!r})"

    def trusts(self, issuer: str) -> bool:
        """Return True if an authorization server may receive these credentials."""
        if self.issuer is None:
            return True
        return self.issuer == issuer if isinstance(self.issuer, str) else bool(self.issuer(issuer))


def _check_grant(given: OAuth) -> None:
    needed = dict(_NEEDED)
    if given.grant not in needed:
        raise ConfigError(f"grant={given.grant!r} is not known: use one of {', '.join(needed)}.")
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
        raise ConfigError("client_secret= and private_key= need client_id=.")
    if secret and given.issuer is None:
        raise ConfigError(
            "client_secret= and private_key= need issuer=, the authorization server they are for: otherwise any server "
            "you connect to could name another one and receive the secret."
        )
    if given.client_secret is not None and given.private_key is not None:
        raise ConfigError("client_secret= and private_key= exclude each other: set only one.")
    for scope in given.scopes or ():
        if not isinstance(scope, str) or not _SCOPE.fullmatch(scope):
            raise ConfigError(f"scopes= contains {scope!r}, which is not a valid scope.")
    if isinstance(given.scopes, str):
        raise ConfigError("scopes= must be a list of strings.")


def _check_places(given: OAuth) -> None:
    document = given.client_metadata_url
    if document is not None:
        parts = split_web_url(document)
        if parts is None or parts.scheme != "https" or parts.path in ("", "/") or parts.fragment:
            raise ConfigError(f"client_metadata_url={document!r} must be an https URL with a path.")
    if given.redirect_uri is not None:
        if given.redirect_port:
            raise ConfigError("redirect_uri= and redirect_port= exclude each other: set only one.")
        if not may_carry_secrets(given.redirect_uri):
            raise ConfigError(f"redirect_uri={given.redirect_uri!r} must be https, or a loopback URL.")
    for name in ("idp_token_endpoint", "idp_issuer"):
        url = getattr(given, name)
        if url is not None and not may_carry_secrets(url):
            raise ConfigError(f"{name}={url!r} must be an https URL.")
    if given.dpop not in (True, False, "auto"):
        raise ConfigError('dpop= must be True, False or "auto".')
