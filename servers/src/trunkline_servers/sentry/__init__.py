"""The Sentry reference server: an issue with its newest stack trace, as a tool and as a prompt."""

from __future__ import annotations

from trunkline_servers.sentry.server import make_server

__all__ = ["make_server"]
