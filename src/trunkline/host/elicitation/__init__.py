"""Servers that ask the user something: by a form, or by a page to open."""

from __future__ import annotations

__all__: list[str] = []
