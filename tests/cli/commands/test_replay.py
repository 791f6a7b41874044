"""``trunkline replay``: a recording as a server that answers as it did, and as a client that finds what changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.recorded import ERAS, TALKER, said_by, trunkline_command, use_everything, watched
from tests.cli.support import Cli, Outcome

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


def test_what_the_recording_does_not_have_is_refused_in_words(talk: tuple[str, Path], cli: Cli) -> None:
    server = " ".join(trunkline_command("replay", str(talk[1]), "--as", "server"))
    outcome = cli("call", server, "order", "--args", '{"dish": "soup"}', "--revision", talk[0])
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
def test_an_option_without_effect_is_rejected(arguments: tuple[str, ...], said: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    outcome = cli("replay", str(tmp_path / "a.jsonl"), *arguments)
    assert outcome.code == 1
    assert said in outcome.err


def test_a_file_that_is_no_recording_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("nonsense\n")
    outcome = cli("replay", str(tmp_path / "a.jsonl"), "--as", "server")
    assert outcome.code == 2
    assert "a.jsonl, line 1" in outcome.err


# --- as a client ------------------------------------------------------------------------------------------------------


def test_the_same_server_answers_as_it_did(talk: tuple[str, Path], cli: Cli) -> None:
    outcome = cli("replay", str(talk[1]), "--as", "client", TALKER)
    assert outcome.code == 0, outcome
    assert "none different" in outcome.out
    assert "redacted credentials" in outcome.err


def test_a_server_at_a_url_answers_as_the_process_did(talk: tuple[str, Path], cli: Cli) -> None:
    with watched("run", TALKER, "--http", "0") as (_, url):
        outcome = cli("replay", str(talk[1]), "--as", "client", url)
    assert (outcome.code, "none different" in outcome.out) == (0, True), outcome


@pytest.fixture
def replayed_against(tmp_path: Path, cli: Cli) -> Callable[..., Outcome]:
    """Record a server, change it, and play the recording against it."""
    server, path = tmp_path / "server.py", tmp_path / "talk.jsonl"

    def replayed(source: str, *more: str) -> Outcome:
        server.write_text(HELLO + ADD.format(1))
        recorder = " ".join(trunkline_command("record", str(server), "-o", str(path)))
        assert cli("call", recorder, "add", "a=1").code == 0
        # Of another length: Python takes a file of the same second and size for the one whose bytecode it kept.
        server.write_text(f"{HELLO}{source}\n# changed\n")
        return cli("replay", str(path), "--as", "client", str(server), *more)

    return replayed


def test_an_answer_that_changed_is_shown_unless_it_is_ignored(
    replayed_against: Callable[..., Outcome], tmp_path: Path, cli: Cli
) -> None:
    outcome = replayed_against(ADD.format(2))
    lines = [line.strip() for line in outcome.out.splitlines()]
    assert outcome.code == 5
    assert lines[:4] == ["tools/call add", "/result/content/0/text", '- "2"', '+ "3"']
    again = ("replay", str(tmp_path / "talk.jsonl"), "--as", "client", str(tmp_path / "server.py"))
    ignored = ("--ignore", "/result/content/*/text", "--ignore", "/result/structuredContent")
    assert cli(*again, *ignored).code == 0
    document = cli(*again, "--json").json
    assert (document["same"], document["differing"]) == (False, 1)
    assert {"request", "number", "kind", "path", "first", "second"} == set(document["differences"][0])


@pytest.mark.parametrize("talk", [ERAS[0]], indirect=True)
def test_a_server_that_does_not_ask_any_more_is_found_out(talk: tuple[str, Path], tmp_path: Path, cli: Cli) -> None:
    server = tmp_path / "server.py"
    server.write_text(HELLO + "@server.tool\ndef order(dish: str) -> str:\n    return 'accept 3'\n")
    outcome = cli("replay", str(talk[1]), "--as", "client", str(server), "--timeout", "0.5")
    assert outcome.code == 5
    assert "elicitation/create, asked by the server" in outcome.out


def test_a_server_that_dies_is_unreachable(replayed_against: Callable[..., Outcome]) -> None:
    outcome = replayed_against("import os\nos._exit(3)\n")
    assert (outcome.code, "exited with status 3" in outcome.err) == (4, True), outcome
