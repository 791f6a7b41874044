"""The Redis reference server: set, get, delete and list keys, with limits on values, keys and time."""

from __future__ import annotations

from trunkline_servers.redis.server import make_server

__all__ = ["make_server"]
