"""The sequential thinking server: counts the steps of a line of thought, its revisions and its branches."""

from __future__ import annotations

from trunkline.servers.sequentialthinking.server import make_server

__all__ = ["make_server"]
