"""Runs tests written for ``mcp`` or ``fastmcp`` against Trunkline: ``pytest -p trunkline_compat.pytest_plugin``.

``TRUNKLINE_COMPAT_MCP`` and ``TRUNKLINE_COMPAT_FASTMCP`` name the versions that the tests are told.
"""

from __future__ import annotations

import os

__all__ = ["pytest_load_initial_conftests"]


def pytest_load_initial_conftests() -> None:
    """Install the adapters before the first conftest file of the tests imports a real package."""
    from trunkline_compat.imports import install

    install(mcp=os.environ.get("TRUNKLINE_COMPAT_MCP"), fastmcp=os.environ.get("TRUNKLINE_COMPAT_FASTMCP"))
