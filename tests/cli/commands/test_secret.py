"""``trunkline secret``, and that no command shows a secret, whatever goes wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import ROOT, Cli, Outcome, command
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


def keep(cli: Cli, name: str, value: str = SECRET) -> None:
    """Keep a secret."""
    assert cli("secret", "set", name, stdin=value).code == 0


# --- keeping ---------------------------------------------------------------------------------------------------------


def test_a_secret_is_read_from_a_pipe(cli: Cli, home: Path) -> None:
    said = "stored github in the encrypted file; use it as secret://github\n"
    assert cli("secret", "set", "github", stdin=f"{SECRET}\n") == (0, said, "")
    assert SECRET.encode() not in (home / "secrets").read_bytes()


def test_a_secret_is_typed_unseen(cli: Cli) -> None:
    script = (("github (input is hidden): ", f"{SECRET}\n"),)
    code, screen = cli.at_a_terminal("secret", "set", "github", script=script)
    assert code == 0
    assert screen.splitlines()[-1] == "stored github in the encrypted file; use it as secret://github"
    assert SECRET not in screen
    assert "github" in cli("secret", "list").out


def test_typing_nothing_keeps_nothing(cli: Cli) -> None:
    code, screen = cli.at_a_terminal("secret", "set", "github", script=(("hidden): ", "\x04"),))
    assert code == 2
    assert "the secret github is empty, so it was not stored" in screen


def test_a_secret_given_as_an_argument_is_refused_and_not_repeated(cli: Cli) -> None:
    code, out, err = cli("secret", "set", "github", "hunter2hunter2")
    assert (code, out) == (1, "")
    assert "other users could read it as an argument" in err
    assert "hunter2" not in err


def test_a_secret_given_within_the_name_is_refused_and_not_repeated(cli: Cli) -> None:
    code, _, err = cli("secret", "set", "github=hunter2hunter2")
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
def test_what_is_no_secret_is_not_kept(cli: Cli, data: bytes, said: str) -> None:
    ended = cli("secret", "set", "a", stdin=data)
    assert (ended.code in (1, 2), said in ended.err) == (True, True)


def test_a_secret_that_cannot_be_hidden_is_kept_with_a_warning(cli: Cli) -> None:
    ended = cli("secret", "set", "pin", stdin="123")
    assert (ended.code, "too short" in ended.err) == (0, True)


def test_a_place_can_be_chosen_and_may_not_be_there(cli: Cli) -> None:
    assert cli("secret", "set", "a", "--store", "file", "--json", stdin=SECRET).json == {"name": "a", "store": "file"}
    ended = cli("secret", "set", "a", "--store", "keyring", "--json", stdin=SECRET)
    assert (ended.code, "secrets cannot be stored in the keyring here" in ended.err) == (2, True)
    assert "cannot be stored in the keyring" in ended.json["error"]["message"]


# --- listing and removing --------------------------------------------------------------------------------------------


def test_a_list_has_names_places_and_times_and_no_secret(cli: Cli, home: Path) -> None:
    keep(cli, "github")
    (home / "secrets.toml").write_text('[commands]\nop = ["op", "read"]\n')
    code, out, _ = cli("secret", "list")
    rows = [line.split("  ") for line in out.splitlines()]
    assert (code, rows[0][0], rows[1][:2]) == (0, "NAME", ["github", "encrypted file"])
    assert [word for word in rows[2] if word] == ["op", "command of secrets.toml"]
    assert SECRET not in out


def test_a_list_as_json(cli: Cli) -> None:
    keep(cli, "github")
    document = cli("secret", "list", "--json").json
    assert document["secrets"][0].pop("set_at") > 0
    assert document == {"secrets": [{"name": "github", "store": "file"}]}


def test_an_empty_list_says_how_to_begin(cli: Cli) -> None:
    assert cli("secret", "list") == Outcome(
        0, "", "trunkline: no secrets stored; to store one, run: trunkline secret set NAME\n"
    )


def test_a_secret_is_removed(cli: Cli) -> None:
    keep(cli, "github")
    assert cli("secret", "rm", "github") == Outcome(0, "removed github from the encrypted file\n", "")
    assert cli("secret", "list").out == ""


def test_removing_what_is_not_there_is_told(cli: Cli) -> None:
    keep(cli, "a")
    code, out, err = cli("secret", "rm", "a", "b", "--json")
    assert (code, json.loads(out)) == (1, {"removed": {"a": ["file"]}, "unknown": ["b"]})
    assert "no secret b; to list secrets, run: trunkline secret list" in err


def test_what_is_there_is_removed_although_something_else_is_not(cli: Cli) -> None:
    keep(cli, "a")
    assert cli("secret", "rm", "b", "a")[:2] == (1, "removed a from the encrypted file\n")
    assert cli("secret", "rm", "b")[:2] == (1, "")


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


def test_a_server_is_started_with_the_secret(cli: Cli, tmp_path: Path) -> None:
    keep(cli, "leak")
    path = config(tmp_path)
    outcome = cli("call", "one", "know", f"guess={SECRET}", "-c", path, "--policy", "policy.toml")
    assert outcome == Outcome(0, "yes\n", "")


FAILURES = {
    "tool-error": ("call", "one", "fail", "-v"),
    "tool-error-json": ("call", "one", "fail", "--json"),
    "refused": ("call", "one", "refuse", "-v"),
    "refused-json": ("call", "one", "refuse", "--json"),
    "timed-out": ("call", "one", "hang", "--timeout", "0.5"),
    "died": ("call", "one", "die"),
}


@pytest.mark.parametrize(
    ("words", "secret"),
    [
        *(pytest.param(words, "secret://leak", id=f"{name} of the vault") for name, words in FAILURES.items()),
        pytest.param(FAILURES["died"], "${LEAK_VARIABLE}", id="died, of a variable"),
    ],
)
def test_a_call_that_fails_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch, cli: Cli, tmp_path: Path, words: tuple[str, ...], secret: str
) -> None:
    keep(cli, "leak")
    monkeypatch.setenv("LEAK_VARIABLE", SECRET)
    monkeypatch.setenv("TRUNKLINE_DEBUG", "1")
    path = config(tmp_path, secret=secret)
    code, out, err = cli(*words, "-c", path, "--policy", "policy.toml")
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
def test_a_server_that_crashes_shows_no_secret(cli: Cli, tmp_path: Path, words: tuple[str, ...]) -> None:
    keep(cli, "leak")
    _, out, err = cli(*words, "-c", config(tmp_path, mode="crash"))
    assert "one" in out + err
    assert SECRET not in out + err


def test_a_secret_that_is_missing_is_told_with_the_command_to_run(cli: Cli, tmp_path: Path) -> None:
    code, _, err = cli("list", "tools", "one", "-c", config(tmp_path))
    assert code == 2
    assert "one.env.LEAK: there is no secret leak; run: trunkline secret set leak" in err


def test_an_explanation_says_when_a_secret_is_looked_up(cli: Cli, tmp_path: Path) -> None:
    out = cli("config", "explain", "-c", config(tmp_path)).out
    assert "env.LEAK = secret://leak" in out
    assert "leak is looked up when the server starts" in " ".join(out.split())


def test_an_approval_shows_which_secrets_a_server_gets(cli: Cli, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    path = config(project, secret="${secret:cmd/leak}")
    code, _, err = cli("trust", "approve", "one", "-c", path, "--yes")
    assert code == 0
    assert "  secrets   cmd/leak as env.LEAK" in err.splitlines()


def test_a_login_is_made_at_the_url_with_the_secret_in_it(cli: Cli, tmp_path: Path) -> None:
    keep(cli, "leak", "path-of-ours")
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"one": {"url": "http://127.0.0.1:1/${secret:leak}"}}}))
    code, out, err = cli("auth", "login", "one", "-c", str(path), "--no-browser")
    assert code in (3, 4)
    assert "path-of-ours" not in out + err


def test_outside_of_a_command_nothing_is_hidden() -> None:
    current_secrets().add([SECRET])
    assert redact(SECRET) == SECRET
