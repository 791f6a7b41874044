"""The MongoDB reference server: look at databases, query them in bounds, and write where that is allowed."""

from __future__ import annotations

from trunkline.servers.mongodb.server import make_server

__all__ = ["make_server"]
