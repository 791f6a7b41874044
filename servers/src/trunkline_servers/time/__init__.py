"""The time server: the current time in a time zone, and conversion between zones."""

from __future__ import annotations

from trunkline_servers.time.server import make_server

__all__ = ["make_server"]
