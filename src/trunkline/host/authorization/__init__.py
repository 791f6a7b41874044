"""Authorization of acts at servers: the policy's decision, earlier grants, approval by a person, and taint."""

from __future__ import annotations

__all__: list[str] = []
