"""``trunkline replay``: a recording as a server that answers as it did, and as a client that finds what changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.recorded import ERAS, TALKER, said_by, trunkline_command, use_everything, watched
from tests.cli.support import Outcome, command, run

HELLO = "from trunkline import Server\nserver = Server('hello')\n"
ADD = "@server.tool\ndef add(a: int) -> int:\n    return a + {}\n"


@pytest.fixture(scope="module", params=ERAS)
def talk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A recording of the talker in one era, made by a real process."""
    path = tmp_path_factory.mktemp("talk") / "talk.jsonl"
    assert use_everything(trunkline_command("record", TALKER, "-o", str(path)), request.param) == list(said_by)
    return request.param, path


# --- as a server ------------------------------------------------------------------------------------------------------


def test_a_recording_is_a_server_that_says_the_same(talk: tuple[str, Path]) -> None:
    revision, path = talk
    assert use_everything(trunkline_command("replay", str(path), "--as", "server"), revision) == list(said_by)


def test_a_recording_over_http_is_a_server_on_stdio(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    with (
        watched("run", TALKER, "--http", "0") as (_, url),
        watched("record", url, "-o", str(path), "--http", "0") as (_, front),
    ):
        use_everything(front, ERAS[1])
    assert use_everything(trunkline_command("replay", str(path), "--as", "server"), ERAS[1]) == list(said_by)


def test_what_the_recording_does_not_have_is_refused_in_words(talk: tuple[str, Path]) -> None:
    server = " ".join(trunkline_command("replay", str(talk[1]), "--as", "server"))
    outcome = command("call", server, "order", "--args", '{"dish": "soup"}', "--revision", talk[0])
    assert outcome.code == 5
    assert "the recording has no tools/call order with these params" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("--as", "server", TALKER), "takes no TARGET", id="a target"),
        pytest.param(("--as", "server", "--ignore", "/result"), "--ignore needs --as client", id="an option"),
        pytest.param(("--as", "client"), "the server to replay the client against", id="no target"),
        pytest.param(("--as", "client", TALKER, "--ignore", "result"), "not a JSON pointer", id="no pointer"),
    ],
)
def test_an_option_without_effect_is_rejected(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text("")
    outcome = run(capsys, "replay", str(tmp_path / "a.jsonl"), *arguments)
    assert outcome.code == 1
    assert said in outcome.err


def test_a_file_that_is_no_recording_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("nonsense\n")
    outcome = run(capsys, "replay", str(tmp_path / "a.jsonl"), "--as", "server")
    assert outcome.code == 2
    assert "a.jsonl, line 1" in outcome.err


# --- as a client ------------------------------------------------------------------------------------------------------


def test_the_same_server_answers_as_it_did(talk: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run(capsys, "replay", str(talk[1]), "--as", "client", TALKER)
    assert outcome.code == 0, outcome
    assert "none different" in outcome.out
    assert "redacted credentials" in outcome.err


def test_a_server_at_a_url_answers_as_the_process_did(talk: tuple[str, Path]) -> None:
    with watched("run", TALKER, "--http", "0") as (_, url):
        outcome = command("replay", str(talk[1]), "--as", "client", url)
    assert (outcome.code, "none different" in outcome.out) == (0, True), outcome


def _replayed_against(tmp_path: Path, source: str, *more: str) -> Outcome:
    """Record a server, change it, and play the recording against it."""
    server, path = tmp_path / "server.py", tmp_path / "talk.jsonl"
    server.write_text(HELLO + ADD.format(1))
    recorder = " ".join(trunkline_command("record", str(server), "-o", str(path)))
    assert command("call", recorder, "add", "a=1").code == 0
    # Of another length: Python takes a file of the same second and size for the one whose bytecode it kept.
    server.write_text(f"{HELLO}{source}\n# changed\n")
    return command("replay", str(path), "--as", "client", str(server), *more)


def test_an_answer_that_changed_is_shown_and_the_code_says_so(tmp_path: Path) -> None:
    outcome = _replayed_against(tmp_path, ADD.format(2))
    lines = [line.strip() for line in outcome.out.splitlines()]
    assert outcome.code == 5
    assert lines[:4] == ["tools/call add", "/result/content/0/text", '- "2"', '+ "3"']


def test_what_is_ignored_is_not_compared(tmp_path: Path) -> None:
    ignored = ("--ignore", "/result/content/*/text", "--ignore", "/result/structuredContent")
    assert _replayed_against(tmp_path, ADD.format(2), *ignored).code == 0


def test_differences_are_json_for_programs(tmp_path: Path) -> None:
    outcome = _replayed_against(tmp_path, ADD.format(2), "--json")
    document: dict[str, Any] = json.loads(outcome.out)
    assert (outcome.code, document["same"], document["differing"]) == (5, False, 1)
    assert {"request", "number", "kind", "path", "first", "second"} == set(document["differences"][0])


def test_a_server_that_does_not_ask_any_more_is_found_out(tmp_path: Path) -> None:
    server, path = tmp_path / "server.py", tmp_path / "talk.jsonl"
    use_everything(trunkline_command("record", TALKER, "-o", str(path)), ERAS[0])
    server.write_text(HELLO + "@server.tool\ndef order(dish: str) -> str:\n    return 'accept 3'\n")
    outcome = command("replay", str(path), "--as", "client", str(server), "--timeout", "0.5")
    assert outcome.code == 5
    assert "elicitation/create, asked by the server" in outcome.out


def test_a_server_that_dies_is_unreachable(tmp_path: Path) -> None:
    outcome = _replayed_against(tmp_path, "import os\nos._exit(3)\n")
    assert (outcome.code, "exited with status 3" in outcome.err) == (4, True), outcome
