"""``trunkline run``: which object of a file is served, and how a file that cannot be is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import Outcome, command, run

PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
PONG = {"jsonrpc": "2.0", "id": 1, "result": {}}
IMPORT = "from trunkline import Server\n"
INITIALIZE = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
    }
)


def served(folder: Path, source: str, name: str = "") -> Outcome:
    """Run a file that has this text, and let it answer one request."""
    file = folder / "app.py"
    file.write_text(IMPORT + source)
    return command("run", f"{file}{name}", stdin=INITIALIZE + "\n")


def name_of(outcome: Outcome) -> str:
    """The name by which the server introduced itself."""
    name: str = json.loads(outcome.out)["result"]["serverInfo"]["name"]
    return name


@pytest.mark.parametrize(
    ("source", "name"),
    [
        pytest.param("server = Server('right')\nother = Server('wrong')", "", id="server"),
        pytest.param("mcp = Server('right')\nother = Server('wrong')", "", id="mcp"),
        pytest.param("app = Server('right')\nother = Server('wrong')", "", id="app"),
        pytest.param("mcp = Server('wrong')\nserver = Server('right')", "", id="server before mcp"),
        pytest.param("mine = Server('right')", "", id="the only one"),
        pytest.param("mine = alias = Server('right')", "", id="one under two names"),
        pytest.param("server = Server('wrong')\nother = Server('right')", ":other", id="named"),
        pytest.param("class box:\n    inner = Server('right')", ":box.inner", id="inside an object"),
        pytest.param("server = Server('right')\nif __name__ == '__main__':\n    raise SystemExit(9)", "", id="guarded"),
        pytest.param("server = Server('right')\nserver.run()", "", id="runs itself"),
    ],
)
def test_the_server_meant_is_served(source: str, name: str, tmp_path: Path) -> None:
    outcome = served(tmp_path, source, name)
    assert outcome.code == 0
    assert name_of(outcome) == "right"


def test_a_file_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("NAME = 'right'")
    assert name_of(served(tmp_path, "import neighbour\nserver = Server(neighbour.NAME)")) == "right"


def test_a_neighbour_that_imports_the_file_gets_the_same_server(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("from app import server\nserver.info.name")
    assert name_of(served(tmp_path, "server = Server('right')\nimport neighbour")) == "right"


def test_a_file_may_be_called_like_a_module_that_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "os.py"
    file.write_text(IMPORT + "server = Server('right')")
    assert json.loads(command("run", str(file), stdin=PING).out) == PONG


def test_a_file_may_have_a_colon_in_its_name(tmp_path: Path) -> None:
    file = tmp_path / "a:b.py"
    file.write_text(IMPORT + "server = Server('right')")
    assert json.loads(command("run", str(file), stdin=PING).out) == PONG


@pytest.mark.parametrize(
    ("source", "name", "sentence"),
    [
        pytest.param("x = 1", "", "has no Server in it; make one: server = Server(...)", id="no server"),
        pytest.param("a = Server()\nb = Server()", "", "has several servers (a, b): name one, as", id="several"),
        pytest.param("a = Server()", ":b", "has no object b (servers in it: a)", id="no such object"),
        pytest.param("a = 1", ":b", "has no object b (servers in it: none)", id="no object at all"),
        pytest.param("a = 1", ":a", "is no Server but a int", id="no server under that name"),
    ],
)
def test_a_file_without_one_server_is_told_in_a_sentence(
    source: str, name: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "odd_one.py"
    file.write_text(IMPORT + source)
    code, out, err = run(capsys, "run", f"{file}{name}")
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("spec", ["no_such.py", "no_such.py:server"])
def test_a_file_that_is_not_there_is_code_2(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "run", spec) == (2, "", "trunkline: there is no file no_such.py\n")


def test_what_a_file_raises_is_shown_as_its_own_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "raising.py"
    file.write_text("def inner():\n    raise ValueError('mine\\x1b[1m')\n\ninner()\n")
    code, _, err = run(capsys, "run", str(file))
    assert code == 2
    assert err.splitlines()[0] == f"trunkline: {file} cannot be loaded:"
    assert err.splitlines()[-1] == "ValueError: mine\\x1b[1m"
    assert err.count("  File ") == 2
    assert "importlib" not in err


def test_a_syntax_error_shows_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "unclosed.py"
    file.write_text("x = (\n")
    code, _, err = run(capsys, "run", str(file))
    assert code == 2
    assert f'File "{file}", line 1' in err
    assert "SyntaxError" in err
    assert "trunkline/cli" not in err


@pytest.mark.parametrize("arguments", [("--http", "8000", "app.py"), ("app.py", "--http")], ids=["address", "bare"])
def test_http_is_not_there_yet(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "trunkline: URLs (and --http) come with the HTTP transport; this version speaks stdio.\n"
    assert run(capsys, "run", *arguments) == (1, "", sentence)
