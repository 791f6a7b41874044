"""Servers in the console: views, commands, stderr, doctor and approval, over HTTP."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.console.support import library, on_console, refused
from trunkline import Server
from trunkline.console.stderr import StderrLines

TALKER = """
import os, sys
from trunkline import Server

server = Server("talker", instructions="Speak softly.", version="1.2")
print("hello from stderr", os.environ.get("API_TOKEN", ""), file=sys.stderr, flush=True)

@server.tool
def say(text: str) -> str:
    "Say it."
    print("said", text, file=sys.stderr, flush=True)
    return text

server.run()
"""


def talker(folder: Path, **more: Any) -> dict[str, Any]:
    """Write a server that writes to stderr, and return its entry."""
    file = folder / "talker.py"
    file.write_text(TALKER)
    return {"command": sys.executable, "args": [str(file)], **more}


def write_config(folder: Path, servers: Mapping[str, Any], name: str = "mcp.json") -> Path:
    """Write a configuration file."""
    file = folder / name
    file.write_text(json.dumps({"mcpServers": dict(servers)}, indent=2))
    return file


async def test_a_view_has_what_the_server_says_of_itself_and_what_it_costs(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"talker": talker(tmp_path)})
    async with on_console(str(config), tmp_path) as stage:
        [view] = (await stage.client().get("/state"))["servers"]
    assert (view["name"], view["state"], view["transport"]) == ("talker", "ready", "stdio")
    assert (view["tools"], view["prompts"], view["resources"], view["restarts"]) == (1, 0, 0, 0)
    assert view["tokens"] > 20
    assert view["info"] == {"name": "talker", "title": None, "version": "1.2"}
    assert view["instructions"] == "Speak softly."
    assert "tools" in view["capabilities"]
    assert view["pid"] > 0
    assert view["source"].startswith(str(config))
    assert (view["reason"], view["fix"], view["url"]) == (None, None, None)
    assert view["actions"] == ["stop", "restart", "edit", "remove"]


async def test_a_server_in_this_process_cannot_be_edited(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage:
        client = stage.client()
        [view] = (await client.get("/servers"))["servers"]
        assert (view["transport"], view["actions"]) == ("memory", ["stop", "restart"])
        failure = await refused(client.get("/servers/lib/entry"))
    assert (failure.status, failure.code) == (409, "no_file")


async def test_a_server_is_stopped_and_started_and_the_pages_see_it(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage, stage.client().listen() as page:
        stopped = (await page.post("/servers/lib/stop"))["server"]
        assert (stopped["state"], stopped["tools"], stopped["fix"]) == ("stopped", 0, "Start it.")
        assert stopped["actions"] == ["start"]
        await page.event("server", lambda each: each["server"]["state"] == "stopped")
        started = (await page.post("/servers/lib/start"))["server"]
        assert (started["state"], started["tools"]) == ("ready", 2)
        await page.event("server", lambda each: each["server"]["state"] == "ready")


async def test_starting_a_server_that_runs_changes_nothing(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"talker": talker(tmp_path)})
    async with on_console(str(config), tmp_path) as stage:
        client = stage.client()
        [before] = (await client.get("/servers"))["servers"]
        after = (await client.post("/servers/talker/start"))["server"]
        again = (await client.post("/servers/talker/restart"))["server"]
    assert (after["pid"], after["restarts"]) == (before["pid"], 0)
    assert again["pid"] != before["pid"]
    assert again["restarts"] == 1


async def test_a_server_that_is_added_and_one_that_is_removed_are_told(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage, stage.client().listen() as page:
        await stage.host.add_server("more", Server("more"))
        await page.event("server", lambda each: each["server"]["name"] == "more")
        await stage.host.remove_server("more")
        # The removal alone publishes no state of the server, but the catalog changes with it.
        await stage.host.add_server("other", library("other"))
        await page.event("server_removed", lambda each: each["name"] == "more")


async def test_stderr_is_kept_and_sent_live_with_secrets_masked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "hush-hush-4711-hush")
    config = write_config(tmp_path, {"talker": talker(tmp_path, env={"API_TOKEN": "${MY_TOKEN}"})})
    async with on_console(str(config), tmp_path, typed=True) as stage, stage.client().listen() as page:
        assert "hello from stderr ***" in (await page.get("/servers/talker/stderr"))["lines"]
        await stage.host.call_tool("talker/say", {"text": "hush-hush-4711-hush and more"})
        event = await page.event("stderr", lambda each: "said *** and more" in each["lines"])
    assert event["server"] == "talker"


async def test_stderr_lines_are_bounded() -> None:
    lines = StderrLines(str, lambda server, new: None)
    for number in range(3000):
        lines.received("a", f"line {number}\n".encode())
    lines.received("a", b"x" * 10_000)
    lines.close()
    kept = lines.lines("a")
    assert len(kept) == 1000
    assert kept[0] == "line 2001"
    assert kept[-1].endswith("... (10000 bytes)")
    assert len(kept[-1]) < 4200


async def test_a_server_that_fails_has_a_reason_and_doctor_says_what_helps(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"gone": {"command": "no-such-program-here"}})
    async with on_console(str(config), tmp_path) as stage:
        client = stage.client()
        [view] = (await client.get("/servers"))["servers"]
        assert view["state"] in ("waiting", "broken", "starting")
        found = await client.post("/servers/gone/doctor")
        failed = next(check for check in found["checks"] if check["ok"] is False)
        assert (failed["name"], failed["fix"]) == ("command", "use its full path, or install it")
        assert "no-such-program-here" in failed["text"]


async def test_doctor_of_a_sound_server_finds_nothing_wrong(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"talker": talker(tmp_path)})
    async with on_console(str(config), tmp_path) as stage:
        found = await stage.client().post("/servers/talker/doctor")
    assert all(check["ok"] is not False for check in found["checks"])
    assert {"ok": True, "name": "start"} in [{"ok": each["ok"], "name": each["name"]} for each in found["checks"]]


async def test_a_misconfigured_server_has_the_fix_of_its_file(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"bad": {"command": "x", "args": "${NOT_SET_ANYWHERE_4711}"}})
    async with on_console(str(config), tmp_path) as stage:
        [view] = (await stage.client().get("/servers"))["servers"]
    assert view["state"] == "misconfigured"
    assert view["reason"]
    assert view["fix"]
    assert view["fix"] not in view["reason"]


async def test_a_project_server_runs_once_its_whole_command_was_read_and_approved(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    write_config(project, {"talker": talker(project, env={"MODE": "quiet"})}, ".mcp.json")
    async with on_console(None, tmp_path, project=project) as stage, stage.client().listen() as page:
        [view] = (await page.get("/servers"))["servers"]
        assert (view["state"], view["actions"]) == ("unapproved", ["trust", "edit", "remove"])
        assert "trunkline trust" not in view["reason"]
        shown = await page.get("/servers/talker/trust")
        assert shown["command"] == [sys.executable, str(project / "talker.py")]
        assert (shown["cwd"], shown["env"]) == (str(project), ["MODE"])
        assert shown["source"].startswith(str(project / ".mcp.json"))
        failure = await refused(page.post("/servers/talker/trust", {"fingerprint": "another"}))
        assert (failure.status, failure.code) == (409, "changed")
        done = await page.post("/servers/talker/trust", {"fingerprint": shown["fingerprint"]})
        assert done["server"]["state"] == "ready"


async def test_an_unknown_server_is_a_404(tmp_path: Path) -> None:
    async with on_console({"lib": library()}, tmp_path) as stage:
        failure = await refused(stage.client().post("/servers/nobody/stop"))
    assert (failure.status, failure.code) == (404, "unknown_server")
