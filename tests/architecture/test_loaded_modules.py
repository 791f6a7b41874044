"""What a stdio server loads: start-up time and memory are mostly imports.

A small server runs in a process of its own, answers one call, and tells which modules it holds. What the interpreter,
asyncio and msgspec load by themselves is not ours to answer for and is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import trunkline
from tests.architecture.eras import ERAS

SERVER = """
import sys
from trunkline import Server

server = Server("tiny", version="1.0.0")

@server.tool
async def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    return a + b

server.run()
sys.stderr.write("\\n".join(sorted(sys.modules)))
"""
FLOOR = "import sys, asyncio, msgspec; sys.stderr.write('\\n'.join(sorted(sys.modules)))"

#: Loaded at first use, by others, or never.
HEAVY = (
    "aiohttp", "anyio", "argparse", "attrs", "click", "concurrent.futures.process", "cryptography", "dataclasses",
    "email", "http", "httptools", "httpx", "importlib.metadata", "jsonschema_rs", "multiprocessing",
    "opentelemetry", "pathlib", "pydantic", "secrets", "starlette", "urllib.request", "uuid", "uvicorn",
)  # fmt: skip

#: The parts of the package that a stdio server is made of.
OWN = (
    "_lazy",
    "connection",
    "errors",
    "pending_requests",
    "protocol",
    "server",
    "service",
    "timers",
    "transports",
    "types",
)
OWN_TRANSPORTS = ("codec_errors", "link", "pipes", "stdio", "stdio_server")


def run(source: str, *lines: dict[str, object], arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a program on its own, with these messages as its input."""
    # Nothing that measures the tests may start inside the process.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTEST"))}
    environment["PYTHONPATH"] = str(Path(trunkline.__file__).parents[1])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return subprocess.run(
        [sys.executable, "-c", source, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=environment,
    )


class Ended(NamedTuple):
    """What a stdio server answered, and the modules it holds at its end that a bare asyncio program does not."""

    answers: list[dict[str, Any]]
    modules: frozenset[str]

    def parts(self, package: str) -> set[str]:
        """The names below a package that it holds."""
        return {name.removeprefix(package).split(".")[0] for name in self.modules if name.startswith(package)}


@pytest.fixture(scope="module", params=list(ERAS))
def ended(request: pytest.FixtureRequest, floor: frozenset[str]) -> Ended:
    """A stdio server that answered the lines of an era."""
    process = run(SERVER, *ERAS[request.param])
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    return Ended(answers, frozenset(process.stderr.split()) - floor)


@pytest.fixture(scope="module")
def floor() -> frozenset[str]:
    """The modules that a bare asyncio and msgspec program holds."""
    return frozenset(run(FLOOR).stderr.split())


def test_the_server_whose_modules_are_counted_answers(ended: Ended) -> None:
    assert ended.answers[-1]["id"] == 2
    assert ended.answers[-1]["result"]["content"] == [{"type": "text", "text": "3"}]


def test_a_stdio_server_loads_nothing_heavy(ended: Ended) -> None:
    heavy = tuple(f"{name}." for name in HEAVY)
    assert sorted(module for module in ended.modules if f"{module}.".startswith(heavy)) == []


def test_a_stdio_server_loads_only_its_own_part_of_the_package(ended: Ended) -> None:
    assert ended.parts("trunkline.") <= set(OWN)


def test_a_server_without_tasks_loads_no_module_of_tasks(ended: Ended) -> None:
    assert "tasks" not in ended.parts("trunkline.server.") | ended.parts("trunkline.protocol.")


def test_a_stdio_server_loads_no_other_transport(ended: Ended) -> None:
    assert ended.parts("trunkline.transports.") <= set(OWN_TRANSPORTS)


def test_naming_the_package_loads_only_what_loads_its_names() -> None:
    names = run("import sys, trunkline; sys.stderr.write(' '.join(sys.modules))").stderr.split()
    assert [name for name in names if name.startswith(("trunkline.", "asyncio", "msgspec"))] == ["trunkline._lazy"]


COMMANDS = """
import os, sys
os.environ["TRUNKLINE_HOME"] = sys.argv[1]
os.chdir(sys.argv[1])
from trunkline.cli.main import main
commands = "--help", "run --help", "serve --help", "console --help", "dev --help", "inspect --help", "status --json"
for command in *commands, "chat --help", "auth list":
    main(command.split())
    sys.stderr.write(f"\\n{command}: {'trunkline.console' in sys.modules}\\n")
"""


def test_a_command_that_shows_no_page_does_not_load_the_console(tmp_path: Path) -> None:
    """In one process: once a command has loaded the console, the commands after it show it too."""
    lines = run(COMMANDS, arguments=(str(tmp_path),)).stderr.splitlines()
    assert [line for line in lines if line.endswith(": True")] == []
    assert len([line for line in lines if line.endswith(": False")]) == 9
