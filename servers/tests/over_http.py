"""A reference server as a process that listens over HTTP and requires a token; what its clients see."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from trunkline import Client
from trunkline.client.tool_cache import CallResult
from trunkline.types import TextContent

__all__ = ["TOKEN", "hints_of", "listening", "texts"]

#: What lets a caller in.
TOKEN = "a-token-for-callers-0123456789"


async def hints_of(client: Client) -> dict[str, Any]:
    """Return the annotations of every tool by its name."""
    return {tool.name: tool.annotations for tool in await client.list_tools()}


def texts(result: CallResult) -> list[str]:
    """Return the texts of a result."""
    return [block.text for block in result.content if isinstance(block, TextContent)]


@asynccontextmanager
async def listening(server: str, *arguments: str, env: Mapping[str, str]) -> AsyncIterator[str]:
    """Start ``trunkline_servers.<server>`` at a free port; gives the address of its endpoint.

    Ann may call, who has ``TOKEN``, unless ``env`` says otherwise in CALLERS.
    """
    program = [
        sys.executable,
        "-m",
        f"trunkline_servers.{server}",
        *arguments,
        "--http",
        "0",
        "--tokens-env",
        "CALLERS",
    ]
    environment = {**os.environ, "CALLERS": f"ann:{TOKEN}", **env}
    process = await asyncio.create_subprocess_exec(*program, env=environment, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        told = await process.stderr.readuntil(b"/mcp")
        found = re.search(r"http://\S+/mcp", told.decode())
        assert found is not None
        yield found.group()
    finally:
        process.terminate()
        await process.communicate()
