"""The git server: reads and changes local repositories without running any program that a repository configures."""

from __future__ import annotations

from trunkline_servers.git.server import make_server

__all__ = ["make_server"]
