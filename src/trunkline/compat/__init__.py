"""Compatibility with FastMCP and the official SDK: the keywords of theirs that servers bring along when they move here.

It is loaded only when such a keyword is used.
"""

from __future__ import annotations

from trunkline.compat.keywords import CompatibilityWarning, translate

__all__ = ["CompatibilityWarning", "translate"]
