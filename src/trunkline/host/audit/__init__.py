"""The audit trail: written during operation, and read and verified later."""

from __future__ import annotations

__all__: list[str] = []
