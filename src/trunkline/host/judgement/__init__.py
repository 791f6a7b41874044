"""Whether something is done at a server: the policy's word, what was granted, a person who is asked, and the taint."""

from __future__ import annotations

__all__: list[str] = []
