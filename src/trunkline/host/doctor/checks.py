"""What is found out, as data: one check with its verdict and the fix, and the sheet on which those of a server stand.

Titles and areas are a table, so that each check is called the same wherever it is made. It does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["TITLES", "Area", "Check", "Diagnosis", "Sheet", "Verdict"]

#: ``skip``: it was not looked at, and the detail says why.
Verdict: TypeAlias = Literal["ok", "warn", "fail", "skip"]
#: Whose the finding is: a file's or the user's setting, a login, the way to the server and the server itself.
Area: TypeAlias = Literal["config", "auth", "reach"]

#: The checks there are, in the order in which they are made: what each is called, and whose its findings are.
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
    """One thing that was looked at."""

    id: str
    title: str
    status: Verdict
    detail: str = ""
    #: What to do about it.
    fix: str | None = None
    area: Area = "reach"


class Diagnosis(Struct, frozen=True, kw_only=True):
    """All that was found out about one server."""

    name: str
    #: The command or URL, without secrets.
    target: str
    #: Where it is configured; None if it was named on the command line.
    source: str | None = None
    checks: tuple[Check, ...] = ()
    #: What its definitions cost a model in each request; None if that is not known.
    tokens: int | None = None


class Sheet:
    """The checks of one server as they are made; what is secret is taken out of each."""

    def __init__(self, hide: Callable[[str], str] = str) -> None:
        """Start empty."""
        self.hide = hide
        self._checks: list[Check] = []

    @property
    def checks(self) -> tuple[Check, ...]:
        """What was found out so far."""
        return tuple(self._checks)

    @property
    def failed(self) -> bool:
        """Tell whether something failed already."""
        return any(check.status == "fail" for check in self._checks)

    def ok(self, id: str, detail: str) -> None:
        """Note that something is as it should be."""
        self._add(id, "ok", detail, None)

    def warn(self, id: str, detail: str, *, fix: str | None = None) -> None:
        """Note what is odd, but stops nothing."""
        self._add(id, "warn", detail, fix)

    def fail(self, id: str, detail: str, *, fix: str | None = None) -> None:
        """Note why the server cannot be used."""
        self._add(id, "fail", detail, fix)

    def skip(self, id: str, detail: str) -> None:
        """Note what was not looked at, and why."""
        self._add(id, "skip", detail, None)

    def _add(self, id: str, status: Verdict, detail: str, fix: str | None) -> None:
        title, area = TITLES[id]
        advice = None if fix is None else self.hide(fix)
        self._checks.append(Check(id=id, title=title, status=status, detail=self.hide(detail), fix=advice, area=area))
