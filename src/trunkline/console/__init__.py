"""The web console: a face of the host in the browser.

It knows HTTP, the page and its API; policy, approval and audit belong to the host and cannot be bypassed here.
"""

from __future__ import annotations

__all__: list[str] = []
