"""Where requests go: the servers a document names, and whether its word is enough.

A document that came over the network may name the server it came from and no other: else whoever wrote it decides which
machine near us is called, and with which credentials. Anything else the user says with ``--base-url``.
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
_FIX = "say where the API is with --base-url"
_DOTS = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
#: Addresses at which clouds and networks keep what is for this machine alone.
_NEVER = (
    "a link-local address",
    "an IPv4 address in an IPv6 one",
    "an address of a cloud's own services",
    "an unspecified address",
)


#: Where clouds answer who this machine is, besides link-local addresses.
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
    """Say where the API is: where the user says, else the first server of the document.

    Raises:
        ConfigError: there is none, or the document's word is not enough for it.
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
    """Give the base of an operation that names servers of its own; None if that is another origin.

    Raises:
        ConfigError: what it names is no address.
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
