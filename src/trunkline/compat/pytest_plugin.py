"""Runs tests written for ``mcp`` or ``fastmcp`` against Trunkline: ``pytest -p trunkline.compat.pytest_plugin``.

``TRUNKLINE_COMPAT_MCP`` and ``TRUNKLINE_COMPAT_FASTMCP`` name the versions that the tests are told.
"""

from __future__ import annotations

import os

from trunkline.compat.installer import install

__all__: list[str] = []

install(mcp=os.environ.get("TRUNKLINE_COMPAT_MCP"), fastmcp=os.environ.get("TRUNKLINE_COMPAT_FASTMCP"))
