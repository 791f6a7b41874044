"""The Slack reference server: channels, messages, threads, reactions and people over the Web API."""

from __future__ import annotations

from trunkline_servers.slack.server import make_server

__all__ = ["make_server"]
