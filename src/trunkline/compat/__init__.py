"""Compatibility with FastMCP and the official SDK, in one folder.

``keywords`` translates their keywords for servers that moved here; it is loaded when such a keyword is used. The rest
runs servers that did not move: ``install()`` resolves the import names ``mcp`` and ``fastmcp`` to modules of ours, in
this process only, and is loaded by nothing else.
"""

from __future__ import annotations

from trunkline.compat.keywords import CompatibilityWarning, translate

__all__ = ["CompatibilityWarning", "install", "translate"]


def install(*, mcp: str | None = None, fastmcp: str | None = None) -> None:
    """Resolve ``import mcp`` and ``import fastmcp`` to Trunkline in this process, with one line on stderr.

    ``mcp`` and ``fastmcp`` are the versions that the process is told; by default those that are installed.

    Raises:
        ImportError: a real package is imported already.
    """
    from trunkline.compat.startup import install_for_program

    install_for_program(mcp=mcp, fastmcp=fastmcp)
