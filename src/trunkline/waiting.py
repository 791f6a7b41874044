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
from trunkline.protocol.deadlines import Deadline
from trunkline.timekeeper import Timekeeper
from trunkline.types import ProgressNotificationParams, RequestId

__all__ = ["Patience", "Waiter", "Waiters", "twin_of"]

_NEVER = float("inf")


class Patience(Struct, frozen=True, gc=False):
    """How long a request of ours may take: silence (progress ends it) and altogether; None is for ever."""

    idle: float | None
    total: float | None


class Waiter:
    """One request of ours that waits for its answer."""

    __slots__ = ("at", "future", "method", "on_progress", "patience", "started")

    def __init__(
        self,
        future: asyncio.Future[Raw],
        patience: Patience,
        *,
        method: str,
        started: float,
        on_progress: Callable[[ProgressNotificationParams], None] | None,
    ) -> None:
        """Start both clocks."""
        self.future = future
        self.patience = patience
        self.method = method
        self.started = started
        self.on_progress = on_progress
        idle, total = patience.idle, patience.total
        #: When patience ends if nothing happens.
        self.at = started + (
            idle if idle is not None and (total is None or idle < total) else _NEVER if total is None else total
        )

    def restart(self, now: float) -> None:
        """Start the clock of silence again."""
        idle, total = self.patience.idle, self.patience.total
        self.at = min(
            _NEVER if idle is None else now + idle,
            _NEVER if total is None else self.started + total,
        )

    def timeout(self) -> RequestTimeout:
        """Say which clock ran out."""
        idle, total = self.patience.idle, self.patience.total
        if total is not None and self.at >= self.started + total:
            return RequestTimeout(f"no answer after {total:g} s in all", clock="total", seconds=total)
        seconds = idle or 0.0
        return RequestTimeout(
            f"no answer after {seconds:g} s without an answer or progress", clock="idle", seconds=seconds
        )


class Waiters:
    """All requests of one connection that wait."""

    __slots__ = (
        "_asking",
        "_asking_since",
        "_expired",
        "_row",
        "_timekeeper",
        "_withdrawn",
        "aside",
        "next_at",
        "open",
        "progress_at",
    )

    def __init__(self, timekeeper: Timekeeper, expired: Callable[[RequestId, RequestTimeout], None]) -> None:
        """Tell ``expired`` of each request whose patience ended."""
        self._timekeeper = timekeeper
        self._expired = expired
        self._row: Deadline | None = None
        self._asking = 0
        self._asking_since = 0.0
        #: Whether one was ever given up: its answer may come all the same.
        self._withdrawn = False
        #: The requests, by id.
        self.open: dict[RequestId, Waiter] = {}
        #: Requests that nothing waits for any more, and what is called with their answers all the same.
        self.aside: dict[RequestId, Callable[[Raw | RequestFailed], None]] = {}
        #: When any of them last made progress, by the clock of the timekeeper.
        self.progress_at = float("-inf")
        #: When deadlines are looked at next; whoever adds a request that ends sooner says so.
        self.next_at = _NEVER

    def look_at(self, at: float) -> None:
        """Look at the deadlines at a time, if not before."""
        if at >= self.next_at:
            return
        if self._row is not None:
            self._row.cancel()
        self.next_at = at
        self._row = self._timekeeper.after(at - self._timekeeper.clock.now(), self._look)

    def only(self) -> RequestId | None:
        """Give the request that an answer without a readable id is for, if there is no other that it could be for.

        What may stay open for ever (a subscription) counts if nothing else waits.
        """
        if self._withdrawn:
            return None
        ending = [id for id, waiter in self.open.items() if waiter.patience.total is not None] or list(self.open)
        return ending[0] if len(ending) == 1 else None

    def give_up(self, id: RequestId) -> Waiter | None:
        """Let a request go that is not answered yet; None if it does not wait any more."""
        waiter = self.open.pop(id, None)
        self._withdrawn = self._withdrawn or waiter is not None
        return waiter

    def set_aside(self, id: RequestId, heard: Callable[[Raw | RequestFailed], None]) -> None:
        """Stop waiting for a request, but have ``heard`` called with its answer, should one come."""
        if self.give_up(id) is not None:
            self.aside[id] = heard

    def answered_late(self, id: RequestId, answer: Raw | RequestFailed | None) -> None:
        """Call the callback of a request that was set aside with its answer."""
        heard = self.aside.pop(id, None)
        if heard is not None and answer is not None:
            heard(answer)

    def with_deadline(self) -> int:
        """Count the requests that still wait and have to be answered some time; a subscription has not."""
        return sum(waiter.patience.total is not None for waiter in self.open.values())

    def progressed(self, waiter: Waiter) -> None:
        """Start a request's clock of silence again."""
        self.progress_at = self._timekeeper.clock.now()
        waiter.restart(self.progress_at)

    def pause(self) -> None:
        """Stop the clocks: a person is being asked on the other side's behalf."""
        if self._asking == 0:
            self._asking_since = self._timekeeper.clock.now()
        self._asking += 1

    def resume(self) -> None:
        """Let the clocks run on; the time the person took does not count."""
        self._asking -= 1
        if self._asking:
            return
        now = self._timekeeper.clock.now()
        for waiter in self.open.values():
            waiter.started += now - max(self._asking_since, waiter.started)
            waiter.restart(now)
        self._look()

    def close(self) -> None:
        """Look at nothing any more."""
        if self._row is not None:
            self._row.cancel()
            self._row = None
        self.next_at = _NEVER

    def _look(self) -> None:
        """End what is late, and find out when to look again."""
        self.close()
        if self._asking:
            # The clocks stand still, and are set anew when the person has answered.
            return
        now = self._timekeeper.clock.now()
        for id, waiter in list(self.open.items()):
            if waiter.at <= now:
                self._expired(id, waiter.timeout())
        if self.open:
            self.look_at(min(waiter.at for waiter in self.open.values()))


def twin_of(error: Exception) -> Exception:
    """Give each waiter an exception of its own: raised twice, one object would gather both tracebacks."""
    if not isinstance(error, LinkError):
        return error
    twin = error.__class__.__new__(error.__class__)
    twin.args = error.args
    twin.__dict__.update(error.__dict__)
    twin.__cause__ = error.__cause__
    return twin
