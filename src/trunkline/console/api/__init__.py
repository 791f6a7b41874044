"""The JSON API of the console: a module for each part, with its table of routes."""

from __future__ import annotations

__all__: list[str] = []
