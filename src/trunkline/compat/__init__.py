"""Compatibility with FastMCP and the official SDK: their keywords, for servers that are ported from them.

It is imported only when such a keyword is used.
"""

from __future__ import annotations

from trunkline.compat.keywords import CompatibilityWarning, translate

__all__ = ["CompatibilityWarning", "translate"]
