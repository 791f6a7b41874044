"""Smaller features of FastMCP servers: lifespans, pages, completions, event stores, sessions, extensions, tasks."""
