"""Which versions of ``mcp`` and ``fastmcp`` a process is told it has.

A server written for version 1 of the official SDK expects camelCase members and functions called in the event loop;
for version 2, snake_case and worker threads. The versions passed to ``install()`` decide, then what is installed, then
the newest known here.
"""

from __future__ import annotations

from importlib import metadata
from types import MappingProxyType

__all__ = ["PACKAGES", "STATE", "CompatState"]

#: The import packages that are replaced, and the distribution each belongs to.
PACKAGES = MappingProxyType({"mcp": "mcp", "mcp_types": "mcp-types", "fastmcp": "fastmcp"})
_NEWEST = MappingProxyType({"mcp": "2.3.0", "mcp-types": "2.3.0", "fastmcp": "4.1.2", "fastmcp-slim": "4.1.2"})


class CompatState:
    """The versions of this process, and whether the import names are replaced."""

    def __init__(self) -> None:
        """Begin with nothing replaced."""
        self.installed = False
        #: Whether a server was started.
        self.started = False
        self._versions: dict[str, str] = {}

    def choose(self, requested: dict[str, str | None]) -> None:
        """Set the versions: the requested one, else that of the installed distribution, else the newest known."""
        for name, newest in _NEWEST.items():
            self._versions[name] = requested.get(name) or _installed_version(name) or newest

    def version(self, distribution: str) -> str | None:
        """Return the version of a distribution, or None if it is not one of those replaced."""
        return self._versions.get(distribution) or _NEWEST.get(distribution)

    @property
    def is_sdk_1(self) -> bool:
        """Whether the process expects version 1 of the official SDK."""
        return (self.version("mcp") or "").startswith(("0.", "1."))

    @property
    def fastmcp_major(self) -> int:
        """The major version of FastMCP that the process expects."""
        return int((self.version("fastmcp") or "4").partition(".")[0])


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


STATE = CompatState()
