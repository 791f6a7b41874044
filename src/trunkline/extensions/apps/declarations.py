"""The declaration of a page: the origins that it may reach, the permissions it requests, and how it is shown.

Both sides apply the same rules. On a server, an invalid declaration fails when the page is registered; a client rejects
such a page, since every value becomes part of a header of the host. Pure: no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr

__all__ = ["AppCsp", "AppDeclaration", "CspDeclaration", "Permissions", "declaration", "read_declaration"]

#: The accepted values of ``csp=``: the object, or a mapping with Python or wire names.
CspDeclaration: TypeAlias = "AppCsp | Mapping[str, Iterable[str]]"
#: The accepted values of ``permissions=``: names, or the mapping of the protocol.
Permissions: TypeAlias = Iterable[str] | Mapping[str, Any]

#: The lists of ``AppCsp``, with their names on the wire.
_LISTS: Mapping[str, str] = MappingProxyType(
    {
        "connect": "connectDomains",
        "resources": "resourceDomains",
        "frames": "frameDomains",
        "base_uris": "baseUriDomains",
    }
)
#: The permissions, with their names on the wire.
_PERMISSIONS: Mapping[str, str] = MappingProxyType(
    {
        "camera": "camera",
        "microphone": "microphone",
        "geolocation": "geolocation",
        "clipboard_write": "clipboardWrite",
    }
)
_WIRE_PERMISSIONS = MappingProxyType({wire: name for name, wire in _PERMISSIONS.items()})

# Content Security Policy Level 3, 2.3.1: a host source is a scheme, a host whose leftmost label may be a wildcard, and
# a port. It cannot hold an IPv6 address. A path is allowed there, but the extension speaks of origins.
_LABEL = r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?"
_ORIGIN = re.compile(rf"(?:https?|wss?)://(\*\.)?({_LABEL}(?:\.{_LABEL})*)(?::\d{{1,5}})?\Z")
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\Z", re.ASCII | re.IGNORECASE)
_LONGEST_ORIGIN = 300  # A host name has 253 characters at most.
_MOST_ORIGINS = 64  # In one list; real pages have fewer than ten, and a header has a few kilobytes.


class AppCsp(Struct, frozen=True, kw_only=True):
    """The origins that a page may reach; all others are blocked."""

    #: Where scripts may send requests (fetch, WebSocket).
    connect: tuple[str, ...] = ()
    #: Where scripts, styles, images, fonts and media may be loaded from.
    resources: tuple[str, ...] = ()
    #: What may be shown in nested frames.
    frames: tuple[str, ...] = ()
    #: What the base URI of the document may be.
    base_uris: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the origins.

        Raises:
            ValueError: one of them is not an origin; the message names the fix.
        """
        for name in _LISTS:
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Iterable):
                raise ValueError(f'csp: {name} is a list of origins, such as ["https://api.example.com"]')
            values = list(given)
            if len(values) > _MOST_ORIGINS:
                raise ValueError(f"csp: {name} has {len(values)} origins; {_MOST_ORIGINS} are allowed")
            origins = tuple(dict.fromkeys(_origin(each, name) for each in values))
            # Frozen for users; a list is accepted here and kept as a tuple.
            force_setattr(self, name, origins)

    def to_wire(self) -> dict[str, list[str]]:
        """Return the wire form."""
        return {wire: list(getattr(self, name)) for name, wire in _LISTS.items() if getattr(self, name)}


class AppDeclaration(Struct, frozen=True, kw_only=True):
    """The declaration of a page in ``_meta.ui``."""

    #: None if the page declares nothing: the host then applies the most restrictive policy.
    csp: AppCsp | None = None
    permissions: tuple[str, ...] = ()
    #: The origin that the page requests; its form depends on the host.
    domain: str | None = None
    prefers_border: bool | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the wire form; empty if nothing is declared."""
        wire: dict[str, Any] = {}
        if self.csp is not None:
            wire["csp"] = self.csp.to_wire()
        if self.permissions:
            wire["permissions"] = {_PERMISSIONS[name]: {} for name in self.permissions}
        if self.domain is not None:
            wire["domain"] = self.domain
        if self.prefers_border is not None:
            wire["prefersBorder"] = self.prefers_border
        return wire


def declaration(
    *,
    csp: CspDeclaration | None = None,
    permissions: Permissions | None = None,
    domain: str | None = None,
    prefers_border: bool | None = None,
) -> AppDeclaration:
    """Return the declaration of a page from the options of ``@server.app``.

    Raises:
        ValueError, TypeError: a value is not allowed; the message names the fix.
    """
    if prefers_border is not None and not isinstance(prefers_border, bool):
        raise TypeError(f"prefers_border= is True, False or None, not {prefers_border!r}")
    return AppDeclaration(
        csp=_csp(csp), permissions=_permissions(permissions), domain=_domain(domain), prefers_border=prefers_border
    )


def read_declaration(ui: Mapping[str, Any] | None) -> AppDeclaration:
    """Parse the declaration of a page from its ``_meta.ui``; unknown members are ignored.

    Raises:
        ValueError: a value is not allowed: in a header it could have another meaning.
    """
    ui = ui or {}
    csp, permissions, domain = ui.get("csp"), ui.get("permissions"), ui.get("domain")
    if csp is not None and not isinstance(csp, Mapping):
        raise ValueError("csp must be an object")
    if permissions is not None and not isinstance(permissions, Mapping):
        raise ValueError("permissions must be an object")
    border = ui.get("prefersBorder")
    return AppDeclaration(
        csp=None if csp is None else AppCsp(**{name: _untrusted(csp, wire) for name, wire in _LISTS.items()}),
        permissions=tuple(
            name for name, wire in _PERMISSIONS.items() if isinstance((permissions or {}).get(wire), Mapping)
        ),
        # Its form depends on the host; an unknown form is no reason to reject the page.
        domain=domain if _is_host(domain) else None,
        prefers_border=border if isinstance(border, bool) else None,
    )


def _csp(given: CspDeclaration | None) -> AppCsp | None:
    if given is None or isinstance(given, AppCsp):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(f"csp= is AppCsp(...) or a mapping of lists, not a {type(given).__name__}")
    names = {**{name: name for name in _LISTS}, **{wire: name for name, wire in _LISTS.items()}}
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(f"csp has no list {unknown[0]!r}; it has {', '.join(_LISTS)}")
    return AppCsp(**{names[name]: values for name, values in given.items()})  # type: ignore[arg-type]


def _untrusted(csp: Mapping[str, Any], wire: str) -> Any:
    """Return a list of origins from a server; the common form ``https://host/`` is accepted as an origin."""
    values = csp.get(wire)
    if values is None:
        return ()
    if not isinstance(values, list):
        raise ValueError(f"{wire} must be a list")
    return [each[:-1] if isinstance(each, str) and each.endswith("/") else each for each in values]


def _origin(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"csp: {where} contains {value!r}, which is not a string")
    origin = value.lower()
    # The lower case of some non-ASCII characters is ASCII.
    found = _ORIGIN.match(origin) if value.isascii() and len(origin) <= _LONGEST_ORIGIN else None
    if found is None:
        raise ValueError(f"csp: {where} contains {value[:100]!r}, which is not an origin; {_origin_fix(value)}")
    wildcard, host = found.groups()
    if wildcard and "." not in host and host != "localhost":
        raise ValueError(f"csp: {where} contains {value!r}, which is every site below {host!r}; use your own domain")
    return origin


def _origin_fix(value: str) -> str:
    """Return how to correct a value that is not an origin."""
    if "'" in value or value.endswith(":"):
        return "only origins can be declared; the host sets the keywords and schemes of the policy"
    head, separator, rest = value.partition("://")
    if not separator:
        return f"begin it with a scheme, such as https://{value[:60]}" if _HOST.match(value) else _LIKE
    host = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if host != rest and _ORIGIN.match(f"{head}://{host}".lower()):
        return f"leave out the path: {head}://{host}"
    if "*" in host:
        return "a wildcard may only be the leftmost label, as in https://*.example.com"
    return _LIKE


_LIKE = "write scheme, host and port, such as https://api.example.com or wss://live.example.com:8443"


def _permissions(given: Permissions | None) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        raise TypeError(f'permissions= is a list, such as ["{given}"]')
    names = [_WIRE_PERMISSIONS.get(each, each) for each in given]
    unknown = [name for name in names if name not in _PERMISSIONS]
    if unknown:
        raise ValueError(f"unknown permission {unknown[0]!r}; use {', '.join(_PERMISSIONS)}")
    return tuple(name for name in _PERMISSIONS if name in names)


def _domain(given: object) -> str | None:
    if given is None or _is_host(given):
        return given  # type: ignore[return-value]
    raise ValueError(f"domain is a host name, such as panel.example.com, without scheme and port; not {given!r:.100}")


def _is_host(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_ORIGIN and _HOST.match(value) is not None
