"""Whether a server is what the user approved.

Trust in what would run, pins of its definitions, and the scan of their content.
"""

from __future__ import annotations

__all__: list[str] = []
