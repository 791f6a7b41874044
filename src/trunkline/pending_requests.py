"""Requests of ours that wait for their answers, and how long they may.

Each has two clocks: silence, which progress starts again, and the whole. Their deadlines are looked at together: one
row of the timekeeper stands for the earliest, and when it comes up the late ones are found and the row is set anew. So
a request that is answered in time costs a comparison. The clocks stand still while a person is being asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Raw, Struct

from trunkline.errors import LinkError, RequestFailed, RequestTimeout
from trunkline.timers import Deadline, Timers
from trunkline.types import ProgressNotificationParams, RequestId

__all__ = ["PendingRequest", "PendingRequests", "Timeouts", "copy_error"]

_NEVER = float("inf")


class Timeouts(Struct, frozen=True, gc=False):
    """How long a request of ours may take: silence (progress ends it) and altogether; None is for ever."""

    idle: float | None
    total: float | None


class PendingRequest:
    """One request of ours that waits for its answer."""

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
        """Start both clocks."""
        self.future: asyncio.Future[Raw] = future
        self.timeouts: Timeouts = timeouts
        self.method: str = method
        self.started: float = started
        self.on_progress: Callable[[ProgressNotificationParams], None] | None = on_progress
        idle, total = timeouts.idle, timeouts.total
        #: When patience ends if nothing happens.
        self.expires_at: float = started + (
            idle if idle is not None and (total is None or idle < total) else _NEVER if total is None else total
        )

    def restart(self, now: float) -> None:
        """Start the clock of silence again."""
        idle, total = self.timeouts.idle, self.timeouts.total
        self.expires_at = min(
            _NEVER if idle is None else now + idle,
            _NEVER if total is None else self.started + total,
        )

    def timeout(self) -> RequestTimeout:
        """Say which clock ran out."""
        idle, total = self.timeouts.idle, self.timeouts.total
        if total is not None and self.expires_at >= self.started + total:
            return RequestTimeout(f"no answer after {total:g} s in all", clock="total", seconds=total)
        seconds = idle or 0.0
        return RequestTimeout(
            f"no answer after {seconds:g} s without an answer or progress", clock="idle", seconds=seconds
        )


class PendingRequests:
    """All requests of one connection that wait."""

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
        """Tell ``expired`` of each request whose patience ended."""
        self._timers = timers
        self._expired = expired
        self._deadline: Deadline | None = None
        self._paused = 0
        self._paused_since = 0.0
        #: Whether one was ever given up: its answer may come all the same.
        self._withdrawn = False
        #: The requests, by id.
        self.open: dict[RequestId, PendingRequest] = {}
        #: Requests that nothing waits for any more, and what is called with their answers all the same.
        self.detached: dict[RequestId, Callable[[Raw | RequestFailed], None]] = {}
        #: When any of them last made progress, by the clock of the timekeeper.
        self.progress_at: float = float("-inf")
        #: When deadlines are looked at next; whoever adds a request that ends sooner says so.
        self.next_at: float = _NEVER

    def check_at(self, at: float) -> None:
        """Look at the deadlines at a time, if not before."""
        if at >= self.next_at:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self.next_at = at
        self._deadline = self._timers.after(at - self._timers.clock.now(), self._check)

    def only_candidate(self) -> RequestId | None:
        """Give the request that an answer without a readable id is for, if there is no other that it could be for.

        What may stay open for ever (a subscription) counts if nothing else waits.
        """
        if self._withdrawn:
            return None
        ending = [id for id, request in self.open.items() if request.timeouts.total is not None] or list(self.open)
        return ending[0] if len(ending) == 1 else None

    def withdraw(self, id: RequestId) -> PendingRequest | None:
        """Let a request go that is not answered yet; None if it does not wait any more."""
        request = self.open.pop(id, None)
        self._withdrawn = self._withdrawn or request is not None
        return request

    def detach(self, id: RequestId, heard: Callable[[Raw | RequestFailed], None]) -> None:
        """Stop waiting for a request, but have ``heard`` called with its answer, should one come."""
        if self.withdraw(id) is not None:
            self.detached[id] = heard

    def answered_late(self, id: RequestId, answer: Raw | RequestFailed | None) -> None:
        """Call the callback of a request that was set aside with its answer."""
        heard = self.detached.pop(id, None)
        if heard is not None and answer is not None:
            heard(answer)

    def count_bounded(self) -> int:
        """Count the requests that still wait and have to be answered some time; a subscription has not."""
        return sum(request.timeouts.total is not None for request in self.open.values())

    def restart_idle(self, request: PendingRequest) -> None:
        """Start a request's clock of silence again."""
        self.progress_at = self._timers.clock.now()
        request.restart(self.progress_at)

    def pause(self) -> None:
        """Stop the clocks: a person is being asked on the other side's behalf."""
        if self._paused == 0:
            self._paused_since = self._timers.clock.now()
        self._paused += 1

    def resume(self) -> None:
        """Let the clocks run on; the time the person took does not count."""
        self._paused -= 1
        if self._paused:
            return
        now = self._timers.clock.now()
        for request in self.open.values():
            request.started += now - max(self._paused_since, request.started)
            request.restart(now)
        self._check()

    def close(self) -> None:
        """Look at nothing any more."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.next_at = _NEVER

    def _check(self) -> None:
        """End what is late, and find out when to look again."""
        self.close()
        if self._paused:
            # The clocks stand still, and are set anew when the person has answered.
            return
        now = self._timers.clock.now()
        for id, request in list(self.open.items()):
            if request.expires_at <= now:
                self._expired(id, request.timeout())
        if self.open:
            self.check_at(min(request.expires_at for request in self.open.values()))


def copy_error(error: Exception) -> Exception:
    """Give each waiter an exception of its own: raised twice, one object would gather both tracebacks."""
    if not isinstance(error, LinkError):
        return error
    twin = error.__class__.__new__(error.__class__)
    twin.args = error.args
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin
