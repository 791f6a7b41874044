"""The clock over everything that is open at an endpoint: streams, requests in flight, sessions.

One timer for all. A stream that was quiet for long gets a comment, a request that takes long becomes a stream, a
request that is not answered at once is watched for its client's hang-up, and a session that rests too long ends. The
timer runs only while something is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from trunkline.errors import InsufficientScope
from trunkline.protocol.limits import Limits
from trunkline.transports.http.once import OnceLink, Stoppable
from trunkline.transports.http.refusals import Refused, too_many
from trunkline.transports.http.replies import JSON, Carrier, Headers, Receive, StreamReply, send_plain
from trunkline.transports.http.sessions import Sessions
from trunkline.transports.http.visits import Visit

__all__ = ["Upkeep"]

T = TypeVar("T")

# A request still unanswered after so long is watched for the client's hang-up; most never are.
_WATCH_AFTER = 0.02
# How often all that is open is looked at.
_ROUND = 1.0


class Upkeep:
    """What is open at one endpoint."""

    def __init__(self, limits: Limits, sessions: Sessions) -> None:
        """Start with nothing open."""
        self._limits = limits
        self._sessions = sessions
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._looking = False
        self._idle: asyncio.Event | None = None
        self.streams: set[StreamReply] = set()
        #: Writes what a client is told whose token lacks something; whoever lets clients in gives it.
        self.challenge: Callable[[InsufficientScope, Visit], Headers] | None = None
        #: Requests without their response, and how to hear of their clients' hang-up.
        self.in_flight: dict[OnceLink, Visit] = {}

    # --- streams -----------------------------------------------------------------------------------------------------

    def stream_opened(self, reply: StreamReply) -> None:
        """Count a stream and keep it alive."""
        self.streams.add(reply)
        self.begin()

    def stream_closed(self, reply: StreamReply) -> None:
        """Let a stream go."""
        self.streams.discard(reply)

    def check_streams(self) -> None:
        """See that one more may be opened.

        Raises:
            Refused: there are too many.
        """
        if len(self.streams) >= self._limits.streams:
            raise too_many("open streams")

    # --- requests in flight ------------------------------------------------------------------------------------------

    def _watch(self, link: OnceLink, visit: Visit) -> None:
        """Take a request in that was not answered at once."""
        self.in_flight[link] = visit
        if not self._looking:
            self._look_again()

    async def reply(
        self, link: OnceLink, visit: Visit, headers: Headers | None = None, *, unless_error: bool = False
    ) -> None:
        """Send what a link brings: JSON, or a stream; without the extra headers if it is an error."""
        try:
            if link.work is not None:
                self._watch(link, visit)
                link.visit, link.streams = visit, self._stream_beside
                await link.work
                if not link.closed or link.left or link.refusal is not None:
                    _stopped(link)
                # The answers of one turn of the loop leave together: under load that saves a fifth of the processor
                # time of each, since clients come back in groups and not one by one.
                await asyncio.sleep(0)
            elif not link.decided:
                self._watch(link, visit)
                await link.decision()
            if link.answer is not None:
                head = [JSON] if headers is None or (unless_error and link.failed) else [JSON, *headers]
                if link.lacks is not None and self.challenge is not None:
                    head += self.challenge(link.lacks, visit)
                await send_plain(visit.send, link.status, head, link.answer)
            elif link.streaming is not None:
                await asyncio.wait([link.streaming])
            elif link.stream is not None and (reply := self._opened(link, visit)) is not None:
                watched = link.watch is not None
                carrier = None if watched else visit.carrier
                await reply.run(visit.receive, headers or [], owner=self, watched=watched, carrier=carrier)
            if link.answer is None and link.reply is None:
                await _no_answer(link, visit)
        except BaseException:
            link.gone()
            if link.streaming is not None:
                link.streaming.cancel()
            raise
        finally:
            self._done(link)

    def _stream_beside(self, link: OnceLink) -> None:
        """Begin to write a stream while the work that fills it goes on."""
        visit: Visit = link.visit
        carrier = visit.carrier
        reply = self._opened(link, visit)
        if reply is None:
            return
        if carrier is not None and link.watch is None:
            link.streaming = reply.start([], owner=self, carrier=carrier)
        else:
            writing = reply.run(visit.receive, [], owner=self, watched=link.watch is not None)
            link.streaming = asyncio.get_running_loop().create_task(writing, name="trunkline")

    def _opened(self, link: OnceLink, visit: Visit) -> StreamReply | None:
        """Give what writes a link's stream, and tells the link if its client leaves; None if there are too many."""
        assert link.stream is not None
        visit.forget()
        try:
            self.check_streams()
        except Refused as refusal:
            link.lost(refusal)
            return None
        link.reply = StreamReply(link.stream, visit.send, leaving=link.leaving, link=link)
        return link.reply

    def _done(self, link: OnceLink) -> None:
        """Let a request go that has its response."""
        self.in_flight.pop(link, None)
        if link.closed:
            # Nothing refers in a circle, so that all of it is freed here and now.
            link.receiver = link.streams = None
        if link.watch is not None:
            link.watch.cancel()
        if self._idle is not None:
            self._settle(self._idle)

    def _look(self) -> None:
        """Watch what was not answered since the last look; look again as long as something is in flight."""
        self._looking = False
        for link, visit in self.in_flight.items():
            if link.rounds < 0:
                link.rounds = 0
                self._look_again()
            elif link.watch is None and not link.decided:
                link.watch = self._watcher(link, visit)
                self.begin()

    def _watcher(self, link: OnceLink, visit: Visit) -> Stoppable:
        """Have a link told when its client hangs up."""
        carrier = visit.carrier
        if carrier is None:
            return self.spawn(_hung_up(link, visit.receive))
        carrier.when_lost(link.gone)
        return _Forgetting(carrier, link)

    def _look_again(self) -> None:
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(_WATCH_AFTER, self._look)

    # --- the clock ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let the clock run: something is open."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_ROUND, self._round)

    def _round(self) -> None:
        self._timer = None
        rounds = max(1, round(self._limits.comment_seconds / _ROUND))
        for reply in self.streams:
            reply.tick(rounds)
        for link in list(self.in_flight):
            link.rounds += 1
            if link.rounds >= rounds:
                link.begin_stream()
        for session in list(self._sessions.expired()):
            self.spawn(self._sessions.remove(session))
        if self.streams or self.in_flight or self._sessions.by_id:
            self.begin()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something beside the requests; a task that nobody holds may vanish."""
        task = asyncio.get_running_loop().create_task(work, name="trunkline")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- the end -----------------------------------------------------------------------------------------------------

    async def settled(self, seconds: float, busy: Callable[[], bool]) -> bool:
        """Wait until no request is in flight and nobody else is busy; False if so much time was not enough."""
        self._idle = asyncio.Event()
        self._settle(self._idle)
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
                # Only at the end of a server: an event would have to be kept for every request of its whole life.
                while busy():  # noqa: ASYNC110
                    await asyncio.sleep(_WATCH_AFTER)
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """Look at nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _settle(self, idle: asyncio.Event) -> None:
        if not self.in_flight:
            idle.set()


class _Forgetting:
    """Ends a link's wait for the end of its connection."""

    __slots__ = ("_carrier", "_link")

    def __init__(self, carrier: Carrier, link: OnceLink) -> None:
        self._carrier = carrier
        self._link = link

    def cancel(self) -> None:
        """Wait no more."""
        self._carrier.forget(self._link.gone)


def _stopped(link: OnceLink) -> None:
    """Take note that the work ended without an answer: nobody wants one any more, or somebody else ends this task.

    Raises:
        CancelledError: somebody else does.
    """
    task = asyncio.current_task()
    assert task is not None
    if not link.left and link.refusal is None and task.cancelling():
        raise asyncio.CancelledError
    while task.cancelling():
        task.uncancel()


async def _no_answer(link: OnceLink, visit: Visit) -> None:
    """End a response that has not begun and has no answer.

    Raises:
        Refused: there is a reason that the client is to know.
    """
    if link.refusal is not None:
        raise link.refusal
    if not link.left:
        # The client cancelled the request: 2025-11-25, basic/utilities/cancellation, wants no answer sent.
        await visit.answer(202)


async def _hung_up(link: OnceLink, receive: Receive) -> None:
    """Wait until the client hangs up."""
    while (await receive())["type"] != "http.disconnect":
        pass
    link.gone()
