"""The sequential thinking server: counts the steps, revisions and branches of a chain of thought."""

from __future__ import annotations

from trunkline_servers.sequentialthinking.server import make_server

__all__ = ["make_server"]
