"""Servers of other frameworks run unchanged: as a file, as a module, and in both eras of the protocol."""

from pathlib import Path
from typing import Any

import pytest

import trunkline.types as t
from compat.tests.serving import PROGRAMS, RUN, command, run_python
from trunkline import Client
from trunkline.errors import InvalidParams, ResourceNotFound

#: The two eras: with a handshake, and without one, which our server speaks whatever generation its program is of.
ERAS = pytest.mark.parametrize("revision", ["handshake", "auto"])


@ERAS
@pytest.mark.parametrize("generation", ["sdk1", "sdk2"])
async def test_a_server_for_the_official_high_level_class(generation: str, revision: Any) -> None:
    async with Client(command(generation, "official_high.py"), revision=revision) as connected:
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


@pytest.mark.parametrize(("generation", "revision"), [("sdk1", "handshake"), ("sdk2", "auto")])
async def test_a_server_for_the_official_low_level_class(generation: str, revision: Any) -> None:
    async with Client(command(generation, "official_low.py"), revision=revision) as connected:
        client: Any = connected
        assert client.server_info == t.Implementation(name="notes", version="0.1.0")
        assert [tool.name for tool in await client.list_tools()] == ["read"]
        assert (await client.call_tool("read", {"name": "first"})).text == "Hello"
        wrong = await client.call_tool("read", {"name": 1}, raise_on_error=False)
        assert wrong.is_error
        assert "Input validation error" in wrong.text
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


async def test_unknown_names_are_errors_of_the_protocol_as_the_specification_says() -> None:
    async with Client([*RUN, str(PROGRAMS / "fast.py")]) as client:
        with pytest.raises(InvalidParams, match="Unknown tool: secret"):  # it is switched off
            await client.call_tool("secret")
        with pytest.raises(InvalidParams, match="Unknown prompt"):
            await client.get_prompt("nothing")
        with pytest.raises(ResourceNotFound):
            await client.read_resource("a://nothing")


@ERAS
@pytest.mark.parametrize("generation", ["fastmcp2", "fastmcp4"])
async def test_a_tool_asks_and_reports_in_both_eras(generation: str, revision: Any) -> None:
    heard: list[Any] = []

    async def answer(params: t.ElicitRequestParams) -> dict[str, Any]:
        return {"value": params.message.partition(" ")[0]}

    async with Client(
        command(generation, "fast_questions.py"),
        revision=revision,
        elicitation=answer,
        logging=lambda params: heard.append(params.data),
        log_level="info",
        on_progress=lambda *values: heard.append(values[:2]),
    ) as client:
        assert (await client.call_tool("greet")).text == "Hello First Last"
        first = (await client.call_tool("work")).text
        assert (await client.call_tool("work")).text == first
    assert heard[:2] == ["working", (1, 2)]


async def test_a_module_and_a_command_run_with_their_arguments(tmp_path: Path) -> None:
    package = tmp_path / "shouting"
    package.mkdir()
    package.joinpath("__init__.py").touch()
    package.joinpath("__main__.py").write_text(
        "import sys\nfrom mcp.server.fastmcp import FastMCP\nmcp = FastMCP('shouting')\n"
        "@mcp.tool()\ndef shout() -> str:\n    return sys.argv[1].upper()\n"
        "def main():\n    mcp.run()\nif __name__ == '__main__':\n    main()\n"
    )
    info = tmp_path / "shouting-1.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1\n")
    info.joinpath("entry_points.txt").write_text("[console_scripts]\nshout-server = shouting.__main__:main\n")
    for target in (["-m", "shouting", "hello"], ["--", "shout-server", "hello"]):
        entry = {"command": RUN[0], "args": [*RUN[1:], *target], "env": {"PYTHONPATH": str(tmp_path)}}
        async with Client(entry) as client:
            assert (await client.call_tool("shout")).text == "HELLO"


def test_what_cannot_be_run_is_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("x = 1\n")
    for arguments, problem in (
        (["nowhere.py"], "there is no file nowhere.py"),
        ([str(empty)], "starts no server and defines none"),
        (["-m", "no_such_module"], "no module is called no_such_module"),
        (["--", "no-such-command"], "no package installed beside Trunkline has the command 'no-such-command'"),
    ):
        run = run_python("-m", "trunkline", "run", "--compat", *arguments)
        assert run.returncode != 0
        assert problem in run.stderr


def test_an_exception_of_the_program_is_the_programs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import mcp\nraise SystemExit(7)\n")
    assert run_python("-m", "trunkline", "run", "--compat", str(program)).returncode == 7


def test_a_server_and_a_session_run_on_streams_in_memory(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import anyio, asyncio, mcp.types as types\n"
        "from mcp import ClientSession\n"
        "from mcp.server import Server\n"
        "server = Server('streams')\n"
        "@server.list_tools()\nasync def tools():\n"
        "    return [types.Tool(name='a', inputSchema={'type': 'object'})]\n"
        "async def main():\n"
        "    to_server, from_client = anyio.create_memory_object_stream(10)\n"
        "    to_client, from_server = anyio.create_memory_object_stream(10)\n"
        "    options = server.create_initialization_options()\n"
        "    running = asyncio.create_task(server.run(from_client, to_client, options))\n"
        "    async with ClientSession(from_server, to_server) as session:\n"
        "        await session.initialize()\n"
        "        print((await session.list_tools()).tools[0].name)\n"
        "    running.cancel()\n"
        "asyncio.run(main())\n"
    )
    run = run_python(*command("sdk1", program)[1:])
    assert run.stdout.strip() == "a", run.stderr
