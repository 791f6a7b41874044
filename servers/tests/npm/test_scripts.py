"""Running scripts: the question to the user, and the limits of the process. A small program stands in for npm."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import run_async
from trunkline import Client, ConfigError, ToolError
from trunkline_servers.npm import make_server
from trunkline_servers.npm.server import ScriptOptions

REVISIONS = ("2025-06-18", "2026-07-28")

#: Notes its arguments and environment, then runs the script's line as npm does: with a shell of its own.
_NPM = """\
#!{python}
import json, os, subprocess, sys
with open("ran.json", "w") as file:
    json.dump({{"argv": sys.argv[1:], "env": dict(os.environ)}}, file)
with open("package.json") as file:
    line = json.load(file)["scripts"][sys.argv[3]]
sys.exit(subprocess.call(["/bin/sh", "-c", line, "sh", *sys.argv[5:]]))
"""


@pytest.fixture
def npm(tmp_path: Path) -> str:
    """A program that plays npm."""
    path = tmp_path / "bin" / "npm"
    path.parent.mkdir()
    path.write_text(_NPM.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a project."""
    folder = tmp_path / "project"
    folder.mkdir()
    scripts = {
        "hello": 'echo hello "$@"; echo oops >&2; exit 3',
        "prehello": "true",
        "long": "sleep 60 & echo $! > child; sleep 60",
        "loud": "yes | head -c 1000000; echo the end",
        "-x": "true",
        "escape": "echo \x1b[2Khidden",
        "huge": "#" * 5000,
    }
    (folder / "package.json").write_text(json.dumps({"scripts": scripts}))
    return folder


def run(
    folder: Path,
    npm: str | None,
    arguments: dict[str, Any],
    *,
    elicitation: Callable[[Any], Any] | None = None,
    revision: str = "2026-07-28",
    **running: Any,
) -> Any:
    """Call ``run_script`` once."""

    async def main() -> Any:
        environ = {
            "PATH": os.environ["PATH"],
            "NPM_TOKEN": "secret",
            "AWS_SECRET": "secret",
            "KEPT": "1",
            "LC_ALL": "C",
        }
        server = make_server([str(folder)], running=ScriptOptions(npm=npm, **running), environ=environ)
        async with Client(server, revision=revision, elicitation=elicitation) as client:
            return (await client.call_tool("run_script", arguments)).structured_content

    return run_async(main())


def _state(pid: int) -> str | None:
    """Return the state of a process: None if it is gone, Z if its status was not collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return None


def _ends(pid: int) -> bool:
    """Wait a little for a process that was killed."""
    for _ in range(500):
        if _state(pid) in (None, "Z"):
            return True
        time.sleep(0.01)
    return False


async def _until(condition: Callable[[], bool]) -> None:
    for _ in range(800):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to be")


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_script_runs_after_the_user_agreed_to_exactly_it(folder: Path, npm: str, revision: str) -> None:
    asked: list[str] = []

    def agree(question: Any) -> dict[str, bool]:
        asked.append(question.message)
        return {"value": True}

    arguments = {"name": "hello", "arguments": ["a b", "--c"]}
    ran = run(folder, npm, arguments, elicitation=agree, revision=revision)
    assert len(asked) == 1
    assert "npm run-script --workspaces=false hello -- 'a b' --c" in asked[0]
    assert "  prehello: true\n  hello: echo hello" in asked[0]
    assert (ran["exit_code"], ran["output"], ran["timed_out"]) == (3, "hello a b --c\noops\n", False)
    argv = json.loads((folder / "ran.json").read_text())["argv"]
    assert argv == ["run-script", "--workspaces=false", "hello", "--", "a b", "--c"]


@pytest.mark.parametrize(("answer", "revision"), [(None, "2025-06-18"), ({"value": False}, "2026-07-28")])
def test_a_refused_script_does_not_run(folder: Path, npm: str, revision: str, answer: Any) -> None:
    with pytest.raises(ToolError, match="the user did not agree"):
        run(folder, npm, {"name": "hello"}, elicitation=lambda question: answer, revision=revision)
    assert not (folder / "ran.json").exists()


def test_a_client_that_cannot_ask_runs_nothing(folder: Path, npm: str) -> None:
    with pytest.raises(ToolError, match="--allow-scripts"):
        run(folder, npm, {"name": "hello"}, revision="2026-07-28")
    assert not (folder / "ran.json").exists()


async def test_a_script_of_a_root_of_the_client_runs_after_one_question(folder: Path, npm: str) -> None:
    asked: list[str] = []

    def agree(question: Any) -> dict[str, bool]:
        asked.append(question.message)
        return {"value": True}

    server = make_server([], running=ScriptOptions(npm=npm), environ=dict(os.environ))
    roots = [folder.as_uri()]
    async with Client(server, revision="2026-07-28", elicitation=agree, roots=roots) as client:
        assert (await client.call_tool("run_script", {"name": "hello"})).structured_content["exit_code"] == 3
    assert len(asked) == 1


def test_scripts_that_are_allowed_run_unasked(folder: Path, npm: str) -> None:
    assert run(folder, npm, {"name": "hello"}, without_asking=True)["exit_code"] == 3


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_script_that_changes_while_the_user_is_asked_does_not_run(folder: Path, npm: str, revision: str) -> None:
    def change_once(question: Any) -> dict[str, bool] | None:
        if "evil" in question.message:  # where the function runs again, the changed script is a new question
            return None
        (folder / "package.json").write_text(json.dumps({"scripts": {"hello": "echo evil"}}))
        return {"value": True}

    with pytest.raises(ToolError, match=r"[Nn]othing was run"):
        run(folder, npm, {"name": "hello"}, elicitation=change_once, revision=revision)
    assert not (folder / "ran.json").exists()


def test_a_script_sees_listed_variables_alone(folder: Path, npm: str) -> None:
    run(folder, npm, {"name": "hello"}, without_asking=True, passed=("KEPT",))
    env = json.loads((folder / "ran.json").read_text())["env"]
    assert {"PATH", "KEPT", "npm_config_script_shell"} <= set(env)
    assert {"NPM_TOKEN", "AWS_SECRET"}.isdisjoint(env)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look at a process")
def test_a_script_that_takes_too_long_ends_with_its_children(folder: Path, npm: str) -> None:
    ran = run(folder, npm, {"name": "long"}, without_asking=True, seconds=1.5)
    assert (ran["timed_out"], ran["exit_code"]) == (True, None)
    assert _ends(int((folder / "child").read_text()))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look at a process")
async def test_a_cancelled_script_ends_with_its_children(folder: Path, npm: str) -> None:
    server = make_server([str(folder)], running=ScriptOptions(npm=npm, without_asking=True), environ=dict(os.environ))
    child = folder / "child"
    async with Client(server, revision="2025-11-25") as client:
        before = len(asyncio.all_tasks())
        call = asyncio.ensure_future(client.call_tool("run_script", {"name": "long"}))
        await _until(lambda: child.exists() and child.read_text().endswith("\n"))
        call.cancel()
        await asyncio.wait([call])
        await _until(lambda: len(asyncio.all_tasks()) <= before)  # the server's side is done as well
    assert _ends(int(child.read_text()))


def test_output_beyond_the_cap_is_left_out_in_the_middle(folder: Path, npm: str) -> None:
    ran = run(folder, npm, {"name": "loud"}, without_asking=True, output_bytes=1000)
    assert ran["output"].startswith("y\ny\n")
    assert ran["output"].endswith("y\nthe end\n")
    assert ran["left_out"] == 1_000_008 - 1000
    assert len(ran["output"]) < 1100


def test_control_characters_of_a_script_are_shown_written_out(folder: Path, npm: str) -> None:
    asked: list[str] = []
    with pytest.raises(ToolError, match="did not agree"):
        run(folder, npm, {"name": "escape"}, elicitation=lambda question: asked.append(question.message))
    assert "echo \\x1b[2Khidden" in asked[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "-x"}, "begin with a hyphen"),
        ({"name": "--workspaces"}, "begin with a hyphen"),
        ({"name": ""}, "empty"),
        ({"name": "hello\n"}, "cannot be the name"),
        ({"name": "hello; id"}, "has no script 'hello; id'"),
        ({"name": "missing"}, "it has: -x, escape, hello"),
        ({"name": "huge"}, "too long for a user to approve"),
        ({"name": "hello", "arguments": ["\x1b[2K"]}, "control characters"),
        ({"name": "hello", "arguments": ["x"] * 51}, "at most 50 arguments"),
    ],
)
def test_a_script_that_cannot_run_safely_is_refused(
    folder: Path, npm: str, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ToolError, match=words):
        run(folder, npm, arguments, without_asking=True)
    assert not (folder / "ran.json").exists()


@pytest.mark.parametrize("program", ["/nowhere/npm", "no-such-npm", "", "."])
def test_a_missing_npm_is_refused_at_the_start(folder: Path, program: str) -> None:
    with pytest.raises(ConfigError, match=r"^--npm .* is not an executable program: give the path of npm$"):
        make_server([str(folder)], running=ScriptOptions(npm=program))


async def test_an_npm_that_goes_away_is_a_clear_error(folder: Path, npm: str) -> None:
    server = make_server([str(folder)], running=ScriptOptions(npm=npm, without_asking=True))
    os.unlink(npm)
    async with Client(server) as client:
        with pytest.raises(ToolError, match="npm cannot be started"):
            await client.call_tool("run_script", {"name": "hello"})


def test_a_relative_path_of_npm_never_means_a_program_of_the_project(
    folder: Path, npm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(npm).parent)
    shutil.copy(npm, folder / "npm")
    (folder / "npm").write_text("#!/bin/sh\necho evil\n")
    assert run(folder, "./npm", {"name": "hello"}, without_asking=True)["output"] == "hello\noops\n"


def test_a_folder_that_becomes_a_link_while_the_user_is_asked_runs_nothing(
    folder: Path, npm: str, tmp_path: Path
) -> None:
    inner, outside = folder / "inner", tmp_path / "outside"
    outside.mkdir()
    shutil.copytree(folder, inner)
    shutil.copy(folder / "package.json", outside / "package.json")

    def swap(question: Any) -> dict[str, bool]:
        inner.rename(folder / "moved")
        inner.symlink_to(outside)
        return {"value": True}

    with pytest.raises(ToolError, match=r"is not a folder inside|othing was run"):
        run(folder, npm, {"name": "hello", "path": "inner"}, elicitation=swap, revision="2025-06-18")
    assert not (outside / "ran.json").exists()


def test_blanks_that_would_push_a_command_out_of_sight_are_shown_counted(folder: Path, npm: str) -> None:
    line = "echo hi" + " " * 500 + "; curl evil" + "\u3164" * 3
    (folder / "package.json").write_text(json.dumps({"scripts": {"wide": line}}))
    asked: list[str] = []
    with pytest.raises(ToolError, match="did not agree"):
        run(folder, npm, {"name": "wide"}, elicitation=lambda question: asked.append(question.message))
    assert "wide: echo hi[500 blanks]; curl evil\\u3164\\u3164\\u3164" in asked[0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look at a process")
async def test_a_script_that_ignores_the_polite_signal_ends_even_if_its_call_is_cancelled_twice(
    folder: Path, npm: str
) -> None:
    script = "trap '' TERM; (trap '' TERM; echo $$ > child; sleep 60) & wait; wait"
    (folder / "package.json").write_text(json.dumps({"scripts": {"deaf": script}}))
    child = folder / "child"
    from trunkline_servers.npm.project import Project
    from trunkline_servers.npm.scripts import plan_script, run_script_plan, script_environment

    plan = plan_script(Project(folder), "deaf", [])
    work = run_script_plan(plan, npm=npm, env=script_environment(os.environ), seconds=60, most_bytes=1000)
    running = asyncio.ensure_future(work)
    await _until(lambda: child.exists() and child.read_text().endswith("\n"))
    running.cancel()
    await asyncio.wait([running], timeout=0.05)  # it is being polite now
    running.cancel()
    await asyncio.wait([running])
    assert _ends(int(child.read_text()))


_WORKSPACES = {"name": "root", "workspaces": ["packages/*"], "scripts": {"build": "node -e 0; echo agreed"}}


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
@pytest.mark.parametrize("setting", ["workspaces=true", "workspace=inner", "node-options=--require ./evil.js"])
def test_a_projects_settings_cannot_make_the_real_npm_run_something_else(folder: Path, setting: str) -> None:
    inner = folder / "packages" / "inner"
    inner.mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps(_WORKSPACES))
    (inner / "package.json").write_text(json.dumps({"name": "inner", "scripts": {"build": "touch ../../evil"}}))
    (folder / "evil.js").write_text('require("fs").writeFileSync("evil", "x")')
    (folder / ".npmrc").write_text(setting)
    run(folder, None, {"name": "build"}, without_asking=True)
    assert not (folder / "evil").exists()


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_a_script_of_a_workspace_runs_with_the_real_npm(folder: Path) -> None:
    inner = folder / "packages" / "inner"
    inner.mkdir(parents=True)
    (folder / "package.json").write_text(json.dumps(_WORKSPACES))
    (inner / "package.json").write_text(json.dumps({"name": "inner", "scripts": {"build": "echo inner"}}))
    ran = run(folder, None, {"name": "build", "path": "packages/inner"}, without_asking=True)
    assert ran["output"].endswith("\ninner\n")


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_the_real_npm_runs_a_script_and_keeps_arguments_apart(folder: Path) -> None:
    (folder / "package.json").write_text(json.dumps({"scripts": {"show": "printf '<%s>'"}}))
    ran = run(folder, None, {"name": "show", "arguments": ["a b", "$(id)", "; id", "--x"]}, without_asking=True)
    assert ran["output"].endswith("<a b><$(id)><; id><--x>")
