"""``trunkline doctor``: what is wrong is named, with the fix; what is not approved is not started."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.hosted import demo_entry, write_config
from tests.cli.support import DEMO, GUARDED, Outcome, run, serving


class Practice:
    """A folder to work in, and a home."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Take the folder."""
        self.folder = folder
        self._capsys = capsys

    def doctor(self, *words: str) -> Outcome:
        """Ask the doctor."""
        return run(self._capsys, "doctor", *words)

    def report(self, *words: str) -> dict[str, Any]:
        """Ask for the report as JSON."""
        found: dict[str, Any] = json.loads(self.doctor(*words, "--json").out)
        return found

    def checks(self, *words: str) -> dict[str, dict[str, Any]]:
        """The checks of the first server, by id."""
        return {check["id"]: check for check in self.report(*words)["servers"][0]["checks"]}

    def config(self, **servers: Any) -> str:
        """Write a configuration, to be named."""
        return str(write_config(self.folder / "servers.json", servers))


@pytest.fixture
def practice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Practice:
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    return Practice(folder, capsys)


def python(code: str, **more: Any) -> dict[str, Any]:
    """An entry that runs some Python."""
    return {"command": sys.executable, "args": ["-c", code], **more}


def test_a_server_that_works_is_looked_at_whole(practice: Practice) -> None:
    checks = practice.checks(DEMO)
    assert [id for id, check in checks.items() if check["status"] in ("fail", "skip")] == []
    assert {"command", "spawn", "handshake", "revision", "server", "tools", "schemas", "cost"} <= set(checks)


def test_a_fix_is_shown_once(practice: Practice) -> None:
    out = practice.doctor("bad", "-c", practice.config(bad={"comand": "x"})).out
    # Once for the unknown member of the file, and once for the server that lacks the known one.
    assert out.count('did you mean "command"?') == 2
    assert out.count('-> did you mean "command"?') == 2


def test_a_server_that_works_ends_with_0_and_a_table(practice: Practice) -> None:
    code, out, _ = practice.doctor("demo", "-c", practice.config(demo=demo_entry()))
    assert code == 0
    assert "ok    handshake" in out
    assert "tokens in each request" in out


@pytest.mark.parametrize(
    ("entry", "code", "id", "words"),
    [
        pytest.param({"command": "no-such-program-here"}, 2, "command", "not found", id="no-command"),
        pytest.param(
            {"command": sys.executable, "cwd": "/no/such/folder"}, 2, "folder", "/no/such/folder", id="folder"
        ),
        pytest.param(python("1", env={"A": "${NO_SUCH_VARIABLE}"}), 2, "variables", "NO_SUCH_VARIABLE", id="variable"),
        pytest.param({"comand": "x"}, 2, "config", "", id="no-entry"),
        pytest.param(python("1", env={"A": "secret://nothing-of-that-name"}), 2, "secrets", "nothing", id="secret"),
        pytest.param(python("import sys; sys.exit('no key')"), 4, "spawn", "no key", id="exits"),
        pytest.param({"url": "http://127.0.0.1:9/mcp"}, 4, "tcp", "refused", id="nobody-listens"),
    ],
)
def test_what_is_wrong_is_named_with_the_fix(
    practice: Practice, entry: dict[str, Any], code: int, id: str, words: str
) -> None:
    file = practice.config(bad=entry)
    found = practice.checks("bad", "-c", file)[id]
    assert (found["status"], words in found["detail"]) == ("fail", True)
    assert practice.doctor("bad", "-c", file).code == code


def test_a_server_that_prints_is_told_of(practice: Practice) -> None:
    noisy = f"import runpy, os; os.write(1, b'hello\\n'); runpy.run_path({DEMO!r})['server'].run()"
    found = practice.checks("bad", "-c", practice.config(bad=python(noisy, env=demo_entry()["env"])))
    assert (found["stdout"]["status"], "stderr" in found["stdout"]["fix"]) == ("warn", True)


def test_a_server_that_never_answers_is_given_up(practice: Practice) -> None:
    file = practice.config(bad=python("import time; time.sleep(60)"))
    found = practice.checks("bad", "-c", file, "--timeout", "1")["handshake"]
    assert (found["status"], "no response in 1 s" in found["detail"]) == ("fail", True)


def test_what_is_not_approved_is_not_started(practice: Practice) -> None:
    mark = practice.folder / "started"
    write_config(practice.folder / "mcp.json", {"one": python(f"open({str(mark)!r}, 'w')")})
    code, out, _ = practice.doctor()
    assert (code, "trunkline trust approve one" in out, mark.exists()) == (2, True, False)


def test_a_book_of_approvals_that_cannot_be_read_approves_nothing(practice: Practice) -> None:
    mark, home = practice.folder / "started", practice.folder.parent / "home"
    home.mkdir()
    (home / "trust.json").write_text("{", encoding="utf-8")
    (home / "trust.json").chmod(0o600)
    write_config(practice.folder / "mcp.json", {"one": python(f"open({str(mark)!r}, 'w')")})
    code, out, _ = practice.doctor()
    assert (code, "trust.json" in out.replace("\n", ""), mark.exists()) == (2, True, False)


def test_a_secret_of_the_vault_is_shown_nowhere(practice: Practice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "hunter2-hunter2")
    entry = python("import os, sys; sys.exit(os.environ['KEY'])", env={"KEY": "secret://env/KEPT"})
    code, out, err = practice.doctor("-c", practice.config(bad=entry), "-v")
    assert (code, "[stderr] " in err, "hunter2" in out + err) == (4, True, False)


def test_a_disabled_server_is_left_alone(practice: Practice) -> None:
    code, out, _ = practice.doctor("-c", practice.config(one=python("1", disabled=True)))
    assert (code, "disabled in" in out) == (0, True)


def test_a_broken_file_is_a_finding_too(practice: Practice) -> None:
    (practice.folder / "broken.json").write_text('{"mcpServers": {', encoding="utf-8")
    report = practice.report("-c", "broken.json")
    assert (report["configuration"][0]["status"], report["servers"]) == ("fail", [])
    assert practice.doctor("-c", "broken.json").code == 2


def test_a_broken_entry_is_not_called_an_object_of_this_program(practice: Practice) -> None:
    (found,) = practice.report("-c", practice.config(typo={"comand": "x"}))["servers"]
    assert found["target"] == "(no command or URL)"


def test_one_bad_server_does_not_hide_the_others(practice: Practice) -> None:
    report = practice.report("-c", practice.config(bad={"command": "no-such-program-here"}, demo=demo_entry()))
    good = {check["id"]: check["status"] for check in report["servers"][1]["checks"]}
    assert ([each["name"] for each in report["servers"]], good["handshake"]) == (["bad", "demo"], "ok")


def test_no_secret_is_shown(practice: Practice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "hunter2-hunter2")
    entry = python("import os, sys; sys.exit(os.environ['KEY'])", env={"KEY": "${MY_KEY}"})
    code, out, err = practice.doctor("-c", practice.config(bad=entry))
    assert (code, "***" in out, "hunter2" in out + err) == (4, True, False)


def test_what_a_server_writes_cannot_control_the_terminal(practice: Practice) -> None:
    _, out, _ = practice.doctor("-c", practice.config(bad=python("import sys; sys.exit('a\\x1b[2Jb')")))
    assert ("\x1b" in out, "\\x1b[2Jb" in out) == (False, True)


def test_what_a_server_writes_to_stderr_is_shown_if_asked_for(practice: Practice) -> None:
    _, _, err = practice.doctor("-c", practice.config(bad=python("import sys; sys.exit('a word')")), "-v")
    assert "[stderr] a word" in err


def test_a_sandbox_that_an_entry_asks_for_is_told_of(practice: Practice) -> None:
    file = practice.config(bad=python("import time; time.sleep(60)", sandbox={"container": "no-such-image"}))
    found = practice.checks("bad", "-c", file, "--timeout", "2")
    assert {"config", "handshake", "spawn"} & {id for id, check in found.items() if check["status"] == "fail"}


def test_a_rule_book_is_of_no_use_here(practice: Practice) -> None:
    assert practice.doctor("-c", practice.config(demo=demo_entry()), "--policy", "x.toml").code == 1


def test_the_machine_is_looked_at_once(practice: Practice) -> None:
    machine = practice.report("-c", practice.config(bad={"command": "no-such-program-here"}))["machine"]
    assert [check["id"] for check in machine] == ["sandbox"]


# --- URLs ------------------------------------------------------------------------------------------------------------


def test_a_server_at_a_url_is_looked_at_whole(practice: Practice) -> None:
    with serving(DEMO, "--http", "0") as server:
        checks = practice.checks(server.url)
    assert [id for id, check in checks.items() if check["status"] in ("fail", "skip")] == []
    assert {"tcp", "http", "origin", "login", "handshake", "tools"} <= set(checks)


def test_a_server_that_wants_a_login_ends_with_3_and_the_command(practice: Practice) -> None:
    with serving(GUARDED, "--http", "0") as server:
        code, out, _ = practice.doctor(server.url)
    assert (code, f"trunkline auth login {server.url}" in out) == (3, True)


def test_a_token_that_is_refused_is_told_and_not_shown(practice: Practice) -> None:
    with serving(GUARDED, "--http", "0") as server:
        code, out, _ = practice.doctor(server.url, "--token", "wrong-token")
    assert (code, "is rejected (401)" in out, "wrong-token" in out) == (3, True, False)


def test_a_token_that_is_good_lets_the_doctor_in(practice: Practice) -> None:
    with serving(GUARDED, "--http", "0") as server:
        checks = practice.checks(server.url, "--token", "right")
    assert (checks["login"]["status"], checks["tools"]["status"]) == ("ok", "ok")
