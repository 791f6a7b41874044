"""Mistyped words: the message has the word that was probably meant."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.hosted import write_config
from tests.cli.support import DEMO, Cli, Served


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, demo: Served) -> Path:
    """A folder with a file and a configuration that is found."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    write_config(tmp_path / "work" / "mcp.json", {"notes": {"url": "http://127.0.0.1:1/mcp"}})
    write_config(tmp_path / "work" / "named.json", {"notes": {"url": demo.url}})
    (tmp_path / "work" / "weather.py").write_text("from trunkline import Server\nserver = Server()\n")
    return tmp_path / "work"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        pytest.param(("lst", "tools"), "list", id="a command"),
        pytest.param(("grants", "lst"), "list", id="a command in a group"),
        pytest.param(("policy", "wy"), "why", id="a short command in a group"),
        pytest.param(("call", DEMO, "add", "--jsn"), "--json", id="an option"),
        pytest.param(("grants", "list", "--jsno"), "--json", id="an option in a group"),
        pytest.param(("list", "tols", DEMO), "tools", id="a kind"),
        pytest.param(("list", "tols"), "tools", id="a kind without a target"),
        pytest.param(("call", DEMO, "ecko", "text=x"), "echo", id="a tool"),
        pytest.param(("call", DEMO, "ecko"), "echo", id="a tool without arguments"),
        pytest.param(("get", DEMO, "gret"), "greet", id="a prompt"),
        pytest.param(("complete", DEMO, "gret", "name"), "greet", id="a prompt to complete"),
        pytest.param(("complete", DEMO, "note://{name}/pge", "name"), "note://{name}/page", id="a template"),
        pytest.param(("read", DEMO, "note://onee"), "note://one", id="a resource"),
        pytest.param(("call", "note", "echo"), "notes", id="a server"),
        pytest.param(("call", "note/echo", "text=x"), "notes", id="a server with its tool"),
        pytest.param(("call", "note", "echo", "-c", "named.json"), "notes", id="a server of a file"),
        pytest.param(("call", "-c", "named.json", "notes", "ecko", "text=x"), "echo", id="a tool of a named server"),
        pytest.param(("list", "tools", "wether.py"), "weather.py", id="a file"),
        pytest.param(("run", "wether.py"), "weather.py", id="a file to run"),
        pytest.param(("completion", "bsh"), "bash", id="a shell"),
    ],
)
def test_what_was_probably_meant_is_named(arguments: tuple[str, ...], meant: str, folder: Path, cli: Cli) -> None:
    code, _, err = cli(*arguments)
    assert code != 0
    assert f'did you mean "{meant}"?' in err


@pytest.mark.parametrize("arguments", [("qqqq",), ("call", DEMO, "zzzz"), ("call", DEMO, "add", "--zzzz")])
def test_nothing_is_suggested_where_nothing_is_near(arguments: tuple[str, ...], cli: Cli) -> None:
    assert "did you mean" not in cli(*arguments).err


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("weather.py", "trunkline run weather.py."),
        ("https://mcp.example.com/mcp", "trunkline list tools https://mcp.example.com/mcp."),
    ],
)
def test_a_server_in_place_of_a_command_is_recognized(word: str, told: str, cli: Cli) -> None:
    assert told in cli(word).err


@pytest.mark.parametrize(
    "arguments",
    [("run", "weather.py", "--http", "8000", "--port", "8001"), ("run", "weather.py", "--port", "99999999")],
)
def test_an_address_given_twice_or_wrong_is_a_usage_error(arguments: tuple[str, ...], folder: Path, cli: Cli) -> None:
    code, _, err = cli(*arguments)
    assert (code, "--port" in err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("tools", "weather.py"), "use: trunkline list tools TARGET.", id="the name of another tool"),
        pytest.param(("call", DEMO), "Missing argument 'TOOL'; trunkline list tools TARGET lists them.", id="no tool"),
        pytest.param(("help",), "use: trunkline --help.", id="help"),
        pytest.param(("config", "-c", "x"), 'did you mean "trunkline config explain -c"?', id="an option of a group"),
        pytest.param(("list", "tools", "localhost:80"), 'did you mean "http://localhost:80/mcp"?', id="no scheme"),
        pytest.param(("list", "tools", "a.b:80/x"), 'did you mean "http://a.b:80/x"?', id="no scheme, with a path"),
        pytest.param(("call", DEMO, "show", "value={"), "", id="a text that may be no JSON"),
    ],
)
def test_what_to_type_instead_is_told(arguments: tuple[str, ...], told: str, folder: Path, cli: Cli) -> None:
    code, _, err = cli(*arguments)
    assert (code, told in err) == (1 if told else 0, True)


def test_an_argument_that_must_be_json_and_is_not(folder: Path, cli: Cli) -> None:
    source = (
        "from trunkline import Server\nserver = Server()\n@server.tool\ndef sow(bed: dict[str, int]) -> int: return 1\n"
    )
    (folder / "garden.py").write_text(source)
    code, _, err = cli("call", "garden.py", "sow", 'bed={"row": 3')
    assert code == 1
    assert "bed is not JSON: Input data was truncated. See trunkline" in err


def test_a_program_that_runs_no_server(folder: Path, cli: Cli) -> None:
    code, _, err = cli("list", "tools", f"{sys.executable} weather.py")
    assert code == 4
    assert err.endswith("the program has to run its server, with server.run() for example\n")
