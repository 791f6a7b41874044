"""The time limit of a turn, which is paused while the host waits for a person.

It uses the clock of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from trunkline.host.desks import Desk
from trunkline.host.entries import ServerEntry
from trunkline.host.judgement.consent import Answer, Face, Question

if TYPE_CHECKING:
    from trunkline.host.session import HostSession

__all__ = ["PausingDesk", "PausingFace", "Stopwatch"]


class Stopwatch:
    """A pausable timeout for a turn."""

    def __init__(self) -> None:
        """Start without a limit."""
        self._timeout: asyncio.Timeout | None = None
        self._left = 0.0
        self._since = 0.0
        self._pauses = 0

    @property
    def expired(self) -> bool:
        """Whether the time limit was reached."""
        return self._timeout is not None and self._timeout.expired()

    @asynccontextmanager
    async def limit(self, seconds: float | None) -> AsyncIterator[None]:
        """Raise TimeoutError in the block after so many seconds, not counting pauses."""
        self._pauses = 0
        if seconds is None:
            self._timeout = None
            yield
            return
        self._left, self._since = seconds, asyncio.get_running_loop().time()
        async with asyncio.timeout(seconds) as self._timeout:
            yield

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause the timer while the block runs; pauses may overlap."""
        timeout, now = self._timeout, asyncio.get_running_loop().time
        if timeout is None or timeout.expired():
            yield
            return
        if self._pauses == 0:
            self._left -= now() - self._since
            timeout.reschedule(None)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0 and timeout is self._timeout and not timeout.expired():
                self._since = now()
                timeout.reschedule(self._since + max(self._left, 0.0))


class PausingFace:
    """A prompter that pauses the timer; it equals the wrapped one, so that both share one queue of requests."""

    def __init__(self, face: Face, watch: Stopwatch) -> None:
        """Wrap a prompter, and pause this timer while it asks."""
        self._face: Callable[[Question], Awaitable[Answer | None]] = face
        self._watch = watch
        #: The arguments as edited by the person; None if unchanged.
        self.changed: dict[str, Any] | None = None

    async def __call__(self, question: Question) -> Answer | None:
        """Ask the person."""
        with self._watch.pause():
            answer = await self._face(question)
        if isinstance(answer, Answer) and answer.allow:
            self.changed = answer.arguments
        return answer

    def __eq__(self, other: object) -> bool:
        return other._face == self._face if isinstance(other, PausingFace) else other == self._face

    def __hash__(self) -> int:
        return hash(self._face)


class PausingDesk:
    """A server request handler that pauses the timer."""

    def __init__(self, desk: Desk, watch: Stopwatch) -> None:
        """Wrap a handler, and pause this timer while it answers."""
        self._desk = desk
        self._watch = watch

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """The capabilities of the wrapped handler."""
        return self._desk.capabilities

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Answer the request through the wrapped handler."""
        with self._watch.pause():
            return await self._desk.answer(entry, method, params, session)
