"""A server whose processes fork and exit faster than they are found is killed too, with and without a control group."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import run_async
from tests.transports.processes import PROGRAMS
from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Incoming
from trunkline.protocol.limits import Limits
from trunkline.transports.process import ProcessLink

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers"),
    pytest.mark.timeout(90),
]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
CHAINS = "16"


def all_ended(lock: Path) -> bool:
    """Return True once no process of a chain lives: each holds the lock, and the kernel frees it with the last."""
    until = time.monotonic() + 120
    with open(lock, "rb") as file:
        while time.monotonic() < until:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.02)
            else:
                return True
    return False


def read(path: str) -> str:
    return Path(path).read_text()


def forking(lock: Path) -> list[str]:
    return [sys.executable, "-S", str(PROGRAMS / "forking.py"), CHAINS, str(lock)]


class Ready:
    def __init__(self) -> None:
        self.heard = asyncio.Event()

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        self.heard.set()

    def eof_received(self, error: Exception | None = None, *, about: object = None) -> None:
        self.heard.set()


def test_forking_chains_are_killed_with_the_connection(tmp_path: Path) -> None:
    lock = tmp_path / "lock"

    async def main() -> None:
        link = ProcessLink.spawn(forking(lock), limits=Limits(exit_seconds=0.2))
        ready = Ready()
        link.attach(ready)
        async with asyncio.timeout(120):
            await ready.heard.wait()
        assert link.pid is not None
        await link.aclose()

    run_async(main())
    assert all_ended(lock)


def test_forking_chains_are_killed_when_the_client_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "client.py"), *forking(lock)], stdout=subprocess.PIPE, env=ENV
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline()
        client.send_signal(signal.SIGKILL)
    assert all_ended(lock)


#: A watcher without a control group, told to kill at once; it prints how many children it has left.
WATCHER = """
import os, socket, subprocess, sys
from trunkline.transports import watcher

watcher._become_subreaper()
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
server.stdout.readline()
ours, its = socket.socketpair()
ours.send(b"k")
watcher.Watcher(its.fileno(), parent=os.getppid(), server=server.pid, seconds=0.2).run()
try:
    os.waitpid(-1, os.WNOHANG)
    print("some are left")
except ChildProcessError:
    print("alone")
os._exit(0)
"""


def test_forking_chains_are_killed_without_a_control_group_too(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    ended = subprocess.run(
        [sys.executable, "-c", WATCHER, *forking(lock)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env=ENV,
    )
    assert ended.stdout == "alone\n"
    assert all_ended(lock)


def test_a_server_has_its_own_control_group_where_permitted() -> None:
    code = (
        "import os; from trunkline.transports.watcher import ControlGroup as C; group = C.make(); "
        "print(group is not None and open('/proc/self/cgroup').read()); "
        "group and (group.leave(), group.remove())"
    )
    probe = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True, env=ENV
    )
    if probe.stdout == "False\n":
        pytest.skip("control groups cannot be written here")

    async def main() -> tuple[str, str]:
        link = ProcessLink.spawn([sys.executable, "-S", str(PROGRAMS / "stubborn.py")], limits=Limits(exit_seconds=0.2))
        ready = Ready()
        link.attach(ready)
        async with asyncio.timeout(120):
            await ready.heard.wait()
        groups = read(f"/proc/{link.pid}/cgroup"), read("/proc/self/cgroup")
        await link.aclose()
        return groups

    its, ours = run_async(main())
    assert "/trunkline-" in its
    assert "/trunkline-" not in ours
    (name,) = [line.rpartition("/")[2] for line in its.splitlines() if line.startswith("0::")]
    mounts = [
        line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line
    ]
    assert not list(Path(mounts[0]).rglob(name))
