"""The way of a request to a server and of the server's questions back, whatever the eras of the two sides."""

from __future__ import annotations

__all__: list[str] = []
