"""The fetch server: pages of the web as Markdown, from public addresses only unless told otherwise."""

from __future__ import annotations

from trunkline.servers.fetch.server import make_server

__all__ = ["make_server"]
