"""Servers of other frameworks run unchanged: as a file, as a module, as a command, and from code."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from trunkline import Client

PROGRAMS = Path(__file__).parent / "programs"
RUN = [sys.executable, "-m", "trunkline", "run", "--compat"]
#: Tells the program that version 1 of the official SDK is there.
FIRST = "from trunkline.compat.installer import install; install(mcp='1.28.0'); import runpy, sys; "


def first_version(name: str) -> list[str]:
    return [sys.executable, "-c", FIRST + f"runpy.run_path({str(PROGRAMS / name)!r}, run_name='__main__')"]


@pytest.mark.parametrize("command", [[*RUN, str(PROGRAMS / "official_high.py")], first_version("official_high.py")])
async def test_a_server_for_the_official_high_level_class(command: list[str]) -> None:
    async with Client(command) as connected:
        client: Any = connected
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert (client.server_info.name, client.instructions) == ("weather", "Ask for weather.")
        assert tools["add"].input_schema["required"] == ["a"]
        assert tools["temperature"].annotations.read_only_hint is True
        assert (await client.call_tool("add", {"a": 1})).data == 3
        assert (await client.call_tool("temperature", {"place": {"name": "Oslo"}})).text == "21 C in Oslo, port 9001"
        refused = await client.call_tool("refused", raise_on_error=False)
        assert (refused.is_error, refused.text) == (True, "not today")
        broken = await client.call_tool("broken", raise_on_error=False)
        assert broken.text == "Error executing tool broken: no such thing"
        assert (await client.read_resource("weather://Oslo"))[0].text == "Oslo: fine"
        assert (await client.get_prompt("ask", {"city": "Oslo"})).messages[0].content.text == "How is Oslo?"


@pytest.mark.parametrize("command", [[*RUN, str(PROGRAMS / "official_low.py")], first_version("official_low.py")])
async def test_a_server_for_the_official_low_level_class(command: list[str]) -> None:
    async with Client(command) as connected:
        client: Any = connected
        assert client.server_info == t.Implementation(name="notes", version="0.1.0")
        assert [tool.name for tool in await client.list_tools()] == ["read"]
        assert (await client.call_tool("read", {"name": "first"})).text == "Hello"
        wrong = await client.call_tool("read", {"name": 1}, raise_on_error=False)
        assert wrong.is_error and "Input validation error" in wrong.text  # noqa: PT018
        assert (await client.read_resource("note://internal/first"))[0].text == "Hello"
        assert (await client.get_prompt("sum", {"style": "short"})).description == "Sum up"


async def test_a_server_for_fastmcp_that_starts_nothing_itself() -> None:
    async with Client([*RUN, str(PROGRAMS / "fast.py")]) as connected:
        client: Any = connected
        assert [tool.name for tool in await client.list_tools()] == ["hello", "fails", "twice"]
        hello = await client.call_tool("hello", {"name": "Ada"})
        assert hello.data == {"hello": "Ada", "headers": {}, "same": True}
        assert hello.meta["stamped"] == "hello"
        assert (await client.call_tool("twice", {"x": 4})).structured_content == {"doubled": 8}
        assert (await client.call_tool("fails", raise_on_error=False)).text == "nope"


async def test_a_module_runs_with_its_arguments() -> None:
    command = [*RUN, "-m", "tests.compat.programs.official_low"]
    async with Client(command, cwd=str(Path(__file__).parents[2])) as connected:
        client: Any = connected
        assert [tool.name for tool in await client.list_tools()] == ["read"]


def run(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=60)


def test_installing_says_so_once_and_answers_for_versions() -> None:
    done = run(
        "import trunkline.compat as c; c.install(mcp='1.9.0'); c.install(); "
        "from importlib.metadata import version; import mcp.types, fastmcp; "
        "print(version('mcp'), fastmcp.__version__ == version('fastmcp'), mcp.types.Tool.__module__)"
    )

    assert done.stdout.split() == ["1.9.0", "True", "mcp.types"]
    assert done.stderr.count("are Trunkline in this process") == 1


def test_the_real_package_and_ours_never_mix() -> None:
    done = run("import mcp.types; import trunkline.compat as c; c.install()")

    assert "ImportError: mcp, mcp_types was imported before trunkline.compat.install()" in done.stderr


def test_a_name_that_is_missing_is_an_import_error_that_names_it() -> None:
    done = run("import trunkline.compat as c; c.install(); from fastmcp import Nothing")
    module = run("import trunkline.compat as c; c.install(); import mcp.nothing")

    assert "ImportError: cannot import name 'Nothing' from 'fastmcp'" in done.stderr
    assert "No module named 'mcp.nothing' under trunkline.compat" in module.stderr


def test_what_is_missing_is_listed_with_its_line_before_the_server_starts(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        "from fastmcp import FastMCP, Nothing\nimport mcp.types as types\n"
        "try:\n    from mcp.optional import X\nexcept ImportError:\n    X = None\nY = types.Missing\n"
    )
    done = subprocess.run([*RUN, str(server)], capture_output=True, text=True, check=False, timeout=60)
    report = subprocess.run(
        [sys.executable, "-m", "trunkline", "doctor", "--compat", str(server)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    listed = [f"  fastmcp.Nothing ({server}:1)", f"  mcp.types.Missing ({server}:7)"]
    assert done.stderr.splitlines()[1:3] == listed
    assert (report.stdout.splitlines()[1:], report.returncode) == (listed, 2)


def test_a_plain_server_loads_no_shims() -> None:
    done = run(
        "import sys, trunkline; s = trunkline.Server('x', cache_ttl=3); s.tool(lambda: 1, name='a', enabled=True); "
        "print([m for m in sys.modules if m.startswith('trunkline.compat.')], 'pydantic' in sys.modules)"
    )

    assert done.stdout.strip() == "['trunkline.compat.keywords'] False"


def test_an_openapi_document_becomes_tools() -> None:
    done = run(
        "import asyncio, trunkline.compat as c; c.install()\n"
        "from fastmcp import FastMCP, Client\n"
        "import httpx2\n"
        "sent = []\n"
        "def answer(request):\n"
        "    sent.append((request.method, request.url.path, dict(request.url.params)))\n"
        "    return httpx2.Response(200, json={'id': 7})\n"
        "web = httpx2.AsyncClient(base_url='https://pets.example', transport=httpx2.MockTransport(answer))\n"
        "get = {'operationId': 'getPet', 'parameters': [\n"
        "    {'name': 'id', 'in': 'path', 'required': True, 'schema': {'type': 'integer'}},\n"
        "    {'name': 'full', 'in': 'query', 'schema': {'type': 'boolean'}}]}\n"
        "document = {'openapi': '3.1.0', 'paths': {'/pets/{id}': {'get': get}}}\n"
        "server = FastMCP.from_openapi(document, client=web)\n"
        "async def main():\n"
        "    async with Client(server) as client:\n"
        "        print([tool.name for tool in await client.list_tools()])\n"
        "        print((await client.call_tool('getPet', {'id': 7, 'full': True})).data, sent)\n"
        "asyncio.run(main())"
    )

    assert done.stdout.splitlines() == ["['getPet']", "{'id': 7} [('GET', '/pets/7', {'full': 'true'})]"]
