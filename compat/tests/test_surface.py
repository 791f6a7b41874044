"""What resolves: every name of the table in every generation, what to use for the others, and who is told."""

import json
from pathlib import Path

import pytest

from compat.tests.serving import GENERATIONS, RUN, run_python

RESOLVE = """
import importlib, json, sys
from trunkline_compat import surface
from trunkline_compat.imports import install

install(**json.loads(sys.argv[1]))
missing = []
for module in surface._MODULES:
    foreign = importlib.import_module(module)
    for name in surface.names_of(module):
        assert not name.startswith("_"), name
        assert surface.find_name(module, name)
        try:
            getattr(foreign, name)
        except Exception as error:
            missing.append(f"{module}.{name}: {error}")
print(json.dumps(missing), len(surface._MODULES) > 100)
"""


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_name_of_the_table_resolves(generation: str) -> None:
    run = run_python("-W", "error", "-c", RESOLVE, json.dumps(dict(GENERATIONS[generation])))

    assert run.stdout.split() == ["[]", "True"], run.stdout + run.stderr


MISSING = """
from trunkline_compat.imports import install

install(mcp="1.30.0", fastmcp="3.4.10")
for line in (
    "from fastmcp import Nothing",
    "import mcp.nothing",
    "from mcp.types import Nothing",
    "from fastmcp.server.transforms import ToolTransform",
    "from fastmcp.server.providers import LocalProvider",
    "from fastmcp.server.middleware.caching import ResponseCachingMiddleware",
    "from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider",
    "from fastmcp.experimental.sampling import X",
    "from fastmcp.cli import cli",
    "from mcp.client.auth import OAuthClientProvider",
    "from mcp.server.auth.provider import OAuthAuthorizationServerProvider",
    "import mcp.cli",
):
    try:
        exec(line)
    except ImportError as error:
        print(line, "->", error)
    else:
        print(line, "-> here")
"""


def test_a_name_that_is_missing_is_an_import_error_that_says_what_to_use() -> None:
    run = run_python("-c", MISSING)

    answers = dict(line.split(" -> ") for line in run.stdout.splitlines())
    assert len(answers) == 12, run.stderr
    for line, error in answers.items():
        assert error.startswith(f"trunkline-compat has no {'.'.join(line.split()[1].split('.')[:2])}"), (line, error)
        assert error.endswith("(docs/migrating.md lists what is not there)")
    for part, advice in (
        ("transforms", "mount with a namespace"),
        ("providers import LocalProvider", "create_proxy()"),
        ("caching", "a class of your own"),
        ("in_memory", "OAuthProxy"),
        ("fastmcp.cli", "the command trunkline"),
        ("mcp.client.auth", "trunkline.auth"),
        ("OAuthAuthorizationServerProvider", "token_verifier="),
    ):
        error = next(error for line, error in answers.items() if part in line)
        assert advice in error, error


GONE = """
import sys
from trunkline_compat.imports import install

install(mcp="2.3.0", fastmcp="4.1.2")
from fastmcp import FastMCP
from mcp.server.mcpserver import MCPServer

server = FastMCP("x")
for attempt in (
    lambda: FastMCP("x", providers=[object()]),
    lambda: FastMCP("x", transforms=[object()]),
    lambda: server.mount(FastMCP("y"), tool_names={"a": "b"}),
    lambda: server.tool(lambda: 1, name="a", auth=lambda context: True),
    lambda: FastMCP.from_fastapi(object()),
    lambda: MCPServer("x", auth_server_provider=object()).streamable_http_app(),
    lambda: type("Filtering", (FastMCP,), {"_mcp_list_tools": lambda self: []})("x"),
):
    try:
        attempt()
        print("accepted")
    except Exception as error:
        print(type(error).__name__, error)
"""


def test_what_would_be_left_out_silently_is_refused_with_what_to_use() -> None:
    run = run_python("-c", GONE)

    lines = run.stdout.splitlines()
    assert len(lines) == 7, run.stderr
    for line, advice in zip(
        lines,
        (
            "mount other servers with mount()",
            "enable() and disable()",
            "name the tools where they are defined",
            "require_scopes",
            "FastMCP.from_openapi",
            "token_verifier=",
            "filter with middleware",
        ),
        strict=True,
    ):
        assert line.startswith(("TypeError", "ConfigError")), line
        assert advice in line, line


def test_what_is_missing_is_listed_with_its_line_before_the_server_starts(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        "from fastmcp import FastMCP, Nothing\nimport mcp.types as types\n"
        "try:\n    from mcp.optional import X\nexcept ImportError:\n    X = None\nY = types.Missing\n"
    )
    run = run_python(*RUN[1:], str(server))
    listed = [f"  fastmcp.Nothing ({server}:1)", f"  mcp.types.Missing ({server}:7)"]
    assert run.stderr.splitlines()[1:3] == listed

    report = run_python("-m", "trunkline", "doctor", "--compat", str(server))
    assert (report.stdout.splitlines()[1:], report.returncode) == (listed, 2)
    folder = run_python("-m", "trunkline", "doctor", "--compat", str(tmp_path), "--json")
    assert "fastmcp.Nothing" in folder.stdout
    server.write_text("from mcp.server.fastmcp import FastMCP\n")
    fine = run_python("-m", "trunkline", "doctor", "--compat", str(server))
    assert (fine.returncode, "everything it imports is available" in fine.stdout) == (0, True)


INSTALLING = """
import trunkline_compat
trunkline_compat.install(mcp="1.9.0")
trunkline_compat.install()
from importlib.metadata import version
import mcp.types, fastmcp
print(version("mcp"), fastmcp.__version__ == version("fastmcp"), mcp.types.Tool.__module__)
from fastmcp.tools import tool
import fastmcp.tools.tool
print(callable(tool), fastmcp.tools.tool is tool)
from trunkline_compat.imports import uninstall
uninstall()
from importlib.util import find_spec
print(getattr(find_spec("mcp"), "origin", None))
"""


def test_installing_is_announced_once_answers_for_versions_and_can_be_undone() -> None:
    run = run_python("-c", INSTALLING)

    first, second, third = run.stdout.splitlines()
    assert first.split() == ["1.9.0", "True", "mcp.types"]
    assert second.split() == ["True", "True"]
    assert "trunkline_compat" not in third
    assert run.stderr.count("are Trunkline in this process") == 1


def test_the_real_package_and_ours_never_mix() -> None:
    source = (
        "import sys, types; sys.modules['mcp'] = types.ModuleType('mcp'); import trunkline_compat as c; c.install()"
    )
    run = run_python("-c", source)

    assert "ImportError: mcp is imported already" in run.stderr


WITHOUT = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "trunkline_compat":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from trunkline.cli.main import main
sys.argv = ["trunkline", *sys.argv[1:]]
sys.exit(main())
"""


@pytest.mark.parametrize("arguments", [["run", "--compat", "x.py"], ["doctor", "--compat", "x.py"]])
def test_without_the_distribution_the_command_that_installs_it_is_named(arguments: list[str]) -> None:
    run = run_python("-c", WITHOUT, *arguments)

    assert "pip install trunkline-compat" in run.stderr
    assert "Traceback" not in run.stderr
    assert run.returncode not in (0, 1)


def test_a_plain_server_loads_nothing_of_the_adapters() -> None:
    run = run_python(
        "-c",
        "import sys, trunkline; s = trunkline.Server('x'); s.tool(lambda: 1, name='a'); s.asgi; "
        "print([m for m in sys.modules if 'compat' in m and m.startswith('trunkline')], 'pydantic' in sys.modules)",
    )

    assert "trunkline_compat" not in run.stdout, run.stderr
    assert run.stdout.strip().endswith("False")


def test_importing_a_server_class_loads_no_client_no_http_and_no_authorization() -> None:
    run = run_python(
        "-c",
        "import sys; from trunkline_compat.imports import install; install(mcp='1.30.0'); "
        "from mcp.server.fastmcp import FastMCP; FastMCP('x'); "
        "heavy = 'starlette uvicorn cryptography trunkline_compat.clients trunkline_compat.auth'.split(); "
        "print([module for module in heavy if module in sys.modules])",
    )

    assert run.stdout.strip() == "[]", run.stdout + run.stderr


STUMBLES = """
import warnings
from trunkline_compat.imports import install
install(mcp="2.3.0", fastmcp="4.1.2")
import asyncio
from pydantic import AnyUrl
from fastmcp import FastMCP
from fastmcp.server.middleware import Middleware
from mcp import types
from mcp.server.lowlevel import Server
from trunkline import Client

class Hiding(Middleware):
    async def on_list_tools(self, context, call_next):
        return []

child = FastMCP("child", middleware=[Hiding()])
outer, late = FastMCP("outer"), FastMCP("late")
outer.mount(late)
for mount in (lambda: outer.mount(child), lambda: late.add_middleware(Hiding())):
    try:
        mount()
        print("mounted")
    except TypeError as error:
        print(error)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    FastMCP("x", nonsense=3)
print(caught[0].message)

low = Server("low")
@low.list_resources()
async def list_resources():
    return [types.Resource(uri=AnyUrl("shop://list"), name="list")]
@low.list_tools()
async def list_tools():
    output = {"type": "object", "properties": {"n": {"type": "integer"}}}
    return [types.Tool(name="bad", inputSchema={"type": "object"}, outputSchema=output)]
@low.call_tool()
async def call_tool(name, arguments):
    return {"n": "x"}
async def main():
    async with Client(low.server) as client:
        print((await client.list_resources())[0].uri)
        print((await client.call_tool("bad", raise_on_error=False)).text)
asyncio.run(main())
"""


def test_what_strangers_stumbled_over(tmp_path: Path) -> None:
    run = run_python("-c", STUMBLES)
    assert run.stdout.splitlines() == [
        "add the middleware for lists of 'child' to the server that it is mounted in",
        "add the middleware for lists of 'late' to the server that it is mounted in",
        "FastMCP(nonsense=…) is not known to trunkline-compat, and has no effect",
        "shop://list",
        "Output validation error: expected integer, found string",
    ], run.stderr
    program = tmp_path / "client.py"
    program.write_text("from mcp import ClientSession\nprint('done')\n")
    client = run_python("-m", "trunkline", "run", "--compat", str(program))
    assert (client.returncode, client.stdout) == (0, "done\n"), client.stderr
    http = run_python("-m", "trunkline", "run", "--http", "8000", "--compat", str(program))
    assert (http.returncode, "chooses its own transport" in http.stderr) == (1, True)
