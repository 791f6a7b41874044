"""A worker's side of its supervisor: the shared listening sockets, its turn to accept, its heartbeat, its lifeline.

All workers accept on the same sockets, which they inherit from the supervisor; whoever is first has the connection, and
that is rarely one that is busy. What each of them publishes about itself is a row of the scoreboard, memory that all of
these processes share: how many connections it has, and when its event loop last turned. A worker that has clearly more
connections than another leaves a new one to the others for a moment: clients keep their connections for long, so the
load would stay uneven. A worker that hangs or has died accepts nothing, and no connection waits for it any longer.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from trunkline.transports.http.server.companion import READY

__all__ = ["ConnectionAcceptor", "Scoreboard", "ScoreboardRow", "WorkerProcess"]

log = logging.getLogger("trunkline.http")

#: Seconds between two heartbeats; the limit on their silence is in ``Limits``.
BEAT_SECONDS = 1.0
#: A worker whose last heartbeat is older is not waited for. It may still work: one late turn of its loop is no reason
#: to replace it.
_LATE_BEAT_SECONDS = 3.0
#: For so many seconds a worker with more connections than its share leaves new ones to others: a few turns of a busy
#: event loop, and nothing that a client notices.
_YIELD_SECONDS = 0.005
#: A worker has more than its share from two connections more than another on, or an eighth if it has many: sixteen
#: connections of two workers are nine and seven at worst, and connections that come and go at a high rate never wait.
_SHARE = 8
#: For so many seconds nothing is accepted after an error such as too many open files; asyncio waits as long.
_ERROR_SECONDS = 1.0

# The cells of a row.
_CONNECTIONS, _BEAT, _CELLS = range(3)


class ScoreboardRow:
    """What one worker publishes about itself; only that worker writes it while it lives."""

    __slots__ = ("_cells", "_start")

    def __init__(self, cells: memoryview[float], index: int) -> None:
        """Refer to a row of these cells."""
        self._cells = cells
        self._start = index * _CELLS

    @property
    def last_beat(self) -> float:
        """When the event loop of the worker last turned, as ``time.monotonic``, which is the same for all processes."""
        return self._cells[self._start + _BEAT]

    @property
    def connections(self) -> float:
        """How many connections the worker has; infinitely many if it accepts none any more."""
        return self._cells[self._start + _CONNECTIONS]

    def beat(self) -> None:
        """Write the heartbeat."""
        self._cells[self._start + _BEAT] = time.monotonic()

    def count(self, connections: float) -> None:
        """Write the number of open connections."""
        self._cells[self._start + _CONNECTIONS] = connections

    def clear(self) -> None:
        """Reset the row: no worker has it."""
        for cell in range(_CELLS):
            self._cells[self._start + cell] = 0.0


class Scoreboard:
    """The rows of all workers, in memory that forked processes share.

    A cell is an aligned number of eight bytes, which processors read and write at once: nothing is locked.
    """

    def __init__(self, rows: int) -> None:
        """Create rows that no worker has."""
        self._cells = memoryview(mmap.mmap(-1, rows * _CELLS * 8)).cast("d")
        self.rows: tuple[ScoreboardRow, ...] = tuple(ScoreboardRow(self._cells, index) for index in range(rows))

    def has_more_than_share(self, row: ScoreboardRow) -> bool:
        """Return whether the worker of this row has clearly more connections than another one that responds."""
        connections = row.connections
        if connections < 2:
            return False
        limit = connections - max(2, connections // _SHARE)
        recent = time.monotonic() - _LATE_BEAT_SECONDS
        return any(other.connections <= limit and other.last_beat > recent for other in self.rows)


class WorkerProcess:
    """A worker as its own process sees it."""

    def __init__(
        self,
        slot: int,
        listeners: Sequence[socket.socket],
        lifeline: socket.socket,
        scoreboard: Scoreboard,
        row: ScoreboardRow,
        *,
        reports: socket.socket | None = None,
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        """Use what the supervisor has prepared before the fork.

        Args:
            slot: The place among the workers, from 0.
            listeners: The listening sockets, which all workers share.
            lifeline: A socket whose other end the supervisor has: closed there when the supervisor is gone.
            scoreboard: What all workers publish about themselves.
            row: The row of this worker.
            reports: The socket on which the worker reports its metrics when it is asked to.
            beat_seconds: The time between two heartbeats.
        """
        self.slot = slot
        self.listeners: list[socket.socket] = list(listeners)
        self.reports: socket.socket | None = reports
        self.row: ScoreboardRow = row
        self.scoreboard: Scoreboard = scoreboard
        self._lifeline = lifeline
        self._beat_seconds = beat_seconds
        self._timer: asyncio.TimerHandle | None = None

    def ready(self) -> None:
        """Report to the supervisor that connections are accepted."""
        # If the supervisor is gone, this worker stops by itself.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._lifeline.sendall(READY)

    def start(self, on_supervisor_lost: Callable[[], None]) -> None:
        """Begin to beat, and to watch the supervisor; needs a running event loop."""
        loop = asyncio.get_running_loop()

        def supervisor_lost() -> None:
            # The supervisor writes nothing: what is readable is the end.
            loop.remove_reader(self._lifeline)
            on_supervisor_lost()

        loop.add_reader(self._lifeline, supervisor_lost)
        self._beat()

    def stop(self) -> None:
        """Stop beating and watching."""
        asyncio.get_running_loop().remove_reader(self._lifeline)
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        self.row.beat()
        self._timer = asyncio.get_running_loop().call_later(self._beat_seconds, self._beat)


class ConnectionAcceptor:
    """Accepts connections for one worker, one at each turn of its event loop."""

    def __init__(self, worker: WorkerProcess, accepted: Callable[[socket.socket], None]) -> None:
        """Prepare to accept; ``accepted`` is called with each connection, which does not block."""
        self._worker = worker
        self._accepted = accepted
        self._timers: dict[socket.socket, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Accept connections from now on; needs a running event loop."""
        for listener in self._worker.listeners:
            self._listen(listener)

    def close(self) -> None:
        """Accept no more connections: those that wait are left to the other workers."""
        for listener in self._worker.listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        for timer in self._timers.values():
            timer.cancel()
        self._worker.listeners.clear()
        self._timers.clear()
        # No other worker leaves a connection to this one.
        self._worker.row.count(float("inf"))

    def _listen(self, listener: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(listener, self._readable, listener)

    def _readable(self, listener: socket.socket) -> None:
        if self._worker.scoreboard.has_more_than_share(self._worker.row):
            self._pause(listener, _YIELD_SECONDS)
        else:
            self._accept(listener)

    def _pause(self, listener: socket.socket, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        self._timers[listener] = loop.call_later(seconds, self._resume, listener)

    def _resume(self, listener: socket.socket) -> None:
        del self._timers[listener]
        if self._accept(listener):
            self._listen(listener)

    def _accept(self, listener: socket.socket) -> bool:
        """Accept a connection, if one waits; return False after an error, when the listener is paused."""
        try:
            connection, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            # Another worker was faster, or the client has gone.
            return True
        except OSError as error:
            log.warning("no connection is accepted for %g s: %s", _ERROR_SECONDS, error)
            self._pause(listener, _ERROR_SECONDS)
            return False
        connection.setblocking(False)
        # Counted now: it is opened at a later turn of the event loop, and others may be accepted before.
        self._worker.row.count(self._worker.row.connections + 1)
        self._accepted(connection)
        return True
