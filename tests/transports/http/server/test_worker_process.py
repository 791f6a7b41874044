"""How workers share listening sockets, and how the supervisor judges their heartbeats; without processes."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from trunkline.transports.http.server import supervisor as supervising
from trunkline.transports.http.server.supervisor import Supervisor
from trunkline.transports.http.server.worker_process import ConnectionAcceptor, Scoreboard, WorkerProcess


class Seat:
    """A worker in this process, and what it has accepted."""

    def __init__(self, listener: socket.socket, scoreboard: Scoreboard, index: int) -> None:
        self.connections: list[socket.socket] = []
        self.supervisor_end, lifeline = socket.socketpair()
        self.lost = asyncio.Event()
        self._lifeline = lifeline
        self.process = WorkerProcess(index, [listener.dup()], lifeline, scoreboard, scoreboard.rows[index])
        self.acceptor = ConnectionAcceptor(self.process, self.connections.append)
        self.acceptor.start()
        self.process.start(self.lost.set)

    def close(self) -> None:
        """Close all sockets."""
        self.acceptor.close()
        self.process.stop()
        for file in (*self.connections, self.supervisor_end, self._lifeline):
            file.close()


@asynccontextmanager
async def seats(count: int) -> AsyncIterator[tuple[list[Seat], int, Scoreboard]]:
    """Start workers on one listener; yield them and its port."""
    scoreboard = Scoreboard(count)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        started = [Seat(listener, scoreboard, index) for index in range(count)]
        try:
            yield started, listener.getsockname()[1], scoreboard
        finally:
            for seat in started:
                seat.close()


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[None]:
    """Open connections at once, and keep them."""
    opened = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(count)))
    try:
        yield
    finally:
        for _, writer in opened:
            writer.close()
            await writer.wait_closed()


async def until_accepted(started: list[Seat], count: int) -> list[int]:
    """Wait until so many connections are accepted; return how many each worker has."""
    async with asyncio.timeout(120):
        while sum(len(seat.connections) for seat in started) < count:  # noqa: ASYNC110  a list has no event
            await asyncio.sleep(0.001)
    return [len(seat.connections) for seat in started]


@pytest.mark.parametrize(("count", "most"), [(4, 3), (16, 9), (64, 36)])
async def test_connections_that_are_kept_are_shared(count: int, most: int) -> None:
    async with seats(2) as (started, port, _), connections(port, count):
        assert max(await until_accepted(started, count)) <= most


async def test_nothing_is_left_to_a_worker_that_does_not_respond() -> None:
    async with seats(2) as (started, port, scoreboard):
        # It has connections to spare, and its event loop stands still.
        started[1].acceptor.close()
        started[1].process.stop()
        scoreboard.rows[1].clear()
        assert not scoreboard.has_more_than_share(scoreboard.rows[0])
        async with connections(port, 8):
            assert await until_accepted(started, 8) == [8, 0]
            assert not scoreboard.has_more_than_share(scoreboard.rows[0])
            # As soon as it responds, it would get the next ones.
            scoreboard.rows[1].beat()
            assert scoreboard.has_more_than_share(scoreboard.rows[0])


async def test_nothing_is_left_to_a_worker_that_accepts_no_more() -> None:
    async with seats(2) as (started, port, scoreboard):
        started[1].acceptor.close()
        async with connections(port, 8):
            assert await until_accepted(started, 8) == [8, 0]
            assert not scoreboard.has_more_than_share(scoreboard.rows[0])


async def test_a_worker_learns_that_its_supervisor_is_gone() -> None:
    async with seats(1) as (started, _, _):
        started[0].supervisor_end.close()
        async with asyncio.timeout(120):
            await started[0].lost.wait()


# --- heartbeats -------------------------------------------------------------------------------------------------------


class Judged:
    """A supervisor with a worker that it did not fork, and the signals that it sends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[int] = []
        monkeypatch.setattr(supervising, "kill", lambda pid, number: self.sent.append(number))
        self.supervisor = Supervisor(1, lambda process: 0, [], drain_seconds=1.0, heartbeat_seconds=10.0)
        self.lifeline, self._other = socket.socketpair()
        self.row = self.supervisor._scoreboard.rows[0]
        self.worker = supervising._Worker(1, 0, lifeline=self.lifeline, row=self.row, reports=None)
        self.worker.ready = True
        self.supervisor._workers[1] = self.worker
        self.now = self.worker.heard_at = self.supervisor._beats_checked

    def pass_time(self, seconds: float, *, beating: bool = False) -> None:
        """Check the heartbeats each second."""
        for _ in range(int(seconds)):
            self.now += 1.0
            if beating:
                self.row.beat()
            self.supervisor._check_heartbeats(self.now)

    def close(self) -> None:
        """Close what was opened."""
        self.lifeline.close()
        self._other.close()
        self.supervisor._selector.close()


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Judged]:
    """A supervisor and its worker."""
    made = Judged(monkeypatch)
    yield made
    made.close()


def test_a_silent_worker_is_killed_once(judged: Judged) -> None:
    judged.pass_time(30, beating=True)
    assert judged.sent == []
    judged.pass_time(9)
    assert judged.sent == []
    judged.pass_time(30)
    assert judged.sent == [signal.SIGKILL]


def test_a_worker_that_starts_or_stops_is_judged_by_its_deadline(judged: Judged) -> None:
    judged.worker.ready = False
    judged.pass_time(30)
    judged.worker.ready = judged.worker.stopping = True
    judged.pass_time(30)
    assert judged.sent == []


def test_no_worker_is_killed_for_a_time_in_which_the_supervisor_stood_still_too(judged: Judged) -> None:
    judged.pass_time(5)
    # A container that was paused.
    judged.now += 3600.0
    judged.supervisor._check_heartbeats(judged.now)
    judged.pass_time(9)
    assert judged.sent == []
    judged.pass_time(2)
    assert judged.sent == [signal.SIGKILL]
