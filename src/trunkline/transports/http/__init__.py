"""The HTTP transports: the server's endpoint in all eras, and the client's links.

Nothing here is loaded by a program that speaks stdio alone.
"""

from __future__ import annotations

__all__: list[str] = []
