"""The parts of the authorization server: what it keeps, whom it knows, what it asks people and what it hands out.

Nothing here knows the protocol or a server of it. ``AuthorizationServer`` and ``OAuthProxy`` put the parts together.
"""

from __future__ import annotations

__all__: list[str] = []
