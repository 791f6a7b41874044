"""Long paths through the host, the command line and tasks, each held to a budget of files by a profiler.

To follow a path is to read every file it enters. Counted are files of the package whose functions are entered,
in all threads; the module-level code of an import is not counted, since the same path was taken once before.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import trunkline.types as t
from tests.architecture.eras import ERAS
from tests.architecture.test_call_path import PACKAGE, Profile, Step
from tests.cli.hosted import ALLOW_ALL, demo_entry, write_config
from tests.cli.support import Cli, Outcome
from tests.host.gateway.support import CELLS, on_stage, server
from trunkline import Server
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.gateway.sessions import GatewayOptions
from trunkline.transports.pipes import PipeLink

#: Files below ``host/`` for a call through the gateway that the user approves.
MAX_GATEWAY_HOST_FILES = 22
#: Files of the package for ``trunkline call -c``.
MAX_CALL_FILES = 98
#: Files below ``host/`` for ``trunkline config explain``.
MAX_EXPLAIN_HOST_FILES = 12
#: Files of the package for a task over stdio, at the server: it is created, runs, and is asked for its result.
MAX_TASK_FILES = 26


class Walk(Profile):
    """The functions of the package that are entered or resumed; keeps no frames, so that no local lives longer."""

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            self.steps.append(Step(code.co_filename.removeprefix(PACKAGE), code.co_qualname))

    @property
    def host_files(self) -> list[str]:
        """The files entered below ``host/``."""
        return sorted(file for file in self.files if file.startswith("host/"))


@contextmanager
def profiled() -> Iterator[Walk]:
    """Profile this thread, and the threads that are started meanwhile."""
    walk = Walk()
    threading.setprofile(walk)
    sys.setprofile(walk)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def prepare_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a new folder with a configuration of one server, and empty folders of the user."""
    folder.mkdir()
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        (folder / name).mkdir()
        monkeypatch.setenv(name, str(folder / name))
    monkeypatch.chdir(folder)
    write_config(folder / "mcp.json", {"demo": demo_entry()})
    (folder / "policy.toml").write_text(ALLOW_ALL, encoding="utf-8")


# --- the configuration is parsed once --------------------------------------------------------------------------------

LOAD = Step("host/config/loading.py", "load_configuration")
READ = Step("host/config/documents.py", "read_text")
COMMANDS = {
    "call": ("call", "-c", "mcp.json", "demo/add", "a=1"),
    "call-by-name": ("call", "demo", "add", "a=1"),
    "list": ("list", "tools", "-c", "mcp.json"),
    "read": ("read", "-c", "mcp.json", "demo/note://one"),
    "status": ("status", "-c", "mcp.json"),
    "status-check": ("status", "-c", "mcp.json", "--check"),
    "serve": ("serve", "-c", "mcp.json"),
    "doctor": ("doctor", "-c", "mcp.json"),
    "ask": ("ask", "-c", "mcp.json", "--no-input", "Hello"),
    "config-explain": ("config", "explain", "-c", "mcp.json"),
    "policy-check": ("policy", "check", "policy.toml", "-c", "mcp.json"),
    "install": ("install", "--into", "claude-code", "demo", "-c", "mcp.json", "--dry-run"),
    "trust-list": ("trust", "list"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_reads_its_configuration_file_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare_project(tmp_path / "project", monkeypatch)
    with profiled() as walk:
        outcome = Cli(capsys, monkeypatch)(*COMMANDS[name])
    assert (walk.steps.count(LOAD), walk.steps.count(READ)) == (1, 1), f"{outcome}\n{walk.files}"


# --- budgets of files ------------------------------------------------------------------------------------------------


def second_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str
) -> tuple[Outcome, Walk]:
    """Run a command twice, each time as its user's first; return the outcome and the path of the second run."""
    prepare_project(folder / "first", monkeypatch)
    Cli(capsys, monkeypatch)(*arguments)
    prepare_project(folder / "second", monkeypatch)
    with profiled() as walk:
        outcome = Cli(capsys, monkeypatch)(*arguments)
    return outcome, walk


def test_a_call_of_a_configured_server_stays_within_its_budget_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, walk = second_run(monkeypatch, capsys, tmp_path, "call", "-c", "mcp.json", "demo/add", "a=1", "b=2")
    assert (outcome.code, outcome.out) == (0, "3\n")
    assert len(walk.files) <= MAX_CALL_FILES, sorted(walk.files)


def test_explaining_a_configuration_stays_within_its_budget_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, walk = second_run(monkeypatch, capsys, tmp_path, "config", "explain", "-c", "mcp.json")
    assert outcome.code == 0
    assert len(walk.host_files) <= MAX_EXPLAIN_HOST_FILES, walk.host_files


async def test_a_task_stays_within_its_budget_of_files() -> None:
    tasks = Server("tiny")
    ran = asyncio.Event()

    @tasks.tool(task=True)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        ran.set()
        return a + b

    to_server, from_server = os.pipe(), os.pipe()
    serving = asyncio.create_task(tasks.serve(PipeLink(to_server[0], from_server[1])))
    with os.fdopen(from_server[0], "rb") as answers, os.fdopen(to_server[1], "wb", buffering=0) as requests:

        async def send(id: int, method: str, **params: object) -> dict[str, Any]:
            line = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
            requests.write(json.dumps(line).encode() + b"\n")
            answer: dict[str, Any] = json.loads(await asyncio.to_thread(answers.readline))
            return answer

        async def run_task(id: int) -> dict[str, Any]:
            ran.clear()
            call = await send(id, "tools/call", name="add", arguments={"a": 1, "b": 2}, task={})
            await asyncio.wait_for(ran.wait(), 30)
            return await send(id + 1, "tasks/result", taskId=call["result"]["task"]["taskId"])

        for line in ERAS["handshake"][:2]:
            requests.write(json.dumps(line).encode() + b"\n")
        await asyncio.to_thread(answers.readline)
        await run_task(10)
        with profiled() as walk:
            result = (await run_task(20))["result"]
    await serving
    assert result["structuredContent"] == {"result": 3}
    assert len(walk.files) <= MAX_TASK_FILES, sorted(walk.files)


@CELLS
async def test_an_approved_gateway_call_stays_within_its_budget_of_files(
    channel: str, upstream: str, tmp_path: Path
) -> None:
    asked: list[str] = []

    async def approve(question: t.ElicitRequestParams) -> t.ElicitResult:
        asked.append(question.message)
        fields = (question.requested_schema or {})["properties"]
        return t.ElicitResult(action="accept", content={name: field["enum"][0] for name, field in fields.items()})

    desk = server("desk", upstream)

    @desk.tool
    async def write(to: str) -> str:
        """Write a letter."""
        return f"wrote to {to}"

    options = GatewayOptions(approval="ask")
    async with (
        on_stage({"desk": desk}, tmp_path, policy=Policy(()), gateway=options, audit=True) as stage,
        stage.client(channel, elicitation=approve) as client,
    ):
        await client.call_tool("desk__write", {"to": "Ann"})
        # What the host does beside a call, such as checking on its servers, may fall into one of them, not into all.
        with profiled() as first:
            result = await client.call_tool("desk__write", {"to": "Ben"})
        with profiled() as second:
            await client.call_tool("desk__write", {"to": "Ben"})
        with profiled() as third:
            await client.call_tool("desk__write", {"to": "Ben"})
    assert (result.data, len(asked)) == ("wrote to Ben", 4)
    shortest = min((first.host_files, second.host_files, third.host_files), key=len)
    assert len(shortest) <= MAX_GATEWAY_HOST_FILES, shortest
