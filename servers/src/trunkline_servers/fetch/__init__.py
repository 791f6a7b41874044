"""The fetch server: web pages as Markdown, by default only from public addresses."""

from __future__ import annotations

from trunkline_servers.fetch.server import make_server

__all__ = ["make_server"]
