"""The filesystem server: reads, writes and searches files below allowed folders, and nowhere else."""

from __future__ import annotations

from trunkline_servers.filesystem.server import make_server

__all__ = ["make_server"]
