"""The GitHub reference server: repositories, files, issues, pull requests and search over the REST API."""

from __future__ import annotations

from trunkline_servers.github.server import make_server

__all__ = ["make_server"]
