"""Where other applications keep their MCP servers, by operating system; the files need not exist.

No I/O: the machine is an argument, so that every layout can be tested anywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["APPS", "AppFile", "AppScope", "Machine", "files_of", "here"]

#: ``local``: the user's own, for one project only.
AppScope: TypeAlias = Literal["user", "local", "project"]

#: The applications, by their names on the command line.
APPS: Mapping[str, str] = MappingProxyType(
    {
        "claude-desktop": "Claude Desktop",
        "claude-code": "Claude Code",
        "cursor": "Cursor",
        "vscode": "VS Code",
    }
)


class Machine(Struct, frozen=True, kw_only=True):
    """The properties of a machine that decide where files are."""

    #: The value of ``sys.platform``.
    system: str
    home: Path
    environ: Mapping[str, str]
    #: The directory of the current project.
    project: Path

    def __repr__(self) -> str:
        """Leave out the environment, which may hold secrets."""
        return f"Machine({self.system!r}, {str(self.home)!r})"

    @property
    def settings(self) -> Path:
        """The directory in which applications keep their settings."""
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        if self.system == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        return Path(self.environ.get("XDG_CONFIG_HOME") or self.home / ".config")


class AppFile(Struct, frozen=True, kw_only=True):
    """A file of an application, and the object in it that holds servers."""

    app: str
    scope: AppScope
    path: Path
    #: The key path of the object whose members are the servers.
    way: tuple[str, ...] = ("mcpServers",)
    #: The project directory that paths are relative to.
    folder: Path | None = None

    @property
    def title(self) -> str:
        """The name of the application, and the scope of the servers."""
        kind = {"user": "", "local": ", for this project", "project": ", shared by the project"}[self.scope]
        return f"{APPS[self.app]}{kind}"


def here() -> Machine:
    """Return the properties of the current machine."""
    return Machine(system=sys.platform, home=Path.home(), environ=os.environ, project=Path.cwd())


def files_of(app: str, machine: Machine) -> tuple[AppFile, ...]:
    """Return the files of an application, the user's own first."""
    return _FILES[app](machine)


def _claude_desktop(machine: Machine) -> tuple[AppFile, ...]:
    path = machine.settings / "Claude" / "claude_desktop_config.json"
    return (AppFile(app="claude-desktop", scope="user", path=path),)


def _claude_code(machine: Machine) -> tuple[AppFile, ...]:
    own = Path(machine.environ.get("CLAUDE_CONFIG_DIR") or machine.home) / ".claude.json"
    project = machine.project
    local = ("projects", str(project), "mcpServers")
    return (
        AppFile(app="claude-code", scope="user", path=own),
        AppFile(app="claude-code", scope="local", path=own, way=local, folder=project),
        AppFile(app="claude-code", scope="project", path=project / ".mcp.json", folder=project),
    )


def _cursor(machine: Machine) -> tuple[AppFile, ...]:
    project = machine.project
    return (
        AppFile(app="cursor", scope="user", path=machine.home / ".cursor" / "mcp.json"),
        AppFile(app="cursor", scope="project", path=project / ".cursor" / "mcp.json", folder=project),
    )


def _vscode(machine: Machine) -> tuple[AppFile, ...]:
    own, project = machine.settings / "Code" / "User" / "mcp.json", machine.project
    return (
        AppFile(app="vscode", scope="user", path=own, way=("servers",)),
        AppFile(app="vscode", scope="project", path=project / ".vscode" / "mcp.json", way=("servers",), folder=project),
    )


_FILES = MappingProxyType(
    {"claude-desktop": _claude_desktop, "claude-code": _claude_code, "cursor": _cursor, "vscode": _vscode}
)
