"""Reference servers on the public API: each is a package with ``make_server`` and its own command.

Drop-in replacements for the official reference servers, and several more. Nothing is imported here: a server loads only
what it needs.
"""

from __future__ import annotations

__all__: list[str] = []

__version__ = "0.1.0"
