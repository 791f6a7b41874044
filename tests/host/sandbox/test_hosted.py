"""Sandboxed servers in a host: kept in, refused in words, and asked for like any other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.host.gateway.support import allow, until
from tests.host.sandbox.stage import ABLE, ROOT, Stage, any_kind, each_kind
from trunkline.errors import PolicyDenied
from trunkline.host.host import Host
from trunkline.host.sandbox import Capabilities


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path, "auto")


def member(stage: Stage, sandbox: Any) -> dict[str, Any]:
    """Make an entry as a configuration has it."""
    return {
        "command": sys.executable,
        "args": ["-m", "tests.host.sandbox.server"],
        "env": {"PYTHONPATH": str(ROOT)},
        "era": "handshake",
        "roots": [str(stage.inside)],
        "sandbox": sandbox,
    }


def hosting(stage: Stage, sandbox: Any, **options: Any) -> Host:
    return Host.open({"a": member(stage, sandbox)}, folder=stage.state, audit=False, **options)


def weaken(monkeypatch: pytest.MonkeyPatch, **less: Any) -> None:
    """Have the machine be able to do less."""

    def inspect(path: str | None = None) -> Capabilities:
        return replace(ABLE, bwrap=None, **less)

    monkeypatch.setattr("trunkline.host.sandbox.launch.inspect_machine", inspect)


@each_kind
async def test_a_host_starts_a_server_in_its_sandbox(stage: Stage, kind: str) -> None:
    async with hosting(stage, {"kind": kind}, policy=allow("a")) as host:
        inside = await host.call_tool("a/read", {"path": str(stage.inside / "note")})
        outside = await host.call_tool("a/read", {"path": str(stage.secret)})
    assert (inside.text, outside.text.startswith("refused")) == ("a note", True)


@each_kind
async def test_every_way_to_start_what_is_installed_works_in_a_sandbox(stage: Stage, kind: str) -> None:
    programs, app = Path(sys.executable).parent, stage.folder / "app"
    app.mkdir()
    (app / "server.py").write_text('from trunkline import Server\nserver = Server("a")\n')
    (app / "program.py").write_text("from server import server\nserver.run()\n")
    entries = {
        "file": [sys.executable, str(app / "program.py")],
        "run": [str(programs / "trunkline"), "run", str(app / "server.py")],
        "run_module": [sys.executable, "-m", "trunkline", "run", f"{app / 'server.py'}:server"],
        "module": [sys.executable, "-m", "trunkline_servers.time"],
        "script": [str(programs / "trunkline-server-time")],
    }
    config = {name: {"command": command, "args": args, "sandbox": kind} for name, (command, *args) in entries.items()}
    async with Host.open(config, folder=stage.state, audit=False, wait_seconds=120) as host:
        states = {status.name: (status.state, status.reason) for status in host.status()}
    assert states == dict.fromkeys(entries, ("ready", None))


@each_kind
async def test_a_start_that_fails_in_a_sandbox_says_so_and_names_the_hidden_path(stage: Stage, kind: str) -> None:
    command = [sys.executable, "-c", f"open({str(stage.secret)!r})"]
    entry = {"command": command[0], "args": command[1:], "sandbox": kind}
    async with Host.open({"a": entry}, folder=stage.state, audit=False) as host:
        (status,) = host.status()
    assert f"the server a exited with status 1 in its sandbox ({kind}), which hides {stage.secret} " in (
        status.reason or ""
    )


async def failed_start(stage: Stage, code: str, **more: Any) -> str:
    """Start a program in the sandbox that this machine prefers; return why it failed."""
    entry = {"command": sys.executable, "args": ["-c", code], "sandbox": True, **more}
    async with Host.open({"a": entry}, folder=stage.state, audit=False) as host:
        (status,) = host.status()
    return status.reason or ""


@any_kind
async def test_a_start_that_fails_for_the_private_home_names_the_file_in_yours(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(stage.outside))
    reason = await failed_start(stage, "import os; open(os.path.expanduser('~/secret'))")
    wanted = f'hides {stage.secret}, and has a private HOME (allow it with "read": ["{stage.secret}"], "env": ["HOME"]'
    assert wanted in reason


@any_kind
async def test_a_start_that_fails_for_a_variable_names_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "s3cret")
    reason = await failed_start(stage, "import os; os.environ['SHOP_TOKEN']")
    assert 'which does not pass on SHOP_TOKEN (allow it with "env": ["SHOP_TOKEN"] in its "sandbox")' in reason
    assert "s3cret" not in reason


@any_kind
async def test_a_silent_exit_in_a_sandbox_points_to_the_doctor(stage: Stage) -> None:
    reason = await failed_start(stage, "import sys; sys.exit(3)")
    assert reason.endswith("it wrote nothing to stderr; to see what it can reach, run: trunkline doctor a")


@any_kind
async def test_a_start_that_hangs_in_a_sandbox_says_so(stage: Stage) -> None:
    code = f"import sys; print('waits for {stage.secret}', file=sys.stderr, flush=True); sys.stdin.read()"
    reason = await failed_start(stage, code, startTimeout=0.5)
    assert "which hides" in reason
    assert str(stage.secret) in reason


READER = """
from trunkline import Server, ToolError

server = Server("a")

@server.tool
async def read(path: str) -> str:
    return open(path).read()

@server.tool
async def read_told(path: str) -> str:
    try:
        return open(path).read()
    except OSError as error:
        raise ToolError(str(error)) from error
"""


@any_kind
@pytest.mark.parametrize("tool", ["read", "read_told"])
async def test_a_path_that_is_refused_during_a_call_is_told_once(
    stage: Stage, caplog: pytest.LogCaptureFixture, tool: str
) -> None:
    file = stage.inside / "reader.py"
    file.write_text(READER)
    entry = {"command": sys.executable, "args": ["-m", "trunkline", "run", str(file)], "sandbox": True}
    hint = f'hides {stage.secret} (allow it with "read": ["{stage.secret}"] in its "sandbox")'

    def told() -> list[str]:
        return [text for record in caplog.records if hint in (text := record.getMessage())]

    async with Host.open({"a": entry}, folder=stage.state, audit=False, policy=allow("a")) as host:
        for _ in range(2):
            await host.call_tool(f"a/{tool}", {"path": str(stage.secret)}, raise_on_error=False)
        # The traceback of an unexpected error arrives on stderr, after the answer.
        await until(told)
        (status,) = host.status()
    assert (len(told()), hint in (status.reason or "")) == (1, True)


async def test_a_server_whose_sandbox_cannot_be_made_is_not_started_and_says_why(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    weaken(monkeypatch, landlock=0)
    async with hosting(stage, True, policy=allow("a")) as host:
        (status,) = host.status()
    assert (status.state, status.pid) == ("misconfigured", None)
    assert "its sandbox cannot be set up: the kernel has no Landlock" in (status.reason or "")


async def test_a_server_that_runs_without_its_sandbox_has_a_remark(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    weaken(monkeypatch, landlock=0)
    async with hosting(stage, {"required": False}, policy=allow("a")) as host:
        (status,) = host.status()
    assert status.state == "ready"
    assert (status.reason or "").startswith("not sandboxed as configured: the kernel has no Landlock")


async def test_a_call_is_asked_for_although_its_server_is_sandboxed(stage: Stage) -> None:
    async with hosting(stage, {"network": False}) as host:
        with pytest.raises(PolicyDenied, match="add this to the policy"):
            await host.call_tool("a/write", {"path": str(stage.inside / "new")})
    assert not (stage.inside / "new").exists()
