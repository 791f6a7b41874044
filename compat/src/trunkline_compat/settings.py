"""FastMCP's settings of the process, read from the environment (``FASTMCP_…``), which both frameworks know."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["Settings", "settings"]

_OF_SERVER = ("host", "port", "log_level", "streamable_http_path", "stateless_http", "json_response")


class Settings:
    """The settings; those that have no effect here are None unless a program sets them."""

    def __init__(self, **values: Any) -> None:
        """Read the environment; values that are passed come first.

        Raises:
            ValueError: the port in the environment is no number.
        """
        self.host = _variable("HOST", "127.0.0.1")
        port = _variable("PORT", "8000")
        if not port.isdecimal():
            raise ValueError(f"FASTMCP_PORT={port!r} is no number")
        self.port = int(port)
        self.transport = _variable("TRANSPORT", "stdio")
        self.log_level = _variable("LOG_LEVEL", "INFO")
        self.streamable_http_path = _variable("STREAMABLE_HTTP_PATH", "/mcp")
        self.stateless_http = _variable("STATELESS_HTTP", "").lower() in ("1", "true", "yes")
        self.json_response = _variable("JSON_RESPONSE", "").lower() in ("1", "true", "yes")
        self.__dict__.update(values)

    def of_server(self) -> dict[str, Any]:
        """Return the settings of each server, where it has no other."""
        return {name: getattr(self, name) for name in _OF_SERVER}

    def __getattr__(self, name: str) -> Any:
        """Return None for a setting that has no effect here."""
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def _variable(name: str, default: str) -> str:
    return os.environ.get(f"FASTMCP_{name}", default)


settings = Settings()
