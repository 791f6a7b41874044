"""The least that must work: needs the installed package and pytest, nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import trunkline
from tests.support import run_async
from trunkline import Client, Context, Server
from trunkline.protocol.revisions import ALL_NAMES

PROGRAM = '''
from trunkline import Server

server = Server("smoke", version="1.0.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run()
'''


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A server as a file."""
    path = tmp_path / "smoke_server.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def _trunkline(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trunkline", *arguments]
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50, check=False, encoding="utf-8"
    )


@pytest.mark.parametrize("name", trunkline.__all__)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert getattr(trunkline, name) is not None


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(trunkline.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize("revision", ALL_NAMES)
def test_a_tool_is_called_in_memory(revision: str) -> None:
    server = Server("smoke")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> None:
        async with Client(server, revision=revision) as client:
            assert client.revision == revision
            assert (await client.call_tool("add", {"a": 19, "b": 23})).text == "42"

    run_async(main())


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_tool_asks_the_user(revision: str) -> None:
    server = Server("smoke")

    @server.tool
    async def greet(ctx: Context) -> str:
        return f"hello {(await ctx.elicit('Your name?', str)).data}"

    async def main() -> None:
        async with Client(server, revision=revision, elicitation=lambda question: "Ada") as client:
            assert (await client.call_tool("greet")).text == "hello Ada"

    run_async(main())


@pytest.mark.parametrize("revision", ["auto", *ALL_NAMES])
def test_a_tool_is_called_over_stdio(program: Path, revision: str) -> None:
    async def main() -> None:
        async with Client(program, revision=revision) as client:
            assert (await client.call_tool("add", {"a": 19, "b": 23})).text == "42"

    run_async(main(), seconds=30)


def test_the_command_line_tells_its_version() -> None:
    ended = _trunkline("--version")
    assert (ended.returncode, ended.stdout.strip()) == (0, f"trunkline {trunkline.__version__}")


def test_the_command_line_calls_a_tool(program: Path) -> None:
    ended = _trunkline("call", str(program), "add", "a=19", "b=23")
    assert (ended.returncode, ended.stdout.strip()) == (0, "42"), ended.stderr


def test_the_command_line_lists_tools(program: Path) -> None:
    ended = _trunkline("list", "tools", str(program))
    assert ended.returncode == 0, ended.stderr
    assert "Add two numbers." in ended.stdout


def test_the_command_is_installed() -> None:
    command = Path(sys.executable).with_name("trunkline")
    ended = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=50, check=False)
    assert ended.stdout.strip() == f"trunkline {trunkline.__version__}"
