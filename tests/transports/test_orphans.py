"""A client that is killed leaves no process behind, whatever the server and its children ignore.

``TRUNKLINE_ORPHAN_ROUNDS`` sets how many times the main case runs.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.transports.processes import PROGRAMS, alive, gone_within

ROUNDS = int(os.environ.get("TRUNKLINE_ORPHAN_ROUNDS", "2"))
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def left_after_killing_the_client(*kinds: str) -> tuple[list[int], list[int]]:
    """Start a client with a stubborn server, kill the client, and give all processes and those alive 5 s later."""
    server = [sys.executable, "-S", str(PROGRAMS / "stubborn.py"), *kinds]
    with subprocess.Popen(
        [sys.executable, str(PROGRAMS / "client.py"), *server], stdout=subprocess.PIPE, env=ENV
    ) as client:
        assert client.stdout is not None
        pids: list[int] = json.loads(client.stdout.readline())["pids"]
        assert all(map(alive, pids))
        client.send_signal(signal.SIGKILL)
    return pids, gone_within(pids, 60.0)


@pytest.mark.parametrize("round", range(ROUNDS))
def test_a_killed_client_leaves_no_server_that_ignores_signals_nor_its_children(round: int) -> None:
    pids, left = left_after_killing_the_client("child")
    assert len(pids) == 2
    assert left == []


def test_children_that_left_the_process_group_end_too() -> None:
    pids, left = left_after_killing_the_client("setsid", "daemon")
    assert len(pids) == 3
    assert left == []
