"""The tests that stand beside the examples, and the tour: without a terminal, and with one."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from examples.hello.test_hello import test_the_client_prints_the_greeting, test_the_server_greets
from examples.mounted.test_mounted import address, test_the_tools_and_the_routes_share_what_they_work_on
from examples.over_http.test_kitchen import test_one_address_serves_both_eras, url
from examples.testing.test_calculator import (
    test_a_call_without_an_answer_times_out_and_no_test_waits_for_it,
    test_a_quotient_comes_back_as_a_number,
    test_division_by_zero_is_explained_to_the_model,
    test_the_user_is_asked_in_every_revision_that_has_the_question,
)
from examples.weather.screen import Abridger
from examples.weather.test_weather import (
    test_a_city_is_completed_and_its_resource_read,
    test_a_forecast_reports_each_day,
    test_a_tool_comes_and_goes,
    test_a_trip_is_planned_from_the_users_answers,
    test_the_client_prints_the_weather,
    test_the_model_of_the_client_describes_the_weather,
    test_the_weather_is_told_in_the_units_asked_for,
)

__all__ = [
    "address",
    "test_a_call_without_an_answer_times_out_and_no_test_waits_for_it",
    "test_a_city_is_completed_and_its_resource_read",
    "test_a_forecast_reports_each_day",
    "test_a_quotient_comes_back_as_a_number",
    "test_a_tool_comes_and_goes",
    "test_a_trip_is_planned_from_the_users_answers",
    "test_division_by_zero_is_explained_to_the_model",
    "test_one_address_serves_both_eras",
    "test_the_client_prints_the_greeting",
    "test_the_client_prints_the_weather",
    "test_the_model_of_the_client_describes_the_weather",
    "test_the_server_greets",
    "test_the_tools_and_the_routes_share_what_they_work_on",
    "test_the_user_is_asked_in_every_revision_that_has_the_question",
    "test_the_weather_is_told_in_the_units_asked_for",
    "url",
]

ROOT = Path(__file__).parents[2]
TOUR = [sys.executable, "-m", "examples.weather.tour"]


@pytest.fixture(scope="module")
def told() -> str:
    """What the tour says to somebody who has no terminal."""
    ended = subprocess.run(TOUR, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, timeout=50, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    return ended.stdout.decode()


@pytest.mark.parametrize(
    "message",
    [
        pytest.param('"method":"initialize"', id="connects-by-handshake"),
        pytest.param('"method":"tools/list"', id="lists"),
        pytest.param('"method":"tools/call"', id="calls"),
        pytest.param('"method":"notifications/progress"', id="sees-progress"),
        pytest.param('"method":"elicitation/create"', id="is-asked"),
        pytest.param('"method":"sampling/createMessage"', id="lends-a-model"),
        pytest.param('"method":"notifications/tools/list_changed"', id="sees-tools-change"),
        pytest.param('"method":"notifications/cancelled"', id="cancels"),
        pytest.param('"method":"server/discover"', id="connects-without-handshake"),
        pytest.param('"resultType":"input_required"', id="is-asked-in-the-answer"),
        pytest.param('"method":"subscriptions/listen"', id="listens"),
        pytest.param("MCP-Protocol-Version: 2026-07-28", id="names-the-revision-in-a-header"),
        pytest.param("Mcp-Name: com.example.weather/current", id="names-the-tool-in-a-header"),
        pytest.param("← 200 OK   content-type: text/event-stream", id="is-answered-with-a-stream"),
        pytest.param("→ DELETE /mcp   Mcp-Session-Id: ", id="closes-a-session"),
    ],
)
def test_the_tour_shows_the_messages_of_each_step(told: str, message: str) -> None:
    assert message in told


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
        assert process.wait(50) == 0
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
