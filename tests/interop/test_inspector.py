"""The Inspector's command line, as client of our server over stdio and over HTTP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.peers import program
from tests.interop.web import INSPECTOR, our_url

TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http", "sse"])


class Inspector:
    """The Inspector, and our server at each transport."""

    def __init__(self, targets: dict[str, list[str]], home: Path) -> None:
        """Know what to write to reach the server, and where the Inspector may keep files."""
        self._targets = targets
        self._environment = {**os.environ, "HOME": str(home)}

    def __call__(self, transport: str, method: str, *arguments: str) -> Any:
        """Have it call a method, and read the JSON that it writes."""
        command = [str(INSPECTOR), "--cli", *self._targets[transport], "--method", method, *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=self._environment, cwd=Path.cwd()
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def inspect(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspector]:
    """Our server over HTTP, and the way to start it over stdio."""
    if shutil.which("node") is None:
        pytest.skip("node is not here: the Inspector cannot run")
    if not INSPECTOR.exists():
        pytest.skip("the Inspector is not installed: `make interop` does that")
    with our_url() as url:
        targets = {
            "stdio": program("ours.py"),
            "http": [f"{url}/mcp", "--transport", "http"],
            "sse": [f"{url}/mcp/sse", "--transport", "sse"],
        }
        yield Inspector(targets, tmp_path_factory.mktemp("home"))


@TRANSPORTS
def test_it_lists_our_tools(inspect: Inspector, transport: str) -> None:
    tools = {tool["name"]: tool for tool in inspect(transport, "tools/list")["tools"]}
    assert (tools["add"]["title"], tools["add"]["inputSchema"]["required"]) == ("Add two numbers", ["a", "b"])


@TRANSPORTS
def test_it_calls_our_tools(inspect: Inspector, transport: str) -> None:
    called = inspect(transport, "tools/call", "--tool-name", "add", "--tool-arg", "a=19", "--tool-arg", "b=23")
    assert (called["content"], called["structuredContent"]) == ([{"type": "text", "text": "42"}], {"result": 42})


@TRANSPORTS
def test_it_reads_resources_and_prompts(inspect: Inspector, transport: str) -> None:
    read = inspect(transport, "resources/read", "--uri", "note://fixed")
    filled = inspect(transport, "prompts/get", "--prompt-name", "greet", "--prompt-args", "name=Ann")
    assert read["contents"][0]["text"] == "as it was"
    assert filled["messages"][0]["content"]["text"] == "Greet Ann in a kind tone."
