"""The Docker reference server: inspect containers and images, start and stop them, and run within tight limits."""

from __future__ import annotations

from trunkline_servers.docker.server import make_server

__all__ = ["make_server"]
