"""The authorization server: its endpoints, pages, clients, users, tokens and storage.

Nothing here knows MCP or its server. ``AuthorizationServer`` and ``OAuthProxy`` assemble the parts.
"""

from __future__ import annotations

__all__: list[str] = []
