"""Providers for named identity services: their addresses, their claims, and what is peculiar to each."""

from __future__ import annotations

__all__: list[str] = []
