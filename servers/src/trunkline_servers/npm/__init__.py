"""The npm reference server: the registry, a project's dependencies, and its scripts after consent."""

from __future__ import annotations

from trunkline_servers.npm.server import make_server

__all__ = ["make_server"]
