"""Reference servers on public names: each is a folder with ``make_server`` and a command of its own.

Drop-in equals of the official reference servers, and some the seeds name besides. Nothing is imported here: a server
loads what it needs and no more.
"""

from __future__ import annotations

__all__: list[str] = []
