"""The least that must work: needs the installed package and pytest; what needs an extra is left out without it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import trunkline
from trunkline import Client, Context, Server
from trunkline.protocol.revisions import REVISION_NAMES

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
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False, encoding="utf-8"
    )


def test_every_public_name_can_be_imported() -> None:
    assert [name for name in trunkline.__all__ if getattr(trunkline, name) is None] == []


def test_the_package_says_that_it_is_typed() -> None:
    assert Path(trunkline.__file__).with_name("py.typed").exists()


@pytest.mark.parametrize("revision", REVISION_NAMES)
async def test_a_tool_is_called_in_memory(revision: str) -> None:
    server = Server("smoke")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async with Client(server, revision=revision) as client:
        assert client.revision == revision
        assert (await client.call_tool("add", {"a": 19, "b": 23})).text == "42"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_tool_asks_the_user(revision: str) -> None:
    server = Server("smoke")

    @server.tool
    async def greet(ctx: Context) -> str:
        return f"hello {(await ctx.elicit('Your name?', str)).data}"

    async with Client(server, revision=revision, elicitation=lambda question: "Ada") as client:
        assert (await client.call_tool("greet")).text == "hello Ada"


@pytest.mark.parametrize("revision", ["auto", REVISION_NAMES[0], REVISION_NAMES[-1]])
async def test_a_tool_is_called_over_stdio(program: Path, revision: str) -> None:
    async with Client(program, revision=revision) as client:
        assert (await client.call_tool("add", {"a": 19, "b": 23})).text == "42"


@pytest.mark.skipif(not (find_spec("uvicorn") and find_spec("aiohttp")), reason="needs trunkline[http]")
@pytest.mark.parametrize("revision", ["auto", *REVISION_NAMES])
async def test_a_tool_is_called_over_http(revision: str) -> None:
    server = Server("smoke")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(server.run_async("http", port=0, started=listening.set_result))
    async with Client(f"{await listening}/mcp", revision=revision) as client:
        assert (await client.call_tool("add", {"a": 19, "b": 23})).text == "42"
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.skipif(find_spec("uvicorn") is not None, reason="trunkline[http] is installed")
def test_without_the_extra_http_says_what_to_install(program: Path) -> None:
    ended = _trunkline("run", str(program), "--http", "0")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "pip install 'trunkline[http]'" in ended.stderr


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
    ended = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=120, check=False)
    assert ended.stdout.strip() == f"trunkline {trunkline.__version__}"


@pytest.mark.parametrize(
    "template", ["tool", *(pytest.param(name, marks=pytest.mark.slow) for name in ("api", "database"))]
)
def test_a_new_project_passes_its_own_tests(template: str, tmp_path: Path) -> None:
    if template == "api" and find_spec("aiohttp") is None:
        pytest.skip("needs trunkline[http]")
    ended = _trunkline("new", str(tmp_path / "my-server"), "--template", template)
    assert ended.returncode == 0, ended.stderr
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "my-server",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout


@pytest.mark.skipif(find_spec("trunkline_servers") is None, reason="needs trunkline[servers]")
async def test_a_reference_server_is_called_by_its_command() -> None:
    command = Path(sys.executable).with_name("trunkline-server-time")
    async with Client([str(command)]) as client:
        called = await client.call_tool("get_current_time", {"timezone": "Europe/London"})
    assert "Europe/London" in called.text
