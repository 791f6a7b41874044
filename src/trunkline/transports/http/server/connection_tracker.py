"""All HTTP connections of a server: one timer for their timeouts, one turn for their responses, and their retirement.

It knows clocks and connections, no bytes. A request needs no timer of its own, and the responses of many busy
connections are written together.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.uvicorn_cycle import JsonHead

if TYPE_CHECKING:
    from trunkline.transports.http.server.uvicorn_protocol import UvicornProtocol

__all__ = ["ConnectionTracker", "RequestTarget", "TaskFactory"]

#: Seconds between two sweeps, unless a limit is so short that this would be too coarse.
TICK_SECONDS = 1.0

#: Starts a task for a coroutine.
TaskFactory = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
#: Path, raw path and query of a request target.
RequestTarget = tuple[str, bytes, bytes]


class ConnectionTracker:
    """All connections of a server, and the one timer that checks their timeouts.

    ``now`` is the time of the last sweep: a connection reads it instead of the clock, so a timeout may fire up to two
    sweeps late and never early.
    """

    def __init__(self, limits: Limits, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Set the limits; the clock is a parameter for tests."""
        self.limits = limits
        #: In the order in which they were opened.
        self.connections: dict[UvicornProtocol, None] = {}
        self.empty = asyncio.Event()
        self.empty.set()
        shortest = min(limits.header_seconds, limits.body_seconds, limits.idle_seconds, limits.keep_alive_seconds)
        self.tick = min(TICK_SECONDS, shortest / 4)
        self.log = _ConnectionLog(logging.getLogger("trunkline.transports"))
        #: The headers of most responses, shared by all connections.
        self.json_head = JsonHead()
        #: Parsed request targets of recent requests.
        self.targets: dict[bytes, RequestTarget] = {}
        self._clock = clock
        self.now = clock()
        self._timer: asyncio.TimerHandle | None = None
        #: Connections with a response that is to be written with those of the others.
        self._unwritten: list[UvicornProtocol] = []
        #: Starts the task of a request; set with the first connection.
        self.start_task: TaskFactory = asyncio.create_task
        #: Called with the number of connections when it changes.
        self.on_count: Callable[[int], None] | None = None
        #: When the connections began to retire: each response is the last of its connection.
        self.retired_at: float | None = None

    def add(self, connection: UvicornProtocol) -> None:
        """Add a connection."""
        self.connections[connection] = None
        if self.on_count is not None:
            self.on_count(len(self.connections))
        self.empty.clear()
        if self._timer is None:
            self.now = self._clock()
            self._arm()
            self.start_task = _task_factory(connection.loop)

    def remove(self, connection: UvicornProtocol) -> None:
        """Remove a connection that is closed."""
        self.connections.pop(connection, None)
        if self.on_count is not None:
            self.on_count(len(self.connections))
        if not self.connections and self._timer is not None:
            self.empty.set()
            self._timer.cancel()
            self._timer = None

    def make_room(self, newest: UvicornProtocol) -> bool:
        """Close the oldest connection without a request in progress if there are too many; return False if still so.

        Otherwise a client that opens connections and never sends a request would keep all others out.
        """
        most = self.limits.connections
        if len(self.connections) > most:
            idle = (one for one in self.connections if one is not newest and not one.is_busy)
            oldest = next(idle, None)
            if oldest is not None:
                oldest.transport.abort()
                # Its end is reported at the next turn of the loop; until then others may be accepted.
                self.remove(oldest)
        return len(self.connections) <= most

    def retire(self) -> None:
        """Make the next response of each connection its last; no connection is closed under its client."""
        self.retired_at = self._clock()
        for connection in tuple(self.connections):
            connection.retire()

    def close_silent(self, seconds: float) -> None:
        """Close the retired connections on which nothing was sent for so long."""
        assert self.retired_at is not None
        self.now = self._clock()
        for connection in tuple(self.connections):
            if connection.is_silent and self.now - max(connection.since, self.retired_at) >= seconds:
                connection.transport.close()

    def write_soon(self, connection: UvicornProtocol) -> None:
        """Write the response of a connection at the next turn of the loop, with those of the others.

        Written at once, the responses of many busy connections come back as requests one by one, and each costs a turn
        of the loop and its system calls; written a turn later they come back in groups, which measured a fifth to a
        quarter less processor time per call.
        """
        if not self._unwritten:
            connection.loop.call_soon(self._write_all)
        self._unwritten.append(connection)

    def _write_all(self) -> None:
        unwritten, self._unwritten = self._unwritten, []
        for connection in unwritten:
            connection.write_now()

    def sweep(self) -> None:
        """Check the timeouts of all connections."""
        self.now = self._clock()
        for connection in tuple(self.connections):
            connection.check(self.now)

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.tick, self._on_tick)

    def _on_tick(self) -> None:
        self._arm()
        self.sweep()


class _ConnectionLog(logging.LoggerAdapter[logging.Logger]):
    """The logger of uvicorn's class; a request cancelled at the end of a drain is not logged as an error."""

    #: Read by uvicorn's class before each of its trace messages.
    level = logging.INFO

    def error(self, msg: object, *args: object, exc_info: Any = None, **kwargs: Any) -> None:
        """Log an error unless it is the cancellation of a request."""
        if not isinstance(exc_info, asyncio.CancelledError):
            super().error(msg, *args, exc_info=exc_info, **kwargs)


def _task_factory(loop: asyncio.AbstractEventLoop) -> TaskFactory:
    """Return a function that starts tasks without the loop's wrapper, unless the loop is customised.

    From Python 3.12 on a task runs at once until it first waits: a request that never does needs no turn of the loop.
    """
    if loop.get_task_factory() is not None or loop.get_debug():
        return loop.create_task
    if sys.version_info >= (3, 12):
        return partial(asyncio.Task, loop=loop, eager_start=True)
    return partial(asyncio.Task, loop=loop)
