"""The client: calls a server, whatever it is reached by and whichever revision it speaks."""

from __future__ import annotations

__all__: list[str] = []
