"""The tests that stand beside the examples, and the tour: without a terminal, and with one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from examples.hello.test_hello import *  # noqa: F403
from examples.mounted.test_mounted import *  # noqa: F403
from examples.over_http.test_kitchen import *  # noqa: F403
from examples.testing.test_calculator import *  # noqa: F403
from examples.weather.screen import Abridger
from examples.weather.test_weather import *  # noqa: F403

ROOT = Path(__file__).parents[2]
TOUR = [sys.executable, "-m", "examples.weather.tour"]


@pytest.fixture(scope="module")
def told() -> str:
    """What the tour says to somebody who has no terminal."""
    ended = subprocess.run(TOUR, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


def test_the_tour_shows_the_messages_of_each_step(told: str) -> None:
    messages = [
        '"method":"initialize"',
        '"method":"tools/list"',
        '"method":"tools/call"',
        '"method":"notifications/progress"',
        '"method":"elicitation/create"',
        '"method":"sampling/createMessage"',
        '"method":"notifications/tools/list_changed"',
        '"method":"notifications/cancelled"',
        '"method":"server/discover"',
        '"resultType":"input_required"',
        '"method":"subscriptions/listen"',
        "MCP-Protocol-Version: 2026-07-28",
        "Mcp-Name: com.example.weather/current",
        "← 200 OK   content-type: text/event-stream",
        "→ DELETE /mcp   Mcp-Session-Id: ",
    ]
    assert [message for message in messages if message not in told] == []


def test_the_tour_without_a_terminal_is_plain_text(told: str) -> None:
    assert "\x1b" not in told


def test_the_tour_on_a_terminal_waits_for_enter_and_takes_answers() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "90"}
    environment.pop("NO_COLOR", None)
    answers = b"\n" * 6 + b"Seville\n5\n" + b"\n" * 20
    os.write(ours, answers)
    with subprocess.Popen(TOUR, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        said = b"".join(iter(lambda: _read(ours), b""))
        assert process.wait(120) == 0
    os.close(ours)
    assert b"5 days in Seville (clear sky). Take a hat." in said
    assert b"\x1b[1m" in said


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # Linux ends a terminal whose other side is gone with an error.
        return b""


def test_a_long_list_is_shown_by_its_ends() -> None:
    assert Abridger().shorten([1, 2, 3, 4, 5]) == [1, "… 3 more …", 5]


def test_what_comes_with_every_message_is_shown_once() -> None:
    abridger = Abridger()
    message = {"_meta": {"io.modelcontextprotocol/clientInfo": {"name": "a client with a name", "version": "1.0.0"}}}
    assert abridger.shorten(message) == message
    assert abridger.shorten(message) == {"_meta": {"…": "as before"}}
