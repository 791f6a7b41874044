"""What the tests of the filesystem server share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import run_async
from trunkline import Client, Server, ToolError
from trunkline_servers.filesystem import make_server

__all__ = ["REVISIONS", "WALKS", "call", "calls", "refused"]

#: Both ways of finding a place: in one call of the kernel, and step by step.
WALKS = pytest.mark.parametrize("kernel_walk", [pytest.param(True, id="kernel"), pytest.param(False, id="steps")])
REVISIONS = pytest.mark.parametrize(
    "revision", [pytest.param("2025-11-25", id="handshake"), pytest.param("2026-07-28", id="stateless")]
)


def calls(server: Server, *wanted: tuple[str, dict[str, Any]], **options: Any) -> list[str]:
    """Call tools one after the other and give their texts."""

    async def scene() -> list[str]:
        async with Client(server, **options) as client:
            return [(await client.call_tool(name, arguments)).data["content"] for name, arguments in wanted]

    return run_async(scene())


def call(folder: Path, tool: str, /, *, kernel_walk: bool = True, **arguments: Any) -> str:
    """Call one tool of a server with one folder and give its text."""
    return calls(make_server([folder], kernel_walk=kernel_walk), (tool, arguments))[0]


def refused(work: Callable[[], Any]) -> str:
    """Return the error message of a call."""
    with pytest.raises(ToolError) as caught:
        work()
    return str(caught.value)
