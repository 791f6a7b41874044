"""FastMCP's model of an ``mcpServers`` configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["MCPConfig", "RemoteMCPServer", "StdioMCPServer"]


class StdioMCPServer(BaseModel):
    """A server that is started by a command."""

    model_config = ConfigDict(extra="allow")

    command: str
    args: list[str] = Field(default_factory=list)
    env: dict[str, Any] = Field(default_factory=dict)
    cwd: str | None = None
    transport: str = "stdio"

    def to_transport(self) -> Any:
        """Return the transport of this server."""
        from trunkline.compat.transports import StdioTransport

        return StdioTransport(self.command, self.args, self.env or None, self.cwd)


class RemoteMCPServer(BaseModel):
    """A server at a URL."""

    model_config = ConfigDict(extra="allow")

    url: str
    transport: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    auth: Any = None

    def to_transport(self) -> Any:
        """Return the transport of this server."""
        from trunkline.compat.transports import SSETransport, StreamableHttpTransport

        kind = self.transport or ("sse" if self.url.rstrip("/").endswith("/sse") else "http")
        return (SSETransport if kind == "sse" else StreamableHttpTransport)(self.url, self.headers, self.auth)


class MCPConfig(BaseModel):
    """The servers of a configuration, by name."""

    model_config = ConfigDict(extra="allow")

    mcpServers: dict[str, StdioMCPServer | RemoteMCPServer] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, data: Any) -> Any:
        """Accept the servers without the member that holds them."""
        if isinstance(data, dict) and "mcpServers" not in data:
            servers = {
                name: each for name, each in data.items() if isinstance(each, dict) and {"command", "url"} & set(each)
            }
            return {"mcpServers": servers}
        return data

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> MCPConfig:
        """Read a configuration."""
        return cls.model_validate(config)

    @classmethod
    def from_file(cls, file_path: str | Path) -> MCPConfig:
        """Read a configuration from a file."""
        return cls.model_validate(json.loads(Path(file_path).read_text(encoding="utf-8")))

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as data."""
        return self.model_dump(exclude_none=True)

    def add_server(self, name: str, server: Any) -> None:
        """Add a server."""
        self.mcpServers[name] = server
