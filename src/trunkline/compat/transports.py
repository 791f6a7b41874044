"""FastMCP's client transports: each says what our client connects to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

__all__ = [
    "ClientTransport",
    "FastMCPTransport",
    "NodeStdioTransport",
    "NpxStdioTransport",
    "PythonStdioTransport",
    "SSETransport",
    "StdioTransport",
    "StreamableHttpTransport",
    "UvStdioTransport",
    "UvxStdioTransport",
    "infer_transport",
]


class ClientTransport:
    """The base of all transports."""

    def target(self) -> Any:
        """Return what our client connects to."""
        raise NotImplementedError(f"{type(self).__name__} says not what it connects to")


class FastMCPTransport(ClientTransport):
    """A server in this process."""

    def __init__(self, mcp: Any, **_: Any) -> None:
        """Initialize with the server."""
        self.server = mcp

    def target(self) -> Any:
        """Return the server."""
        return self.server


class StreamableHttpTransport(ClientTransport):
    """A server at a URL."""

    _kind = "http"

    def __init__(self, url: Any, headers: Any = None, auth: Any = None, **_: Any) -> None:
        """Initialize with the URL and headers."""
        self.url = str(url)
        self.headers = dict(headers or {})
        self.auth = auth

    def target(self) -> Any:
        """Return an ``mcpServers`` entry."""
        headers = dict(self.headers)
        if isinstance(self.auth, str) and self.auth != "oauth":
            headers["Authorization"] = f"Bearer {self.auth}"
        return {"type": self._kind, "url": self.url, "headers": headers}


class SSETransport(StreamableHttpTransport):
    """A server that speaks the oldest HTTP transport."""

    _kind = "sse"


class StdioTransport(ClientTransport):
    """A server that is started by a command."""

    def __init__(self, command: str, args: Any = (), env: Any = None, cwd: Any = None, **_: Any) -> None:
        """Initialize with the command."""
        self.command, self.args, self.env, self.cwd = command, [str(each) for each in args], env, cwd

    def target(self) -> Any:
        """Return an ``mcpServers`` entry."""
        entry = {"command": self.command, "args": self.args, "env": self.env, "cwd": self.cwd}
        return {name: value for name, value in entry.items() if value is not None}


class PythonStdioTransport(StdioTransport):
    """A Python file."""

    def __init__(self, script_path: Any, args: Any = (), python_cmd: str = sys.executable, **options: Any) -> None:
        """Initialize with the file."""
        super().__init__(python_cmd, [str(script_path), *(args or ())], **options)


class NodeStdioTransport(StdioTransport):
    """A JavaScript file."""

    def __init__(self, script_path: Any, args: Any = (), node_cmd: str = "node", **options: Any) -> None:
        """Initialize with the file."""
        super().__init__(node_cmd, [str(script_path), *(args or ())], **options)


class _PackageTransport(StdioTransport):
    _command = ""
    _before: tuple[str, ...] = ()

    def __init__(self, package: str, args: Any = (), **options: Any) -> None:
        """Initialize with the package."""
        super().__init__(self._command, [*self._before, package, *(args or ())], **options)


class NpxStdioTransport(_PackageTransport):
    """A package of npm."""

    _command, _before = "npx", ("-y",)


class UvxStdioTransport(_PackageTransport):
    """A package of PyPI, run by uvx."""

    _command = "uvx"


class UvStdioTransport(_PackageTransport):
    """A command, run by uv."""

    _command, _before = "uv", ("run",)


def infer_transport(target: Any) -> ClientTransport:
    """Return the transport for a server, a URL or a file."""
    if isinstance(target, ClientTransport):
        return target
    if isinstance(target, str) and target.startswith(("http://", "https://")):
        return SSETransport(target) if target.rstrip("/").endswith("/sse") else StreamableHttpTransport(target)
    if isinstance(target, str | Path):
        kind = NodeStdioTransport if str(target).endswith(".js") else PythonStdioTransport
        return kind(target)
    return FastMCPTransport(target)
