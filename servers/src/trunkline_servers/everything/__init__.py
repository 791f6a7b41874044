"""The everything server: offers every feature of the protocol, in both eras, for trying and testing clients."""

from __future__ import annotations

from trunkline_servers.everything.server import make_server

__all__ = ["make_server"]
