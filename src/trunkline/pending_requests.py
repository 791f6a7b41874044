"""Our requests that wait for responses, and their timeouts.

Each request has two timeouts: idle, which progress restarts, and total. One timer serves all requests of a connection:
it is set to the earliest deadline, and when it fires the expired requests are found and the timer is set again. So a
request that is answered in time costs one comparison. The timeouts are paused while a user is being asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import UNSET, Raw, Struct

from trunkline.errors import LinkError, RequestFailed, RequestTimeout, request_failed
from trunkline.timers import Deadline, Timers
from trunkline.types import ErrorObject, ProgressNotificationParams, RequestId

__all__ = ["PendingRequest", "PendingRequests", "Timeouts", "copy_error", "response_error"]

_NEVER = float("inf")


class Timeouts(Struct, frozen=True, gc=False):
    """How long a request may wait without a response or progress, and in total; None means without limit."""

    idle: float | None
    total: float | None


class PendingRequest:
    """One of our requests that waits for its response."""

    __slots__ = ("expires_at", "future", "method", "on_progress", "started", "timeouts")

    def __init__(
        self,
        future: asyncio.Future[Raw],
        timeouts: Timeouts,
        *,
        method: str,
        started: float,
        on_progress: Callable[[ProgressNotificationParams], None] | None,
    ) -> None:
        """Start both timeouts."""
        self.future: asyncio.Future[Raw] = future
        self.timeouts: Timeouts = timeouts
        self.method: str = method
        self.started: float = started
        self.on_progress: Callable[[ProgressNotificationParams], None] | None = on_progress
        idle, total = timeouts.idle, timeouts.total
        #: When the request times out if nothing happens until then.
        self.expires_at: float = started + (
            idle if idle is not None and (total is None or idle < total) else _NEVER if total is None else total
        )

    def restart(self, now: float) -> None:
        """Restart the idle timeout."""
        idle, total = self.timeouts.idle, self.timeouts.total
        self.expires_at = min(
            _NEVER if idle is None else now + idle,
            _NEVER if total is None else self.started + total,
        )

    def timeout(self) -> RequestTimeout:
        """Return the error for the timeout that expired."""
        idle, total = self.timeouts.idle, self.timeouts.total
        if total is not None and self.expires_at >= self.started + total:
            return RequestTimeout(f"no answer within {total:g} s", clock="total", seconds=total)
        seconds = idle or 0.0
        return RequestTimeout(f"no answer after {seconds:g} s, and no progress", clock="idle", seconds=seconds)


class PendingRequests:
    """The pending requests of one connection."""

    __slots__ = (
        "_deadline",
        "_expired",
        "_paused",
        "_paused_since",
        "_timers",
        "_withdrawn",
        "detached",
        "next_at",
        "open",
        "progress_at",
    )

    def __init__(self, timers: Timers, expired: Callable[[RequestId, RequestTimeout], None]) -> None:
        """Call ``expired`` for each request that times out."""
        self._timers = timers
        self._expired = expired
        self._deadline: Deadline | None = None
        self._paused = 0
        self._paused_since = 0.0
        #: Whether a request was ever withdrawn: its response may still arrive.
        self._withdrawn = False
        #: The requests, by id.
        self.open: dict[RequestId, PendingRequest] = {}
        #: Requests that nothing awaits any more, and the callbacks for their responses.
        self.detached: dict[RequestId, Callable[[Raw | RequestFailed], None]] = {}
        #: When any of them last made progress, by the clock of the timers.
        self.progress_at: float = float("-inf")
        #: When the deadlines are checked next; adding a request that expires sooner requires a call of ``check_at``.
        self.next_at: float = _NEVER

    def check_at(self, at: float) -> None:
        """Check the deadlines at the given time, unless an earlier check is due."""
        if at >= self.next_at:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self.next_at = at
        self._deadline = self._timers.after(at - self._timers.clock.now(), self._check)

    def only_candidate(self) -> RequestId | None:
        """Return the request that a response without a readable id must belong to; None if there are several.

        Requests that may stay open without limit (subscriptions) count only if nothing else is pending.
        """
        if self._withdrawn:
            return None
        bounded = [id for id, request in self.open.items() if request.timeouts.total is not None] or list(self.open)
        return bounded[0] if len(bounded) == 1 else None

    def withdraw(self, id: RequestId) -> PendingRequest | None:
        """Stop waiting for a request and return it; None if it is not pending any more."""
        request = self.open.pop(id, None)
        self._withdrawn = self._withdrawn or request is not None
        return request

    def detach(self, id: RequestId, callback: Callable[[Raw | RequestFailed], None]) -> None:
        """Stop waiting for a request, but call ``callback`` with its response if one arrives."""
        if self.withdraw(id) is not None:
            self.detached[id] = callback

    def answered_late(self, id: RequestId, response: Raw | RequestFailed | None) -> None:
        """Call the callback of a detached request with its response."""
        callback = self.detached.pop(id, None)
        if callback is not None and response is not None:
            callback(response)

    def count_bounded(self) -> int:
        """Return the number of pending requests that have a total timeout; subscriptions have none."""
        return sum(request.timeouts.total is not None for request in self.open.values())

    def restart_idle(self, request: PendingRequest) -> None:
        """Restart the idle timeout of a request."""
        self.progress_at = self._timers.clock.now()
        request.restart(self.progress_at)

    def pause(self) -> None:
        """Pause all timeouts while a user answers a request of the other side."""
        if self._paused == 0:
            self._paused_since = self._timers.clock.now()
        self._paused += 1

    def resume(self) -> None:
        """Resume the timeouts; the time that the user took does not count."""
        self._paused -= 1
        if self._paused:
            return
        now = self._timers.clock.now()
        for request in self.open.values():
            request.started += now - max(self._paused_since, request.started)
            request.restart(now)
        self._check()

    def close(self) -> None:
        """Cancel the timer."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.next_at = _NEVER

    def _check(self) -> None:
        """Expire the requests that are late, and set the timer for the next one."""
        self.close()
        if self._paused:
            # ``resume`` sets the timer again when the user has answered.
            return
        now = self._timers.clock.now()
        for id, request in list(self.open.items()):
            if request.expires_at <= now:
                self._expired(id, request.timeout())
        if self.open:
            self.check_at(min(request.expires_at for request in self.open.values()))


def copy_error(error: Exception) -> Exception:
    """Return a copy of a link error, one for each request: raised twice, one object would collect both tracebacks."""
    if not isinstance(error, LinkError):
        return error
    copied = error.__class__.__new__(error.__class__)
    copied.args = error.args
    copied.__dict__.update(error.__dict__)
    copied.__cause__ = error.__cause__
    return copied


def response_error(error: ErrorObject) -> RequestFailed:
    """Return the exception for an error response."""
    return request_failed(error.code, error.message, None if error.data is UNSET else error.data)
