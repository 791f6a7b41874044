"""The command: over stdio, over HTTP with a token, and its error messages."""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from servers.tests.filesystem.support import REVISIONS
from tests.support import run_async
from trunkline import BearerToken, Client, ConfigError, RequestFailed
from trunkline_servers.filesystem.worker import FileLimits

COMMAND = [sys.executable, "-m", "trunkline_servers.filesystem"]
TOKEN = "a-token-of-sixteen-or-more"


@REVISIONS
def test_it_serves_over_stdio(tmp_path: Path, revision: str) -> None:
    (tmp_path / "x").write_text("text")

    async def scene() -> tuple[int, str]:
        async with Client([*COMMAND, str(tmp_path)], revision=revision) as client:
            return len(await client.list_tools()), (await client.call_tool("read_file", {"path": "x"})).text

    assert run_async(scene()) == (14, "text")


def test_without_folders_it_waits_for_roots(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("text")

    async def scene() -> str:
        async with Client(COMMAND, roots=[tmp_path]) as client:
            return (await client.call_tool("read_file", {"path": "x"})).text

    assert run_async(scene()) == "text"


def test_the_limits_of_the_command_line_hold(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("12345")

    async def scene() -> tuple[int, bool]:
        async with Client([*COMMAND, "--read-only", "--max-file-bytes", "4", str(tmp_path)]) as client:
            result = await client.call_tool("read_file", {"path": "x"}, raise_on_error=False)
            return len(await client.list_tools()), result.is_error

    assert run_async(scene()) == (10, True)


def test_folders_that_are_not_there_are_one_sentence(tmp_path: Path) -> None:
    ended = subprocess.run([*COMMAND, str(tmp_path / "none")], capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == 2
    assert re.fullmatch(r"[^\n]*None of these is a folder that can be opened: [^\n]*none[^\n]*\n", ended.stderr)


@asynccontextmanager
async def over_http(*words: str) -> AsyncIterator[str]:
    """Run the command until it says where it serves."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--http", "0", *words, stderr=asyncio.subprocess.PIPE, env={"TOKENS": TOKEN, "PATH": ""}
    )
    assert process.stderr is not None
    try:
        said = (await process.stderr.readline()).decode()
        yield re.findall(r"http://\S+", said)[0]
    finally:
        process.terminate()
        await process.communicate()


def test_http_requires_a_token(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("text")

    async def scene() -> str:
        async with over_http("--tokens-env", "TOKENS", str(tmp_path)) as url:
            with pytest.raises(RequestFailed, match="Authorization required"):
                await Client(url).__aenter__()
            async with Client(url, auth=BearerToken(TOKEN), roots=["/"]) as client:
                denied = await client.call_tool("read_file", {"path": "/etc/passwd"}, raise_on_error=False)
                assert "Access denied" in denied.text
                return (await client.call_tool("read_file", {"path": "x"})).text

    assert run_async(scene()) == "text"


@pytest.mark.parametrize("limits", [{"seconds": math.nan}, {"entries": 0}], ids=["no-number", "nothing"])
def test_limits_that_leave_nothing_to_do_are_a_configuration_error(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be more than zero"):
        FileLimits(**limits)
