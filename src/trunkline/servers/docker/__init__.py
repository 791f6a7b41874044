"""The Docker reference server: look at containers and images, start and stop, and run with tight bounds."""

from __future__ import annotations

from trunkline.servers.docker.server import make_server

__all__ = ["make_server"]
