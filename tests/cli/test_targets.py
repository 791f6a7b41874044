"""TARGET: what starts which command, and what cannot be started."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.support import DEMO, run
from trunkline.cli.targets import CommandTarget, UrlTarget, resolve_target

NAMES = "expected a .py file, FILE:OBJECT, a quoted command, a URL, or the name of a configured server\n"


def launch(text: str) -> CommandTarget:
    """Read a TARGET that is started."""
    target = resolve_target(text)
    assert isinstance(target, CommandTarget)
    return target


@pytest.mark.parametrize("url", ["http://example.com/mcp", "https://example.com/mcp?a=b.py", "HTTPS://example.com"])
def test_a_url_is_called_as_it_is(url: str) -> None:
    assert resolve_target(url) == UrlTarget(url)


@pytest.mark.parametrize("name", ["", ":server"], ids=["file", "object"])
def test_a_file_is_run_by_this_interpreter(name: str) -> None:
    assert launch(DEMO + name).command == [sys.executable, "-P", "-m", "trunkline", "run", "--", DEMO + name]


def test_a_file_is_named_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my app.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert launch("my app.py").command[-1] == str(tmp_path / "my app.py")


def test_a_file_finds_modules_where_this_program_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    assert launch(DEMO).env == {"PYTHONPATH": "/somewhere"}


def test_a_quoted_command_is_split_as_a_shell_would() -> None:
    assert launch("npx -y 'a b' c.py").command == ["npx", "-y", "a b", "c.py"]


def test_a_command_on_the_path_may_stand_alone() -> None:
    assert launch("sh").command == ["sh"]


def test_a_program_given_by_its_path_is_a_command(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\n")
    assert launch(str(program)).command == [str(program)]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        pytest.param(
            ("list", "tools", "weather"),
            1,
            f"trunkline: 'weather' is neither a configured server nor a program: {NAMES}",
            id="bare name",
        ),
        pytest.param(
            ("list", "tools", ""), 1, f"trunkline: '' is neither a configured server nor a program: {NAMES}", id="empty"
        ),
        pytest.param(("list", "tools"), 1, f"trunkline: no configuration found: {NAMES}", id="nothing"),
        pytest.param(("list", "tools", "no.py"), 2, "trunkline: there is no file no.py\n", id="no file"),
        pytest.param(("list", "tools", "no.py:x"), 2, "trunkline: there is no file no.py\n", id="no file, object"),
        pytest.param(("list", "tools", "./no"), 2, "trunkline: there is no file ./no\n", id="no program"),
    ],
)
def test_what_cannot_be_started_is_told_in_a_sentence(
    arguments: tuple[str, ...],
    code: int,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path))
    assert run(capsys, *arguments) == (code, "", sentence)


def test_a_command_that_cannot_be_read_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "list", "tools", "npx 'unclosed")
    assert code == 1
    assert "No closing quotation" in err


def test_a_quoted_command_is_talked_to(capsys: pytest.CaptureFixture[str]) -> None:
    quoted = shlex.join([sys.executable, "-m", "trunkline", "run", DEMO])
    assert run(capsys, "call", quoted, "echo", "text=hi") == (0, "hi\n", "")


def test_an_object_of_a_file_is_talked_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "call", f"{DEMO}:server", "echo", "text=hi") == (0, "hi\n", "")


def test_a_command_that_does_not_exist_is_unreachable(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "tools", "no-such-command --flag")
    assert (code, out) == (4, "")
    assert err.startswith("trunkline: command not found: no-such-command;")


def test_a_server_that_ends_at_once_is_unreachable_with_its_last_words(capsys: pytest.CaptureFixture[str]) -> None:
    quoted = shlex.join([sys.executable, "-c", "import sys; sys.exit('bad\\x1b[1m luck')"])
    code, _, err = run(capsys, "list", "tools", quoted)
    assert code == 4
    assert "exited with status 1; last lines of stderr:\nbad\\x1b[1m luck\n" in err


def test_a_server_that_never_speaks_times_out(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "list", "tools", "sleep 30", "--timeout", "0.3")
    assert (code, err) == (7, "trunkline: sleep: not connected after 0.3 s\n")


def test_a_server_gets_the_variables_and_the_folder_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSED_ON", "ours")
    options = ("--env", "GIVEN=a=b", "--env", "PASSED_ON", "--cwd", str(tmp_path))
    assert run(capsys, "call", DEMO, "variables", "name=GIVEN", *options).out == f"a=b {tmp_path}\n"
    assert run(capsys, "call", DEMO, "variables", "name=PASSED_ON", *options).out == f"ours {tmp_path}\n"
    assert run(capsys, "call", DEMO, "variables", "name=PASSED_ON").out.startswith("None ")
