"""The process beside the workers: restarted later each time, given up in the end, and never waited for without end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from trunkline.transports.http.server.companion import READY, Companion, CompanionProcess


@pytest.fixture
def forked() -> Iterator[list[CompanionProcess]]:
    """The companions that a test has started; they are ended."""
    found: list[CompanionProcess] = []
    yield found
    for each in found:
        if each.lifeline is not None:
            each.lifeline.close()
        if each.pid is not None:
            os.kill(each.pid, signal.SIGKILL)
            os.waitpid(each.pid, 0)


def process(work: Callable[[socket.socket], int], forked: list[CompanionProcess]) -> CompanionProcess:
    def fork(run: Callable[[], int], ours: socket.socket) -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(run())
        return pid

    forked.append(CompanionProcess(Companion("the test", work, "test"), fork))
    return forked[-1]


def ended(companion: CompanionProcess) -> int:
    """Wait until it has ended; return its exit code."""
    deadline = time.monotonic() + 120
    while (code := companion.reap()) is None:
        assert time.monotonic() < deadline
    return code


def _sleep(lifeline: socket.socket) -> int:
    signal.pause()
    return 0


def test_it_is_started_later_each_time_and_given_up_in_the_end(forked: list[CompanionProcess]) -> None:
    companion = process(lambda lifeline: 3, forked)
    companion.start()
    assert ended(companion) == 3
    now = time.monotonic()
    assert [companion.start_later(now) for _ in range(7)] == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, None]


def test_one_that_has_lived_for_a_while_is_started_at_once(forked: list[CompanionProcess]) -> None:
    companion = process(lambda lifeline: 0, forked)
    companion.start()
    assert [companion.start_later(time.monotonic() + 60) for _ in range(9)] == [0.0] * 9


def test_one_that_is_not_ready_in_time_is_killed(forked: list[CompanionProcess]) -> None:
    companion = process(_sleep, forked)
    companion.start()
    assert not companion.is_due(time.monotonic())
    assert not companion.is_due(max(companion.times()))
    assert ended(companion) == -signal.SIGKILL
    assert not companion.served


def test_one_that_does_not_stop_in_time_is_killed(forked: list[CompanionProcess]) -> None:
    def work(lifeline: socket.socket) -> int:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        lifeline.send(READY)
        signal.pause()
        return 0

    companion = process(work, forked)
    companion.start()
    assert companion.lifeline is not None
    companion.lifeline.setblocking(True)
    companion.lifeline.settimeout(120)
    companion.hear()
    assert companion.ready
    companion.stop()
    companion.is_due(max(companion.times()))
    assert ended(companion) == -signal.SIGKILL


HANGING = """
import signal, socket, sys
from trunkline.transports.http.server import supervisor

supervisor.START_SECONDS = 0.5
listener = socket.create_server(("127.0.0.1", 0))
listener.setblocking(False)
found = supervisor.Supervisor(1, lambda *given: signal.pause() or 0, [listener], drain_seconds=1.0)
sys.exit(found.run())
"""


def test_a_worker_that_is_not_ready_in_time_is_killed_and_the_supervisor_says_so() -> None:
    outcome = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=120, check=False)
    assert outcome.returncode == 1
    assert "worker 1 (process " in outcome.stderr
    assert "did not start in time and is killed" in outcome.stderr
