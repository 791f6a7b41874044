"""What is taken over from an application, under which name, and what is covered when it is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.devtools.client_configs.entries import masked_diff, masked_text, suggest_name, translate_entry, url_entry
from trunkline.devtools.client_configs.files import AppDocument, AppFile, Machine, files_of, read_app_file
from trunkline.devtools.client_configs.import_plan import ImportStep, apply_import, plan_import, remove_originals
from trunkline.devtools.client_configs.json_edit import put_member
from trunkline.errors import ConfigError

TARGET = AppDocument(file=AppFile(app="claude-code", scope="user", path=Path("/t/mcp.json")))
FOLDER = Path("/work/notes")


def source(servers: dict[str, Any], *, app: str = "cursor", project: bool = False, **more: Any) -> AppDocument:
    """A file of an application."""
    folder = FOLDER if project else None
    file = AppFile(app=app, scope="project" if project else "user", path=Path("/s.json"), folder=folder)
    return AppDocument(file=file, servers=servers, **more)


def having(**servers: Any) -> AppDocument:
    """A file of ours."""
    return AppDocument(file=TARGET.file, text=json.dumps({"mcpServers": servers}), servers=servers)


def one(document: AppDocument, target: AppDocument = TARGET, **how: Any) -> ImportStep:
    """Plan a file with one server."""
    (step,) = plan_import([document], target, **how)
    return step


def test_an_entry_is_taken_over_as_it_is() -> None:
    entry = {"command": "npx", "args": ["-y", "x"], "env": {"KEY": "${KEY}"}}
    step = one(source({"a": entry}))
    assert (step.action, step.target, step.entry) == ("add", "a", entry)


def test_what_would_raise_a_servers_standing_is_left_behind() -> None:
    step = one(source({"a": {"command": "x", "alwaysAllow": ["rm"], "trusted": True, "trunkline": {}, "cwd": None}}))
    assert (step.entry, step.dropped) == ({"command": "x"}, ("alwaysAllow", "trusted", "trunkline"))


@pytest.mark.parametrize(
    ("conflict", "action", "target"),
    [("skip", "skip", "a"), ("replace", "replace", "a"), ("rename", "add", "a-cursor")],
)
def test_a_name_that_is_taken_is_a_conflict(conflict: Any, action: str, target: str) -> None:
    step = one(source({"a": {"command": "x"}}), having(a={"command": "y"}), conflict=conflict)
    assert (step.action, step.target) == (action, target)


def test_names_are_counted_on() -> None:
    there = having(**{"a": {"command": "y"}, "a-cursor": {"command": "z"}})
    assert one(source({"a": {"command": "x"}}), there, conflict="rename").target == "a-cursor-2"


@pytest.mark.parametrize("conflict", ["skip", "rename", "replace"])
def test_importing_twice_changes_nothing(conflict: Any) -> None:
    there = having(**{"a": {"command": "y"}, "a-cursor": {"command": "x"}})
    first = apply_import(plan_import([source({"a": {"command": "x"}})], there, conflict=conflict), there)
    again = AppDocument(file=TARGET.file, text=first, servers=json.loads(first)["mcpServers"])
    assert apply_import(plan_import([source({"a": {"command": "x"}})], again, conflict=conflict), again) == first


def test_two_applications_with_the_same_server_bring_it_once() -> None:
    steps = plan_import([source({"a": {"command": "x"}}), source({"a": {"command": "x"}}, app="vscode")], TARGET)
    assert [step.action for step in steps] == ["add", "same"]


def test_a_projects_entry_keeps_its_folder() -> None:
    entry = {"command": "./run", "args": ["${workspaceFolder}/x"], "envFile": ".env"}
    assert one(source({"a": entry}, project=True)).entry == {
        "command": "/work/notes/run",
        "args": ["/work/notes/x"],
        "envFile": "/work/notes/.env",
        "cwd": "/work/notes",
    }


def test_what_is_no_entry_is_told() -> None:
    steps = plan_import([source({"a": {}, "b": 1})], TARGET)
    assert [step.action for step in steps] == ["skip", "skip"]


def test_the_inputs_that_an_entry_names_come_with_it() -> None:
    inputs = ({"id": "key", "type": "promptString"}, {"id": "other"})
    step = one(source({"a": {"command": "x", "env": {"K": "${input:key}"}}}, inputs=inputs))
    assert json.loads(apply_import([step], TARGET))["inputs"] == [inputs[0]]


def test_an_input_that_means_something_else_here_stops_it() -> None:
    step = one(source({"a": {"command": "${input:key}"}}, inputs=({"id": "key"},)))
    there = AppDocument(file=TARGET.file, text='{"inputs": [{"id": "key", "x": 1}]}', inputs=({"id": "key", "x": 1},))
    with pytest.raises(ConfigError, match="another input"):
        apply_import([step], there)


@pytest.mark.parametrize(
    ("entry", "own"),
    [
        ({"command": "trunkline", "args": ["serve"]}, True),
        ({"command": "/opt/bin/trunkline", "args": ["serve", "-c", "x.json"]}, True),
        ({"command": "C:\\py\\trunkline.exe", "args": ["serve"]}, True),
        ({"command": "python", "args": ["-P", "-m", "trunkline", "serve"]}, True),
        ({"command": "uvx", "args": ["trunkline@1.2", "serve"]}, True),
        ({"command": "uvx", "args": ["--from", "x", "trunkline[http]==1.2", "serve"]}, True),
        ({"command": "uv", "args": ["run", "trunkline", "serve"]}, True),
        ({"command": "trunkline", "args": ["run", "server.py"]}, False),
        ({"command": "trunkline"}, False),
        ({"command": "node", "args": ["serve", "trunkline"]}, False),
        ({"command": "mytrunkline", "args": ["serve"]}, False),
        ({"command": "trunkline-like", "args": ["serve"]}, False),
        ({"url": "http://127.0.0.1:8000/mcp"}, False),
    ],
)
def test_our_own_gateway_is_known_by_its_command(entry: dict[str, Any], own: bool) -> None:
    step = one(source({"a": entry}))
    assert (step.own, step.action) == (own, "skip" if own else "add")


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["{", "[]", '{"mcpServers": 1}', "\xff"], ids=["cut", "list", "number", "latin"])
def test_a_file_that_is_not_understood_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"a\.json"):
        read_app_file(AppFile(app="cursor", scope="user", path=path))


def test_a_mark_at_the_beginning_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'\xef\xbb\xbf{"mcpServers": {}}')
    document = read_app_file(AppFile(app="cursor", scope="user", path=path))
    assert document.encoded(document.text) == path.read_bytes()


# --- showing ---------------------------------------------------------------------------------------------------------


def test_everything_that_could_be_secret_is_covered() -> None:
    entry = {
        "env": {"API_KEY": "s3cret-1", "REF": "${KEY}"},
        "headers": {"Authorization": "Bearer s3cret-2", "X": "Bearer ${T}"},
        "args": ["--token", "s3cret-3", "--api-key=s3cret-4", "plain"],
        "url": "https://u:s3cret-5@h/?k=s3cret-6",
    }
    shown = masked_text(json.dumps({"mcpServers": {"a": entry}, "oauthToken": "s3cret-7"}))
    assert "s3cret" not in shown
    assert all(word in shown for word in ("${KEY}", "Bearer ${T}", '"plain"', "--token"))


def test_what_looks_like_a_secret_is_covered_wherever_it_stands() -> None:
    entry = {
        "args": ["Server=h;Pwd=s3cret", "ghp_s3cret0123456789", "Server=h;Pwd=${PW}"],
        "env": {"NOTE": "https://u:s3cret@h/x", "GITHUB_PAT": "s3cret", "JWT": "s3cret", "PLAIN": "a text"},
    }
    shown = masked_text(json.dumps({"mcpServers": {"a": entry}}))
    assert "s3cret" not in shown
    assert all(word in shown for word in ("Server=h;Pwd=***", "Server=h;Pwd=${PW}", "a text", "GITHUB_PAT"))


def test_a_difference_is_shown_without_secrets() -> None:
    before = json.dumps({"a": {"env": {"TOKEN": "s3cret"}}}, indent=2)
    shown = masked_diff(before, put_member(before, (), "b", {"env": {"TOKEN": "s3cret"}}), "f")
    assert ("s3cret" in shown, '+  "b": {' in shown) == (False, True)


# --- putting in ------------------------------------------------------------------------------------------------------

WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12).filter(
    lambda text: "${" not in text and not text.startswith("secret://")
)
ENTRIES = st.fixed_dictionaries(
    {"command": WORDS.filter(bool), "args": st.lists(WORDS, max_size=4)},
    optional={"env": st.dictionaries(WORDS.filter(bool), WORDS, max_size=3)},
)


@given(ENTRIES, WORDS.filter(bool), st.sampled_from(["claude-desktop", "claude-code", "cursor"]))
def test_what_is_installed_is_imported_as_it_was(entry: dict[str, Any], name: str, app: str) -> None:
    text = put_member('{ // mine\n  "theme": "dark"\n}', ("mcpServers",), name, translate_entry(app, name, entry))
    there = json.loads(text.replace(" // mine", ""))["mcpServers"]
    step = one(source(there, app=app))
    assert (step.target, step.entry) == (name, entry)


@pytest.mark.parametrize(
    ("app", "written"),
    [
        *((app, "${env:KEY}") for app in ("cursor", "vscode", "windsurf")),
        *((app, "${KEY}") for app in ("claude-code", "gemini-cli")),
    ],
)
def test_variables_are_named_as_the_application_names_them(app: str, written: str) -> None:
    entry = {"command": "x", "env": {"A": "${KEY}", "B": "${env:KEY}"}, "trusted": True}
    made = translate_entry(app, "a", entry)
    assert (made["env"], "trusted" in made) == ({"A": written, "B": written}, False)


@pytest.mark.parametrize(
    ("app", "text"),
    [
        *((app, "${KEY}") for app in ("claude-desktop", "codex", "goose", "zed")),
        ("cursor", "secret://key"),
        ("vscode", "${secret:key}"),
        ("cursor", "${KEY:-x}"),
        ("claude-code", "${input:key}"),
    ],
)
def test_what_an_application_cannot_fill_is_refused(app: str, text: str) -> None:
    with pytest.raises(ConfigError, match="--gateway"):
        translate_entry(app, "a", {"command": "x", "env": {"A": text}})


def test_an_application_that_only_starts_servers_takes_no_url() -> None:
    with pytest.raises(ConfigError, match="Connectors"):
        url_entry("claude-desktop", "https://x/", {})


@pytest.mark.parametrize(
    ("words", "url", "name"),
    [
        (("npx", "-y", "@modelcontextprotocol/server-everything"), None, "server-everything"),
        (("npx", "-y", "thing@1.2.3"), None, "thing"),
        (("python", "-m", "trunkline", "run", "--", "/p/weather.py:app"), None, "weather"),
        (("python", "/p/weather/server.py"), None, "weather"),
        (("python", "/home/.pyenv/weather.py"), None, "weather"),
        (("my server;rm",), None, "my-server-rm"),
        ((), "https://mcp.example.com/mcp", "example-com"),
    ],
)
def test_a_name_is_made_up(words: tuple[str, ...], url: str | None, name: str) -> None:
    assert suggest_name(words, url) == name


# --- formats other than JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("app", "text", "wanted"),
    [
        (
            "codex",
            '[mcp_servers.a]\ncommand = "x"\nargs = ["-v"]\n\n[mcp_servers.a.env]\nK = "v"\n',
            {"command": "x", "args": ["-v"], "env": {"K": "v"}},
        ),
        (
            "codex",
            '[mcp_servers.a]\nurl = "https://a.test/mcp"\n\n[mcp_servers.a.http_headers]\nX = "y"\n',
            {"url": "https://a.test/mcp", "http_headers": {"X": "y"}},
        ),
        (
            "goose",
            "extensions:\n  a:\n    enabled: true\n    type: stdio\n    name: a\n    cmd: x\n    args:\n    - -v\n"
            "    envs:\n      K: v\n    timeout: 300\n",
            {"enabled": True, "command": "x", "args": ["-v"], "env": {"K": "v"}},
        ),
        (
            "goose",
            "extensions:\n  a:\n    enabled: true\n    type: streamable_http\n    uri: https://a.test/mcp\n",
            {"enabled": True, "url": "https://a.test/mcp"},
        ),
        (
            "gemini-cli",
            '{"mcpServers": {"a": {"httpUrl": "https://a.test", "timeout": 600000}}}',
            {"httpUrl": "https://a.test"},
        ),
        ("windsurf", '{"mcpServers": {"a": {"serverUrl": "https://a.test"}}}', {"serverUrl": "https://a.test"}),
        ("zed", '{"context_servers": {"a": {"command": "x", "args": [],}}, /* c */}', {"command": "x", "args": []}),
    ],
)
def test_servers_of_other_formats_are_imported(tmp_path: Path, app: str, text: str, wanted: dict[str, Any]) -> None:
    machine = Machine(system="linux", home=tmp_path, environ={}, project=tmp_path / "project")
    file = next(iter(files_of(app, machine)))
    file.path.parent.mkdir(parents=True)
    file.path.write_text(text, encoding="utf-8")
    document = read_app_file(file)
    target = AppDocument(file=AppFile(app="claude-code", scope="user", path=tmp_path / "mcp.json"))
    (step,) = plan_import([document], target)
    assert (step.action, dict(step.entry)) == ("add", wanted)
    ((_, rest, names),) = remove_originals([step], [document], target)
    assert names == ("a",)
    file.path.write_text(rest, encoding="utf-8")
    assert read_app_file(file).servers == {}


def test_what_goose_brings_itself_is_not_imported(tmp_path: Path) -> None:
    machine = Machine(system="linux", home=tmp_path, environ={}, project=tmp_path)
    file = next(iter(files_of("goose", machine)))
    file.path.parent.mkdir(parents=True)
    file.path.write_text("extensions:\n  developer:\n    enabled: true\n    type: builtin\n", encoding="utf-8")
    target = AppDocument(file=AppFile(app="claude-code", scope="user", path=tmp_path / "mcp.json"))
    (step,) = plan_import([read_app_file(file)], target)
    assert step.action == "skip"


# --- entries for them ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("app", ["goose", "windsurf", "zed"])
def test_a_directory_that_an_application_cannot_start_in_is_refused(app: str) -> None:
    with pytest.raises(ConfigError, match="another directory"):
        translate_entry(app, "a", {"command": "x", "cwd": "/y"})


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "config.toml",
            '[mcp_servers.a]\nurl = "https://u:s3cret@a.test/?k=s3cret"\n[mcp_servers.a.env]\nX = "s3cret"\n',
        ),
        ("config.toml", '[mcp_servers.a]\nenv = { X = "s3cret" }\nhttp_headers = { Y = "s3cret" }\n'),
        ("config.toml", '[a]\napi_key = "s3cret"\n'),
        ("config.yaml", "extensions:\n  a:\n    envs:\n      X: s3cret\n    headers:\n      Y: s3cret\n"),
        ("config.yaml", "OPENAI_API_KEY: s3cret\n"),
    ],
)
def test_secrets_are_masked_in_every_format(path: str, text: str) -> None:
    shown = masked_text(text, path)
    assert "s3cret" not in shown
    assert len(shown.splitlines()) == len(text.splitlines())


def test_what_is_no_secret_stays_visible() -> None:
    toml = '[mcp_servers.a.env]\nX = "1"\n\n[mcp_servers.a]\ncommand = "x"\n'
    assert masked_text(toml, "c.toml") == toml.replace('"1"', '"***"')
    goose = "extensions:\n  a:\n    envs:\n      X: y\n    cmd: x\n    args:\n    - run\n"
    assert masked_text(goose, "c.yaml") == goose.replace("X: y", 'X: "***"')
