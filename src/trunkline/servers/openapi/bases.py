"""The base URL of requests: the servers that a document names, and whether the document alone may decide.

A document that was fetched over the network may name only the server it came from: otherwise its author would decide
which machine near us is called, and with which credentials. For any other server the user gives ``--base-url``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from trunkline.errors import ConfigError, FetchError
from trunkline.net.addresses import special_range
from trunkline.net.urls import Target, parse_target
from trunkline.servers.members import as_dict, as_list
from trunkline.servers.openapi.document import Document

__all__ = ["base_of", "own_base"]

_VARIABLE = re.compile(r"\{([^{}]*)\}")
_FIX = "give the URL of the API with --base-url"
_DOTS = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
#: Address ranges where clouds and networks serve data for this machine only, such as its credentials.
_NEVER = (
    "a link-local address",
    "an IPv4 address in an IPv6 one",
    "an address of a cloud's own services",
    "an unspecified address",
)


#: Metadata services of clouds at other than link-local addresses.
_CLOUD = frozenset(
    {
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "instance-data",
        "instance-data.ec2.internal",
        "metadata",
        "metadata.goog",
        "metadata.google.internal",
    }
)


def base_of(document: Document, given: str | None, *, variables: Mapping[str, str] | None = None) -> str:
    """Return the base URL of the API: the one given by the user, else the first server of the document.

    Raises:
        ConfigError: there is none, or the document may not choose it.
    """
    if given is not None:
        return _target(given, "--base-url").url.rstrip("/")
    servers = as_list(document.root.get("servers")) or [{"url": "/"}]
    target = _named(document, servers[0], variables or {})
    if document.url is not None and target.origin != parse_target(document.url).origin:
        raise ConfigError(
            f"{document.name} names the server {target.scheme}://{target.where}, which is not where it was fetched "
            f"from; if that is right, {_FIX}"
        )
    return target.url.rstrip("/")


def own_base(document: Document, servers: Any, base: str, *, variables: Mapping[str, str] | None = None) -> str | None:
    """Return the base URL of an operation that names its own servers; None if that is another origin.

    Raises:
        ConfigError: the named server is not a valid URL.
    """
    target = _named(document, (as_list(servers) or [{}])[0], variables or {}, near=f"{base}/")
    return target.url.rstrip("/") if target.origin == parse_target(base).origin else None


def _named(document: Document, server: Any, variables: Mapping[str, str], near: str | None = None) -> Target:
    entry = as_dict(server)
    known = as_dict(entry.get("variables"))

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in known:
            raise ConfigError(
                f"{document.name}: its server has the variable {name!r}, which it does not define; {_FIX}"
            )
        allowed = as_list(as_dict(known[name]).get("enum"))
        chosen = variables.get(name, as_dict(known[name]).get("default"))
        if not isinstance(chosen, str) or (allowed and chosen not in allowed):
            raise ConfigError(f"The server variable {name!r} cannot be {chosen!r}; give --server-variable {name}=VALUE")
        return chosen

    url = _VARIABLE.sub(value, str(entry.get("url", "/")))
    if not urlsplit(url).scheme:
        known_from = document.url or near
        if known_from is None:
            raise ConfigError(f"{document.name} does not say at which host its server {url[:100]!r} is; {_FIX}")
        url = urljoin(known_from, url)
    target = _target(url, f"The server of {document.name}")
    special = special_range(target.host) if target.is_address else None
    if target.host.lower().strip("[].") in _CLOUD:
        special = "an address of a cloud's own services"
    if special in _NEVER:
        raise ConfigError(f"{document.name} names the server {target.where}, {special}; if that is right, {_FIX}")
    return target


def _target(url: str, what: str) -> Target:
    try:
        target = parse_target(url)
    except FetchError as error:
        raise ConfigError(f"{what} must be an http or https URL. {error}") from error
    if "?" in target.rest or _DOTS.search(target.rest):
        raise ConfigError(f'{what} must be a plain URL, without a query and without ".."')
    return target
