"""A call copied as a command line, as Python or as curl does the same when it is run."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from tests.browser.support import (
    SECONDS,
    Window,
    environment,
    journey,
    needs_chromium,
    running,
    showing,
    surfing,
    write_config,
)

pytestmark = needs_chromium

SERVER = """
from trunkline import Server

server = Server("books")

@server.tool
async def find(title: str, exact: bool = True) -> dict[str, str]:
    return {"found": f"{title} {exact}"}
"""
TITLE = 'Emma\'s "garden" $HOME'
FOUND = f"{TITLE} True"


async def copied(window: Window, label: str) -> str:
    """Return what a button copies."""
    async with window.glimpse("button.copy", "Copied"):
        await window.find("button.copy").filter(has_text=label).click()
    await window.find("button.copy").filter(has_text=label).wait_for()
    text: str = await window.page.evaluate("navigator.clipboard.readText()")
    return text


async def output(*command: str, home: Path, cwd: Path) -> str:
    """Run a command, and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, cwd=cwd, env=environment(home, PATH=_path(cwd))
    )
    async with asyncio.timeout(SECONDS):
        printed, _ = await process.communicate()
    assert process.returncode == 0, printed
    return printed.decode()


def _path(folder: Path) -> str:
    """Return a search path with ``trunkline`` first, as an environment of Python has it."""
    program = folder / "bin" / "trunkline"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m trunkline "$@"\n')
    program.chmod(0o755)
    return f"{program.parent}:/usr/local/bin:/usr/bin:/bin"


@journey()
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here: apt-get install curl")
@pytest.mark.parametrize("era", ["stateless", "handshake"])
async def test_what_is_copied_can_be_run(era: str, tmp_path: Path) -> None:
    (tmp_path / "books.py").write_text(SERVER)
    home = tmp_path / "home"
    async with running("run", "books.py", "--http", "0", home=tmp_path / "server", cwd=tmp_path):
        async with asyncio.timeout(SECONDS):
            # Another process cannot set an event of ours.
            while "/mcp" not in (said := (tmp_path / "server" / "stderr").read_text()):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        url = next(word for word in said.split() if word.startswith("http://")).rstrip(";")
        config = write_config(tmp_path, books={"url": url, "era": era})
        async with showing("console", "-c", config, "--no-open", home=home) as api, surfing() as surfer:
            window = await surfer.open(api.url)
            await window.context.grant_permissions(["clipboard-read", "clipboard-write"])
            await window.pick("find")
            await window.field("/title").fill(TITLE)
            line, program, request = [await copied(window, label) for label in ("CLI", "Python", "curl")]
            assert FOUND in (await output("sh", "-c", line, home=home, cwd=tmp_path)).replace('\\"', '"')
            assert str({"found": FOUND}) in await output(sys.executable, "-c", program, home=home, cwd=tmp_path)
            assert FOUND in (await output("sh", "-c", request, home=home, cwd=tmp_path)).replace('\\"', '"')
            await window.check(api.origin)
