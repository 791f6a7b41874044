"""``trunkline run``: which object of a file is served, and how a file that cannot be is told."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.support import Cli, command
from trunkline.cli.exit_codes import CommandError
from trunkline.cli.targets import load_server

PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
PONG = {"jsonrpc": "2.0", "id": 1, "result": {}}
IMPORT = "from trunkline import Server\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Load a file with a text, as a command would, and give the name of its server."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    def loaded(source: str, name: str = "", *, file: str = "app_under_test.py") -> str:
        (tmp_path / file).write_text(IMPORT + source)
        return load_server(f"{tmp_path / file}{name}").name

    return loaded


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
    ],
)
def test_the_server_meant_is_found(source: str, name: str, load: Callable[..., str]) -> None:
    assert load(source, name) == "right"


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("", id="does nothing"),
        pytest.param("if __name__ == '__main__':\n    raise SystemExit(9)", id="guarded"),
        pytest.param("server.run()", id="runs itself"),
    ],
)
def test_a_file_is_served_whatever_it_does_as_a_program(ending: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(f"{IMPORT}server = Server('right')\n{ending}")
    code, out, _ = command("run", str(tmp_path / "app.py"), stdin=PING)
    assert (code, json.loads(out)) == (0, PONG)


def test_a_file_finds_its_neighbours(tmp_path: Path, load: Callable[..., str]) -> None:
    (tmp_path / "neighbour_one.py").write_text("NAME = 'right'")
    assert load("import neighbour_one\nserver = Server(neighbour_one.NAME)") == "right"


def test_a_neighbour_that_imports_the_file_gets_the_same_server(tmp_path: Path, load: Callable[..., str]) -> None:
    (tmp_path / "neighbour_two.py").write_text("from app_under_test import server\nassert server.name == 'right'")
    assert load("server = Server('right')\nimport neighbour_two") == "right"


@pytest.mark.parametrize("name", ["os.py", "a:b.py"], ids=["like a module", "with a colon"])
def test_a_file_may_have_an_odd_name(name: str, load: Callable[..., str]) -> None:
    assert load("server = Server('right')", file=name) == "right"


@pytest.mark.parametrize(
    ("source", "name", "sentence"),
    [
        pytest.param("x = 1", "", "has no Server; create one: server = Server(...)", id="no server"),
        pytest.param("a = Server()\nb = Server()", "", "has several servers (a, b); choose one, such as", id="several"),
        pytest.param("a = Server()", ":b", "has no object b (servers: a)", id="no such object"),
        pytest.param("a = 1", ":b", "has no object b (servers: none)", id="no object at all"),
        pytest.param("a = 1", ":a", "is not a Server but a int", id="no server under that name"),
    ],
)
def test_a_file_without_one_server_is_told_in_a_sentence(
    source: str, name: str, sentence: str, load: Callable[..., str]
) -> None:
    with pytest.raises(CommandError) as caught:
        load(source, name)
    assert caught.value.exit == 2
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["no_such.py", "no_such.py:server"])
def test_a_file_that_is_not_there_is_code_2(spec: str, cli: Cli) -> None:
    assert cli("run", spec) == (2, "", "trunkline: there is no file no_such.py\n")


@pytest.mark.usefixtures("load")
def test_what_a_file_raises_is_shown_as_its_own_traceback(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "raising.py"
    file.write_text("def inner():\n    raise ValueError('mine\\x1b[1m')\n\ninner()\n")
    code, _, err = cli("run", str(file))
    assert code == 2
    assert err.splitlines()[0] == f"trunkline: {file} cannot be loaded:"
    assert err.splitlines()[-1] == "ValueError: mine\\x1b[1m"
    assert err.count("  File ") == 2
    assert "importlib" not in err


@pytest.mark.usefixtures("load")
def test_a_definition_that_is_rejected_is_shown_by_its_own_line(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "twice.py"
    tool = "@server.tool\ndef dig() -> str: return ''\n"
    file.write_text(f"from trunkline import Server\nserver = Server('twice')\n{tool * 2}")
    code, _, err = cli("run", str(file))
    assert code == 2
    assert err.count("  File ") == 1
    assert f'File "{file}", line 5' in err
    assert err.splitlines()[-1].startswith("ValueError: tool 'dig' exists already")
    monkeypatch.setenv("TRUNKLINE_DEBUG", "1")
    assert cli("run", str(file)).err.count("  File ") > 1


def test_a_folder_is_not_a_file(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "garden").mkdir()
    assert cli("run", "garden").err == "trunkline: garden is a folder; give the file of the server in it\n"
    for name in ("__init__.py", "server.py"):
        (tmp_path / "garden" / name).touch()
    assert cli("run", "garden").err.endswith("in it, such as garden/server.py\n")


@pytest.mark.usefixtures("load")
def test_a_syntax_error_shows_its_line(tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "unclosed.py"
    file.write_text("x = (\n")
    code, _, err = cli("run", str(file))
    assert code == 2
    assert f'File "{file}", line 1' in err
    assert "SyntaxError" in err
    assert "trunkline/cli" not in err


@pytest.mark.parametrize("words", [("run", "--compat", "server.py"), ("doctor", "--compat", "server.py")])
def test_a_server_of_another_framework_needs_a_distribution_that_is_named(
    words: tuple[str, ...], cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "trunkline_compat", None)
    assert cli(*words) == (2, "", "trunkline: --compat needs another package: pip install trunkline-compat\n")
