"""The PostgreSQL reference server: one read-only query at a time, and the schema, of one database."""

from __future__ import annotations

from trunkline_servers.postgres.server import make_server

__all__ = ["make_server"]
