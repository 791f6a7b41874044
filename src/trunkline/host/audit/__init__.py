"""The audit trail: written while things are done, read and proved whole later."""

from __future__ import annotations

__all__: list[str] = []
