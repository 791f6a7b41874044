"""The time of one turn: it stands still while a person is waited for, and ends the turn when it is up.

It has no clock of its own: the event loop's is used.
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
    """Seconds that are left for a turn."""

    def __init__(self) -> None:
        """Start with nothing to time."""
        self._timeout: asyncio.Timeout | None = None
        self._left = 0.0
        self._since = 0.0
        self._pauses = 0

    @property
    def expired(self) -> bool:
        """Whether the time was up."""
        return self._timeout is not None and self._timeout.expired()

    @asynccontextmanager
    async def limit(self, seconds: float | None) -> AsyncIterator[None]:
        """Let what runs inside take so many seconds; TimeoutError when they are over."""
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
        """Stop the time while what is inside lasts; more than one may do so at once."""
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
    """Asks a person about one call, with the time standing still; questions are put in one row with the face's own."""

    def __init__(self, face: Face, watch: Stopwatch) -> None:
        """Take who is asked, and the time to stop."""
        self._face: Callable[[Question], Awaitable[Answer | None]] = face
        self._watch = watch
        #: The arguments as the person changed them; None if they did not.
        self.changed: dict[str, Any] | None = None

    async def __call__(self, question: Question) -> Answer | None:
        """Ask."""
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
    """Answers a server's question, with the time standing still."""

    def __init__(self, desk: Desk, watch: Stopwatch) -> None:
        """Take who answers, and the time to stop."""
        self._desk = desk
        self._watch = watch

    @property
    def capabilities(self) -> Mapping[str, Any]:
        """What can be asked at the desk."""
        return self._desk.capabilities

    async def answer(self, entry: ServerEntry, method: str, params: Any, session: HostSession) -> Raw:
        """Have it answered."""
        with self._watch.pause():
            return await self._desk.answer(entry, method, params, session)
