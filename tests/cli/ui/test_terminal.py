"""At a terminal: forms, pages and sampling answered by a person, progress bars, tables cut to fit."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

import pytest

from tests.cli.support import DEMO, Cli, Person

both_eras = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


def in_a_terminal_of_its_own(*arguments: str, script: tuple[tuple[str, str], ...]) -> tuple[int, str]:
    """Run the command as a process whose streams, and controlling terminal, are a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", RUN, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        person = Person(ours, script)
        person.start()
        code = process.wait(120)
    screen = person.finish()
    os.close(ours)
    return code, screen


RUN = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from trunkline.cli.main import main
sys.exit(main())
"""


# --- forms -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["choose", "think"])
def test_what_was_typed_before_a_servers_question_does_not_answer_it(tool: str, cli: Cli) -> None:
    prompt = "value: " if tool == "choose" else "answer: "
    script = ((prompt, ":decline\n"),)
    code, screen = cli.at_a_terminal("call", DEMO, tool, script=script, typed_before="celsius\ncelsius\n")
    assert code == 6, screen


def test_the_real_command_asks_in_its_terminal() -> None:
    code, screen = in_a_terminal_of_its_own("call", DEMO, "choose", script=(("value: ", "celsius\n"),))
    assert code == 0
    assert screen.endswith("accept celsius\n")


def test_an_interrupt_at_a_question_ends_the_command() -> None:
    code, screen = in_a_terminal_of_its_own("call", DEMO, "choose", script=(("value: ", "\x03"),))
    assert code == 128 + signal.SIGINT
    assert screen.rstrip().endswith("trunkline: interrupted")


def test_a_form_is_filled_in_field_by_field(cli: Cli) -> None:
    script = (
        ("city: ", "\n"),
        ("value is required", ""),
        ("city: ", "Oslo\n"),
        ("days [3]: ", "soon\n"),
        ("'soon' is not a whole number", ""),
        ("days [3]: ", "99\n"),
        ("days [3]: ", "7\n"),
        ("budget (optional): ", "much\n"),
        ("'much' is not a number", ""),
        ("budget (optional): ", "12.5\n"),
        ("car [no]: ", "perhaps\n"),
        ("type yes or no", ""),
        ("car [no]: ", "y\n"),
        ("seat [window]: ", "middle\n"),
        ("not one of the choices", ""),
        ("seat [window]: ", "\n"),
        ("meals", "1, rice\n"),
        ("Send?", "yes\n"),
    )
    code, screen = cli.at_a_terminal("call", DEMO, "plan", script=script)
    assert code == 0
    assert "  | City\n  | Where to?\n" in screen
    assert (
        "To be sent:\n  city: Oslo\n  days: 7\n  budget: 12.5\n  car: yes\n  seat: window\n  meals: fish, rice\n"
        in screen
    )
    assert "days=7, budget=12.5, car=True, seat='window', meals=['fish', 'rice']" in screen


@pytest.mark.parametrize(
    ("typed", "action", "revision"),
    [
        pytest.param(":decline\n", "decline", "2025-11-25", id="decline"),
        pytest.param(":cancel\n", "cancel", "2026-07-28", id="cancel"),
        pytest.param("\x04", "cancel", "2025-11-25", id="end of input"),
    ],
)
def test_a_form_may_be_left(typed: str, action: str, revision: str, cli: Cli) -> None:
    code, screen = cli.at_a_terminal("call", DEMO, "choose", "--revision", revision, script=(("value: ", typed),))
    assert code == 6
    assert screen.endswith(f"{action} None\n")


@pytest.mark.parametrize(
    ("typed", "action", "code"),
    [("yes", "accept", 0), ("no", "decline", 6), ("c", "cancel", 6)],
)
def test_a_form_without_fields_is_a_plain_question(typed: str, action: str, code: int, cli: Cli) -> None:
    script = (("Accept?", "\n"), ("Accept?", f"{typed}\n"))
    ended, screen = cli.at_a_terminal("call", DEMO, "confirm", script=script)
    assert ended == code
    assert screen.endswith(f"{action}\n")


def test_the_servers_words_are_marked_and_cannot_control_the_terminal(cli: Cli) -> None:
    _, screen = cli.at_a_terminal("call", DEMO, "confirm", script=(("Accept?", "yes\n"),))
    assert "The server asks:\n  | Really?\\x1b[31m\n  | To be sent:\n" in screen


@both_eras
def test_two_questions_are_asked_one_after_the_other(revision: str, cli: Cli) -> None:
    script = (("asks:", ""), ("value: ", "a\n"), ("asks:", ""), ("value: ", "b\n"))
    code, screen = cli.at_a_terminal("call", DEMO, "both", "--revision", revision, script=script)
    assert code == 0
    assert screen.endswith("a b\n")


def test_with_no_input_a_question_is_declined_at_a_terminal_too(cli: Cli) -> None:
    code, screen = cli.at_a_terminal("call", DEMO, "choose", "--no-input")
    assert code == 6
    assert 'the server asks "Which unit?": declined, --no-input was given\n' in screen


def test_a_question_that_the_server_withdraws_is_over(cli: Cli) -> None:
    code, screen = cli.at_a_terminal("call", DEMO, "hurry", "--revision", "2025-11-25")
    assert code == 0
    assert screen.endswith("value: \ntoo late\n")


# --- pages -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "code", "revision"), [("yes", 0, "2025-11-25"), ("no", 6, "2025-11-25"), ("yes", 0, "2026-07-28")]
)
def test_a_page_is_shown_in_full_and_not_opened(typed: str, code: int, revision: str, cli: Cli) -> None:
    script = (("Did you open it?", f"{typed}\n"),)
    ended, screen = cli.at_a_terminal("call", DEMO, "visit", "--revision", revision, script=script)
    assert ended == code
    assert "  | Please pay.\n" in screen
    assert "  https://user@example.com/pay?id=1\n               ^^^^^^^^^^^\nThe page is at: example.com\n" in screen


# --- sampling --------------------------------------------------------------------------------------------------------


@both_eras
def test_a_person_answers_for_the_model(revision: str, cli: Cli) -> None:
    script = (("answer: ", "\n"), ("answer: ", "hello\\\n"), ("more: ", "there\n"))
    code, screen = cli.at_a_terminal("call", DEMO, "think", "--revision", revision, script=script)
    assert code == 0
    assert (
        "a model's answer (at most 10 tokens, from small):\n  | system: Be kind.\n  | user: Say\\x1b[1m hi\n" in screen
    )
    assert screen.endswith("hello\nthere\n")


@pytest.mark.parametrize(
    ("typed", "revision"),
    [
        pytest.param(":decline\n", "2025-11-25", id="decline"),
        pytest.param(":cancel\n", "2026-07-28", id="cancel"),
        pytest.param("\x04", "2026-07-28", id="end of input"),
    ],
)
def test_sampling_may_be_declined(typed: str, revision: str, cli: Cli) -> None:
    script = (("answer: ", typed),)
    code, screen = cli.at_a_terminal("call", DEMO, "think", "--revision", revision, script=script)
    assert code == 6
    assert screen.endswith("trunkline: the call failed because a request of the server was declined\n")


# --- progress and tables ---------------------------------------------------------------------------------------------


def test_progress_is_a_bar_that_is_gone_in_the_end(cli: Cli) -> None:
    code, screen = cli.at_a_terminal("call", DEMO, "work", "steps=2")
    assert code == 0
    assert f"[{'#' * 12}{'-' * 12}]  50% step\\x1b[1m 1" in screen
    assert f"[{'#' * 24}] 100% step\\x1b[1m 2" in screen
    assert screen.endswith("\r\x1b[Kworked\n")


def test_lines_stand_above_the_bar(cli: Cli) -> None:
    _, screen = cli.at_a_terminal("call", DEMO, "work", "steps=1", "-v")
    assert "\r\x1b[K[info] log\\x1b[1m 1\n[####" in screen


def test_a_list_is_cut_at_the_edge_of_the_terminal(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda fd: os.terminal_size((60, 24)))
    _, screen = cli.at_a_terminal("list", "tools", DEMO)
    assert max(map(len, screen.splitlines())) <= 60
    assert " ...\n" in screen
