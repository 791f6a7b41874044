"""How the tests reach their peers over HTTP: programs that say where they listen, and foreign clients of our server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp.client.sse import sse_client

from tests.interop.peers import PROGRAMS, is_handshake, program

__all__ = ["FASTMCP", "INTEROP", "Inspector", "listening", "node", "official_web_client", "our_url", "program_json"]

INTEROP = Path(__file__).parents[2] / ".interop"
FASTMCP = INTEROP / "fastmcp" / "bin" / "python"
INSPECTOR = INTEROP / "inspector" / "node_modules" / ".bin" / "mcp-inspector"


@contextmanager
def listening(command: Sequence[str]) -> Iterator[str]:
    """Run a program that writes a line to stdout once it listens, which says where, and give the line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline().strip()
        assert "http://" in line, f"{command[1]} did not start"
        yield line
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def our_url(*revisions: str) -> Any:
    """Run our server over HTTP; it serves these revisions, or all."""
    return listening(program("ours_http.py", *revisions))


@asynccontextmanager
async def official_web_client(url: str, revision: str, **options: Any) -> AsyncIterator[mcp.Client]:
    """Connect the official client to a URL, over the old transport if the URL is of that."""
    target: Any = sse_client(url) if url.endswith("/sse") else url
    mode = "legacy" if is_handshake(revision) else "auto"
    async with mcp.Client(target, mode=mode, read_timeout_seconds=10, **options) as client:
        yield client


# --- Node ------------------------------------------------------------------------------------------------------------


def node(name: str, *arguments: str) -> list[str]:
    """Give the command of one of our programs for Node; skip the test where its packages are not installed."""
    runtime = shutil.which("node")
    if runtime is None:
        pytest.skip("node is not here: programs of the TypeScript SDK cannot run")
    packages = INTEROP / "node_modules" / "@modelcontextprotocol"
    needed = ("client", "server", "node", "sdk", "ext-tasks")
    if not all((packages / package).is_dir() for package in needed):
        pytest.skip("the TypeScript SDK is not installed: `make interop` does that")
    # Packages are found from where a program lies, not from where it is run.
    here = INTEROP / "programs"
    here.mkdir(exist_ok=True)
    for file in PROGRAMS.glob("*.mjs"):
        # Several workers may do this at once.
        part = here / f"{file.name}.{os.getpid()}"
        shutil.copyfile(file, part)
        part.replace(here / file.name)
    return [runtime, str(here / name), *arguments]


def program_json(command: Sequence[str], *, seconds: float = 30.0) -> Any:
    """Run a program to its end and read the JSON that it writes."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


# --- the Inspector ---------------------------------------------------------------------------------------------------


class Inspector:
    """The Inspector's command line, and the arguments that reach each target."""

    def __init__(self, targets: Mapping[str, Sequence[str]], environment: Mapping[str, str], home: Path) -> None:
        """Store the arguments and the folder for the Inspector's files; skip the test where it is not installed."""
        if shutil.which("node") is None:
            pytest.skip("node is not here: the Inspector cannot run")
        if not INSPECTOR.exists():
            pytest.skip("the Inspector is not installed: `make interop` does that")
        self._targets = targets
        self._environment = {**environment, "HOME": str(home)}

    def __call__(self, target: str, method: str, *arguments: str) -> Any:
        """Call a method with the Inspector, and parse the JSON that it prints."""
        done = self.run(target, method, *arguments)
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads(done.stdout)

    def run(self, target: str, method: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call a method with the Inspector; its exit code is not checked."""
        command = [str(INSPECTOR), "--cli", *self._targets[target], "--method", method, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=self._environment, cwd=Path.cwd()
        )
