"""A host for the script of a page: it runs in Node, in a window of stand-ins, and talks to a test."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import BOUND

__all__ = ["Page", "needs_node", "shown"]

DRIVER = Path(__file__).with_name("page_driver.js")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


class Page:
    """A page that runs: what it sends is read, and messages of its host are written to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def sent(self) -> Any:
        """Return the next message of the page."""
        assert self._process.stdout is not None
        return json.loads(await self._process.stdout.readline())

    def tell(self, **data: Any) -> None:
        """Send the page a message of its host."""
        self.drive(data={"jsonrpc": "2.0", **data})

    def drive(self, **line: Any) -> None:
        """Write a line to the driver."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(line).encode() + b"\n")

    async def text(self, id: str) -> str:
        """Return the text of an element."""
        self.drive(text=id)
        found: str = (await self.sent())["text"]
        return found

    async def start(self, **context: Any) -> None:
        """Shake hands as a host does."""
        asked = await self.sent()
        assert asked["method"] == "ui/initialize"
        assert set(asked["params"]) == {"protocolVersion", "appInfo", "appCapabilities"}
        self.tell(id=asked["id"], result={"hostContext": context})
        assert (await self.sent())["method"] == "ui/notifications/initialized"
        assert await self.sent() == {
            "jsonrpc": "2.0",
            "method": "ui/notifications/size-changed",
            "params": {"width": 301, "height": 201},
        }


@asynccontextmanager
async def shown(html: Path) -> AsyncIterator[Page]:
    """Run the script of a page."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec("node", str(DRIVER), str(html), stdin=pipe, stdout=pipe)
    try:
        async with asyncio.timeout(BOUND):
            yield Page(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), BOUND)
