"""The memory server: a knowledge graph kept in a file that several servers can share."""

from __future__ import annotations

from trunkline_servers.memory.server import make_server

__all__ = ["make_server"]
