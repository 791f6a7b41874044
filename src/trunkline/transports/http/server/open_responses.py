"""The registry of what is open at an endpoint, and the one clock over it: streams, requests in flight, sessions.

A quiet stream gets keep-alive comments, the response of a slow request becomes a stream, a request that is not answered
at once is watched for a disconnect, and a session that is idle for too long ends. The registry only calls methods of
what is open; each response owns its own state. The timer runs only while something is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from trunkline.errors import InsufficientScope
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.asgi import Headers, HTTPException, too_many
from trunkline.transports.http.server.request import HttpRequest
from trunkline.transports.http.server.response import SSEResponse

__all__ = ["Challenge", "OpenResponses", "PendingResponse"]

T = TypeVar("T")

#: Returns the headers that tell a client which scopes its token lacks.
Challenge = Callable[[InsufficientScope, HttpRequest], Headers]

# A request still unanswered after so long is watched for a disconnect; most never are.
_WATCH_AFTER = 0.02
# The seconds between two rounds of the clock.
_ROUND = 1.0


class PendingResponse(Protocol):
    """A request in flight, as the registry sees it."""

    def check(self) -> bool:
        """Called soon after the start; returns whether to call again soon."""

    def tick(self, rounds: int) -> None:
        """Called once in each round; after so many rounds the response should begin."""

    def abort(self, failure: HTTPException) -> None:
        """Stop serving the request."""


class ExpiringSessions(Protocol):
    """The sessions of the endpoint, as the registry sees them."""

    def __len__(self) -> int: ...

    def end_expired(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Remove the sessions that were idle for too long; awaiting the coroutines ends them."""


class OpenResponses:
    """The open streams and the requests in flight of one endpoint."""

    def __init__(self, limits: Limits, sessions: ExpiringSessions, *, challenge: Challenge) -> None:
        """Start with nothing open."""
        self._limits = limits
        self._sessions = sessions
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._checking = False
        self._idle: asyncio.Event | None = None
        self.challenge = challenge
        self.streams: set[SSEResponse] = set()
        #: Requests without their response, in the order they began.
        self.in_flight: dict[PendingResponse, None] = {}

    # --- streams -----------------------------------------------------------------------------------------------------

    def stream_opened(self, response: SSEResponse) -> None:
        """Count a stream and keep it alive."""
        self.streams.add(response)
        self.start_clock()

    def stream_closed(self, response: SSEResponse) -> None:
        """Forget a stream."""
        self.streams.discard(response)

    def check_streams(self) -> None:
        """Check that one more stream may be opened.

        Raises:
            HTTPException: too many are open.
        """
        if len(self.streams) >= self._limits.streams:
            raise too_many("open streams")

    # --- requests in flight ------------------------------------------------------------------------------------------

    def request_started(self, response: PendingResponse) -> None:
        """Add a request that was not answered at once."""
        self.in_flight[response] = None
        if not self._checking:
            self._check_soon()

    def request_finished(self, response: PendingResponse) -> None:
        """Remove a request that has its response."""
        self.in_flight.pop(response, None)
        if self._idle is not None:
            self._report_idle(self._idle)

    def _check(self) -> None:
        self._checking = False
        for response in self.in_flight:
            if response.check():
                self._check_soon()

    def _check_soon(self) -> None:
        if not self._checking:
            self._checking = True
            asyncio.get_running_loop().call_later(_WATCH_AFTER, self._check)

    # --- the clock ---------------------------------------------------------------------------------------------------

    def start_clock(self) -> None:
        """Start the clock, unless it runs; called when something is opened."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_ROUND, self._round)

    def _round(self) -> None:
        self._timer = None
        rounds = max(1, round(self._limits.comment_seconds / _ROUND))
        for stream in self.streams:
            stream.tick(rounds)
        for response in list(self.in_flight):
            response.tick(rounds)
        for ending in self._sessions.end_expired():
            self.spawn(ending)
        if self.streams or self.in_flight or len(self._sessions):
            self.start_clock()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine as a task and keep a reference to it: a task without one may be collected."""
        task = asyncio.get_running_loop().create_task(work, name="trunkline")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- the end -----------------------------------------------------------------------------------------------------

    async def wait_idle(self, seconds: float, busy: Callable[[], bool]) -> bool:
        """Wait until no request is in flight and ``busy`` returns False; return False after so many seconds."""
        self._idle = asyncio.Event()
        self._report_idle(self._idle)
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
                # Polled, and only at the end of a server: an event would have to be updated with every request.
                while busy():  # noqa: ASYNC110
                    await asyncio.sleep(_WATCH_AFTER)
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """Stop the clock."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report_idle(self, idle: asyncio.Event) -> None:
        if not self.in_flight:
            idle.set()
