"""Servers with a URL: their options, and the links that may be needed.

A URL alone does not say which HTTP transport is behind it. Streamable HTTP is tried first, in both eras, and the
transport of the first revision is the fallback, unless the configuration or the pinned revision decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from trunkline.client.options import ClientSettings
from trunkline.client.targets import Target
from trunkline.errors import ConfigError
from trunkline.transports.link import Link

__all__ = ["entry_target", "url_target"]

_Kind: TypeAlias = Literal["any", "http", "sse"]

_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {"http": "http", "streamable-http": "http", "streamable_http": "http", "streamableHttp": "http", "sse": "sse"}
)
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
#: Headers that the transport sets itself; changing one would break it.
_RESERVED_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "last-event-id",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


def entry_target(entry: Mapping[str, Any], settings: ClientSettings) -> Target:
    """Resolve an ``mcpServers`` entry that has a URL.

    Raises:
        ConfigError: a member of it is invalid.
    """
    url, headers = entry["url"], entry.get("headers") or {}
    if not isinstance(url, str) or not isinstance(headers, Mapping):
        raise ConfigError("An mcpServers entry with a url (a string) may have headers (strings by name) and a type.")
    kind = entry.get("type") or entry.get("transport")
    if kind is not None and kind not in _KINDS:
        raise ConfigError(f"The type {kind!r} of an entry with a url is unknown: use http, streamable-http or sse.")
    return url_target(url, settings, headers=headers, kind="any" if kind is None else _KINDS[kind])


def url_target(
    url: str, settings: ClientSettings, *, headers: Mapping[str, str] = MappingProxyType({}), kind: _Kind = "any"
) -> Target:
    """Return the target of a server's URL.

    Raises:
        ConfigError: the URL or an option is invalid, or the extra for HTTP is not installed.
    """
    _check_url(url)
    _check_installed()
    stateless = settings.pinned is not None and not settings.pinned.handshake
    if kind == "sse" and stateless:
        raise ConfigError(
            "The sse transport carries no stateless revision: leave out the type, or pin another revision."
        )
    shown, authorizer = _credentials(url, settings)
    own = {**headers, **(settings.headers or {})}
    _check_headers(own, taken=shown if authorizer is None else ("Authorization", "DPoP"))
    sent = {**own, **shown}

    async def open_http() -> Link:
        from trunkline.transports.http.client.link import HttpLink

        return HttpLink(_options(url, sent, settings, authorizer), settings.limits)

    async def open_sse() -> Link:
        from trunkline.transports.http.client.legacy_sse import LegacySseLink

        return await LegacySseLink.open(_options(url, sent, settings, authorizer), settings.limits)

    name, fingerprint = _name(url), _fingerprint(url)
    is_logging_in = None if authorizer is None else lambda: bool(authorizer.is_logging_in)
    if kind == "sse":
        return Target(name, open_sse, fingerprint=fingerprint, handshake_only=True, is_logging_in=is_logging_in)
    fallback = open_sse if kind == "any" and not stateless else None
    return Target(
        name, open_http, fingerprint=fingerprint, separate=True, fallback=fallback, is_logging_in=is_logging_in
    )


def _options(url: str, headers: Mapping[str, str], settings: ClientSettings, authorizer: Any) -> Any:
    from trunkline import __version__
    from trunkline.transports.http.client.http_client import HttpClientOptions

    return HttpClientOptions(
        url=url,
        user_agent=f"trunkline/{__version__}",
        headers=headers,
        proxy=settings.proxy,
        ca_file=settings.ca_file,
        ssl=settings.ssl,
        authorizer=authorizer,
        tap=settings.tap,
    )


def _check_installed() -> None:
    from importlib.util import find_spec

    if find_spec("aiohttp") is None:
        raise ConfigError("URL targets need an extra: pip install 'trunkline[http]'")


def _check_url(url: str) -> None:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not _VISIBLE.fullmatch(url):
        raise ConfigError(f"{url!r} is not a server URL: it must begin with http:// or https:// and name a host.")
    if "@" in parts.netloc:
        raise ConfigError("A URL must not contain a user or password: pass them with headers= or auth=.")


def _name(url: str) -> str:
    """Return the display name of the server, without the query, which may hold a secret."""
    return url.partition("?")[0].partition("#")[0]


def _fingerprint(url: str) -> str:
    import hashlib

    return hashlib.sha256(url.encode()).hexdigest()


def _check_headers(given: Mapping[str, str], *, taken: Iterable[str]) -> None:
    """Validate the user's headers; none may repeat what ``auth=`` sets already."""
    said = {name.lower() for name in taken}
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ConfigError("headers must be strings by name.")
        if name.lower() in _RESERVED_HEADERS or name.lower().startswith("mcp-"):
            raise ConfigError(f"The header {name} is set by the transport and cannot be given.")
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ConfigError(f"The header {name!r} has characters that a header cannot carry.")
        if name.lower() in said:
            raise ConfigError(f"auth= and the header {name} set the same thing: give only one of them.")


def _credentials(url: str, settings: ClientSettings) -> tuple[Mapping[str, str], Any]:
    """Resolve ``auth=``: to headers that are always sent, or to an authorizer that is asked for them."""
    auth = settings.auth
    if auth is None:
        return {}, None
    from trunkline.auth.oauth import ApiKey, BearerToken, OAuth, may_carry_secrets

    if not may_carry_secrets(url):
        raise ConfigError(f"auth= is not sent over plain http, except to this machine: use https for {_name(url)}.")
    if isinstance(auth, ApiKey):
        return {auth.header: auth.key}, None
    if auth == "oauth":
        auth = OAuth()
    if isinstance(auth, str):
        if not _VISIBLE.fullmatch(auth):
            raise ConfigError("auth= must be a token of visible ASCII characters.")
        auth = BearerToken(auth)
    if isinstance(auth, BearerToken) and isinstance(auth.token, str):
        return {"Authorization": f"Bearer {auth.token}"}, None
    return {}, _authorizer(url, auth, settings)


def _authorizer(url: str, auth: object, settings: ClientSettings) -> Any:
    from trunkline.auth.client import BearerAuthorizer, OAuthAuthorizer
    from trunkline.auth.oauth import BearerToken, OAuth

    if isinstance(auth, BearerToken):
        return BearerAuthorizer(url, auth)
    if isinstance(auth, OAuth):
        return OAuthAuthorizer(url, auth, ca_file=settings.ca_file, proxy=settings.proxy)
    raise ConfigError(f'auth= must be a token, "oauth", an OAuth, BearerToken or ApiKey; not a {type(auth).__name__}.')
