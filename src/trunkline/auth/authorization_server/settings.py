"""The settings of an authorization server, validated together, and how its users sign in.

The issuer is published byte for byte as given; only for deriving endpoints a trailing slash is removed.

Users sign in by a function of the application, by hashed passwords, or as one development user. Guessing is
rate-limited by name and address. An unknown name takes as long as a known one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypedDict
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from trunkline.auth.authorization_server.web import PageError, RateLimiter
from trunkline.errors import ConfigError
from trunkline.net.addresses import is_loopback

if TYPE_CHECKING:
    from trunkline.auth.authorization_server.storage import Records

__all__ = [
    "AuthenticateUser",
    "IssuerOptions",
    "IssuerSettings",
    "Lifetimes",
    "RateLimitedSignIn",
    "SignIn",
    "Users",
    "hash_password",
    "make_settings",
    "make_sign_in",
]


class IssuerOptions(TypedDict, total=False):
    """Further options of ``AuthorizationServer``."""

    #: The name shown on its pages.
    name: str
    #: Scopes that every token must have.
    required_scopes: Sequence[str]
    #: Scopes for a request that names none; by default all.
    default_scopes: Sequence[str]
    #: Clients may register themselves (RFC 7591).
    registration: bool
    #: Clients may use the URL of their metadata document as client_id.
    client_id_documents: bool
    #: Private-use schemes of applications (``cursor``) allowed in redirect URIs, besides https and loopback.
    redirect_schemes: Sequence[str]
    #: Lifetimes in seconds.
    access_seconds: float
    code_seconds: float
    refresh_seconds: float
    session_seconds: float
    #: How long a consent is remembered in a browser, for pages that the user opens themselves.
    remember_seconds: float
    #: The maximum number of dynamically registered clients.
    registered_clients: int
    #: The keys that encrypt what is stored in Redis, 32 bytes each: the first encrypts, all decrypt. By default those
    #: of ``TRUNKLINE_STATE_KEY``; a store that only this user can read needs none.
    state_keys: Sequence[str | bytes] | None
    #: For tests on loopback only: every request is approved immediately, as this user.
    auto_approve: str | None
    #: Fetches remote documents; by default the guarded HTTP client of this package.
    fetcher: Any
    clock: Callable[[], float]


class Lifetimes(Struct, frozen=True, kw_only=True):
    """Lifetimes in seconds."""

    access: float = 15 * 60.0
    #: RFC 6749 recommends at most ten minutes; a client redeems a code at once.
    code: float = 60.0
    refresh: float = 30 * 24 * 3600.0
    session: float = 12 * 3600.0
    #: Users read the page, look up a password, are interrupted.
    page: float = 10 * 60.0
    remember: float = 0.0
    #: A dynamically registered client that never got a token; and one that did, since its last token.
    unused_client: float = 3600.0
    used_client: float = 90 * 24 * 3600.0


class IssuerSettings(Struct, frozen=True, kw_only=True):
    """The validated settings of an authorization server."""

    issuer: str
    #: The issuer without a trailing slash, and its parts.
    base: str
    origin: str
    path: str
    is_loopback: bool
    resources: tuple[str, ...]
    scopes: Mapping[str, str]
    required_scopes: frozenset[str]
    default_scopes: tuple[str, ...]
    name: str
    registration: bool
    documents: bool
    redirect_schemes: frozenset[str]
    registered_clients: int
    auto_approve: str | None
    lifetimes: Lifetimes
    clock: Callable[[], float]

    @property
    def cookie(self) -> str:
        """The name of the cookie; with https its prefix binds it to the host.

        A loopback issuer without TLS cannot use the prefix. Cookies ignore ports, so the port is part of the name;
        otherwise two servers on one machine would sign each other's users out.
        """
        if self.origin.startswith("https:"):
            return "__Host-trunkline-auth"
        return f"trunkline-auth-{urlsplit(self.origin).port or 80}"

    def cookie_header(self, value: str, seconds: float) -> str:
        """Return the Set-Cookie header."""
        secure = "; Secure" if self.origin.startswith("https:") else ""
        return f"{self.cookie}={value}; Path=/; Max-Age={int(seconds)}; HttpOnly; SameSite=Lax{secure}"

    def resource(self, asked: str | None) -> str | None:
        """Return the requested resource if we serve it, or the only one if none is named; else None."""
        if asked is None:
            return self.resources[0] if len(self.resources) == 1 else None
        return next((ours for ours in self.resources if asked in (ours, f"{ours}/", ours.removesuffix("/"))), None)


def make_settings(
    *,
    issuer: str,
    resource: str | Sequence[str] | None,
    scopes: Mapping[str, str] | Sequence[str],
    options: Mapping[str, Any],
) -> IssuerSettings:
    """Validate the options and build the settings.

    Raises:
        ConfigError: an option is not valid; the message says what to write instead.
    """
    unknown = sorted(set(options) - set(IssuerOptions.__annotations__))
    if unknown:
        raise TypeError(f"AuthorizationServer has no option {unknown[0]!r}")
    parts = _parse_issuer(issuer)
    described = dict(scopes) if isinstance(scopes, Mapping) else dict.fromkeys(scopes, "")
    _check_scopes(described, options)
    base = issuer.removesuffix("/")
    loopback = is_loopback(parts.hostname, below=False)
    if options.get("auto_approve") is not None and not loopback:
        raise ConfigError("auto_approve= approves every request, so it is allowed only for an issuer on loopback")
    lifetimes = {name.removesuffix("_seconds"): options[name] for name in options if name.endswith("_seconds")}
    return IssuerSettings(
        issuer=issuer,
        base=base,
        origin=f"{parts.scheme}://{parts.netloc}",
        path=parts.path.removesuffix("/"),
        is_loopback=loopback,
        resources=_resources(resource, f"{parts.scheme}://{parts.netloc}"),
        scopes=MappingProxyType(described),
        required_scopes=frozenset(options.get("required_scopes", ())),
        default_scopes=tuple(options.get("default_scopes", described)),
        name=options.get("name") or parts.netloc,
        registration=options.get("registration", True),
        documents=options.get("client_id_documents", True),
        redirect_schemes=frozenset(options.get("redirect_schemes", ())),
        registered_clients=options.get("registered_clients", 1000),
        auto_approve=options.get("auto_approve"),
        lifetimes=Lifetimes(**lifetimes),
        clock=options["clock"],
    )


def _parse_issuer(issuer: str) -> SplitResult:
    try:
        parts = urlsplit(issuer)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    is_bare = parts.hostname and not (parts.query or parts.fragment or "@" in parts.netloc or {*"?#"} & {*issuer})
    is_loopback_http = parts.scheme == "http" and is_loopback(parts.hostname, below=False)
    if not is_bare or not (parts.scheme == "https" or is_loopback_http):
        raise ConfigError(
            f"issuer={issuer!r}: must be an https URL without user name, query or fragment, such as "
            "'https://auth.example.com'; http is allowed for loopback only"
        )
    return parts


def _check_scopes(described: Mapping[str, str], options: Mapping[str, Any]) -> None:
    named = {*options.get("required_scopes", ()), *options.get("default_scopes", ())}
    if missing := sorted(named - set(described)):
        raise ConfigError(f"scopes= lacks {missing[0]!r}, which required_scopes= or default_scopes= names")
    for name in described:
        # RFC 6749, 3.3: printable ASCII without space, quote and backslash.
        if not name or any(not "!" <= character <= "~" or character in '"\\' for character in name):
            raise ConfigError(
                f"scopes= contains {name!r}: a scope must be printable ASCII without spaces, quotes and backslashes"
            )


def _resources(resource: str | Sequence[str] | None, origin: str) -> tuple[str, ...]:
    if resource is None:
        return (f"{origin}/mcp",)
    resources = (resource,) if isinstance(resource, str) else tuple(resource)
    if not resources or any(urlsplit(each).fragment or not urlsplit(each).netloc for each in resources):
        raise ConfigError("resource= must be one or more URLs without fragment, such as 'https://mcp.example.com/mcp'")
    return resources


#: Returns the subject for a name and a password, or None.
AuthenticateUser = Callable[[str, str], Awaitable[str | None] | str | None]
#: The values of ``users=``: such a function, or names with passwords hashed by ``hash_password``.
Users = AuthenticateUser | Mapping[str, str]

_PASSWORD_VARIABLE = "TRUNKLINE_DEV_PASSWORD"
_DEVELOPER = "developer"
_ATTEMPTS = 5  # Enough for typing errors; guessing at this rate takes years.
_ATTEMPT_SECONDS = 60.0  # The window in which attempts are counted.
_LONGEST = 1024  # Hashing takes time that grows with the length.
_COST, _BLOCK, _PARALLEL = 2**14, 8, 1  # scrypt for interactive logins: 16 MiB and about 50 ms.


class SignIn(Protocol):
    """Authenticates a user by name and password."""

    async def __call__(self, name: str, password: str) -> str | None:
        """Return the subject, or None."""


def hash_password(password: str) -> str:
    """Hash a password with scrypt, for ``AuthorizationServer(users={"ada": ...})``."""
    salt = secrets.token_bytes(16)
    return f"scrypt${_text(salt)}${_text(_scrypt(password, salt))}"


def make_sign_in(users: Users | None, settings: IssuerSettings, records: Records) -> RateLimitedSignIn:
    """Build the sign-in for ``users=``.

    Raises:
        ConfigError: ``users=`` is missing or not valid.
    """
    if users is None:
        if not settings.is_loopback:
            raise ConfigError(
                "users= is missing: set a function (name, password) -> subject, or names with hash_password(...); "
                "the development user exists only for an issuer on loopback"
            )
        return RateLimitedSignIn(_DevelopmentSignIn(), records)
    if isinstance(users, Mapping):
        return RateLimitedSignIn(_PasswordSignIn(users), records)
    return RateLimitedSignIn(_FunctionSignIn(users), records)


class RateLimitedSignIn:
    """Rate-limits failed sign-ins."""

    def __init__(self, sign_in: SignIn, records: Records) -> None:
        """Wrap a sign-in."""
        self._sign_in = sign_in
        self._attempts = RateLimiter(records, "sign-ins", most=_ATTEMPTS, seconds=_ATTEMPT_SECONDS)

    def announce(self) -> None:
        """Print the credentials of the development user, if there is one."""
        if isinstance(self._sign_in, _DevelopmentSignIn):
            self._sign_in.announce()

    async def __call__(self, name: str, password: str, *, address: str) -> str | None:
        """Return the subject for a name and password, or None.

        Raises:
            PageError: there were too many failures.
        """
        if len(name) > _LONGEST or len(password) > _LONGEST:
            return None
        key = f"{address}\n{name}"
        # Counted before the password is checked: many guesses at once are no way around the limit.
        if wait := await self._attempts.count(key):
            raise PageError(
                429,
                "Too many attempts",
                f"Too many failed sign-ins. Try again in {wait} seconds.",
                headers=(("retry-after", str(wait)),),
            )
        subject = await self._sign_in(name, password)
        if subject is not None:
            await self._attempts.forgive(key)
        return subject


class _FunctionSignIn:
    """Signs users in with a configured function."""

    def __init__(self, function: AuthenticateUser) -> None:
        self._function = function

    async def __call__(self, name: str, password: str) -> str | None:
        found = self._function(name, password)
        subject = await found if isinstance(found, Awaitable) else found
        if subject is not None and (not isinstance(subject, str) or not subject or subject.startswith("client:")):
            raise ConfigError("users= must return the subject as a string that does not start with 'client:', or None")
        return subject


class _PasswordSignIn:
    """Signs users in with hashed passwords."""

    def __init__(self, hashed: Mapping[str, str]) -> None:
        self._hashed = {name: _parsed(name, value) for name, value in hashed.items()}
        self._nobody = secrets.token_bytes(16), secrets.token_bytes(32)

    async def __call__(self, name: str, password: str) -> str | None:
        salt, expected = self._hashed.get(name, self._nobody)
        found = await asyncio.to_thread(_scrypt, password, salt)
        return name if hmac.compare_digest(found, expected) and name in self._hashed else None


class _DevelopmentSignIn:
    """Signs in one development user, whose password comes from the environment or is generated."""

    def __init__(self) -> None:
        self._given = os.environ.get(_PASSWORD_VARIABLE)
        self._password = self._given or secrets.token_urlsafe(9)
        self._announced = self._given is not None

    def announce(self) -> None:
        if not self._announced:
            self._announced = True
            sys.stderr.write(
                f"Development login: name {_DEVELOPER}, password {self._password} "
                f"(set {_PASSWORD_VARIABLE} to choose it, or set users=)\n"
            )

    async def __call__(self, name: str, password: str) -> str | None:
        known = hmac.compare_digest(password.encode(), self._password.encode())
        return _DEVELOPER if known and name == _DEVELOPER else None


def _scrypt(password: str, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=_COST, r=_BLOCK, p=_PARALLEL, dklen=32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _parsed(name: str, hashed: str) -> tuple[bytes, bytes]:
    try:
        scheme, salt, value = hashed.split("$")
        if scheme == "scrypt":
            return base64.b64decode(salt, validate=True), base64.b64decode(value, validate=True)
    except ValueError:
        pass
    raise ConfigError(f"users=: the password of {name!r} is not hashed: use hash_password('...')")
