"""A call under way at a server that asks by requests of its own: its questions, and the parking of it between rounds.

Such a call cannot be run again. While a stateless client is away to find an answer, the call waits here, parked, under
an unguessable name that travels in the client's sealed state; the retry takes it up. A parked call has a deadline, and
there is a limit to how many there may be; when its time is over, it is cancelled at the server, and never repeated.
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
    """One question of a server's that waits for its answer."""

    __slots__ = ("answer", "brought", "key", "method", "params")

    def __init__(self, method: str, params: Any, key: str) -> None:
        """Say what is asked, under a name of its own in its call."""
        self.method = method
        self.params = params
        self.key = key
        #: Whether the front was asked.
        self.brought = False
        #: Done once it is answered; cancelled when the server wants no answer any more.
        self.answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

    @property
    def outlives(self) -> bool:
        """Whether it is brought an answer although its call is over: a server asks for roots beside what it does."""
        return self.brought or self.method == "roots/list"


class CallOver(RequestFailed):
    """The call that a question was brought to ended before there was an answer."""


class Running:
    """A call at a server, in a task of its own, and what it asks meanwhile."""

    __slots__ = ("_asked", "_open", "_wake", "front", "name", "pending", "place", "task")

    def __init__(self, work: Callable[[Running], Coroutine[Any, Any, tuple[Any, Raw]]], front: Front) -> None:
        """Start the work on behalf of a front."""
        self.front: Front | None = front
        self.pending: deque[Pending] = deque()
        self.name = os.urandom(16).hex()
        #: Its place among the calls that the server works on, once it has left.
        self.place: Place | None = None
        self._asked = 0
        #: Questions whose askers wait.
        self._open = 0
        self._wake: asyncio.Future[None] | None = None
        self.task = asyncio.get_running_loop().create_task(work(self))
        self.task.add_done_callback(self._rouse)

    async def ask(self, method: str, params: Any) -> Raw:
        """Have the front asked, and wait for the answer; whoever stops waiting withdraws the question."""
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
        """Wait for a question, and give it; None once the work is done and nobody waits for an answer any more."""
        while not self.pending and not self.task.done():
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        over = self.task.done()
        return next((pending for pending in self.pending if not over or pending.outlives), None)

    async def settle(self, pending: Pending, ask: Coroutine[Any, Any, Raw]) -> None:
        """Bring an answer to a question, unless the server withdraws it first."""
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
        """Refuse what was asked and is not answered: the call is over."""
        for pending in self.pending:
            if not pending.answer.done():
                pending.answer.set_exception(CallOver("The call that this question belongs to is over"))

    def _rouse(self, task: object = None) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Parking:
    """The calls that wait for their clients to come back."""

    def __init__(self, *, most: int, seconds: float) -> None:
        """Say how many there may be, and for how long each."""
        self._most = most
        self._seconds = seconds
        self._parked: dict[str, tuple[Running, asyncio.TimerHandle | None]] = {}

    def __len__(self) -> int:
        """Count them."""
        return len(self._parked)

    def admit(self, running: Running) -> str:
        """Give a call a place, and the name under which it is found again.

        Raises:
            TooManyRequests: there are too many already.
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
        """Let a call wait; its time runs from now."""
        running.front = None
        if running.name in self._parked:
            timer = asyncio.get_running_loop().call_later(self._seconds, self._expire, running)
            self._parked[running.name] = (running, timer)

    def take_up(self, name: str, front: Front) -> Running:
        """Give a parked call to the one who came back.

        Raises:
            InvalidParams: it is not there any more, or somebody else has it.
        """
        running, timer = self._parked.get(name, (None, None))
        if running is None or running.front is not None:
            raise InvalidParams("Invalid params: the call that was asked does not wait any more; start it again")
        if timer is not None:
            timer.cancel()
        self._parked[name] = (running, None)
        running.front = front
        return running

    def leave(self, running: Running) -> None:
        """Let a call go that is over."""
        _, timer = self._parked.pop(running.name, (None, None))
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Cancel all that wait."""
        for running, _ in tuple(self._parked.values()):
            self._expire(running)

    def _expire(self, running: Running) -> None:
        self.leave(running)
        running.cancel()


def _heed(task: asyncio.Task[Any]) -> None:
    """Take note of how something ended that nobody waits for any more: it is no failure that went unseen."""
    if not task.cancelled():
        task.exception()
