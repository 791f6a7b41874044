"""FastMCP's check of ``Host`` and ``Origin``: pages that had a name rebound to this host are refused."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

__all__ = ["HostOriginGuardMiddleware", "HostOriginProtection", "format_host_for_url", "guard_options", "hosts_for_run"]

HostOriginProtection = bool | Literal["auto"]
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PORTS = (("http", 80), ("https", 443))


def _name(host: str) -> str:
    """Return a host without its port and brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0] if host.count(":") == 1 else host


def _is_address(host: str, kind: str) -> bool:
    try:
        return bool(getattr(ip_address(_name(host)), kind))
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    return _name(host) == "localhost" or _is_address(host, "is_loopback")


def _host_of(url: str) -> str:
    """Return the host of a URL; empty if it has none or is malformed."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _origin(text: str) -> str:
    """Return an origin with its port, in lower case; a text that is not an origin is only stripped and lowered."""
    plain = text.strip().rstrip("/").lower()
    try:
        parts = urlsplit(plain)
        port = parts.port or dict(_PORTS).get(parts.scheme)
    except ValueError:
        return plain
    if not parts.hostname or parts.path or parts.query or parts.fragment:
        return plain
    return f"{parts.scheme}://{parts.hostname}:{port}"


class HostOriginGuardMiddleware:
    """Refuses requests for another host (421) or from the page of another origin (403).

    ``"strict"`` checks every request; ``"auto"`` those to an address of this machine, and all if hosts are given.
    """

    def __init__(
        self,
        app: Any,
        allowed_hosts: Sequence[str] | None = None,
        allowed_origins: Sequence[str] | None = None,
        mode: str = "auto",
    ) -> None:
        """Initialize with the application behind."""
        self.app = app
        self.allowed_hosts = allowed_hosts
        self.allowed_origins = allowed_origins
        self.mode = mode

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Check a request, and hand it on."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self.app(scope, receive, send)
            return
        from starlette.responses import Response

        await Response(refusal[1], status_code=refusal[0])(scope, receive, send)

    def _refusal(self, scope: Any) -> tuple[int, str] | None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope.get("headers", ())}
        host, origin = headers.get(b"host", ""), headers.get(b"origin")
        address = (scope.get("server") or ("",))[0] or ""
        local = _is_loopback(address)
        bounded = self.mode == "strict" or self.allowed_hosts is not None
        if (bounded or local) and not self._knows(host, address):
            return 421, "Misdirected Request"
        checks = bounded or local or self.allowed_origins is not None or _is_loopback(host)
        if not origin or not checks or self._trusts(origin):
            return None
        # A page of the same origin says nothing where any host would be accepted.
        if self.allowed_origins is None or bounded or local or _is_loopback(host):
            if _is_loopback(_host_of(origin)) and _is_loopback(host):
                return None
            if _origin(origin) == _origin(f"{scope.get('scheme', 'http')}://{host}"):
                return None
        return 403, "Forbidden Origin"

    def _knows(self, host: str, address: str) -> bool:
        known = [*_LOOPBACK, *(self.allowed_hosts or ())]
        if address and not _is_address(address, "is_unspecified"):
            known.append(address)
        return any(fnmatchcase(_name(host), _name(each)) for each in known)

    def _trusts(self, origin: str) -> bool:
        return any(each == "*" or fnmatchcase(_origin(origin), _origin(each)) for each in self.allowed_origins or ())


def guard_options(protection: Any, options: Any) -> dict[str, Any] | None:
    """Return the options of the check, or None if there is none.

    Raises:
        ValueError: the protection is neither True, False nor ``"auto"``.
    """
    if protection not in (True, False, "auto"):
        raise ValueError(f"host_origin_protection must be True, False or 'auto', not {protection!r}")
    if protection is False:
        return None
    return {
        "allowed_hosts": options.get("allowed_hosts"),
        "allowed_origins": options.get("allowed_origins"),
        "mode": "strict" if protection is True else "auto",
    }


def format_host_for_url(host: str) -> str:
    """Return a host as it stands in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def hosts_for_run(
    *,
    host: str,
    host_origin_protection: Any,
    allowed_hosts: list[str] | None,
    configured_allowed_hosts: list[str] | None,
) -> list[str] | None:
    """Return the hosts that a server accepts which listens on an address."""
    if allowed_hosts is not None:
        return allowed_hosts
    if host_origin_protection == "auto" and _is_loopback(host):
        return [*(configured_allowed_hosts or ()), host]
    return configured_allowed_hosts
