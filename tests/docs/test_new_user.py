"""The way of a new user: from a fresh ``pip install -e``, as README says, to the clients of others and the console."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Served, in_a_terminal, kill_if_silent
from tests.docs.pages import ROOT, blocks
from trunkline.host.sandbox import detect_capabilities

README = ROOT / "README.md"
FASTMCP = Path(os.environ.get("TRUNKLINE_FASTMCP_PYTHON", ROOT / ".interop" / "fastmcp" / "bin" / "python"))
TOKEN = "a-long-random-token"
GREETED = {"tools": ["greet"], "data": "hello Ada"}
_INSTALL_SECONDS = 150.0
_SECONDS = 120.0

OUR_CLIENT = """
import asyncio, json, sys
from trunkline import Client

async def main():
    target, token = sys.argv[1:]
    async with Client(target, auth=token or None) as client:
        tools = [tool.name for tool in await client.list_tools()]
        print(json.dumps({"tools": tools, "data": (await client.call_tool("greet", {"name": "Ada"})).data}))

asyncio.run(main())
"""
OUR_HOST = """
import asyncio, json, sys
from trunkline import Host

async def main():
    async with Host.open(sys.argv[1], policy="policy.toml") as host:
        [tool] = host.catalog.tools
        data = (await host.call_tool(tool, {"name": "Ada"})).data
        print(json.dumps({"tools": [tool.partition("/")[2]], "data": data, "reason": host.status()[0].reason}))

asyncio.run(main())
"""
FASTMCP_CLIENT = """
import asyncio, json, sys
import fastmcp

async def main():
    async with fastmcp.Client(json.load(open(sys.argv[1]))) as client:
        tools = [tool.name for tool in await client.list_tools()]
        print(json.dumps({"tools": tools, "data": (await client.call_tool("greet", {"name": "Ada"})).data}))

asyncio.run(main())
"""
OFFICIAL_CLIENT = """
import asyncio, json, sys
import mcp

async def main():
    [entry] = json.load(open(sys.argv[1]))["mcpServers"].values()
    async with mcp.Client(mcp.stdio_client(mcp.StdioServerParameters(**entry))) as client:
        tools = [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("greet", {"name": "Ada"})
        print(json.dumps({"tools": tools, "data": result.structured_content["result"]}))

asyncio.run(main())
"""
#: Does what a browser does with the login file: it loads the page, exchanges the code, and reads what the page shows.
BROWSER = """
import json, re, sys, urllib.error
from urllib.request import Request, urlopen

def load(path, credentials=None, **options):
    headers = {} if credentials is None else {"Authorization": f"Bearer {credentials}"}
    with urlopen(Request(origin + path, headers=headers, **options), timeout=120) as response:
        return response.read().decode()

file = open(sys.argv[1].removeprefix("file://")).read()
origin, code = re.search(r"(http://127\\.0\\.0\\.1:\\d+)/#code=([\\w-]+)", file).groups()
page = load("/")
token = json.loads(load("/api/login", code, method="POST"))["token"]
[server] = json.loads(load("/api/state", token))["servers"]
try:
    again = load("/api/login", code, method="POST")
except urllib.error.HTTPError as error:
    again = error.code
print("opened", "<!doctype html>" in page.lower(), server["name"], again)
"""


class NewUser:
    """A home folder with an environment of its own and a project in it; nothing of the tests' environment is seen."""

    def __init__(self, home: Path) -> None:
        self.project = home / "hello"
        self.project.mkdir(parents=True)
        programs = home / ".venv" / "bin"
        self.python = programs / "python"
        passed_on = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "LANG"))}
        self.env = {**passed_on, "HOME": str(home), "PATH": f"{programs}:{os.defpath}"}

    def install(self) -> None:
        """Install the package as README says; skip the test where pip reaches no index."""
        venv.create(self.python.parents[1], symlinks=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(self.python)]
        reach = self.run(*pip, "download", "-q", "--no-deps", "-d", str(self.project.parent / "reach"), "hatchling")
        if reach.returncode != 0:
            pytest.skip(f"pip reaches no index, so nothing can be installed: {reach.stderr.strip()[-300:]}")
        command = re.search(r"^pip (install -e '/path/to/trunkline\S*')", README.read_text(encoding="utf-8"), re.M)
        assert command is not None
        words = shlex.split(command[1].replace("/path/to/trunkline", str(ROOT)))
        done = self.run(*pip, *words, "-q", seconds=_INSTALL_SECONDS)
        assert done.returncode == 0, done.stderr

    def run(
        self, *command: str, cwd: Path | None = None, env: Mapping[str, str] | None = None, seconds: float = _SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the project."""
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            cwd=cwd or self.project,
            env=self.env if env is None else env,
            check=False,
        )

    def trunkline(self, *arguments: str, **options: Any) -> str:
        """Run a command of Trunkline that must succeed; return what it printed."""
        done = self.run(str(self.python.with_name("trunkline")), *arguments, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def serving(self, *arguments: str) -> Iterator[Served]:
        """Serve over HTTP with ``trunkline run``."""
        command = [str(self.python.with_name("trunkline")), "run", *arguments]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=self.project, env=self.env) as process:
            assert process.stderr is not None
            try:
                with kill_if_silent(process):
                    line = process.stderr.readline()
                yield Served(process, line)
            finally:
                process.terminate()

    def sees(self, program: str, *arguments: str, python: str | None = None) -> Any:
        """Run a program; return the JSON that it printed."""
        done = self.run(python or str(self.python), "-c", program, *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def write(self, name: str, content: object) -> str:
        """Write a file of the project; return its path."""
        text = content if isinstance(content, str) else json.dumps(content)
        (self.project / name).write_text(text, encoding="utf-8")
        return str(self.project / name)


@pytest.mark.slow
@pytest.mark.timeout(400)  # Most of it is the time of pip.
def test_a_new_user_gets_from_the_readme_to_every_client(tmp_path: Path, subtests: pytest.Subtests) -> None:
    user = NewUser(tmp_path / "home")
    user.install()
    [source] = [block.text for block in blocks(README) if block.title == "server.py"]
    user.write("server.py", source)

    with subtests.test("Client of the file"):
        assert user.sees(OUR_CLIENT, "server.py", "") == GREETED

    protected = source.replace("import Server", "import Server, StaticTokens").replace(
        'Server("hello")', f'Server("hello", auth=StaticTokens({{"{TOKEN}": "ada"}}))'
    )
    assert protected.count("StaticTokens") == 2
    user.write("server.py", protected)
    with subtests.test("auth= over stdio"):
        assert "greet" in user.trunkline("list", "tools", "server.py")
        assert user.trunkline("call", "server.py", "greet", "name=Ada") == "hello Ada\n"
        assert user.sees(OUR_CLIENT, "server.py", "") == GREETED

    with subtests.test("auth= over HTTP"), user.serving("server.py", "--http", "0") as http:
        command = shlex.split(http.line.partition("try: trunkline ")[2])
        assert "greet" in user.trunkline(*(word.replace("TOKEN", TOKEN) for word in command))
        assert user.trunkline("call", http.url, "--token", TOKEN, "greet", "name=Ada") == "hello Ada\n"
        assert user.sees(OUR_CLIENT, http.url, TOKEN) == GREETED

    printed = json.loads(user.trunkline("install", "server.py", "--print"))
    [name] = printed["mcpServers"]
    config = user.write("mcp.json", printed)
    with subtests.test("the printed entry, started as applications do: elsewhere, with few variables"):
        bare = {"HOME": user.env["HOME"], "PATH": os.defpath}
        assert user.trunkline("call", "-c", config, name, "greet", "name=Ada", cwd=Path("/"), env=bare) == "hello Ada\n"

    with subtests.test("the same entry in a sandbox"):
        if not {"bwrap", "landlock"} & set(detect_capabilities().kinds):
            pytest.skip(f"no sandbox: {'; '.join(detect_capabilities().findings())}")
        sandboxed = {"mcpServers": {name: {**printed["mcpServers"][name], "sandbox": True}}}
        user.write("policy.toml", f'[[rule]]\neffect = "allow"\nserver = "{name}"\ntool = "greet"\n')
        assert user.sees(OUR_HOST, user.write("sandboxed.json", sandboxed)) == {**GREETED, "reason": None}

    with subtests.test("FastMCP's client"):
        if not FASTMCP.exists():
            pytest.skip("FastMCP is not installed: `make interop` does that")
        assert user.sees(FASTMCP_CLIENT, config, python=str(FASTMCP)) == GREETED

    with subtests.test("the official client"):
        if find_spec("mcp") is None:
            pytest.skip("the official SDK is not installed: pip install -r requirements-dev.txt")
        assert user.sees(OFFICIAL_CLIENT, config, python=sys.executable) == GREETED

    with subtests.test("the console"):
        browser = f"{sys.executable} {user.write('browser.py', BROWSER)} %s"
        console = in_a_terminal(
            *("console", "-c", config),
            program=[str(user.python.with_name("trunkline"))],
            env={**user.env, "BROWSER": browser, "PYTHONPATH": ""},
            cwd=user.project,
            interrupt_at="\nopened",
            columns=200,
        )
        assert f"opened True {name} 401" in console.out
