"""The test of the application, as a process on uvicorn."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from trunkline import Client

ROOT = Path(__file__).parents[2]


@pytest.fixture
def address() -> Iterator[str]:
    """Start the application on a free port, and stop it after the test."""
    pytest.importorskip("fastapi")
    program = [sys.executable, "-m", "uvicorn", "examples.mounted.app:app", "--port", "0"]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        yield next(found.group() for line in lines if (found := re.search(r"http://[\d.:]+", line)))
        process.terminate()
        process.communicate(timeout=20)


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-11-25", "2026-07-28"])
def test_the_tools_and_the_routes_share_what_they_work_on(address: str, revision: str) -> None:
    """A note that a tool added is visible to a browser."""

    async def main() -> None:
        async with Client(f"{address}/mcp", revision=revision) as client:
            assert (await client.call_tool("add_note", {"text": "milk"})).text == "1"

    asyncio.run(main())
    with urlopen(f"{address}/notes", timeout=10) as response:
        assert json.load(response) == ["milk"]
