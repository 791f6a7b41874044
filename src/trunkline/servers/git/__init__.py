"""The git server: read and change local repositories, and never run what a repository brings with it."""

from __future__ import annotations

from trunkline.servers.git.server import make_server

__all__ = ["make_server"]
