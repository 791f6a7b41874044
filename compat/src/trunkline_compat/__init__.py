"""Runs servers and clients written for the official SDK or FastMCP, unedited, on Trunkline.

``install()`` resolves the import names ``mcp`` and ``fastmcp`` to adapters of this package, in this process only;
``trunkline run --compat`` does the same for a program. Each module adapts one surface of those packages to Trunkline's
own server, client, authorization and OpenAPI support: nothing of the protocol is implemented here.
"""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["install"]


def install(*, mcp: str | None = None, fastmcp: str | None = None) -> None:
    """Resolve ``import mcp`` and ``import fastmcp`` to Trunkline in this process, with one line on stderr.

    ``mcp`` and ``fastmcp`` are the versions that the process is told; by default those that are installed.

    Raises:
        ImportError: a real package is imported already.
    """
    from trunkline_compat.startup import install_for_program

    install_for_program(mcp=mcp, fastmcp=fastmcp)
