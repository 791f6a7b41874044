"""Smaller features of FastMCP servers: lifespans, pages, completions, event stores, sessions, extensions, tasks."""

__all__: list[str] = []
