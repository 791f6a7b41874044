"""``trunkline install``: one entry goes into another application's file, and comes out again byte for byte."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.hosted import write_config
from tests.cli.support import DEMO, Cli, Outcome
from trunkline.devtools.client_configs.files import APPS, Machine, files_of
from trunkline.devtools.client_configs.formats import format_of


class Desk:
    """A home with applications, and a project to work in."""

    def __init__(self, machine: Machine, cli: Cli) -> None:
        """Take the machine."""
        self.machine = machine
        self._cli = cli

    def path(self, app: str, scope: str = "user") -> Path:
        """Where an application's file is."""
        return next(file.path for file in files_of(app, self.machine) if file.scope == scope)

    def write(self, app: str, text: str) -> Path:
        """Write an application's file."""
        path = self.path(app)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, *words: str) -> Outcome:
        """Run the command."""
        return self._cli("install", *words)

    def servers(self, app: str, scope: str = "user") -> dict[str, Any]:
        """What an application has now."""
        file = next(file for file in files_of(app, self.machine) if file.scope == scope)
        # These parsers are not those under test.
        parse: Any = {"json": json.loads, "toml": tomllib.loads, "yaml": yaml.safe_load}[format_of(str(file.path))]
        return parse(file.path.read_text(encoding="utf-8"))[file.key_path[0]]  # type: ignore[no-any-return]


@pytest.fixture
def desk(machine: Machine, cli: Cli) -> Desk:
    return Desk(machine, cli)


@pytest.mark.parametrize("app", APPS)
def test_a_server_is_put_into_a_file_that_was_not_there_and_taken_back(desk: Desk, app: str) -> None:
    assert desk.run(DEMO, "--into", app).code == 0
    entry = desk.servers(app)["demo"]
    assert (entry["cmd" if app == "goose" else "command"], entry["args"][-1]) == (sys.executable, DEMO)
    assert desk.path(app).stat().st_mode & 0o777 == 0o600
    assert desk.run("--undo", "--into", app).code == 0
    assert os.listdir(desk.path(app).parent) == []


def test_a_dry_run_shows_and_changes_nothing(desk: Desk) -> None:
    path = desk.write("cursor", "{}")
    code, out, _ = desk.run(DEMO, "--into", "cursor", "--dry-run", "--env", "API_KEY=s3cret")
    assert (code, '"demo": {' in out, "s3cret" in out) == (0, True, False)
    assert (path.read_text(encoding="utf-8"), os.listdir(path.parent)) == ("{}", ["mcp.json"])


def test_installing_twice_changes_nothing(desk: Desk) -> None:
    desk.run(DEMO, "--into", "cursor")
    before = sorted(os.listdir(desk.path("cursor").parent))
    assert desk.run(DEMO, "--into", "cursor").code == 0
    assert sorted(os.listdir(desk.path("cursor").parent)) == before


def test_the_project_has_a_file_of_its_own(desk: Desk) -> None:
    assert desk.run(DEMO, "--into", "vscode", "--project").code == 0
    assert desk.servers("vscode", "project")["demo"]["type"] == "stdio"


def test_the_gateway_is_put_in_with_full_paths(desk: Desk) -> None:
    write_config(desk.machine.project / "mcp.json", {})
    assert desk.run("--gateway", "-c", "mcp.json", "--into", "claude-code").code == 0
    entry = desk.servers("claude-code")["trunkline"]
    assert entry["args"][-5:] == ["serve", "--approval", "client", "-c", str(desk.machine.project / "mcp.json")]


@pytest.mark.parametrize(
    ("given", "words", "written"),
    [
        pytest.param({"TRUNKLINE_HOME": "own"}, (), {"TRUNKLINE_HOME": "{here}/own"}, id="home"),
        pytest.param(
            {"TRUNKLINE_HOME": "own", "XDG_DATA_HOME": "data"}, (), {"TRUNKLINE_HOME": "{here}/own"}, id="home first"
        ),
        pytest.param(
            {"TRUNKLINE_HOME": "own"}, ("--env", "TRUNKLINE_HOME=/x"), {"TRUNKLINE_HOME": "/x"}, id="told otherwise"
        ),
        pytest.param(
            {"XDG_CONFIG_HOME": "etc", "XDG_DATA_HOME": "/data"},
            (),
            {"XDG_CONFIG_HOME": "{here}/etc", "XDG_DATA_HOME": "/data"},
            id="xdg",
            marks=pytest.mark.skipif(sys.platform in ("darwin", "win32"), reason="these variables mean nothing there"),
        ),
        pytest.param({}, (), None, id="none"),
    ],
)
def test_the_gateway_in_the_application_uses_the_same_state(
    given: dict[str, str],
    words: tuple[str, ...],
    written: dict[str, str] | None,
    desk: Desk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TRUNKLINE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    write_config(desk.machine.project / "mcp.json", {})
    assert desk.run("--gateway", "-c", "mcp.json", "--into", "claude-code", *words).code == 0
    entry = desk.servers("claude-code")["trunkline"]
    here = str(desk.machine.project)
    expected = None if written is None else {name: value.format(here=here) for name, value in written.items()}
    assert entry.get("env") == expected


@pytest.mark.parametrize("mode", ["client", "ask", "deny"])
def test_the_approval_mode_of_the_gateway_is_written_out_and_said(mode: str, desk: Desk) -> None:
    write_config(desk.machine.project / "mcp.json", {})
    ended = desk.run("--gateway", "-c", "mcp.json", "--into", "claude-code", "--approval", mode)
    assert ended.code == 0
    assert f"--approval {mode} " in " ".join(desk.servers("claude-code")["trunkline"]["args"])
    assert f"approval mode {mode}: " in ended.err
    assert ("is denied every tool call" in ended.err) is (mode != "client")


def test_a_gateway_over_a_file_that_is_broken_is_not_put_in(desk: Desk) -> None:
    (desk.machine.project / "mcp.json").write_text("{", encoding="utf-8")
    assert desk.run("--gateway", "-c", "mcp.json", "--into", "cursor").code == 2
    assert not desk.path("cursor").exists()


def test_a_url_is_put_in_with_its_headers(desk: Desk) -> None:
    desk.run("https://mcp.example.com/mcp", "--into", "cursor", "--header", "X-Key: abc")
    entry = {"type": "http", "url": "https://mcp.example.com/mcp", "headers": {"X-Key": "abc"}}
    assert desk.servers("cursor") == {"example-com": entry}


def test_a_server_of_a_configuration_is_put_in_with_full_paths_and_its_variables(desk: Desk) -> None:
    folder = desk.machine.project
    (folder / "server.py").touch()
    (folder / "data").mkdir()
    entry = {
        "command": "sh",
        "args": ["run", "server.py", "--db=./data", "${workspaceFolder}/x", "server.py:app", "no.such"],
        "env": {"K": "${V:-1}"},
        "era": "auto",
    }
    file = write_config(folder / "c.json", {"a": entry, "b": {"command": "sh", "cwd": "data"}})
    ended = desk.run("a", "-c", str(file), "--into", "claude-code")
    assert (ended.code, "a: Claude Code does not know era, so the entry is without that" in ended.err) == (0, True)
    assert desk.run("b", "-c", str(file), "--into", "claude-code").code == 0
    words = ["run", f"{folder}/server.py", f"--db={folder}/data", f"{folder}/x", f"{folder}/server.py:app", "no.such"]
    assert desk.servers("claude-code") == {
        "a": {"command": shutil.which("sh"), "args": words, "env": {"K": "${V:-1}"}},
        "b": {"command": shutil.which("sh"), "cwd": str(folder / "data")},
    }


def test_a_word_that_might_be_a_path_is_kept_and_named(desk: Desk) -> None:
    (desk.machine.project / "data").mkdir()
    file = write_config(desk.machine.project / "c.json", {"a": {"command": "sh", "args": ["data"]}})
    ended = desk.run("a", "-c", str(file), "--into", "cursor")
    assert (ended.code, "a: data is kept as it is; if it is a path, write ./data" in ended.err) == (0, True)


def test_a_sandboxed_server_is_not_installed_without_its_sandbox(desk: Desk) -> None:
    file = write_config(desk.machine.project / "c.json", {"a": {"command": "sh", "sandbox": True}})
    ended = desk.run("a", "-c", str(file), "--into", "cursor")
    assert (ended.code, desk.path("cursor").exists()) == (2, False)
    assert "a: Cursor cannot start a server in a sandbox; install the gateway instead" in ended.err


def test_print_alone_prints_the_usual_form_and_names_it(desk: Desk) -> None:
    ended = desk.run(DEMO, "--print")
    assert ended.code == 0
    assert ended.json["mcpServers"]["demo"]["args"][-1] == DEMO
    assert ended.err == (
        "trunkline: printed in the form of Claude Code; for that of another application, add --into APP\n"
    )


def test_no_shell_reads_a_name_or_an_argument(desk: Desk) -> None:
    mark = desk.machine.project / "mark"
    assert desk.run(f"echo '$(touch {mark})'", "--into", "cursor", "--name", "a;touch b").code == 1
    assert desk.run(f"echo '$(touch {mark})'", "--into", "cursor", "--name", "a").code == 0
    assert (desk.servers("cursor")["a"]["args"], mark.exists()) == ([f"$(touch {mark})"], False)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--into", "cursor"), id="nothing"),
        pytest.param((DEMO,), id="no-application"),
        pytest.param((DEMO, "--gateway", "--into", "cursor"), id="both"),
        pytest.param((DEMO, "--undo", "--into", "cursor"), id="undo-of-something"),
        pytest.param((DEMO, "--into", "cursor", "--header", "A: b"), id="a-header-for-a-command"),
        pytest.param((DEMO, "--into", "claude-desktop", "--project"), id="no-such-file"),
        pytest.param((DEMO, "--into", "emacs"), id="no-such-application"),
        pytest.param((DEMO, "--into", "claude-code", "--approval", "client"), id="an-approval-mode-of-a-server"),
        pytest.param((DEMO, "--into", "zed", "--print", "--json"), id="print-and-json"),
        pytest.param((DEMO, "--into", "zed", "--print", "--dry-run"), id="print-and-dry-run"),
        pytest.param((DEMO, "--into", "zed", "--print", "--replace"), id="print-and-replace"),
    ],
)
def test_what_makes_no_sense_is_refused(desk: Desk, words: tuple[str, ...]) -> None:
    assert desk.run(*words).code == 1


def test_a_file_of_another_library_is_installed_as_the_program_that_it_is(desk: Desk) -> None:
    file = desk.machine.project / "desk.py"
    file.write_text("from mcp.server import MCPServer\nmcp = MCPServer('x')\nmcp.run()\n", encoding="utf-8")
    assert desk.run("desk.py", "--into", "cursor").code == 0
    entry = desk.servers("cursor")["desk"]
    assert [entry["command"], *entry["args"]] == [sys.executable, str(file)]


def test_a_program_that_is_not_there_is_refused(desk: Desk) -> None:
    assert desk.run("no-such-program-here --x", "--into", "cursor").code == 2


def test_undo_rejects_a_file_that_was_changed_since(desk: Desk) -> None:
    desk.run(DEMO, "--into", "cursor")
    desk.write("cursor", "{}")
    code, _, err = desk.run("--undo", "--into", "cursor")
    assert (code, "was changed since" in err) == (2, True)


def test_the_outcome_is_json_if_asked_for(desk: Desk) -> None:
    said = json.loads(desk.run(DEMO, "--into", "cursor", "--json").out)
    assert (said["outcome"], said["name"], Path(said["backup"]).parent) == (
        "installed",
        "demo",
        desk.path("cursor").parent,
    )


# --- every application -----------------------------------------------------------------------------------------------

#: Files as their owners wrote them, with comments and settings of all kinds.
OWN = {
    "json": '// mine\n{\n\t"theme": "dark", // why\n\t"KEY": {\n\t\t"old": {"command": "x"}, /* keep */\n\t},\n}\n',
    "toml": "# mine\nmodel = 'm' # why\n\n[KEY.old]\ncommand = 'x'\n# keep\n\n[tui]\ntheme = 'dark'\n",
    "yaml": "# mine\nGOOSE_MODEL: m # why\nKEY:\n  old: # keep\n    cmd: x\n    args: []\n\n# last\nlist:\n- a\n",
}
#: A setting of that file, changed by another program after an installation.
LATER = {"json": ('"dark"', '"light"'), "toml": ("'m'", "'n'"), "yaml": ("m # why", "n # why")}


def own_text(desk: Desk, app: str) -> str:
    file = next(iter(files_of(app, desk.machine)))
    return OWN[format_of(str(file.path))].replace("KEY", file.key_path[0])


def change_later(path: Path) -> tuple[str, str]:
    old, new = LATER[format_of(str(path))]
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    return old, new


@pytest.mark.parametrize("app", APPS)
def test_every_line_of_a_file_survives_and_undo_restores_it(desk: Desk, app: str) -> None:
    text = own_text(desk, app)
    path = desk.write(app, text)
    path.chmod(0o640)
    ended = desk.run(DEMO, "--into", app, "--env", "API_KEY=s3cret")
    assert (ended.code, "s3cret" in ended.out) == (0, False)
    changed = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in text.splitlines() if line in changed] == text.splitlines()
    assert path.stat().st_mode & 0o777 == 0o640
    ended = desk.run("--undo", "--into", app)
    assert (ended.code, path.read_text(encoding="utf-8"), "s3cret" in ended.out) == (0, text, False)
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("app", APPS)
def test_undo_takes_back_the_entry_alone_if_the_file_was_changed_since(desk: Desk, app: str) -> None:
    text = own_text(desk, app)
    path = desk.write(app, text)
    desk.run(DEMO, "--into", app)
    old, new = change_later(path)
    ended = desk.run("--undo", "--into", app)
    assert (ended.code, path.read_text(encoding="utf-8")) == (0, text.replace(old, new))
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("app", APPS)
def test_undo_puts_back_the_entry_that_was_replaced(desk: Desk, app: str) -> None:
    path = desk.write(app, own_text(desk, app).replace("old", "demo"))
    assert desk.run(DEMO, "--into", app).code == 2
    assert desk.run(DEMO, "--into", app, "--replace").code == 0
    _, new = change_later(path)
    assert desk.run("--undo", "--into", app).code == 0
    changed = path.read_text(encoding="utf-8")
    assert (new in changed, sys.executable in changed) == (True, False)
    assert ("cmd: x" if app == "goose" else '"x"') in changed


@pytest.mark.parametrize("app", APPS)
def test_print_prints_the_entry_alone_and_changes_nothing(desk: Desk, app: str) -> None:
    ended = desk.run(DEMO, "--into", app, "--print", "--env", "API_KEY=s3cret")
    assert (ended.code, ended.err) == (0, "")
    assert not desk.path(app).exists()
    desk.run(DEMO, "--into", app, "--env", "API_KEY=s3cret")
    assert desk.path(app).read_text(encoding="utf-8") == ended.out


@pytest.mark.parametrize(
    ("app", "text"),
    [
        ("goose", "extensions: {old: {cmd: x}}\n"),
        ("codex", "mcp_servers = {old = {command = 'x'}}\n"),
        ("codex", "not toml"),
        ("zed", '{"context_servers": []}'),
        ("zed", "{"),
    ],
)
def test_a_file_that_cannot_be_changed_safely_names_the_way_out(desk: Desk, app: str, text: str) -> None:
    path = desk.write(app, text)
    ended = desk.run(DEMO, "--into", app)
    assert (ended.code, path.read_text(encoding="utf-8")) == (2, text)
    assert "Add --print to see the entry" in ended.err
    assert desk.run(DEMO, "--into", app, "--print").code == 0


@pytest.mark.parametrize(
    ("app", "entry"),
    [
        ("gemini-cli", {"httpUrl": "https://a.test/mcp", "headers": {"X": "y"}}),
        ("codex", {"url": "https://a.test/mcp", "http_headers": {"X": "y"}}),
        ("windsurf", {"serverUrl": "https://a.test/mcp", "headers": {"X": "y"}}),
        ("zed", {"url": "https://a.test/mcp", "headers": {"X": "y"}}),
        (
            "goose",
            {
                "enabled": True,
                "type": "streamable_http",
                "name": "a-test",
                "description": "",
                "uri": "https://a.test/mcp",
                "headers": {"X": "y"},
                "timeout": 300,
            },
        ),
    ],
)
def test_a_url_is_written_as_the_application_wants_it(desk: Desk, app: str, entry: dict[str, Any]) -> None:
    assert desk.run("https://a.test/mcp", "--into", app, "--header", "X: y").code == 0
    assert desk.servers(app) == {"a-test": entry}


@pytest.mark.parametrize("variable", ["PATH", "PYTHONPATH"])
def test_goose_is_not_given_variables_that_it_refuses(desk: Desk, variable: str) -> None:
    ended = desk.run(DEMO, "--into", "goose", "--env", f"{variable}=/x")
    assert ended.code == 2
    assert f"Goose does not let an entry set {variable}" in ended.err


#: Pieces of random files; ``{}`` is replaced by a number, since a key may occur once.
PIECES = {
    "json": ("// a\n", "/* b\n c */", "\n", " ", "\t"),
    "toml": ("# a\n", "\n", "x{} = 1 # b\n", "[t{}]\ny = '''\n[mcp_servers.demo]\n'''\n"),
    "yaml": ("# a\n", "\n", "x{}: 1 # b\n", "y{}:\n- extensions\n", "z{}: |\n  extensions:\n    demo:\n"),
}


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
@given(app=st.sampled_from(list(APPS)), data=st.data())
def test_any_file_with_comments_comes_back_byte_for_byte(app: str, data: st.DataObject, desk: Desk) -> None:
    file = next(iter(files_of(app, desk.machine)))
    kind = format_of(str(file.path))
    drawn = data.draw(st.lists(st.sampled_from(PIECES[kind]), max_size=6))
    text = "".join(piece.replace("{}", str(number)) for number, piece in enumerate(drawn))
    if kind == "json":
        cut = data.draw(st.integers(0, len(drawn)))
        one, two = "".join(drawn[:cut]), "".join(drawn[cut:])
        comma = data.draw(st.sampled_from(["", ","]))
        text = f'{one}{{{two}"a": [1, {one}2], {two}"{file.key_path[0]}": {{"old": {{}}{comma}{two}}}{comma}}}{one}'
    if data.draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    path = desk.path(app)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    assert desk.run(DEMO, "--into", app).code == 0
    assert path.read_bytes() != text.encode()
    assert desk.run("--undo", "--into", app).code == 0
    assert path.read_bytes() == text.encode()
    assert [name for name in os.listdir(path.parent) if path.name in name] == [path.name]


def test_the_gateway_serves_the_users_own_file_unless_told(desk: Desk) -> None:
    assert desk.run("--gateway", "--into", "cursor").code == 2
    own = Path(os.environ["TRUNKLINE_HOME"])
    own.mkdir()
    write_config(own / "mcp.json", {})
    assert desk.run("--gateway", "--into", "cursor").code == 0
    assert desk.servers("cursor")["trunkline"]["args"][-2:] == ["-c", str(own / "mcp.json")]


def _many_tools(desk: Desk) -> None:
    listed = desk.machine.project / "list.json"
    listed.write_text(json.dumps([{"name": f"tool_{n}", "inputSchema": {"type": "object"}} for n in range(129)]))
    server = {
        "command": sys.executable,
        "args": ["-S", "-m", "tests.host.servers.told_list", str(listed)],
        "env": {"PYTHONPATH": str(Path(__file__).parents[3])},
    }
    write_config(desk.machine.project / "mcp.json", {"many": server})


def test_an_install_of_the_gateway_says_that_tools_will_be_searched(desk: Desk) -> None:
    _many_tools(desk)
    words = ("--gateway", "-c", "mcp.json", "--into", "claude-code", "--start")
    code, _, err = desk.run(*words)
    assert (code, "started once: 1 of 1 servers, 129 tools for the first list" in err) == (0, True)
    assert "more than 128 tools); to list all, add --search off" in err
    assert "--search" not in desk.servers("claude-code")["trunkline"]["args"]


def test_an_install_of_the_gateway_asks_whether_to_list_a_large_catalog(desk: Desk, cli: Cli) -> None:
    _many_tools(desk)
    words = ("install", "--gateway", "-c", "mcp.json", "--into", "claude-code")
    code, _ = cli.at_a_terminal(*words, script=(("[l]ist all", "l\n"),))
    args = desk.servers("claude-code")["trunkline"]["args"]
    assert (code, args[args.index("--search") + 1]) == (0, "off")
