"""TARGET: what starts which command, and what cannot be started."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.support import DEMO, Cli
from trunkline import Client, ConfigError
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
    arguments: tuple[str, ...], code: int, sentence: str, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path))
    assert cli(*arguments) == (code, "", sentence)


def test_a_command_that_cannot_be_read_is_wrong_usage(cli: Cli) -> None:
    code, _, err = cli("list", "tools", "npx 'unclosed")
    assert code == 1
    assert "No closing quotation" in err


def test_a_file_of_another_library_is_not_loaded_as_one_of_ours(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "desk.py"
    path.write_text("from mcp.server import MCPServer\nmcp = MCPServer('x')\nmcp.run()\n", encoding="utf-8")
    assert launch(str(path)).command == [sys.executable, str(path)]
    ended = cli("run", str(path))
    assert (
        ended.code,
        f"another library (mcp): run it as a program, or with ours: trunkline run --compat {path}" in ended.err,
    ) == (2, True)


def test_over_stdio_a_server_with_auth_serves_the_user_of_its_process(cli: Cli) -> None:
    books = Path(__file__).parents[2] / "deploy" / "books" / "server.py"
    called = cli("call", str(books), "count_books", "shelf=abc", "--env", "BOOKS_TOKEN=secret", "-v")
    assert (called.code, called.out) == (0, "3\n")
    assert called.err.count("over stdio the user of this process is the caller") == 1


def test_a_quoted_command_is_talked_to(cli: Cli) -> None:
    quoted = shlex.join([sys.executable, "-m", "trunkline", "run", DEMO])
    assert cli("call", quoted, "echo", "text=hi") == (0, "hi\n", "")


def test_a_command_that_does_not_exist_is_unreachable(cli: Cli) -> None:
    code, out, err = cli("list", "tools", "no-such-command --flag")
    assert (code, out) == (4, "")
    assert err.startswith("trunkline: command not found: no-such-command;")


def test_a_server_that_ends_at_once_is_unreachable_with_its_last_words(cli: Cli) -> None:
    quoted = shlex.join([sys.executable, "-c", "import sys; sys.exit('bad\\x1b[1m luck')"])
    code, _, err = cli("list", "tools", quoted)
    assert code == 4
    assert "exited with status 1; last lines of stderr:\nbad\\x1b[1m luck\n" in err


def test_a_server_that_never_speaks_times_out(cli: Cli) -> None:
    code, _, err = cli("list", "tools", "sh -c 'cat >/dev/null'", "--timeout", "0.3")
    assert code == 7
    assert err.startswith(
        "trunkline: sh: not connected after 0.3 s; the program runs, but has not answered: is it an MCP"
    )


def test_a_program_that_does_not_answer_is_told_before_the_timeout(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.cli.ui.terminal._SECONDS_BEFORE_LINE", 0.2)
    code, _, err = cli("list", "tools", "sh -c 'echo port 80 >&2; cat >/dev/null'", "--timeout", "0.5")
    assert (code, err.splitlines()[0]) == (
        7,
        "trunkline: no answer yet from sh -c 'echo port 80 >&2; cat >/dev/null'; waiting up to 0.5 s (--timeout). "
        "Is it an MCP server over stdio? For one over HTTP, give its URL; last line of its stderr: port 80",
    )


def test_a_configuration_file_as_target_is_told_apart(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {}}', encoding="utf-8")
    code, _, err = cli("list", "tools", str(path))
    assert (code, f"{path} is a configuration file: give it with -c {path}" in err) == (1, True)
    with pytest.raises(ConfigError, match=r"Host\.open"):
        Client(path)


def test_a_server_gets_the_variables_and_the_folder_given(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSED_ON", "ours")
    options = ("--env", "GIVEN=a=b", "--env", "PASSED_ON", "--cwd", str(tmp_path))
    assert cli("call", DEMO, "variables", "name=GIVEN", *options).out == f"a=b {tmp_path}\n"
    assert cli("call", DEMO, "variables", "name=PASSED_ON", *options).out == f"ours {tmp_path}\n"
    assert cli("call", DEMO, "variables", "name=PASSED_ON").out.startswith("None ")
