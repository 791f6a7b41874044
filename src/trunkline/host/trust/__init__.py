"""Whether a server may run: what the user approved, by a fingerprint of all that would run."""

from __future__ import annotations

__all__: list[str] = []
