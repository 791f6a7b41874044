"""The time server: what time it is somewhere, and what a time is elsewhere."""

from __future__ import annotations

from trunkline.servers.time.server import make_server

__all__ = ["make_server"]
