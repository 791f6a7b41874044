"""The SQLite reference server: queries, tables and insights of one database file, reading kept apart from writing."""

from __future__ import annotations

from trunkline_servers.sqlite.server import make_server

__all__ = ["make_server"]
