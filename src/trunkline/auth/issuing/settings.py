"""How an authorization server is set up: read once, checked whole, frozen.

The issuer is published byte for byte as it was given; only where endpoints are derived from it a final slash is left
away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypedDict
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.net.addresses import is_loopback

__all__ = ["IssuerOptions", "Lives", "Settings", "make_settings"]


class IssuerOptions(TypedDict, total=False):
    """Further options of an authorization server."""

    #: What people see on its pages.
    name: str
    #: Scopes a token must have to be let in at all.
    required_scopes: Sequence[str]
    #: Scopes of a request that names none; otherwise all there are.
    default_scopes: Sequence[str]
    #: Clients may register themselves (RFC 7591).
    registration: bool
    #: Clients may be named by the address of a document about them.
    client_id_documents: bool
    #: Private schemes of applications (``cursor``) that users may be sent back to, beside https and loopback.
    redirect_schemes: Sequence[str]
    #: How long things live, in seconds.
    access_seconds: float
    code_seconds: float
    refresh_seconds: float
    session_seconds: float
    #: For how long a browser that allowed a client is not asked again when the user opens the page themselves.
    remember_seconds: float
    #: Most clients that registered themselves and are still known.
    registered_clients: int
    #: For tests on loopback alone: everything is allowed at once, by this user.
    auto_approve: str | None
    #: Fetches what others publish; by default the guarded client of this package.
    fetcher: Any
    clock: Callable[[], float]


class Lives(Struct, frozen=True, kw_only=True):
    """How long things live, in seconds."""

    access: float = 15 * 60.0
    #: RFC 6749 advises ten minutes at most; a client comes back with a code at once.
    code: float = 60.0
    refresh: float = 30 * 24 * 3600.0
    session: float = 12 * 3600.0
    #: A person reads a page, looks up a password, is called away.
    page: float = 10 * 60.0
    remember: float = 0.0
    #: A client that registered itself and never got a token; and one that did, since its last.
    unused_client: float = 3600.0
    used_client: float = 90 * 24 * 3600.0


class Settings(Struct, frozen=True, kw_only=True):
    """What an authorization server is told."""

    issuer: str
    #: The issuer without a final slash, and its parts.
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
    lives: Lives
    clock: Callable[[], float]

    @property
    def cookie(self) -> str:
        """The name of the cookie: bound to the host by its prefix, where there is https.

        A loopback address without TLS cannot have the prefix. Cookies do not mind ports, so the port is in the name,
        or two servers on one machine would sign each other's users out.
        """
        if self.origin.startswith("https:"):
            return "__Host-trunkline-auth"
        return f"trunkline-auth-{urlsplit(self.origin).port or 80}"

    def cookie_header(self, value: str, seconds: float) -> str:
        """Write the cookie."""
        secure = "; Secure" if self.origin.startswith("https:") else ""
        return f"{self.cookie}={value}; Path=/; Max-Age={int(seconds)}; HttpOnly; SameSite=Lax{secure}"

    def resource(self, asked: str | None) -> str | None:
        """Give the resource that is meant: one we serve, the only one if none is named; else None."""
        if asked is None:
            return self.resources[0] if len(self.resources) == 1 else None
        return next((ours for ours in self.resources if asked in (ours, f"{ours}/", ours.removesuffix("/"))), None)


def make_settings(
    *,
    issuer: str,
    resource: str | Sequence[str] | None,
    scopes: Mapping[str, str] | Sequence[str],
    options: Mapping[str, Any],
) -> Settings:
    """Check and settle what was given.

    Raises:
        ConfigError: something cannot be so; the sentence says what to write instead.
    """
    unknown = sorted(set(options) - set(IssuerOptions.__annotations__))
    if unknown:
        raise TypeError(f"an authorization server has no option {unknown[0]!r}")
    parts = _issuer_parts(issuer)
    described = dict(scopes) if isinstance(scopes, Mapping) else dict.fromkeys(scopes, "")
    _check_scopes(described, options)
    base = issuer.removesuffix("/")
    loopback = is_loopback(parts.hostname, below=False)
    if options.get("auto_approve") is not None and not loopback:
        raise ConfigError("auto_approve= lets everybody in: it is for an issuer on loopback alone")
    lives = {name.removesuffix("_seconds"): options[name] for name in options if name.endswith("_seconds")}
    return Settings(
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
        lives=Lives(**lives),
        clock=options["clock"],
    )


def _issuer_parts(issuer: str) -> SplitResult:
    try:
        parts = urlsplit(issuer)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    plain = parts.hostname and not (parts.query or parts.fragment or "@" in parts.netloc or {*"?#"} & {*issuer})
    here = parts.scheme == "http" and is_loopback(parts.hostname, below=False)
    if not plain or not (parts.scheme == "https" or here):
        raise ConfigError(
            f"issuer={issuer!r}: an issuer is an https address without query and fragment, such as "
            "'https://auth.example.com'; http is for loopback alone"
        )
    return parts


def _check_scopes(described: Mapping[str, str], options: Mapping[str, Any]) -> None:
    named = {*options.get("required_scopes", ()), *options.get("default_scopes", ())}
    if missing := sorted(named - set(described)):
        raise ConfigError(f"scopes= does not describe {missing[0]!r}, which is asked for")
    for name in described:
        # RFC 6749, 3.3: printable ASCII without space, quote and backslash.
        if not name or any(not "!" <= character <= "~" or character in '"\\' for character in name):
            raise ConfigError(f"scopes= has {name!r}: a scope is a word of printable ASCII")


def _resources(resource: str | Sequence[str] | None, origin: str) -> tuple[str, ...]:
    if resource is None:
        return (f"{origin}/mcp",)
    resources = (resource,) if isinstance(resource, str) else tuple(resource)
    if not resources or any(urlsplit(each).fragment or not urlsplit(each).netloc for each in resources):
        raise ConfigError("resource= names the addresses that tokens are for, such as 'https://mcp.example.com/mcp'")
    return resources
