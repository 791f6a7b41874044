"""Findings as data: one check with its status and fix, and the recorder that collects those of a server.

Titles and areas are a table, so that a check has the same title wherever it is made. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["TITLES", "Area", "Check", "Diagnosis", "Sheet", "Verdict"]

#: ``skip``: not checked; the detail says why.
Verdict: TypeAlias = Literal["ok", "warn", "fail", "skip"]
#: What the finding is about: a file or setting, a login, or the network and the server itself.
Area: TypeAlias = Literal["config", "auth", "reach"]

#: All checks in the order in which they are made, with title and area.
TITLES: Mapping[str, tuple[str, Area]] = MappingProxyType(
    {
        "config": ("configuration", "config"),
        "variables": ("variables", "config"),
        "trust": ("approval", "config"),
        "gateway": ("gateway", "config"),
        "secrets": ("secrets", "config"),
        "command": ("command", "config"),
        "package": ("package", "config"),
        "folder": ("folder", "config"),
        "warnings": ("what it runs", "config"),
        "url": ("URL", "config"),
        "proxy": ("proxy", "reach"),
        "dns": ("host name", "reach"),
        "tcp": ("connection", "reach"),
        "tls": ("TLS", "reach"),
        "http": ("HTTP", "reach"),
        "redirect": ("redirect", "reach"),
        "origin": ("other origins", "reach"),
        "resource-metadata": ("resource metadata", "auth"),
        "authorization-server": ("authorization server", "auth"),
        "login": ("login", "auth"),
        "spawn": ("start", "reach"),
        "stdout": ("stdout", "reach"),
        "handshake": ("handshake", "reach"),
        "revision": ("revision", "reach"),
        "server": ("server", "reach"),
        "tools": ("tools", "reach"),
        "prompts": ("prompts", "reach"),
        "resources": ("resources", "reach"),
        "templates": ("templates", "reach"),
        "schemas": ("schemas", "reach"),
        "headers": ("x-mcp-header", "reach"),
        "names": ("names", "reach"),
        "descriptions": ("descriptions", "reach"),
        "annotations": ("annotations", "reach"),
        "cost": ("token cost", "reach"),
        "instructions": ("instructions", "reach"),
        "sandbox": ("sandbox", "config"),
    }
)


class Check(Struct, frozen=True, kw_only=True):
    """The result of one check."""

    id: str
    title: str
    status: Verdict
    detail: str = ""
    #: The suggested fix.
    fix: str | None = None
    area: Area = "reach"


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All findings about one server."""

    name: str
    #: The command or URL, without secrets.
    target: str
    #: Where it is configured; None if it was given on the command line.
    source: str | None = None
    checks: tuple[Check, ...] = ()
    #: The tokens its definitions cost in each model request; None if unknown.
    tokens: int | None = None


class Sheet:
    """Collects the checks of one server, with secrets redacted."""

    def __init__(self, hide: Callable[[str], str] = str) -> None:
        """Start empty."""
        self.hide = hide
        self._checks: list[Check] = []

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks recorded so far."""
        return tuple(self._checks)

    @property
    def failed(self) -> bool:
        """True if a check has failed."""
        return any(check.status == "fail" for check in self._checks)

    def ok(self, id: str, detail: str) -> None:
        """Record that a check passed."""
        self._add(id, "ok", detail, None)

    def warn(self, id: str, detail: str, *, fix: str | None = None) -> None:
        """Record a problem that does not prevent use of the server."""
        self._add(id, "warn", detail, fix)

    def fail(self, id: str, detail: str, *, fix: str | None = None) -> None:
        """Record a problem that prevents use of the server."""
        self._add(id, "fail", detail, fix)

    def skip(self, id: str, detail: str) -> None:
        """Record that a check was not made, and why."""
        self._add(id, "skip", detail, None)

    def _add(self, id: str, status: Verdict, detail: str, fix: str | None) -> None:
        title, area = TITLES[id]
        advice = None if fix is None else self.hide(fix)
        self._checks.append(Check(id=id, title=title, status=status, detail=self.hide(detail), fix=advice, area=area))
