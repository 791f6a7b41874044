"""A call in progress at a server that sends requests: its questions, and parking between rounds.

Such a call cannot be run again. While a stateless client is away to find an answer, the call is parked here, under an
unguessable name that travels in the client's sealed state; the retry resumes it. Parked calls are bounded in number and
time; one that expires is cancelled at the server, and never repeated.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Raw

from trunkline.errors import InvalidParams, RequestFailed, TooManyRequests
from trunkline.host.passing.fronts import Front
from trunkline.host.passing.places import Place

__all__ = ["CallOver", "Parking", "Pending", "Running"]


class Pending:
    """One question of a server that waits for its answer."""

    __slots__ = ("answer", "brought", "key", "method", "params")

    def __init__(self, method: str, params: Any, key: str) -> None:
        """Set the question, under a key that is unique in its call."""
        self.method = method
        self.params = params
        self.key = key
        #: Whether the caller was asked.
        self.brought = False
        #: Done once it is answered; cancelled when the server withdraws it.
        self.answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

    @property
    def outlives(self) -> bool:
        """Whether it is answered although its call is over: servers request roots independently of calls."""
        return self.brought or self.method == "roots/list"


class CallOver(RequestFailed):
    """The call that a question belongs to ended before there was an answer."""


class Running:
    """A call at a server, in a task of its own, with the questions it asks meanwhile."""

    __slots__ = ("_asked", "_open", "_wake", "front", "name", "pending", "place", "task")

    def __init__(self, work: Callable[[Running], Coroutine[Any, Any, tuple[Any, Raw]]], front: Front) -> None:
        """Start the work on behalf of a caller."""
        self.front: Front | None = front
        self.pending: deque[Pending] = deque()
        self.name = os.urandom(16).hex()
        #: Its concurrency slot, once it was sent.
        self.place: Place | None = None
        self._asked = 0
        #: The number of unanswered questions.
        self._open = 0
        self._wake: asyncio.Future[None] | None = None
        self.task = asyncio.get_running_loop().create_task(work(self))
        self.task.add_done_callback(self._rouse)

    async def ask(self, method: str, params: Any) -> Raw:
        """Queue a question for the caller, and wait for the answer; cancelling withdraws the question."""
        self._asked += 1
        pending = Pending(method, params, f"{method.partition('/')[0]}-{self._asked}")
        self.pending.append(pending)
        self._open += 1
        if self.place is not None:
            self.place.rest()
        self._rouse()
        try:
            return await pending.answer
        finally:
            if pending in self.pending:
                self.pending.remove(pending)
            pending.answer.cancel()
            self._open -= 1
            if self.place is not None and not self._open:
                self.place.resume()

    async def news(self) -> Pending | None:
        """Wait for the next question; None once the work is done and no question needs an answer."""
        while not self.pending and not self.task.done():
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        over = self.task.done()
        return next((pending for pending in self.pending if not over or pending.outlives), None)

    async def settle(self, pending: Pending, ask: Coroutine[Any, Any, Raw]) -> None:
        """Get the answer to a question, unless the server withdraws it first."""
        asking = asyncio.get_running_loop().create_task(ask)
        pending.brought = True
        try:
            await asyncio.wait({asking, pending.answer}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done() and not pending.answer.done():
                if (failure := asking.exception()) is not None:
                    pending.answer.set_exception(failure)
                else:
                    pending.answer.set_result(asking.result())
        finally:
            asking.cancel()
            asking.add_done_callback(_heed)
        if pending in self.pending:
            self.pending.remove(pending)

    def cancel(self) -> None:
        """Cancel the call at the server."""
        self.task.cancel()
        self.close()

    def close(self) -> None:
        """Fail the unanswered questions: the call is over."""
        for pending in self.pending:
            if not pending.answer.done():
                pending.answer.set_exception(CallOver("The call that this question belongs to is over"))

    def _rouse(self, task: object = None) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Parking:
    """The calls that wait for their clients to come back (parked calls)."""

    def __init__(self, *, most: int, seconds: float) -> None:
        """Set how many calls may be parked, and for how long each."""
        self._most = most
        self._seconds = seconds
        self._parked: dict[str, tuple[Running, asyncio.TimerHandle | None]] = {}

    def __len__(self) -> int:
        """Return the number of parked calls."""
        return len(self._parked)

    def admit(self, running: Running) -> str:
        """Register a call; return the name under which it is found again.

        Raises:
            TooManyRequests: too many calls are parked already.
        """
        if running.name not in self._parked:
            if len(self._parked) >= self._most:
                raise TooManyRequests(
                    f"Too many calls wait for answers already: the limit is {self._most}; try again later",
                    data={"limit": "waiting", "allowed": self._most, "retryAfter": 5},
                )
            self._parked[running.name] = (running, None)
            running.task.add_done_callback(_heed)
        return running.name

    def park(self, running: Running) -> None:
        """Park a call; its time runs from now."""
        running.front = None
        if running.name in self._parked:
            timer = asyncio.get_running_loop().call_later(self._seconds, self._expire, running)
            self._parked[running.name] = (running, timer)

    def take_up(self, name: str, front: Front) -> Running:
        """Resume a parked call for a client that came back.

        Raises:
            InvalidParams: it is no longer parked, or was resumed already.
        """
        running, timer = self._parked.get(name, (None, None))
        if running is None or running.front is not None:
            raise InvalidParams("Invalid params: the call is no longer waiting for an answer; start it again")
        if timer is not None:
            timer.cancel()
        self._parked[name] = (running, None)
        running.front = front
        return running

    def leave(self, running: Running) -> None:
        """Remove a call that is over."""
        _, timer = self._parked.pop(running.name, (None, None))
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Cancel all parked calls."""
        for running, _ in tuple(self._parked.values()):
            self._expire(running)

    def _expire(self, running: Running) -> None:
        self.leave(running)
        running.cancel()


def _heed(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task that is no longer awaited, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
