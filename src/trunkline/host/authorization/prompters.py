"""Attributes of prompters, prompters that combine others, and the queue of requests for a prompter.

A prompter is a function with optional attributes. ``concurrent``: it shows any number of requests at once, as a page
does and a terminal does not. ``beside_client``: at a gateway the calling client is asked too, and the first answer
wins. ``available``: whether it can reach a user now.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

__all__ = [
    "MAX_QUEUED",
    "DeferredPrompter",
    "PromptQueue",
    "QueueFull",
    "asks_beside_client",
    "is_available",
    "race",
    "shows_several",
]

#: Requests of one session that wait or are shown: more than a person answers.
MAX_QUEUED = 64

A = TypeVar("A")
Q = TypeVar("Q")


def shows_several(prompter: Callable[..., Any]) -> bool:
    """Return True if a prompter shows several requests at once."""
    return getattr(prompter, "concurrent", False) is True


def asks_beside_client(prompter: Callable[..., Any]) -> bool:
    """Return True if the client of a gateway is asked beside this prompter, not in its place."""
    return getattr(prompter, "beside_client", False) is True


def is_available(prompter: Callable[..., Any]) -> bool:
    """Return True if a prompter can reach a user now, which is the default."""
    return getattr(prompter, "available", True) is not False


class DeferredPrompter:
    """A prompter that forwards to another one, which is set later, as when a page is opened for a running host.

    Until then, and while the other one cannot reach a user, it is not available.
    """

    concurrent = True
    beside_client = True

    def __init__(self) -> None:
        """Start without a prompter."""
        self._prompter: Callable[[Any], Awaitable[Any]] | None = None
        self._when: Callable[[], bool] = bool

    def use(self, prompter: Callable[[Any], Awaitable[Any]], *, when: Callable[[], bool]) -> None:
        """Forward to this prompter from now on, while ``when`` returns True."""
        self._prompter, self._when = prompter, when

    def withdraw(self) -> None:
        """Stop asking."""
        self._prompter = None

    @property
    def available(self) -> bool:
        """Whether a user can be asked now."""
        return self._prompter is not None and self._when()

    async def __call__(self, question: Any) -> Any:
        """Ask the current prompter; return None if there is none."""
        return None if self._prompter is None else await self._prompter(question)


def race(*prompters: Callable[[Q], Awaitable[A | None]]) -> Callable[[Q], Awaitable[A | None]]:
    """Return a prompter that asks all of these at once; the first answer wins, and the others are cancelled.

    A prompter that fails or returns no answer leaves the question to the others; if none answers, the outcome is that
    of the last one.
    """

    async def ask(question: Q) -> A | None:
        waiting = {asyncio.ensure_future(_call(prompter, question)) for prompter in prompters}
        try:
            while True:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    if not task.cancelled() and task.exception() is None and task.result() is not None:
                        return task.result()
                if not waiting:
                    return done.pop().result()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    ask.concurrent = True  # type: ignore[attr-defined]
    return ask


async def _call(prompter: Callable[[Q], Awaitable[A | None]], question: Q) -> A | None:
    return await prompter(question)


class QueueFull(Exception):
    """Too many requests of one session are queued."""


class PromptQueue:
    """The requests that wait for one prompter, taking turns by session."""

    def __init__(self) -> None:
        """Start with an empty queue."""
        self._busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        #: How many requests of each session are shown at the same time.
        self._shown: Counter[str] = Counter()

    @property
    def idle(self) -> bool:
        """Whether no request is shown or queued."""
        return not self._busy and not self._waiting and not self._shown

    @contextmanager
    def shown(self, session: str) -> Iterator[None]:
        """Count a request while it is shown beside others.

        Raises:
            QueueFull: too many of this session are.
        """
        if self._shown[session] >= MAX_QUEUED:
            raise QueueFull
        self._shown[session] += 1
        try:
            yield
        finally:
            self._shown -= Counter((session,))

    @asynccontextmanager
    async def turn(self, session: str) -> AsyncIterator[None]:
        """Wait for a turn, and hold it while the context is open."""
        if self._busy:
            await self._wait(session)
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
            self._next()

    async def _wait(self, session: str) -> None:
        line = self._waiting.setdefault(session, deque())
        if len(line) >= MAX_QUEUED:
            raise QueueFull
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(mine)
        try:
            await mine
        except BaseException:
            if mine.done() and not mine.cancelled():
                # The turn was assigned in the same loop iteration in which the waiter was cancelled.
                self._busy = False
                self._next()
            else:
                with suppress(ValueError):
                    line.remove(mine)
                if not line and self._waiting.get(session) is line:
                    del self._waiting[session]
            raise

    def _next(self) -> None:
        """Pass the turn to the session that has waited longest."""
        while self._waiting:
            session = next(iter(self._waiting))
            line = self._waiting.pop(session)
            mine = line.popleft() if line else None
            if line:
                # To the back of the queue.
                self._waiting[session] = line
            if mine is not None and not mine.done():
                self._busy = True
                mine.set_result(None)
                return
