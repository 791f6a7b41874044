"""Configuration files in the console: add, edit, remove, import, reload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.console.support import library, on_console, refused
from tests.console.test_servers import talker, write_config
from trunkline.devtools.client_configs.files import backups_of

SECRET = "sk-live-0123456789abcdef0123456789"


def _servers(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())["mcpServers"]
    return found


async def test_a_server_is_added_to_the_file_and_runs(tmp_path: Path) -> None:
    config = write_config(tmp_path, {})
    async with on_console(str(config), tmp_path) as stage, stage.client().listen() as page:
        entry = talker(tmp_path)
        view = (await page.post("/servers", {"name": "talker", "entry": entry}))["server"]
        assert (view["name"], view["source"].partition(":")[0]) == ("talker", str(config))
        await page.event("server", lambda each: each["server"]["state"] == "ready")
    assert _servers(config) == {"talker": entry}
    assert backups_of(config)


async def test_comments_and_order_of_the_file_stay(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(
        '{\n  // mine\n  "mcpServers": {\n    "b": {"command": "b", "disabled": true} // the second\n  }\n}\n'
    )
    async with on_console(str(config), tmp_path) as stage:
        await stage.client().post("/servers", {"name": "a", "entry": {"command": "a", "disabled": True}})
        await stage.client().delete("/servers/a")
    assert config.read_text() == (
        '{\n  // mine\n  "mcpServers": {\n    "b": {"command": "b", "disabled": true} // the second\n  }\n}\n'
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"name": "a/b", "entry": {"command": "x"}}, "invalid_name"),
        ({"name": "there", "entry": {"command": "x"}}, "taken"),
        ({"name": "new", "entry": {"args": ["x"]}}, "invalid_entry"),
        ({"name": "new", "entry": {"command": 7}}, "invalid_entry"),
        ({"name": "new", "entry": {"command": "x", "env": {"KEY": "***"}}}, "masked"),
        ({"name": "new", "entry": {"command": "x"}, "file": "/etc/passwd"}, "invalid_file"),
        ({"name": "new"}, "invalid_request"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_cannot_be_added_leaves_the_file_alone(tmp_path: Path, body: dict[str, Any], code: str) -> None:
    config = write_config(tmp_path, {"there": {"command": "x", "disabled": True}})
    before = config.read_bytes()
    async with on_console(str(config), tmp_path) as stage:
        failure = await refused(stage.client().post("/servers", body))
    assert failure.code == code
    assert config.read_bytes() == before


async def test_secrets_are_masked_and_keep_their_values_when_they_come_back(tmp_path: Path) -> None:
    entry: dict[str, Any] = {
        "command": "x",
        "args": ["--api-key", SECRET, "--verbose"],
        "env": {"API_TOKEN": SECRET, "MODE": "slow"},
        "disabled": True,
    }
    config = write_config(tmp_path, {"one": entry})
    async with on_console(str(config), tmp_path) as stage:
        client = stage.client()
        shown = await client.get("/servers/one/entry")
        assert SECRET not in json.dumps(shown)
        assert (shown["file"], shown["line"]) == (str(config), 3)
        changed = {**shown["entry"], "env": {**shown["entry"]["env"], "MODE": "fast"}}
        changed["args"] = ["--first", *shown["entry"]["args"]]
        await client.put("/servers/one", {"entry": changed})
    assert _servers(config)["one"] == {
        **entry,
        "args": ["--first", *entry["args"]],
        "env": {"API_TOKEN": SECRET, "MODE": "fast"},
    }


async def test_a_masked_value_in_another_place_is_refused(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"one": {"command": "x", "env": {"API_TOKEN": SECRET}, "disabled": True}})
    async with on_console(str(config), tmp_path) as stage:
        failure = await refused(
            stage.client().put("/servers/one", {"entry": {"command": "x", "env": {"OTHER_TOKEN": "***"}}})
        )
    assert (failure.status, failure.code, failure.fix) == (400, "masked", "Enter the value itself.")
    assert _servers(config)["one"]["env"] == {"API_TOKEN": SECRET}


async def test_a_server_is_removed_from_the_file_and_stopped(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"talker": talker(tmp_path), "kept": {"command": "x", "disabled": True}})
    async with on_console(str(config), tmp_path) as stage, stage.client().listen() as page:
        await page.delete("/servers/talker")
        await page.event("server_removed", lambda each: each["name"] == "talker")
        assert [each["name"] for each in (await page.get("/servers"))["servers"]] == ["kept"]
    assert list(_servers(config)) == ["kept"]


async def test_a_host_without_files_says_so(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage:
        failure = await refused(stage.client().post("/servers", {"name": "x", "entry": {"command": "x"}}))
    assert (failure.status, failure.code) == (409, "no_file")
    assert failure.fix == "To edit a configuration file, run: trunkline console -c FILE"


async def test_without_any_file_the_first_server_goes_to_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_HOME", str(tmp_path / "home"))
    empty = tmp_path / "empty"
    empty.mkdir()
    async with on_console(None, tmp_path, project=empty) as stage:
        view = (await stage.client().post("/servers", {"name": "talker", "entry": talker(tmp_path)}))["server"]
        assert "login" not in view["actions"]
        assert [status.name for status in stage.host.status()] == ["talker"]
    assert list(_servers(tmp_path / "home" / "mcp.json")) == ["talker"]


async def test_what_is_typed_into_a_projects_file_needs_no_second_approval(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    file = write_config(project, {"other": {"command": "x", "disabled": True}}, ".mcp.json")
    async with on_console(None, tmp_path, project=project) as stage, stage.client().listen() as page:
        await page.post("/servers", {"name": "talker", "entry": talker(project), "file": str(file)})
        await page.event("server", lambda each: each["server"]["state"] == "ready")
    assert "talker" in _servers(file)


async def test_editing_a_projects_server_that_nobody_approved_does_not_approve_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    entry = talker(project)
    write_config(project, {"talker": entry}, ".mcp.json")
    async with on_console(None, tmp_path, project=project) as stage:
        view = (await stage.client().put("/servers/talker", {"entry": {**entry, "timeout": 30}}))["server"]
    assert view["state"] in ("known", "unapproved")


async def test_servers_of_other_applications_are_listed_and_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    cursor = tmp_path / "home" / ".cursor"
    cursor.mkdir(parents=True)
    same = {"command": "x", "disabled": True}
    theirs = {
        "talker": talker(tmp_path, env={"API_KEY": SECRET}),
        "same": same,
        "other": {"command": "y", "disabled": True},
    }
    write_config(cursor, theirs)
    config = write_config(tmp_path, {"same": same, "other": {"command": "z", "disabled": True}}, "own.json")
    async with on_console(str(config), tmp_path) as stage:
        client = stage.client()
        found = await client.get("/import")
        [app] = found["apps"]
        assert (app["app"], app["file"]) == ("Cursor", str(cursor / "mcp.json"))
        assert {each["name"]: each["state"] for each in app["servers"]} == {
            "talker": "new",
            "same": "same",
            "other": "differs",
        }
        assert SECRET not in json.dumps(found)
        done = await client.post("/import", {"app": "Cursor", "names": ["talker", "other"]})
        assert done["imported"] == ["talker", "other-cursor"]
        assert [status.name for status in stage.host.status()] == ["same", "other", "talker", "other-cursor"]
    assert _servers(config)["talker"]["env"] == {"API_KEY": SECRET}


async def test_a_file_that_cannot_be_read_is_not_reloaded(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"talker": talker(tmp_path)})
    async with on_console(str(config), tmp_path) as stage:
        client = stage.client()
        write_config(tmp_path, {"talker": talker(tmp_path), "more": {"command": "x", "disabled": True}})
        assert (await client.post("/reload"))["added"] == ["more"]
        config.write_text("{")
        failure = await refused(client.post("/reload"))
        assert (failure.status, failure.code) == (409, "not_reloaded")
        assert len(stage.host.status()) == 2
