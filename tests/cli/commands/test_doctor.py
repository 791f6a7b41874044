"""``trunkline doctor``: what is wrong is named, with the fix; what is not approved is not started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.hosted import SILENT, Desk, demo_entry, write_config
from tests.cli.support import DEMO, Served
from tests.host.sandbox.stage import needs


def checks(desk: Desk, *words: str) -> dict[str, dict[str, Any]]:
    """The checks of the first server, by id."""
    return {check["id"]: check for check in desk.cli("doctor", *words, "--json").json["servers"][0]["checks"]}


def python(code: str, **more: Any) -> dict[str, Any]:
    """An entry that runs some Python."""
    return {"command": sys.executable, "args": ["-c", code], **more}


def test_a_server_that_works_is_looked_at_whole(desk: Desk) -> None:
    found = checks(desk, DEMO)
    assert [id for id, check in found.items() if check["status"] in ("fail", "skip")] == []
    assert {"command", "spawn", "handshake", "revision", "server", "tools", "schemas", "cost"} <= set(found)


def test_a_server_that_works_ends_with_0_and_a_table(desk: Desk) -> None:
    code, out, _ = desk.cli("doctor", "demo", "-c", desk.configure(demo=demo_entry()))
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
def test_what_is_wrong_is_named_with_the_fix(desk: Desk, entry: dict[str, Any], code: int, id: str, words: str) -> None:
    ended = desk.cli("doctor", "bad", "-c", desk.configure(bad=entry), "--json")
    (check,) = [check for check in ended.json["servers"][0]["checks"] if check["id"] == id]
    assert (check["status"], words in check["detail"], ended.code) == ("fail", True, code)


def test_a_server_that_prints_is_told_of(desk: Desk) -> None:
    noisy = f"import runpy, os; os.write(1, b'hello\\n'); runpy.run_path({DEMO!r})['server'].run()"
    found = checks(desk, "bad", "-c", desk.configure(bad=python(noisy, env=demo_entry()["env"])))
    assert (found["stdout"]["status"], "stderr" in found["stdout"]["fix"]) == ("warn", True)


def test_a_server_that_never_answers_is_given_up(desk: Desk) -> None:
    found = checks(desk, "bad", "-c", desk.configure(bad=SILENT), "--timeout", "0.5")["handshake"]
    assert (found["status"], "no response in 0.5 s" in found["detail"]) == ("fail", True)


def test_what_is_not_approved_is_not_started(desk: Desk) -> None:
    mark = desk.folder / "started"
    write_config(desk.folder / "mcp.json", {"one": python(f"open({str(mark)!r}, 'w')")})
    code, out, _ = desk.cli("doctor")
    assert (code, "trunkline trust approve one" in out, mark.exists()) == (2, True, False)


def test_a_book_of_approvals_that_cannot_be_read_approves_nothing(desk: Desk) -> None:
    mark, home = desk.folder / "started", desk.home
    home.mkdir()
    (home / "trust.json").write_text("{", encoding="utf-8")
    (home / "trust.json").chmod(0o600)
    write_config(desk.folder / "mcp.json", {"one": python(f"open({str(mark)!r}, 'w')")})
    code, out, _ = desk.cli("doctor")
    assert (code, "trust.json" in out.replace("\n", ""), mark.exists()) == (2, True, False)


def test_a_secret_of_the_vault_is_shown_nowhere(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "hunter2-hunter2")
    entry = python("import os, sys; sys.exit(os.environ['KEY'])", env={"KEY": "secret://env/KEPT"})
    code, out, err = desk.cli("doctor", "-c", desk.configure(bad=entry), "-v")
    assert (code, "[stderr] " in err, "hunter2" in out + err) == (4, True, False)


def test_a_disabled_server_is_left_alone(desk: Desk) -> None:
    code, out, _ = desk.cli("doctor", "-c", desk.configure(one=python("1", disabled=True)))
    assert (code, "disabled in" in out) == (0, True)


def test_a_broken_file_is_a_finding_too(desk: Desk) -> None:
    (desk.folder / "broken.json").write_text('{"mcpServers": {', encoding="utf-8")
    report = desk.cli("doctor", "-c", "broken.json", "--json").json
    assert (report["configuration"][0]["status"], report["servers"]) == ("fail", [])
    assert desk.cli("doctor", "-c", "broken.json").code == 2


def test_one_bad_server_does_not_hide_the_others(desk: Desk) -> None:
    report = desk.cli(
        "doctor", "-c", desk.configure(bad={"command": "no-such-program-here"}, demo=demo_entry()), "--json"
    ).json
    good = {check["id"]: check["status"] for check in report["servers"][1]["checks"]}
    assert ([each["name"] for each in report["servers"]], good["handshake"]) == (["bad", "demo"], "ok")


def test_what_a_server_writes_cannot_control_the_terminal(desk: Desk) -> None:
    _, out, _ = desk.cli("doctor", "-c", desk.configure(bad=python("import sys; sys.exit('a\\x1b[2Jb')")))
    assert ("\x1b" in out, "\\x1b[2Jb" in out) == (False, True)


def test_a_sandbox_that_an_entry_asks_for_is_told_of(desk: Desk) -> None:
    file = desk.configure(bad={**SILENT, "sandbox": {"container": "no-such-image"}})
    found = checks(desk, "bad", "-c", file, "--timeout", "1")
    assert {"config", "handshake", "spawn"} & {id for id, check in found.items() if check["status"] == "fail"}


@needs("landlock")
def test_the_path_that_a_sandbox_hid_is_named(desk: Desk, tmp_path: Path) -> None:
    hidden = tmp_path / "hidden.csv"
    hidden.write_text("")
    file = desk.configure(bad={**python(f"open({str(hidden)!r})"), "sandbox": "landlock"})
    spawn = checks(desk, "bad", "-c", file)["spawn"]
    assert (spawn["status"], f"in its sandbox (landlock), which hides {hidden} " in spawn["detail"]) == ("fail", True)
    assert spawn["fix"] == 'add what is shown above to the "sandbox" of its entry'


@needs("landlock")
def test_what_a_sandboxed_server_can_reach_is_listed_if_it_exits_silently(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    entry = {**python("raise SystemExit(3)"), "sandbox": {"kind": "landlock", "read": [f"{tmp_path}/data"]}}
    found = checks(desk, "bad", "-c", desk.configure(bad=entry))
    detail = found["sandbox"]["detail"]
    assert [part in detail for part in (f"{tmp_path}/data", "HOME is ", "variables: ")] == [True] * 3
    assert "compare it with what it can reach, shown above" in found["spawn"]["fix"]


def test_a_rule_book_is_of_no_use_here(desk: Desk) -> None:
    assert desk.cli("doctor", "-c", desk.configure(demo=demo_entry()), "--policy", "x.toml").code == 1


# --- URLs ------------------------------------------------------------------------------------------------------------


def test_a_server_at_a_url_is_looked_at_whole(desk: Desk, demo: Served) -> None:
    found = checks(desk, demo.url)
    assert [id for id, check in found.items() if check["status"] in ("fail", "skip")] == []
    assert {"tcp", "http", "origin", "login", "handshake", "tools"} <= set(found)


def test_a_server_with_tokens_of_its_own_ends_with_3_and_one_failure_that_names_the_option(
    desk: Desk, guarded: Served
) -> None:
    code, out, _ = desk.cli("doctor", guarded.url)
    assert (code, out.count("FAIL"), "-> pass its token with --token TOKEN" in out) == (3, 1, True)


def test_a_token_that_is_refused_is_told_and_not_shown(desk: Desk, guarded: Served) -> None:
    code, out, _ = desk.cli("doctor", guarded.url, "--token", "wrong-token")
    assert (code, "the token is rejected (401)" in out, "wrong-token" in out) == (3, True, False)
    # The server names no login.
    assert ("-> pass another one with --token" in out, "auth login" in out) == (True, False)


def test_a_token_that_is_good_lets_the_doctor_in(desk: Desk, guarded: Served) -> None:
    found = checks(desk, guarded.url, "--token", "right")
    assert (found["login"]["status"], found["tools"]["status"]) == ("ok", "ok")
