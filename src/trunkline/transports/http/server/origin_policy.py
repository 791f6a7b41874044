"""Accepts or denies HTTP requests by their ``Host`` and ``Origin`` headers; no ASGI, no I/O, no messages.

A web page can make its visitor's browser send requests to any address, also to one that only the visitor can reach,
and by DNS rebinding it can read the responses too. Two headers that a page cannot forge reveal such requests. ``Host``
is the name that the browser was told to call: it must be a loopback name, the address that the connection arrived at,
or a name that the owner of the server has listed. ``Origin`` is where the page came from: it must be loopback (if
``Host`` is), the server itself, or listed. Both checks apply to every address a server is bound to and to every HTTP
method.

Names are parsed strictly and compared whole, in lower case: an ambiguous name (``127.1``, a trailing dot, a name in
Unicode) is rejected, not interpreted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct

from trunkline.errors import ConfigError

__all__ = ["OriginDenied", "OriginPolicy", "accepts", "is_json", "media_type"]

Headers = list[tuple[bytes, bytes]]

_AUTHORITY = re.compile(rb"(?:\[([0-9a-f:.]{2,45})\]|([0-9a-z._-]{1,253}))(?::([1-9][0-9]{0,4}))?")
_LABEL = re.compile(r"(?!-)[0-9a-z_-]{1,63}(?<!-)")
# What a browser parses as (a part of) an IPv4 address, in any of its spellings.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_ORIGIN = re.compile(rb"(https?)://([^/?#@]{1,300})")
_DEFAULT_PORTS = MappingProxyType({"http": 80, "https": 443})
_SHOWN = 80  # Characters of a host or an origin in a log line.

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]++"
_HEADER_NAME = re.compile(_TOKEN)
_PARAMETER = rb"(" + _TOKEN + rb")=(" + _TOKEN + rb'|"(?:[^"\\\r\n]|\\[^\r\n])*+")'
# Possessive throughout: there is no backtracking, so the time is linear whatever is sent.
_MEDIA_TYPE = re.compile(
    rb"[ \t]*+(" + _TOKEN + rb"/" + _TOKEN + rb")((?:[ \t]*+;[ \t]*+(?:" + _PARAMETER + rb")?+)*+)[ \t]*+"
)
_PARAMETERS = re.compile(_PARAMETER)
_JSON = b"application/json"
_STREAM = b"text/event-stream"
_COMMON_JSON = frozenset(
    _JSON + charset for charset in (b"", b"; charset=utf-8", b";charset=utf-8", b"; charset=UTF-8", b";charset=UTF-8")
)
_COMMON_ACCEPT = frozenset(
    first + comma + second for first, second in ((_JSON, _STREAM), (_STREAM, _JSON)) for comma in (b", ", b",")
)
_ZERO = re.compile(rb"0(?:\.0{0,3})?")
# A longer list is truncated: no legitimate client sends one.
_LISTED = 64

_METHODS = (b"POST", b"GET", b"DELETE", b"OPTIONS")
_REQUEST_HEADERS = frozenset(
    (
        b"accept",
        b"authorization",
        b"baggage",
        b"content-type",
        b"dpop",
        b"last-event-id",
        b"mcp-method",
        b"mcp-name",
        b"mcp-protocol-version",
        b"mcp-session-id",
        b"traceparent",
        b"tracestate",
    )
)
_EXPOSED = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, DPoP-Nonce, Retry-After"
_PREFLIGHT_SECONDS = b"600"


class OriginDenied(Struct, frozen=True):
    """Why a request is denied: the HTTP status and a message that names the fix."""

    status: int
    message: str


class _Authority(NamedTuple):
    """A parsed ``name[:port]``: the name in lower case, an IPv6 address in brackets and in its shortest form."""

    name: str
    port: int | None

    @property
    def is_loopback(self) -> bool:
        return self.name in ("localhost", "[::1]") or (self.name.startswith("127.") and _is_ipv4(self.name))


class _Origin(NamedTuple):
    """A parsed origin; the port is always set, if need be to the default of the scheme."""

    scheme: str
    name: str
    port: int

    def is_at(self, host: _Authority) -> bool:
        """Return whether a ``Host`` header names this origin; without a port it has the default of the scheme."""
        return self.name == host.name and self.port == (host.port or _DEFAULT_PORTS[self.scheme])


class OriginPolicy:
    """Checks the ``Host`` and ``Origin`` of requests, and builds the CORS headers for the listed pages.

    ``hosts`` are the names of the server besides loopback and its own address: ``"name"`` (any port, the same as
    ``"name:*"``) or ``"name:port"``. ``"*"`` accepts any well-formed ``Host``: only for a server that nothing but a
    proxy can reach, if the proxy checks the header. A page with the same name as the ``Host`` is then not trusted for
    that alone.

    ``origins`` are pages that may call besides those of the server itself, such as ``"https://app.example.com"``.
    ``cors`` are pages that may also read the responses; they need not be in both. ``"*"`` is every page of http or
    https: only for a server that is public anyway.
    """

    __slots__ = ("_any_host", "_any_origin", "_cors", "_hosts", "_origins")

    def __init__(self, *, hosts: Sequence[str] = (), origins: Sequence[str] = (), cors: Sequence[str] = ()) -> None:
        """Parse the lists.

        Raises:
            ConfigError: an entry is malformed.
        """
        names = _entries("allowed_hosts", hosts)
        pages = _entries("cors_origins", cors)
        self._any_host = "*" in names
        self._any_origin = "*" in pages
        self._hosts = frozenset(_host_entry(entry) for entry in names if entry != "*")
        self._cors = frozenset(_origin_entry("cors_origins", entry) for entry in pages if entry != "*")
        listed = _entries("allowed_origins", origins)
        self._origins = self._cors | {_origin_entry("allowed_origins", entry) for entry in listed}

    def check(
        self, hosts: Sequence[bytes], origins: Sequence[bytes], *, server: Sequence[object] | None = None
    ) -> OriginDenied | None:
        """Check all ``Host`` and all ``Origin`` headers of a request; ``server`` is the address it arrived at.

        Return None if the request is accepted.
        """
        if len(hosts) != 1:
            return OriginDenied(400, f"A request has one Host header, but this one has {len(hosts)}.")
        if len(origins) > 1:
            return OriginDenied(403, f"A request has at most one Origin header, but this one has {len(origins)}.")
        address = server[0] if server else None
        arrived_at = address if isinstance(address, str) else None
        return self._check_host(hosts[0], origins[0] if origins else None, arrived_at)

    def _check_host(self, sent_host: bytes, sent_origin: bytes | None, arrived_at: str | None) -> OriginDenied | None:
        host = _parse_authority(sent_host)
        if host is None:
            return OriginDenied(
                400, f'The Host "{_shown(sent_host)}" is malformed: expected a name or an address, perhaps a port.'
            )
        known = self._is_own_name(host, arrived_at)
        if not (known or self._any_host):
            return OriginDenied(
                403,
                f'The server does not go by the Host "{_shown(sent_host)}". If that is its name, the server must be '
                f'told: allowed_hosts=["{host.name}"].',
            )
        if sent_origin is None:
            return None
        return self._check_origin(sent_origin, host, known=known)

    def _is_own_name(self, host: _Authority, arrived_at: str | None) -> bool:
        """Return whether the name is certainly the server's, and not only accepted because any name is."""
        if host.is_loopback or (host.name, None) in self._hosts:
            return True
        # Without a port it is the scheme's, which a proxy may have changed: either default is possible.
        ports = (host.port,) if host.port else tuple(_DEFAULT_PORTS.values())
        if any((host.name, port) in self._hosts for port in ports):
            return True
        # An address as Host cannot be rebound, and the port may have been mapped on the way: it is not compared.
        return arrived_at is not None and host.name == _own_address(arrived_at)

    def _check_origin(self, sent: bytes, host: _Authority, *, known: bool) -> OriginDenied | None:
        origin = _parse_origin(sent)
        if origin is None:
            return OriginDenied(
                403, f'The Origin "{_shown(sent)}" is not that of an http or https page, and only those can be let in.'
            )
        if origin in self._origins or self._any_origin or (known and origin.is_at(host)):
            return None
        # A page on its visitor's own machine may drive a server on that machine, which it would reach as loopback too.
        # On any other server it would act with the visitor's access to that server, so there it is a page like others.
        if host.is_loopback and _Authority(origin.name, origin.port).is_loopback:
            return None
        shown = _shown(sent)
        return OriginDenied(
            403,
            f'Pages of "{shown}" may not call this server. If they are meant to, the server must be told: '
            f'allowed_origins=["{shown}"].',
        )

    # --- CORS --------------------------------------------------------------------------------------------------------

    def cors_headers(self, origin: bytes | None) -> Headers:
        """Return the headers that let a page read a response: none unless its origin is listed in ``cors``."""
        headers = self._allow(origin)
        if headers:
            headers.append((b"access-control-expose-headers", _EXPOSED))
            headers.append((b"vary", b"Origin"))
        return headers

    def preflight(
        self, origin: bytes | None, method: bytes | None, *, requested_headers: bytes | None
    ) -> Headers | None:
        """Return the headers that answer a CORS preflight; None if the page may not send the request.

        ``method`` and ``requested_headers`` are the values of ``Access-Control-Request-Method`` and ``-Headers``.
        """
        headers = self._allow(origin)
        if not headers or method not in _METHODS:
            return None
        headers.append((b"access-control-allow-methods", b", ".join(_METHODS)))
        allowed = [name for name in _split_list((requested_headers or b"").lower()) if _may_be_sent(name)]
        if allowed:
            headers.append((b"access-control-allow-headers", b", ".join(dict.fromkeys(allowed))))
        headers.append((b"access-control-max-age", _PREFLIGHT_SECONDS))
        headers.append((b"vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"))
        return headers

    def _allow(self, origin: bytes | None) -> Headers:
        """Return the header that allows an origin; credentials are never allowed, as none of ours are cookies."""
        if origin is None or not (self._cors or self._any_origin):
            return []
        page = _parse_origin(origin)
        if page is None or not (self._any_origin or page in self._cors):
            return []
        return [(b"access-control-allow-origin", b"*" if self._any_origin else origin)]


# --- names -----------------------------------------------------------------------------------------------------------


def _parse_authority(value: bytes) -> _Authority | None:
    found = _AUTHORITY.fullmatch(value.lower())
    if found is None:
        return None
    address, name, digits = found.groups()
    port = int(digits) if digits else None
    if port is not None and port > 65535:
        return None
    if address is None:
        text = name.decode()
        return _Authority(text, port) if _is_name(text) else None
    try:
        return _Authority(f"[{IPv6Address(address.decode()).compressed}]", port)
    except AddressValueError:
        return None


def _is_name(text: str) -> bool:
    labels = text.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _is_ipv4(text)
    return all(_LABEL.fullmatch(label) for label in labels)


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True


def _parse_origin(value: bytes) -> _Origin | None:
    found = _ORIGIN.fullmatch(value.lower())
    authority = _parse_authority(found[2]) if found else None
    if found is None or authority is None:
        return None
    scheme = found[1].decode()
    return _Origin(scheme, authority.name, authority.port or _DEFAULT_PORTS[scheme])


def _own_address(arrived_at: str) -> str | None:
    """Format the address of a connection as a Host header has it; None if it is invalid or unspecified."""
    try:
        address = ip_address(arrived_at.partition("%")[0])
    except ValueError:
        return None
    # A socket for both families reports an IPv4 address in this form.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    address = mapped or address
    if address.is_unspecified:
        return None
    return f"[{address.compressed}]" if isinstance(address, IPv6Address) else str(address)


def _shown(value: bytes) -> str:
    """Return a received value for a message: truncated, and without characters that could mislead."""
    return "".join(character if " " <= character <= "~" else "?" for character in value[:_SHOWN].decode("latin-1"))


def _entries(option: str, values: Sequence[str]) -> Sequence[str]:
    if isinstance(values, str):
        raise ConfigError(f'{option} is a list: write {option}=["{values}"].')
    return values


def _host_entry(entry: str) -> tuple[str, int | None]:
    """Parse an entry of ``allowed_hosts``: a name and its port, None for any."""
    host = _parse_authority(entry.removesuffix(":*").encode())
    if host is None or (host.port and entry.endswith(":*")):
        raise ConfigError(
            f'allowed_hosts has "{entry}", but an entry is a whole name or address without scheme and path: '
            '"mcp.example.com", "mcp.example.com:8443" or "[2001:db8::1]".'
        )
    return host.name, host.port


def _origin_entry(option: str, entry: str) -> _Origin:
    origin = _parse_origin(entry.encode())
    if origin is None:
        raise ConfigError(
            f'{option} has "{entry}", but an entry is a whole origin without path or final slash: '
            '"https://app.example.com" or "http://app.example.com:3000".'
        )
    return origin


# --- media types -----------------------------------------------------------------------------------------------------


def media_type(value: bytes | None) -> str | None:
    """Return the type and subtype of a ``Content-Type`` in lower case, without parameters; None if malformed."""
    found = _MEDIA_TYPE.fullmatch(value or b"")
    return found[1].lower().decode() if found else None


def is_json(content_type: bytes | None) -> bool:
    """Return whether a body is JSON in UTF-8; a page cannot send this type without a preflight."""
    if content_type in _COMMON_JSON:
        return True
    found = _MEDIA_TYPE.fullmatch(content_type or b"")
    if found is None or found[1].lower() != _JSON:
        return False
    return all(
        text.strip(b'"').lower() == b"utf-8"
        for name, text in _PARAMETERS.findall(found[2])
        if name.lower() == b"charset"
    )


def accepts(accept: bytes | None) -> tuple[bool, bool]:
    """Return whether an ``Accept`` header accepts JSON, and an event stream; without the header both are accepted."""
    if accept in _COMMON_ACCEPT or not accept or accept.isspace():
        return True, True
    ranges: dict[bytes, bool] = {}
    for entry in _split_list(accept):
        found = _MEDIA_TYPE.fullmatch(entry)
        if found is not None:
            name = found[1].lower()
            ranges[name] = ranges.get(name, False) or not _has_zero_weight(found[2])
    return _is_accepted(ranges, _JSON, b"application/*"), _is_accepted(ranges, _STREAM, b"text/*")


def _is_accepted(ranges: dict[bytes, bool], exact: bytes, family: bytes) -> bool:
    """Return whether a type is accepted; the most specific range decides (RFC 9110, 12.5.1)."""
    for name in (exact, family, b"*/*"):
        if name in ranges:
            return ranges[name]
    return False


def _has_zero_weight(parameters: bytes) -> bool:
    return any(name.lower() == b"q" and _ZERO.fullmatch(text) for name, text in _PARAMETERS.findall(parameters))


def _split_list(value: bytes) -> list[bytes]:
    return [entry.strip(b" \t") for entry in value.split(b",", _LISTED)[:_LISTED]]


def _may_be_sent(name: bytes) -> bool:
    """Return whether a page may send this header: a known one, or a mirrored parameter of a tool."""
    if name in _REQUEST_HEADERS:
        return True
    return name.startswith(b"mcp-param-") and name != b"mcp-param-" and _HEADER_NAME.fullmatch(name) is not None
