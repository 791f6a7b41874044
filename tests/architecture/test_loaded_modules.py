"""What a stdio server loads: start-up time and memory are mostly imports.

A small server runs in a process of its own, answers one call, and tells which modules it holds. What the interpreter,
asyncio and msgspec load by themselves is not ours to answer for and is left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import trunkline
from tests.architecture.eras import ERAS, each_era

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


def run(source: str, *lines: dict[str, object]) -> subprocess.CompletedProcess[str]:
    """Run a program on its own, with these messages as its input."""
    # Nothing that measures the tests may start inside the process.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("COV", "PYTEST"))}
    environment["PYTHONPATH"] = str(Path(trunkline.__file__).parents[1])
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return subprocess.run(
        [sys.executable, "-c", source],
        input=text,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
        env=environment,
    )


@cache
def loaded(era: str) -> frozenset[str]:
    """The modules a stdio server holds at its end, without those of a bare asyncio and msgspec program."""
    return frozenset(run(SERVER, *ERAS[era]).stderr.split()) - frozenset(run(FLOOR).stderr.split())


@each_era
def test_the_server_whose_modules_are_counted_answers(era: str) -> None:
    answers = [json.loads(line) for line in run(SERVER, *ERAS[era]).stdout.splitlines()]
    assert answers[-1]["id"] == 2
    assert answers[-1]["result"]["content"] == [{"type": "text", "text": "3"}]


@each_era
@pytest.mark.parametrize("name", HEAVY)
def test_a_stdio_server_does_not_load(name: str, era: str) -> None:
    assert [module for module in loaded(era) if module == name or module.startswith(name + ".")] == []


@each_era
def test_a_stdio_server_loads_only_its_own_part_of_the_package(era: str) -> None:
    own = {module.split(".")[1] for module in loaded(era) if module.startswith("trunkline.")}
    assert own <= set(OWN)


@each_era
def test_a_stdio_server_loads_no_other_transport(era: str) -> None:
    own = {module.split(".")[2] for module in loaded(era) if module.startswith("trunkline.transports.")}
    assert own <= set(OWN_TRANSPORTS)


def test_naming_the_package_loads_only_what_loads_its_names() -> None:
    names = run("import sys, trunkline; sys.stderr.write(' '.join(sys.modules))").stderr.split()
    assert [name for name in names if name.startswith(("trunkline.", "asyncio", "msgspec"))] == ["trunkline._lazy"]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "--help"],
        ["serve", "--help"],
        ["console", "--help"],
        ["dev", "--help"],
        ["inspect", "--help"],
        ["status", "--json"],
        ["chat", "--help"],
        ["auth", "list"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_that_shows_no_page_does_not_load_the_console(words: list[str], tmp_path: Path) -> None:
    source = f"""
import os, sys
os.environ["TRUNKLINE_HOME"] = {str(tmp_path)!r}
os.chdir({str(tmp_path)!r})
from trunkline.cli.main import main
main({words!r})
sys.stderr.write("\\n" + "\\n".join(name for name in sys.modules if name.startswith("trunkline.console")))
"""
    assert "trunkline.console" not in run(source).stderr.splitlines()
