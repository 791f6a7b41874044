"""Whether a server may run: what the user approved, by a fingerprint of everything that would run."""

from __future__ import annotations

__all__: list[str] = []
