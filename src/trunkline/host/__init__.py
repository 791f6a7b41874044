"""The host: many servers under one user's control, and the gateway that serves them.

Configuration says which servers there are, trust which may run, supervision keeps them running, the catalog says what
they offer together; policy, consent and grants say what may be done with it, audit what was. ``Host`` ties them.
"""

from __future__ import annotations

__all__: list[str] = []
