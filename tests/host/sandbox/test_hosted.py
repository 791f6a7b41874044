"""Sandboxed servers in a host: kept in, refused in words, and asked for like any other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.host.gateway.support import allow
from tests.host.sandbox.stage import ABLE, ROOT, Stage, each_kind
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


@pytest.mark.parametrize("sandbox", [False, True, {"network": False}], ids=["without", "with", "without-network"])
async def test_a_call_is_asked_for_whether_its_server_is_sandboxed_or_not(stage: Stage, sandbox: Any) -> None:
    async with hosting(stage, sandbox) as host:
        with pytest.raises(PolicyDenied, match="add this to the policy"):
            await host.call_tool("a/write", {"path": str(stage.inside / "new")})
    assert not (stage.inside / "new").exists()
