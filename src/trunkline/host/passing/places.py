"""The limit on concurrent calls to a server, over all connections to it.

A call acquires a slot before it is sent and releases it at the end. While it waits for an answer to a question of the
server, it gives up its slot: a person may take long. When the answer arrives, the call resumes at once, over the limit
if necessary, and no new call starts until there is room again. If the answer had to wait for a slot, the calls with the
slots could be waiting for this very call, in a server that handles one request at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Place", "Places"]


class Places:
    """Limits the concurrent calls of one server."""

    __slots__ = ("_most", "_queue", "_taken")

    def __init__(self, most: int) -> None:
        """Set the limit."""
        self._most = most
        self._taken = 0
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
    def full(self) -> bool:
        """Whether a new call has to wait."""
        return self._taken >= self._most or bool(self._queue)

    async def take(self) -> Place:
        """Wait for a slot, in order of arrival, and acquire it."""
        if self.full:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                await turn
            except BaseException:
                if not turn.cancel() and not turn.cancelled():
                    # It got a slot just before it was cancelled.
                    self._taken -= 1
                self._admit()
                raise
        else:
            self._taken += 1
        return Place(self)

    def add(self) -> None:
        """Count one more call, over the limit if necessary."""
        self._taken += 1

    def give_back(self) -> None:
        """Count one call less, and admit waiting calls if there is room."""
        self._taken -= 1
        self._admit()

    def _admit(self) -> None:
        while self._queue and (self._queue[0].done() or self._taken < self._most):
            turn = self._queue.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)


class Place:
    """The slot of one call."""

    __slots__ = ("_held", "_over", "_places")

    def __init__(self, places: Places) -> None:
        """Wrap a slot that was just acquired."""
        self._places = places
        self._held = True
        self._over = False

    def rest(self) -> None:
        """Give up the slot for a while."""
        if self._held:
            self._held = False
            self._places.give_back()

    def resume(self) -> None:
        """Take the slot back, without waiting."""
        if not self._held and not self._over:
            self._held = True
            self._places.add()

    def free(self) -> None:
        """Release the slot for good."""
        self._over = True
        self.rest()
