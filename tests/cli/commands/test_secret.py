"""``trunkline secret``, and that no command shows a secret, whatever goes wrong."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import ROOT, Outcome, at_a_terminal, command, run
from trunkline.cli.main import main
from trunkline.cli.ui.output import current_secrets, redact

SECRET = "kept by nobody else"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a home and a folder to work in of one's own."""
    folder = tmp_path / "home"
    monkeypatch.setenv("TRUNKLINE_HOME", str(folder))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return folder


class Pipe(io.TextIOWrapper):
    """A standard input that is no terminal."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes, *arguments: str) -> int:
    """Run the command with something on its standard input."""
    monkeypatch.setattr(sys, "stdin", Pipe(data))
    return main(arguments)


def keep(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str = SECRET) -> None:
    """Keep a secret."""
    assert piped(monkeypatch, value.encode(), "secret", "set", name) == 0
    capsys.readouterr()


# --- keeping ---------------------------------------------------------------------------------------------------------


def test_a_secret_is_read_from_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    assert piped(monkeypatch, f"{SECRET}\n".encode(), "secret", "set", "github") == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("stored github in the encrypted file; use it as secret://github\n", "")
    assert SECRET.encode() not in (home / "secrets").read_bytes()


def test_a_secret_is_typed_unseen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    script = (("github (input is hidden): ", f"{SECRET}\n"),)
    code, screen = at_a_terminal(monkeypatch, "secret", "set", "github", script=script)
    assert code == 0
    assert screen.splitlines()[-1] == "stored github in the encrypted file; use it as secret://github"
    assert SECRET not in screen
    assert "github" in run(capsys, "secret", "list").out


def test_typing_nothing_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    code, screen = at_a_terminal(monkeypatch, "secret", "set", "github", script=(("hidden): ", "\x04"),))
    assert code == 2
    assert "the secret github is empty, so it was not stored" in screen


def test_a_secret_given_as_an_argument_is_refused_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "secret", "set", "github", "hunter2hunter2")
    assert (code, out) == (1, "")
    assert "other users could read it as an argument" in err
    assert "hunter2" not in err


def test_a_secret_given_within_the_name_is_refused_and_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "secret", "set", "github=hunter2hunter2")
    assert code == 2
    assert "not a valid name for a secret" in err
    assert "hunter2" not in err


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"", "the secret a is empty", id="empty"),
        pytest.param(b"\xff\xfe\xfd", "a secret must be UTF-8 text", id="binary"),
        pytest.param(b"x" * 70_000, "a secret may have at most 64 KiB", id="long"),
    ],
)
def test_what_is_no_secret_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], data: bytes, said: str
) -> None:
    assert piped(monkeypatch, data, "secret", "set", "a") in (1, 2)
    assert said in capsys.readouterr().err


def test_a_secret_that_cannot_be_hidden_is_kept_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert piped(monkeypatch, b"123", "secret", "set", "pin") == 0
    assert "too short" in capsys.readouterr().err


def test_a_place_can_be_chosen_and_may_not_be_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert piped(monkeypatch, SECRET.encode(), "secret", "set", "a", "--store", "keyring", "--json") == 2
    out, err = capsys.readouterr()
    assert "secrets cannot be stored in the keyring here" in err
    assert "cannot be stored in the keyring" in json.loads(out)["error"]["message"]


def test_setting_a_secret_can_be_told_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert piped(monkeypatch, SECRET.encode(), "secret", "set", "a", "--store", "file", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"name": "a", "store": "file"}


# --- listing and removing --------------------------------------------------------------------------------------------


def test_a_list_has_names_places_and_times_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    keep(monkeypatch, capsys, "github")
    (home / "secrets.toml").write_text('[commands]\nop = ["op", "read"]\n')
    code, out, _ = run(capsys, "secret", "list")
    rows = [line.split("  ") for line in out.splitlines()]
    assert (code, rows[0][0], rows[1][:2]) == (0, "NAME", ["github", "encrypted file"])
    assert [word for word in rows[2] if word] == ["op", "command of secrets.toml"]
    assert SECRET not in out


def test_a_list_as_json(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    keep(monkeypatch, capsys, "github")
    document = json.loads(run(capsys, "secret", "list", "--json").out)
    assert document["secrets"][0].pop("set_at") > 0
    assert document == {"secrets": [{"name": "github", "store": "file"}]}


def test_an_empty_list_says_how_to_begin(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "secret", "list") == Outcome(
        0, "", "trunkline: no secrets stored; to store one, run: trunkline secret set NAME\n"
    )


def test_a_secret_is_removed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    keep(monkeypatch, capsys, "github")
    assert run(capsys, "secret", "rm", "github") == Outcome(0, "removed github from the encrypted file\n", "")
    assert run(capsys, "secret", "list").out == ""


def test_removing_what_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(monkeypatch, capsys, "a")
    code, out, err = run(capsys, "secret", "rm", "a", "b", "--json")
    assert (code, json.loads(out)) == (1, {"removed": {"a": ["file"]}, "unknown": ["b"]})
    assert "no secret b; to list secrets, run: trunkline secret list" in err


def test_what_is_there_is_removed_although_something_else_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(monkeypatch, capsys, "a")
    assert run(capsys, "secret", "rm", "b", "a")[:2] == (1, "removed a from the encrypted file\n")
    assert run(capsys, "secret", "rm", "b")[:2] == (1, "")


def test_it_works_as_a_process_of_its_own(home: Path) -> None:
    env = {"TRUNKLINE_HOME": str(home)}
    assert command("secret", "set", "a", stdin=SECRET, env=env).code == 0
    assert json.loads(command("secret", "list", "--json", env=env).out)["secrets"][0]["name"] == "a"


# --- what other commands show ----------------------------------------------------------------------------------------


def config(folder: Path, *, mode: str = "quiet", secret: str = "secret://leak", **more: Any) -> str:
    """Write a configuration with the server that says its secret wherever it can; give its path."""
    entry = {
        "command": sys.executable,
        "args": ["-S", "-m", "tests.host.servers.leaky", mode],
        "env": {"PYTHONPATH": str(ROOT), "LEAK": secret},
        "era": "handshake",
        "crashes": 1,
        **more,
    }
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"one": entry}}), encoding="utf-8")
    (folder / "policy.toml").write_text('[[rule]]\neffect = "allow"\nserver = "one"\ntool = "*"\n')
    return str(path)


def test_a_server_is_started_with_the_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keep(monkeypatch, capsys, "leak")
    path = config(tmp_path)
    outcome = run(capsys, "call", "one", "know", f"guess={SECRET}", "-c", path, "--policy", "policy.toml")
    assert outcome == Outcome(0, "yes\n", "")


FAILURES = {
    "tool-error": ("call", "one", "fail", "-v"),
    "tool-error-json": ("call", "one", "fail", "--json"),
    "refused": ("call", "one", "refuse", "-v"),
    "refused-json": ("call", "one", "refuse", "--json"),
    "timed-out": ("call", "one", "hang", "--timeout", "1"),
    "died": ("call", "one", "die"),
}


@pytest.mark.parametrize("words", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("secret", ["secret://leak", "${LEAK_VARIABLE}"], ids=["vault", "variable"])
def test_a_call_that_fails_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
    secret: str,
) -> None:
    keep(monkeypatch, capsys, "leak")
    monkeypatch.setenv("LEAK_VARIABLE", SECRET)
    monkeypatch.setenv("TRUNKLINE_DEBUG", "1")
    path = config(tmp_path, secret=secret)
    code, out, err = run(capsys, *words, "-c", path, "--policy", "policy.toml")
    assert code > 1
    assert err != ""
    assert SECRET not in out + err


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("status", "--check", "--json"), id="status"),
        pytest.param(("list", "tools", "one"), id="list"),
        pytest.param(("config", "explain", "--json"), id="explain"),
    ],
)
def test_a_server_that_crashes_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    keep(monkeypatch, capsys, "leak")
    _, out, err = run(capsys, *words, "-c", config(tmp_path, mode="crash"))
    assert "one" in out + err
    assert SECRET not in out + err


def test_a_secret_that_is_missing_is_told_with_the_command_to_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, "list", "tools", "one", "-c", config(tmp_path))
    assert code == 2
    assert "one.env.LEAK: there is no secret leak; run: trunkline secret set leak" in err


def test_an_explanation_says_when_a_secret_is_looked_up(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = run(capsys, "config", "explain", "-c", config(tmp_path)).out
    assert "env.LEAK = secret://leak" in out
    assert "leak is looked up when the server starts" in " ".join(out.split())


def test_an_approval_shows_which_secrets_a_server_gets(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    path = config(project, secret="${secret:cmd/leak}")
    code, _, err = run(capsys, "trust", "approve", "one", "-c", path, "--yes")
    assert code == 0
    assert "  secrets   cmd/leak as env.LEAK" in err.splitlines()


def test_a_login_is_made_at_the_url_with_the_secret_in_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keep(monkeypatch, capsys, "leak", "path-of-ours")
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"one": {"url": "http://127.0.0.1:1/${secret:leak}"}}}))
    code, out, err = run(capsys, "auth", "login", "one", "-c", str(path), "--no-browser")
    assert code in (3, 4)
    assert "path-of-ours" not in out + err


def test_outside_of_a_command_nothing_is_hidden() -> None:
    current_secrets().add([SECRET])
    assert redact(SECRET) == SECRET
