"""``trunkline ask``: one message for scripts, its document and its exit codes."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.cli.chatting import Place
from tests.cli.hosted import SOURCE, write_config
from tests.cli.support import SECONDS, Cli, Outcome

Ask: TypeAlias = Callable[..., Outcome]


@pytest.fixture
def ask(place: Place, cli: Cli) -> Ask:
    """Ask in this process, without a terminal."""
    return functools.partial(place.run, cli, "ask")


def test_the_answer_alone_is_on_stdout(place: Place, ask: Ask) -> None:
    done = ask("please work", *place.allow())
    assert (done.code, done.out, done.err) == (0, "It worked.\n", "")


def test_the_document_has_all_of_it(place: Place, ask: Ask) -> None:
    done = ask("please work", *place.allow(), "--json")
    assert done.code == 0
    found = done.json
    assert found["text"] == "It worked."
    (call,) = found["calls"]
    seconds = call.pop("seconds")
    assert seconds >= 0
    assert call == {"server": "demo", "tool": "work", "arguments": {"steps": 3}, "outcome": "ok"}
    assert found["usage"]["input_tokens"] > 0
    assert (found["model"], found["stop"], found["cost"]) == ("scripted:script.toml", "end", 0.0)
    assert "error" not in found


def test_secrets_in_arguments_are_not_in_the_document(place: Place, ask: Ask) -> None:
    turns = '[[turn]]\nwhen = "go"\ncalls = [{ tool = "show", arguments = { value = { password = "hunter22" } } }]\n'
    model = place.script(turns + '[[turn]]\nsays = "done"\n')
    done = ask("go", *place.allow(), "--json", model=model)
    assert done.json["calls"][0]["arguments"] == {"value": {"password": "***"}}


def test_consent_without_a_terminal_is_a_no(ask: Ask) -> None:
    done = ask("please add", "--json")
    assert done.code == 6
    assert done.json["calls"][0]["outcome"] == "denied"


def test_what_was_denied_is_said_with_the_command_that_allows_it(ask: Ask) -> None:
    done = ask("please add")
    assert done.code == 6
    assert "demo/add was denied: " in done.err
    assert "Allow it: trunkline grants allow demo/add" in done.err


def test_a_declined_question_of_a_server_decides_the_code(place: Place, ask: Ask) -> None:
    turns = '[[turn]]\nwhen = "go"\ncalls = [{ tool = "choose" }]\n[[turn]]\nsays = "{result}"\n'
    done = ask("go", *place.allow(), model=place.script(turns))
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
def test_a_failing_model_has_its_code(fault: str, code: int, place: Place, ask: Ask) -> None:
    done = ask("go", "--json", model=place.script(f'[[turn]]\nsays = "Half"\nfails = "{fault}"\n'))
    assert done.code == code
    found = done.json
    assert (found["text"], found["stop"], found["error"]["fault"]) == ("Half", "model", fault)
    assert fault in done.err


def test_an_answer_that_is_not_whole_has_a_code(place: Place, ask: Ask) -> None:
    done = ask("please work", *place.allow(), "--max-turns", "1")
    assert (done.code, done.out) == (5, "Working.\n")
    assert "which is the limit" in done.err


def test_time_that_ran_out_has_its_code(ask: Ask) -> None:
    done = ask("slow", "--timeout", "0.5")
    assert done.code == 7
    assert "its time limit of 0.5 s" in done.err


def test_what_is_piped_in_goes_with_the_message(ask: Ask) -> None:
    done = ask("Sum it up", stdin="line one\nline two\n")
    assert done.code == 0
    assert "line one\nline two" in done.out
    assert "Sum it up>." in done.out


def test_nothing_to_ask_is_a_wrong_command_line(ask: Ask) -> None:
    done = ask()
    assert done.code == 1
    assert "Missing PROMPT: pass it as an argument, or pipe it to standard input." in done.err


@pytest.mark.slow
def test_an_input_that_does_not_end_is_said(place: Place) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "trunkline", "ask", "hi", "--model", place.model, "-c", str(place.config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        out, _ = process.communicate(timeout=SECONDS)
    assert "waiting for the end of standard input" in said
    assert out == "You said <hi>.\n"


def test_a_resource_goes_with_the_message(ask: Ask) -> None:
    done = ask("what?", "--attach", "demo:note://one")
    assert done.code == 0
    assert "hello\\x1b[1m\nwhat?>." in done.out


@pytest.mark.parametrize(("attach", "code"), [("nobody:note://one", 1), ("demo:", 1)], ids=["no-such-server", "no-uri"])
def test_what_cannot_be_attached_ends_it(attach: str, code: int, ask: Ask) -> None:
    done = ask("what?", "--attach", attach, "--json")
    assert done.code == code
    assert "expected SERVER:URI; servers: demo" in done.json["error"]["message"]


def test_a_denied_resource_ends_it(place: Place, ask: Ask) -> None:
    rules = place.folder / "rules.toml"
    rules.write_text('[[rule]]\neffect = "deny"\nserver = "*"\nuri = "*"\n', encoding="utf-8")
    assert ask("what?", "--attach", "demo:note://one", "--policy", str(rules)).code == 6


def test_without_a_model_it_says_what_to_do(ask: Ask) -> None:
    done = ask("hi", "--json", model="")
    assert done.code == 2
    assert "--model PROVIDER:MODEL" in done.json["error"]["message"]


def test_a_server_that_is_missing_is_said(place: Place, ask: Ask) -> None:
    place.config.write_text('{"mcpServers": {"gone": {"command": "/no/such/program"}}}', encoding="utf-8")
    done = ask("hi")
    assert done.code == 0
    assert done.err.startswith("trunkline: gone: ")


def test_calls_are_shown_with_verbose(place: Place, ask: Ask) -> None:
    done = ask("please work", *place.allow(), "-v")
    assert done.out == "It worked.\n"
    assert '[call] demo/work {"steps":3}\n' in done.err
    assert "[done] demo/work" in done.err


def test_a_terminal_is_asked(place: Place, cli: Cli) -> None:
    words = ("ask", "please work", "-c", str(place.config), "--model", place.model)
    code, screen = cli.at_a_terminal(*words, script=(("Allow it?", "yes\n"),))
    assert code == 0
    assert screen.endswith("It worked.\n")


def test_a_wrong_option_is_a_wrong_command_line(cli: Cli) -> None:
    ended = cli("ask", "hi", "--max-turns", "0")
    assert (ended.code, "--max-turns" in ended.err) == (1, True)


def test_the_key_of_a_model_may_be_a_secret(place: Place, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"name": "compatible:x", "url": "http://127.0.0.1:9/v1", "key": "secret://env/MY_KEY", "pace": {"tries": 1}}
    write_config(place.config, {}, model=table)
    missing = ask("hi", model="")
    assert (missing.code, "MY_KEY" in missing.err) == (2, True)
    monkeypatch.setenv("MY_KEY", "k-123456")
    unreachable = ask("hi", model="")
    assert (unreachable.code, "k-123456" in unreachable.err) == (4, False)


def test_what_is_piped_in_can_be_the_message(ask: Ask) -> None:
    assert ask(stdin="hi\n").out == "You said <hi\n>.\n"
