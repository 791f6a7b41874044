"""``trunkline call --detach`` and ``trunkline task``: start a task, and come back for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import Cli, Served, serving

TASKS = str(Path(__file__).parents[1] / "tasks.py")
REVISIONS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """The server over HTTP."""
    with serving(TASKS, "--http", "0") as server:
        yield server


def start(cli: Cli, served: Served, tool: str, *options: str) -> str:
    """Start a task and return its id."""
    code, out, err = cli("call", served.url, tool, "--detach", *options)
    id = out.strip()
    assert (code, re.fullmatch(r"[\w-]{32}", id) is not None) == (0, True)
    assert err == f"trunkline: to wait for it, run: trunkline task {served.url} {id}\n"
    return id


@REVISIONS
def test_a_task_is_started_looked_at_and_waited_for(served: Served, revision: str, cli: Cli) -> None:
    id = start(cli, served, "wait", "--revision", revision)
    looked = cli("task", served.url, id, "--state", "--revision", revision)
    late = cli("task", served.url, id, "--timeout", "0.2", "--revision", revision)
    assert cli("call", served.url, "release").code == 0
    waited = cli("task", served.url, id, "--revision", revision)
    again = cli("task", served.url, id, "--json", "--revision", revision)
    assert looked == (0, "working: 1/2: waiting\n", "")
    assert (late.code, late.out) == (7, "")
    assert "the task did not finish within 0.2 s" in late.err
    assert waited == (0, "waited\n", "")
    assert json.loads(again.out)["content"] == [{"type": "text", "text": "waited"}]


@REVISIONS
def test_a_task_is_cancelled(served: Served, revision: str, cli: Cli) -> None:
    id = start(cli, served, "wait", "--revision", revision)
    cancelled = cli("task", served.url, id, "--cancel", "--revision", revision)
    again = cli("task", served.url, id, "--cancel", "--json", "--revision", revision)
    waited = cli("task", served.url, id, "--revision", revision)
    assert cancelled == (0, "cancelled: The task was cancelled by request.\n", "")
    assert json.loads(again.out)["status"] == "cancelled"
    assert (waited.code, waited.out) == (5, "")
    assert "was cancelled" in waited.err


@REVISIONS
def test_a_failure_is_shown_as_that_of_a_call(served: Served, revision: str, cli: Cli) -> None:
    id = start(cli, served, "fail", "--revision", revision)
    ended = cli("task", served.url, id, "--revision", revision)
    assert ended == (5, "", "trunkline: the task failed: out of paint\n")


def test_looking_does_not_answer_the_questions(served: Served, cli: Cli) -> None:
    id = start(cli, served, "ask")
    looked = [cli("task", served.url, id, "--state") for _ in range(2)]
    state = cli("task", served.url, id, "--state", "--json").json
    declined = cli("task", served.url, id)
    assert looked == [(0, "input_required\nasks: Which colour?\n", "")] * 2
    assert [each["method"] for each in state["inputRequests"].values()] == ["elicitation/create"]
    assert (declined.code, declined.out) == (6, "decline\n")
    assert "declined, there is no terminal to ask in" in declined.err


def test_the_state_says_where_a_revision_delivers_the_questions(served: Served, cli: Cli) -> None:
    revision = ("--revision", "2025-11-25")
    id = start(cli, served, "ask", *revision)
    looked = cli("task", served.url, id, "--state", *revision)
    working = cli("task", served.url, start(cli, served, "wait", *revision), "--state", *revision)
    assert looked == (
        0,
        "input_required\n",
        "trunkline: in revision 2025-11-25 the state of a task does not include its questions; "
        "to read and answer them, run the same command without --state\n",
    )
    assert working == (0, "working: 1/2: waiting\n", "")


@REVISIONS
def test_the_questions_are_asked_in_the_terminal(served: Served, revision: str, cli: Cli) -> None:
    id = start(cli, served, "ask", "--revision", revision)
    words = ("task", served.url, id, "--revision", revision)
    code, seen = cli.at_a_terminal(*words, script=(("value", "red\n"),))
    assert code == 0
    assert "Which colour?" in seen
    assert "accept red" in seen


@pytest.mark.parametrize(
    ("tool", "asked"),
    [
        pytest.param("confirm", 'asks "Sure?"', id="elicitation"),
        pytest.param("compose", 'asks for a model\'s answer to "user: Say hi"', id="sampling"),
    ],
)
def test_a_question_before_there_is_a_task_is_left_open_without_a_terminal(
    served: Served, tool: str, asked: str, cli: Cli
) -> None:
    cli("call", served.url, "decisions")
    code, out, err = cli("call", served.url, tool, "--detach", "--revision", "2026-07-28")
    decided = cli("call", served.url, "decisions", "--json")
    assert (code, out) == (6, "")
    assert err == (
        f"trunkline: the server {asked} before the call has become a task, and there is no terminal to ask in; "
        "nothing was answered: run the same command in a terminal to answer, or with --no-input to decline\n"
    )
    assert json.loads(decided.out)["structuredContent"] == {"result": []}


def test_a_question_before_there_is_a_task_is_declined_if_that_was_asked_for(served: Served, cli: Cli) -> None:
    words = ("call", served.url, "confirm", "--detach", "--no-input", "--revision", "2026-07-28")
    assert cli(*words) == (
        6,
        "decline\n",
        'trunkline: the server asks "Sure?": declined, --no-input was given\n',
    )


def test_a_question_before_there_is_a_task_is_asked_in_the_terminal(served: Served, cli: Cli) -> None:
    words = ("call", served.url, "confirm", "--detach", "--revision", "2026-07-28")
    code, seen = cli.at_a_terminal(*words, script=(("value", "y\n"),))
    assert code == 0
    assert "Sure?" in seen
    assert "accept" in seen


def test_an_answer_that_comes_at_once_is_printed(served: Served, cli: Cli) -> None:
    assert cli("call", served.url, "quick", "text=hi", "--detach") == (0, "hi\n", "")


def test_a_started_task_as_json(served: Served, cli: Cli) -> None:
    found = cli("call", served.url, "ask", "--detach", "--json").json
    assert found.keys() == {"taskId", "status"}
    assert found["status"] == "working"


def test_an_unknown_task_is_an_error(served: Served, cli: Cli) -> None:
    for options in ((), ("--state",), ("--cancel",)):
        code, out, err = cli("task", served.url, "nothing", *options)
        assert (code, out) == (5, "")
        assert "Task not found" in err


def test_a_server_without_tasks_is_named_as_such(demo: Served, cli: Cli) -> None:
    code, _, err = cli("call", demo.url, "echo", "text=hi", "--detach")
    assert (code, err) == (
        5,
        "trunkline: this server has no tasks in revision 2026-07-28; call the tool without --detach\n",
    )


def test_a_server_that_ends_with_the_command_cannot_be_left(cli: Cli) -> None:
    code, out, err = cli("call", TASKS, "wait", "--detach")
    assert (code, out) == (1, "")
    assert "start it with trunkline run FILE --http 8000, and pass its URL as TARGET" in err


@pytest.mark.parametrize("words", [("call", "shop", "wait", "--detach"), ("task", "shop", "id")], ids=["call", "task"])
def test_the_tasks_of_configured_servers_are_those_of_a_gateway(
    words: tuple[str, ...], tmp_path: Path, cli: Cli
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"shop": {"command": "python", "args": [TASKS]}}}))
    code, out, err = cli(*words, "-c", str(file))
    assert (code, out) == (1, "")
    assert "run the gateway (trunkline serve --http 8080) and pass its URL as TARGET" in err


def test_a_task_of_a_file_is_found_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    kept = tmp_path / "tasks.sqlite"
    monkeypatch.setenv("TASKS_FILE", str(kept))
    with serving(TASKS, "--http", "0") as served:
        id = cli("call", served.url, "echo", "text=hi", "--detach").out.strip()
        assert cli("task", served.url, id).out == "hi\n"
    assert cli("task", TASKS, id, "--env", f"TASKS_FILE={kept}") == (0, "hi\n", "")
