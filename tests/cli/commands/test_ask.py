"""``trunkline ask``: one message for scripts, its document and its exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat.test_chat import Place, make_place
from tests.cli.hosted import ALLOW_ALL
from tests.cli.support import SECONDS, Outcome, at_a_terminal, command
from trunkline.cli.main import main


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Give a folder to ask in."""
    return make_place(tmp_path)


def script(place: Place, text: str) -> str:
    """Write another script for the model."""
    file = place.folder / "other.toml"
    file.write_text(text, encoding="utf-8")
    return f"scripted:{file}"


def ask(place: Place, *arguments: str, model: str | None = None, stdin: str = "") -> Outcome:
    """Ask, without a terminal."""
    return command(
        "ask",
        "-c",
        str(place.config),
        "--model",
        model or place.model,
        *arguments,
        stdin=stdin,
        env=place.env,
        cwd=place.folder,
    )


def document(outcome: Outcome) -> dict[str, Any]:
    """Read what ``--json`` printed."""
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def allow(place: Place) -> tuple[str, str]:
    """Allow everything."""
    rules = place.folder / "rules.toml"
    rules.write_text(ALLOW_ALL, encoding="utf-8")
    return "--policy", str(rules)


def test_the_answer_alone_is_on_stdout(place: Place) -> None:
    done = ask(place, "please work", *allow(place))
    assert (done.code, done.out, done.err) == (0, "It worked.\n", "")


def test_the_document_has_all_of_it(place: Place) -> None:
    done = ask(place, "please work", *allow(place), "--json")
    assert done.code == 0
    found = document(done)
    assert found["text"] == "It worked."
    (call,) = found["calls"]
    seconds = call.pop("seconds")
    assert seconds >= 0
    assert call == {"server": "demo", "tool": "work", "arguments": {"steps": 3}, "outcome": "ok"}
    assert found["usage"]["input_tokens"] > 0
    assert (found["model"], found["stop"], found["cost"]) == ("scripted:script.toml", "end", 0.0)
    assert "error" not in found


def test_secrets_in_arguments_are_not_in_the_document(place: Place) -> None:
    turns = '[[turn]]\nwhen = "go"\ncalls = [{ tool = "show", arguments = { value = { password = "hunter22" } } }]\n'
    model = script(place, turns + '[[turn]]\nsays = "done"\n')
    done = ask(place, "go", *allow(place), "--json", model=model)
    assert document(done)["calls"][0]["arguments"] == {"value": {"password": "***"}}


def test_consent_without_a_terminal_is_a_no(place: Place) -> None:
    done = ask(place, "please add", "--json")
    assert done.code == 6
    assert document(done)["calls"][0]["outcome"] == "denied"


def test_what_was_denied_is_said_with_the_command_that_allows_it(place: Place) -> None:
    done = ask(place, "please add")
    assert done.code == 6
    assert "demo/add was denied: " in done.err
    assert "Allow it: trunkline grants allow demo/add" in done.err


def test_a_declined_question_of_a_server_decides_the_code(place: Place) -> None:
    turns = '[[turn]]\nwhen = "go"\ncalls = [{ tool = "choose" }]\n[[turn]]\nsays = "{result}"\n'
    done = ask(place, "go", *allow(place), model=script(place, turns))
    assert (done.code, done.out) == (6, "decline None\n")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("no key", 3),
        ("refused key", 3),
        ("down", 4),
        ("cut off", 4),
        ("rate limited", 4),
        ("too long", 5),
        ("refused", 5),
    ],
)
def test_a_failing_model_has_its_code(fault: str, code: int, place: Place) -> None:
    done = ask(place, "go", "--json", model=script(place, f'[[turn]]\nsays = "Half"\nfails = "{fault}"\n'))
    assert done.code == code
    found = document(done)
    assert (found["text"], found["stop"], found["error"]["fault"]) == ("Half", "model", fault)
    assert fault in done.err


def test_an_answer_that_is_not_whole_has_a_code(place: Place) -> None:
    done = ask(place, "please work", *allow(place), "--max-turns", "1")
    assert (done.code, done.out) == (5, "Working.\n")
    assert "which is the limit" in done.err


def test_time_that_ran_out_has_its_code(place: Place) -> None:
    done = ask(place, "slow", "--timeout", "0.5")
    assert done.code == 7
    assert "its time limit of 0.5 s" in done.err


def test_what_is_piped_in_goes_with_the_message(place: Place) -> None:
    done = ask(place, "Sum it up", stdin="line one\nline two\n")
    assert done.code == 0
    assert "line one\nline two" in done.out
    assert "Sum it up>." in done.out


def test_what_is_piped_in_can_be_the_message(place: Place) -> None:
    assert ask(place, stdin="hi\n").out == "You said <hi\n>.\n"


def test_nothing_to_ask_is_a_wrong_command_line(place: Place) -> None:
    done = ask(place)
    assert done.code == 1
    assert "Missing PROMPT: pass it as an argument, or pipe it to standard input." in done.err


def test_an_input_that_does_not_end_is_said(place: Place) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "trunkline", "ask", "hi", "--model", place.model, "-c", str(place.config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **place.env},
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        out, _ = process.communicate(timeout=SECONDS)
    assert "waiting for the end of standard input" in said
    assert out == "You said <hi>.\n"


def test_a_resource_goes_with_the_message(place: Place) -> None:
    done = ask(place, "what?", "--attach", "demo:note://one")
    assert done.code == 0
    assert "hello\\x1b[1m\nwhat?>." in done.out


@pytest.mark.parametrize(("attach", "code"), [("nobody:note://one", 1), ("demo:", 1)], ids=["no-such-server", "no-uri"])
def test_what_cannot_be_attached_ends_it(attach: str, code: int, place: Place) -> None:
    done = ask(place, "what?", "--attach", attach, "--json")
    assert done.code == code
    assert "expected SERVER:URI; servers: demo" in document(done)["error"]["message"]


def test_a_denied_resource_ends_it(place: Place) -> None:
    rules = place.folder / "rules.toml"
    rules.write_text('[[rule]]\neffect = "deny"\nserver = "*"\nuri = "*"\n', encoding="utf-8")
    assert ask(place, "what?", "--attach", "demo:note://one", "--policy", str(rules)).code == 6


def test_an_at_sign_in_a_message_attaches_nothing(place: Place) -> None:
    assert ask(place, "see @demo:note://one").out == "You said <see @demo:note://one>.\n"


def test_without_a_model_it_says_what_to_do(place: Place) -> None:
    done = command("ask", "hi", "-c", str(place.config), "--json", env=place.env, cwd=place.folder)
    assert done.code == 2
    assert "--model PROVIDER:MODEL" in document(done)["error"]["message"]


def test_a_server_that_is_missing_is_said(place: Place) -> None:
    place.config.write_text('{"mcpServers": {"gone": {"command": "/no/such/program"}}}', encoding="utf-8")
    done = ask(place, "hi")
    assert done.code == 0
    assert done.err.startswith("trunkline: gone: ")


def test_calls_are_shown_with_verbose(place: Place) -> None:
    done = ask(place, "please work", *allow(place), "-v")
    assert done.out == "It worked.\n"
    assert '[call] demo/work {"steps":3}\n' in done.err
    assert "[done] demo/work" in done.err


def test_a_terminal_is_asked(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(place.home))
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    code, screen = at_a_terminal(
        monkeypatch,
        *("ask", "please work", "-c", str(place.config), "--model", place.model),
        script=(("Allow it?", "yes\n"),),
    )
    assert code == 0
    assert screen.endswith("It worked.\n")


def test_a_wrong_option_is_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "hi", "--max-turns", "0"]) == 1
    assert "--max-turns" in capsys.readouterr().err


def test_the_key_of_a_model_may_be_a_secret(place: Place) -> None:
    table = {"name": "compatible:x", "url": "http://127.0.0.1:9/v1", "key": "secret://env/MY_KEY", "pace": {"tries": 1}}
    place.config.write_text(json.dumps({"mcpServers": {}, "model": table}), encoding="utf-8")
    missing = command("ask", "hi", "-c", str(place.config), env=place.env, cwd=place.folder)
    assert (missing.code, "MY_KEY" in missing.err) == (2, True)
    found = command("ask", "hi", "-c", str(place.config), env={**place.env, "MY_KEY": "k-123456"}, cwd=place.folder)
    assert found.code == 4
    assert "k-123456" not in found.err
