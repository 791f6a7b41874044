"""The MongoDB reference server: inspect databases, query them within limits, and write where that is allowed."""

from __future__ import annotations

from trunkline_servers.mongodb.server import make_server

__all__ = ["make_server"]
