"""``trunkline listen``: changes as lines, as one array, and the ways it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import DEMO, Cli

LIVELY = """
import asyncio
from contextlib import asynccontextmanager
from trunkline import Server

@asynccontextmanager
async def lifespan(server):
    async def change():
        while True:
            await asyncio.sleep(0.05)
            server.add_tool(lambda: "x", name="new")
            server.changed("note:one")
            await asyncio.sleep(0.05)
            server.remove_tool("new")
    task = asyncio.create_task(change())
    yield
    task.cancel()

server = Server("lively", lifespan=lifespan)

@server.tool
def old() -> str:
    return "old"

@server.resource("note:one")
def one() -> str:
    return "one"
"""
TOOLS = {"method": "notifications/tools/list_changed"}
NOTE = {"method": "notifications/resources/updated", "params": {"uri": "note:one"}}
both_eras = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


@pytest.fixture
def lively(tmp_path: Path) -> str:
    """A server whose tools and note change all the time."""
    file = tmp_path / "lively.py"
    file.write_text(LIVELY)
    return str(file)


@both_eras
def test_changes_of_lists_are_shown(lively: str, revision: str, cli: Cli) -> None:
    line = "the list of tools changed\n"
    assert cli("listen", lively, "--tools", "--count", "2", "--revision", revision) == (0, line * 2, "")


@both_eras
def test_changes_of_a_resource_are_shown(lively: str, revision: str, cli: Cli) -> None:
    code, out, _ = cli("listen", lively, "--uri", "note:one", "--count", "1", "--revision", revision)
    assert (code, out) == (0, "a resource changed: note:one\n")


def test_changes_as_json_are_one_array(lively: str, cli: Cli) -> None:
    code, out, err = cli("listen", lively, "--tools", "--count", "2", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == [TOOLS, TOOLS]
    assert len(out.splitlines()) == 3


def test_a_change_of_a_resource_as_json_is_its_notification(lively: str, cli: Cli) -> None:
    out = cli("listen", lively, "--uri", "note:one", "--count", "1", "--json").out
    assert json.loads(out) == [NOTE]


@both_eras
def test_listening_ends_after_the_time_given(revision: str, cli: Cli) -> None:
    code, out, _ = cli("listen", DEMO, "--for", "0.1", "--json", "--revision", revision)
    assert (code, json.loads(out)) == (0, [])


def test_what_can_never_come_is_an_error(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "empty.py"
    file.write_text("from trunkline import Server\nserver = Server('empty')\n")
    code, out, err = cli("listen", str(file), "--uri", "note:one", "--json")
    assert code == 5
    assert json.loads(out)[0]["error"]["message"] in err


def test_a_server_that_comes_back_leaves_a_mark(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "dying.py"
    file.write_text(LIVELY.replace('server.changed("note:one")', "__import__('os')._exit(1)"))
    code, out, _ = cli("listen", str(file), "--tools", "--count", "1", "--json")
    assert (code, json.loads(out)) == (0, [{"missed": True}])


def test_an_interrupted_listener_leaves_whole_json(lively: str) -> None:
    words = [sys.executable, "-m", "trunkline", "listen", lively, "--tools", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(120) == 130
    assert json.loads(first + rest)[0] == TOOLS
