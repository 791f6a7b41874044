"""Calls in progress at a server: the limit on concurrent calls, the questions a call asks, and parked calls.

A call releases its concurrency slot while it waits for an answer to a server's question, since a person may take
long, and resumes at once when the answer arrives, over the limit if necessary; otherwise the calls that hold the
slots could be waiting for this very call, in a server that handles one request at a time. A call at a handshake
server cannot be run again: while a stateless client is away to find an answer, the call is parked under an
unguessable name that travels in the client's sealed state, and the retry resumes it. Parked calls are bounded in
number and time; one that expires is cancelled at the server and never repeated.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from trunkline.errors import InvalidParams, RequestFailed, RequestTimeout, TooManyRequests
from trunkline.host.upstreams.routing.channels import CallerChannel

if TYPE_CHECKING:
    from trunkline.host.upstreams.routing.parked_elsewhere import ParkedElsewhere

__all__ = [
    "ActiveCall",
    "CallEnded",
    "ConcurrencyLimiter",
    "ConcurrencySlot",
    "Parking",
    "PendingQuestion",
    "caller_cancelled",
]


class ConcurrencyLimiter:
    """Limits the concurrent calls of one server."""

    __slots__ = ("_in_use", "_most", "_queue")

    def __init__(self, most: int) -> None:
        """Set the limit."""
        self._most = most
        self._in_use = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def most(self) -> int:
        """The limit; raising it, as on a reload of the configuration, admits waiting calls."""
        return self._most

    @most.setter
    def most(self, most: int) -> None:
        self._most = most
        self._admit()

    @property
    def queued(self) -> int:
        """The number of calls that wait."""
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether a new call has to wait."""
        return self._in_use >= self._most or bool(self._queue)

    def acquire_free(self) -> ConcurrencySlot | None:
        """Acquire a slot if there is one; None if a call would have to wait."""
        if self._in_use >= self._most or self._queue:
            return None
        self._in_use += 1
        return ConcurrencySlot(self)

    async def acquire(self) -> ConcurrencySlot:
        """Wait for a slot, in order of arrival, and acquire it."""
        if self.full:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                await turn
            except BaseException:
                if not turn.cancel() and not turn.cancelled():
                    # It got a slot just before it was cancelled.
                    self._in_use -= 1
                self._admit()
                raise
        else:
            self._in_use += 1
        return ConcurrencySlot(self)

    async def acquire_within(self, seconds: float, server: str) -> ConcurrencySlot:
        """Wait for a slot of a server for a bounded time.

        Raises:
            RequestTimeout: none was available in that time.
        """
        try:
            async with asyncio.timeout(seconds):
                return await self.acquire()
        except TimeoutError as error:
            what = f"{server} has {self._most} calls in progress, and none ended in {seconds:g} s"
            raise RequestTimeout(what, clock="total", seconds=seconds) from error

    def add(self) -> None:
        """Count one more call, over the limit if necessary."""
        self._in_use += 1

    def remove(self) -> None:
        """Count one call less, and admit waiting calls if there is room."""
        self._in_use -= 1
        self._admit()

    def _admit(self) -> None:
        while self._queue and (self._queue[0].done() or self._in_use < self._most):
            turn = self._queue.popleft()
            if not turn.done():
                self._in_use += 1
                turn.set_result(None)


class ConcurrencySlot:
    """The slot of one call."""

    __slots__ = ("_held", "_limiter", "_over")

    def __init__(self, limiter: ConcurrencyLimiter) -> None:
        """Wrap a slot that was just acquired."""
        self._limiter = limiter
        self._held = True
        self._over = False

    def suspend(self) -> None:
        """Release the slot for a while."""
        if self._held:
            self._held = False
            self._limiter.remove()

    def resume(self) -> None:
        """Reacquire the slot at once, over the limit if necessary."""
        if not self._held and not self._over:
            self._held = True
            self._limiter.add()

    def release(self) -> None:
        """Release the slot for good."""
        self._over = True
        self.suspend()


class PendingQuestion:
    """One question of a server that waits for its answer."""

    __slots__ = ("answer", "delivered", "key", "method", "params")

    def __init__(self, method: str, params: Any, key: str) -> None:
        """Set the question, under a key that is unique in its call."""
        self.method: str = method
        self.params: Any = params
        self.key: str = key
        #: Whether the caller was asked.
        self.delivered: bool = False
        #: Done once it is answered; cancelled when the server withdraws it.
        self.answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

    @property
    def outlives_call(self) -> bool:
        """Whether it is answered although its call is over: servers request roots independently of calls."""
        return self.delivered or self.method == "roots/list"


class CallEnded(RequestFailed):
    """The call that a question belongs to ended before there was an answer."""


class ActiveCall:
    """A call at a server, in a task of its own, with the questions it asks meanwhile."""

    __slots__ = (
        "_asked",
        "_asked_seconds",
        "_asked_since",
        "_open",
        "_wake",
        "channel",
        "name",
        "pending",
        "slot",
        "task",
    )

    def __init__(
        self, work: Callable[[ActiveCall], Coroutine[Any, Any, tuple[Any, Raw]]], channel: CallerChannel
    ) -> None:
        """Start the work on behalf of a caller."""
        self.channel: CallerChannel | None = channel
        self.pending: deque[PendingQuestion] = deque()
        self.name: str = os.urandom(16).hex()
        #: Its concurrency slot, once it was sent.
        self.slot: ConcurrencySlot | None = None
        self._asked = 0
        #: The number of open questions, since when there are any, and the total time of earlier ones.
        self._open = 0
        self._asked_since = 0.0
        self._asked_seconds = 0.0
        self._wake: asyncio.Future[None] | None = None
        self.task: asyncio.Task[tuple[Any, Raw]] = asyncio.get_running_loop().create_task(work(self))
        self.task.add_done_callback(self._rouse)

    @property
    def asked_seconds(self) -> float:
        """How long the call has waited for answers; this does not count as the server's time."""
        return self._asked_seconds + (self.task.get_loop().time() - self._asked_since if self._open else 0.0)

    async def ask(self, method: str, params: Any) -> Raw:
        """Queue a question for the caller, and wait for the answer; cancelling withdraws the question."""
        self._asked += 1
        pending = PendingQuestion(method, params, f"{method.partition('/')[0]}-{self._asked}")
        self.pending.append(pending)
        if not self._open:
            self._asked_since = self.task.get_loop().time()
        self._open += 1
        if self.slot is not None:
            self.slot.suspend()
        self._rouse()
        try:
            return await pending.answer
        finally:
            if pending in self.pending:
                self.pending.remove(pending)
            pending.answer.cancel()
            self._asked_seconds = self.asked_seconds
            self._asked_since = self.task.get_loop().time()
            self._open -= 1
            if self.slot is not None and not self._open:
                self.slot.resume()

    async def next_question(self) -> PendingQuestion | None:
        """Wait for the next question; None once the work is done and no question needs an answer."""
        while not self.pending and not self.task.done():
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        over = self.task.done()
        return next((pending for pending in self.pending if not over or pending.outlives_call), None)

    async def settle(self, pending: PendingQuestion, ask: Coroutine[Any, Any, Raw]) -> None:
        """Ask a question and set its answer, unless the server withdraws it first."""
        asking = asyncio.get_running_loop().create_task(ask)
        pending.delivered = True
        try:
            await asyncio.wait({asking, pending.answer}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done() and not pending.answer.done():
                if (failure := asking.exception()) is not None:
                    pending.answer.set_exception(failure)
                else:
                    pending.answer.set_result(asking.result())
        finally:
            asking.cancel()
            asking.add_done_callback(_retrieve_exception)
        if pending in self.pending:
            self.pending.remove(pending)

    def detach(self) -> None:
        """Called when the caller has left with a question, and will be back."""
        self.channel = None

    def cancel(self) -> None:
        """Cancel the call at the server."""
        self.task.cancel()
        self.close()

    def close(self) -> None:
        """Fail the unanswered questions: the call is over."""
        for pending in self.pending:
            if not pending.answer.done():
                pending.answer.set_exception(CallEnded("The call that this question belongs to is over"))

    def _rouse(self, task: object = None) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Parking:
    """The calls that wait for their clients to come back (parked calls)."""

    def __init__(self, *, most: int, seconds: float) -> None:
        """Set how many calls may be parked, and for how long each."""
        self._most = most
        self._seconds = seconds
        self._parked: dict[str, tuple[ActiveCall, asyncio.TimerHandle | None]] = {}
        #: The name of this worker, if others may resume its calls, and what finds the calls of others.
        self.place: str = ""
        self.elsewhere: ParkedElsewhere | None = None

    def __len__(self) -> int:
        """Return the number of parked calls."""
        return len(self._parked)

    def admit(self, call: ActiveCall) -> str:
        """Register a call; return the name under which it is found again.

        Raises:
            TooManyRequests: too many calls are parked already.
        """
        if call.name not in self._parked:
            if len(self._parked) >= self._most:
                raise TooManyRequests(
                    f"Too many calls wait for answers already: the limit is {self._most}; try again later",
                    data={"limit": "waiting", "allowed": self._most, "retryAfter": 5},
                )
            self._parked[call.name] = (call, None)
            call.task.add_done_callback(_retrieve_exception)
        return f"{self.place}-{call.name}" if self.place else call.name

    def park(self, call: ActiveCall) -> None:
        """Park a call; its time runs from now."""
        call.detach()
        if call.name in self._parked:
            timer = asyncio.get_running_loop().call_later(self._seconds, self._expire, call)
            self._parked[call.name] = (call, timer)

    async def find(self, name: str, channel: CallerChannel, method: str) -> ActiveCall:
        """Resume a parked call for a client that came back, also one of another worker.

        Raises:
            InvalidParams: it is no longer parked, or was resumed already.
        """
        place, _, own = name.rpartition("-")
        if place != self.place and self.elsewhere is not None:
            return await self.elsewhere.resume(name, channel, method)
        return self.resume(own, channel)

    def resume(self, name: str, channel: CallerChannel) -> ActiveCall:
        """Resume a parked call of this worker for a client that came back.

        Raises:
            InvalidParams: it is no longer parked, or was resumed already.
        """
        call, timer = self._parked.get(name, (None, None))
        if call is None or call.channel is not None:
            raise InvalidParams("Invalid params: the call is no longer waiting for an answer; start it again")
        if timer is not None:
            timer.cancel()
        self._parked[name] = (call, None)
        call.channel = channel
        return call

    def leave(self, call: ActiveCall) -> None:
        """Remove a call that is over."""
        _, timer = self._parked.pop(call.name, (None, None))
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Cancel all parked calls."""
        for call, _ in tuple(self._parked.values()):
            self._expire(call)

    def _expire(self, call: ActiveCall) -> None:
        self.leave(call)
        call.cancel()


def caller_cancelled() -> bool:
    """Return True if the caller was cancelled, rather than the work."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of a task that is no longer awaited, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
