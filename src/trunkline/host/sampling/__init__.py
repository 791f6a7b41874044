"""Servers that want a model's answer: reviewed, limited, answered by the models that the user has."""

from __future__ import annotations

__all__: list[str] = []
