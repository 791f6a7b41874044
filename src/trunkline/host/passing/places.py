"""How many calls a server works on at once, on all connections to it together.

A call takes a place before it leaves and frees it when it is over. While it waits for somebody's answer to a question
of the server's, it gives its place to others: a person may think for long. When the answer is there, the call goes on
at once, over the limit if need be, and no new call begins until there is room again. If the answer waited for a place,
those who have the places could be waiting for this very call, in a server that does one thing after the other.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Place", "Places"]


class Places:
    """The places of one server."""

    __slots__ = ("_most", "_queue", "_taken")

    def __init__(self, most: int) -> None:
        """Say how many there are."""
        self._most = most
        self._taken = 0
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def most(self) -> int:
        """How many there are; whoever reads a new configuration writes it, which lets in whoever finds room then."""
        return self._most

    @most.setter
    def most(self, most: int) -> None:
        self._most = most
        self._admit()

    @property
    def full(self) -> bool:
        """Whether whoever wants a place has to wait."""
        return self._taken >= self._most or bool(self._queue)

    async def take(self) -> Place:
        """Wait for a place, in the order of those who ask, and take it."""
        if self.full:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue.append(turn)
            try:
                await turn
            except BaseException:
                if not turn.cancel() and not turn.cancelled():
                    # It was given a place just before it gave up.
                    self._taken -= 1
                self._admit()
                raise
        else:
            self._taken += 1
        return Place(self)

    def add(self) -> None:
        """Count one more, over the limit if need be."""
        self._taken += 1

    def give_back(self) -> None:
        """Count one less, and let in who waits, if there is room."""
        self._taken -= 1
        self._admit()

    def _admit(self) -> None:
        while self._queue and (self._queue[0].done() or self._taken < self._most):
            turn = self._queue.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)


class Place:
    """The place of one call."""

    __slots__ = ("_held", "_over", "_places")

    def __init__(self, places: Places) -> None:
        """Have a place that was just taken."""
        self._places = places
        self._held = True
        self._over = False

    def rest(self) -> None:
        """Give the place to others for a while."""
        if self._held:
            self._held = False
            self._places.give_back()

    def resume(self) -> None:
        """Go on after a rest."""
        if not self._held and not self._over:
            self._held = True
            self._places.add()

    def free(self) -> None:
        """Give the place back for good."""
        self._over = True
        self.rest()
