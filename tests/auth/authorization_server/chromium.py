"""A real browser for tests: Chromium without a window, spoken to over its own debugging protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

__all__ = ["Page", "chromium", "needs_chromium"]

_PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(_PROGRAM is None, reason="chromium is not here")

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-port=0",
    "--window-size=640,1010",
)


class Page:
    """The one page of a browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._next = 0

    async def command(self, method: str, **params: Any) -> Any:
        """Send a command and wait for its result."""
        self._next += 1
        await self._socket.send_json({"id": self._next, "method": method, "params": params})
        while True:
            message = await self._socket.receive_json()
            if message.get("id") == self._next:
                assert "error" not in message, message
                return message["result"]

    async def open(self, url: str) -> None:
        """Open an address, as if it had been typed, and wait until it is there."""
        await self.command("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def run(self, expression: str) -> Any:
        """Run an expression in the page, whatever the page's own policy is, and give its value."""
        result = await self.command("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true; a page that is being left has none."""
        # The browser has no word for it: it is asked again.
        while (await self.command("Runtime.evaluate", expression=expression))["result"].get("value") is not True:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def frame(self) -> str:
        """Return the final URL of the frame inside the page; a refused one shows an error URL of the browser."""
        while True:
            tree = (await self.command("Page.getFrameTree"))["frameTree"]
            for child in tree.get("childFrames", []):
                if child["frame"]["url"] not in ("", "about:blank"):
                    return str(child["frame"]["url"])
            await asyncio.sleep(0.02)

    async def type(self, name: str, text: str) -> None:
        """Type into a field."""
        await self.run(f"document.querySelector('[name={name}]').focus()")
        await self.command("Input.insertText", text=text)

    async def click(self, label: str) -> None:
        """Press a button."""
        await self.run(
            f"[...document.querySelectorAll('button')].find(b => b.innerText === {json.dumps(label)}).click()"
        )

    async def enter(self) -> None:
        """Press the Enter key."""
        for kind in ("keyDown", "keyUp"):
            await self.command("Input.dispatchKeyEvent", type=kind, key="Enter", text="\r", windowsVirtualKeyCode=13)

    async def text(self) -> str:
        """Read what a person would."""
        return str(await self.run("document.body.innerText"))

    async def picture(self, *, dark: bool = False) -> bytes:
        """Take a picture, as PNG."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.command("Emulation.setEmulatedMedia", features=[scheme])
        shot = await self.command("Page.captureScreenshot", format="png")
        return base64.b64decode(shot["data"])


@asynccontextmanager
async def chromium(profile: Path) -> AsyncIterator[Page]:
    """Start a browser with a profile of its own, and end it."""
    assert _PROGRAM is not None
    process = await asyncio.create_subprocess_exec(
        _PROGRAM,
        *_FLAGS,
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        line = b""
        while b"DevTools listening on ws://" not in line:
            line = await process.stderr.readline()
            assert line, "chromium did not start"
        port = line.decode().partition("ws://")[2].partition("/")[0].rpartition(":")[2]
        async with aiohttp.ClientSession() as web:
            async with web.get(f"http://127.0.0.1:{port}/json/list") as response:
                targets = await response.json()
            page = next(each for each in targets if each["type"] == "page")
            async with web.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                yield Page(socket)
    finally:
        process.kill()
        await process.wait()
