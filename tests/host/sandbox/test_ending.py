"""A sandboxed server and all it started end like any other, and one whose sandbox cannot be made never runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.sandbox.stage import ROOT, Stage, each_kind, needs
from tests.transports.processes import gone_within
from trunkline import Client
from trunkline.host.sandbox.enter_sandbox import pack, unpack
from trunkline.host.upstreams.supervision.clients import process_id
from trunkline.transports.watcher import descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these sandboxes are of Linux")

_HOST = """
import asyncio, sys
from pathlib import Path
from tests.host.sandbox.stage import Stage
from trunkline import Client

async def main(folder, kind):
    launch = Stage(Path(folder), kind).launch({})
    async with Client(list(launch.command), env=launch.env, cwd=launch.cwd, revision="legacy") as client:
        await client.call_tool("stay", {})
        print("up", flush=True)
        await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


#: What no kernel knows yet.
_UNKNOWN_RIGHTS = {"handled": 1 << 60, "scoped": 0, "of_files": 0, "of_writing": 0, "rules": []}


@each_kind
async def test_all_that_a_sandboxed_server_started_ends_with_it(tmp_path: Path, kind: str) -> None:
    launch = Stage(tmp_path, kind).launch({})

    async with Client(list(launch.command), env=launch.env, cwd=launch.cwd, revision="legacy") as client:
        await client.call_tool("stay", {})
        server = process_id(client)
        assert server is not None
        found = [server, *(pid for pid, _ in descendants(server))]
    pids = found
    assert len(pids) >= 2
    assert gone_within(pids, 60) == []


@each_kind
def test_it_ends_too_when_the_host_is_killed(tmp_path: Path, kind: str) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", _HOST, str(tmp_path), kind],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
    )
    with host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"up\n"
        below = [pid for pid, _ in descendants(host.pid)]
        host.send_signal(signal.SIGKILL)
    assert len(below) >= 3
    assert gone_within(below, 10) == []


@needs("landlock")
@pytest.mark.parametrize(
    ("part", "value"),
    [
        pytest.param("landlock", _UNKNOWN_RIGHTS, id="rights"),
        pytest.param("filter", "00" * 8, id="filter"),
        pytest.param("cwd", "/nowhere/at/all", id="folder"),
    ],
)  # fmt: skip
def test_a_server_is_not_started_when_a_part_of_its_sandbox_fails(tmp_path: Path, part: str, value: object) -> None:
    stage = Stage(tmp_path, "landlock")
    made = unpack(dict(stage.launch({}).env))
    started = stage.inside / "started"
    made |= {part: value, "program": "/bin/sh", "argv": ["sh", "-c", f"echo > {started}"]}
    command = stage.launch({}).command
    ended = subprocess.run(command, env=pack(made), capture_output=True, timeout=120, check=False)
    assert (ended.returncode, started.exists()) == (126, False)
    assert ended.stderr.startswith(b"trunkline: ")


@needs("landlock")
def test_without_a_record_nothing_is_started(tmp_path: Path) -> None:
    command = Stage(tmp_path, "landlock").launch({}).command
    ended = subprocess.run(command, env={}, capture_output=True, timeout=120, check=False)
    assert (ended.returncode, b"its instructions are missing" in ended.stderr) == (126, True)
