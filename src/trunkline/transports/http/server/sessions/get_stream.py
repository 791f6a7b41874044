"""The GET stream of a session: which response of which worker is it, and what its client reads there.

A value in the store names the response that has the turn; the others wait. The stream has the messages of the session
that belong to no request, from the session's own log, and the notices of changes, from the log of announcements that
all workers read, filtered by what this client subscribed to. Nothing is written for a notice, and nothing is kept of
what a client was notified of: the id of each event says how far the client is in both logs, so that any worker goes on
from there. The messages of the session are sent once. A notice may be sent again after a reconnect, which costs its
client one more list or read.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import NamedTuple

from trunkline.errors import StoreUnavailable
from trunkline.protocol.revisions import Feature
from trunkline.store.interface import Put, entry_position
from trunkline.transports.http.server.asgi import session_ended
from trunkline.transports.http.server.response import SSEResponse
from trunkline.transports.http.server.sessions.facts import LIFETIME
from trunkline.transports.http.server.sessions.session import HttpSession
from trunkline.transports.http.server.sessions.streams import GET_STREAM, LogStream
from trunkline.transports.http.server.sessions.worker import (
    MAX_RETOLD,
    SessionWorker,
    WorkerMessage,
    later,
    position_before,
)

__all__ = ["TURN_SECONDS", "GetPosition", "GetStream", "release_turn"]

#: Seconds between two attempts of a second GET stream to become the first, and between two checks of other workers.
TURN_SECONDS = 1.0
#: Stands for the position before the first entry of a log.
_NONE = "0-0"


class GetPosition(NamedTuple):
    """How far a client has come in its GET stream: the last entries of its session's log and of the announcements."""

    entry: str = ""
    told: str = ""

    @classmethod
    def parse(cls, event_id: str) -> GetPosition | None:
        """Return the position that the id of an event names; None if it is not the id of an event of a GET stream."""
        entry, tilde, told = event_id.partition("~")
        if not tilde or entry_position(entry) is None or entry_position(told) is None:
            return None
        return cls("" if entry == _NONE else entry, "" if told == _NONE else told)

    @property
    def event_id(self) -> str:
        """The id of an event at this position."""
        return f"{self.entry or _NONE}~{self.told or _NONE}"


class GetStream(LogStream):
    """One response that is the GET stream of a session, or waits to become it."""

    __slots__ = (
        "_after",
        "_catching_up",
        "_from_start",
        "_notices",
        "_reading_announcements",
        "_response",
        "_retry_ms",
        "_saved",
        "_session",
        "_turn",
        "_unsaved",
        "told",
    )

    def __init__(
        self,
        session: HttpSession,
        response: SSEResponse,
        *,
        after: GetPosition | None = None,
        from_start: bool = False,
        retry_ms: int,
    ) -> None:
        """Prepare to acquire the turn; ``after`` is how far a client that resumes the stream has come.

        With ``from_start`` the entry of that position is not kept, and the log is read from its start.
        """
        super().__init__(GET_STREAM, session.log, after="")
        self._session = session
        self._response = response
        self._after = after
        self._from_start = from_start
        self._retry_ms = retry_ms
        #: The name of this turn, among those of all workers.
        self._turn = self._worker.next_name()
        #: The last announcement whose notices were added.
        self.told: str = session.told
        #: Whether there are announcements before those that arrive now; and whether they are being read.
        self._catching_up = True
        self._reading_announcements = False
        #: The notices that wait to be written: equal ones are merged.
        self._notices: set[bytes] = set()
        #: The last entry that the stored position names; and whether notifications that may not be repeated were sent
        #: since it was stored.
        self._saved = ""
        self._unsaved = False

    @property
    def _turn_key(self) -> str:
        return f"get:{self._session.facts.key}"

    @property
    def _position_key(self) -> str:
        return f"got:{self._session.facts.key}"

    # --- acquiring the turn ------------------------------------------------------------------------------------------

    async def begin(self) -> bool:
        """Acquire the turn if it is free; a client that resumes the stream acquires it in any case."""
        self._worker.turns.add(self._turn)
        self._session.beginning += 1
        begun = False
        try:
            if await self._acquire():
                await self._begin_reading()
                begun = True
        finally:
            self._session.beginning -= 1
            if not begun:
                self._worker.turns.discard(self._turn)
                self._leave()
                await self.aclose()
        return begun

    async def _acquire(self) -> bool:
        store, turn = self._worker.store, self._turn.encode()
        if self._after is not None:
            await store.put(self._turn_key, turn, ttl=LIFETIME)
        elif not await store.put(self._turn_key, turn, ttl=LIFETIME, only_if_absent=True):
            holder = await store.get(self._turn_key) or b""
            if holder != turn and await self._is_held(holder):
                return False
            return await store.replace(self._turn_key, holder, turn, ttl=LIFETIME)
        return True

    async def _is_held(self, holder: bytes) -> bool:
        """Return whether a response has the turn that the store names; its worker releases it if none has."""
        name = holder.decode()
        worker = name.partition("-")[0]
        if worker == self._worker.id:
            return name in self._worker.turns
        return bool(await self._worker.send(worker, WorkerMessage("turn", self._session.facts.key, holder)))

    async def wait(self) -> None:
        """Wait until it is this response's turn; checked regularly."""
        session = self._session
        session.waiting_responses.append(self._response)
        released = session.turn_released = session.turn_released or asyncio.Event()
        try:
            while True:
                with suppress(TimeoutError):
                    await asyncio.wait_for(released.wait(), TURN_SECONDS)
                released.clear()
                try:
                    if await self.begin():
                        return
                except StoreUnavailable:
                    continue
        finally:
            session.waiting_responses.remove(self._response)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _begin_reading(self) -> None:
        """Write to the response what the client has not read yet, and what follows."""
        session, position = self._session, self._after
        if position is None:
            stored = await self._worker.store.get(self._position_key)
            position = GetPosition.parse((stored or b"").decode()) or GetPosition()
            if not later(position.told, session.told):
                position = position._replace(told=session.told)
        self._saved = position.entry
        self._rewind(position._replace(entry="") if self._from_start else position)
        await self.start()
        if self._lost and self._after is None:
            # What followed the stored position is not kept; begin with what is.
            await self.aclose()
            self._rewind(position._replace(entry=""))
            await self.start()
        # From here on announcements that arrive are not missed: `_catch_up` goes on until the last of them.
        session.get_stream = self
        session.log.streams[self._turn] = self
        session.standing_connection()
        await self._catch_up()
        if session.closed:
            raise session_ended()
        self._response.move(self)
        if Feature.STREAM_POLLING in session.features and self._after is None:
            # From here on the client has an event id to resume from.
            self._add(self._event_id(self._position), b"", self._retry_ms)

    def _rewind(self, position: GetPosition) -> None:
        """Drop what an earlier attempt to begin has read."""
        self._position, self.told = position
        self._pending, self.pending_bytes, self._early = [], 0, []
        self._notices.clear()
        self.ended = self._paused = self._behind = self._lost = False
        self._catching_up = True
        # What a response that ends before its first event leaves to the next one.
        self.last_id = self._event_id(position.entry)

    def _event_id(self, entry_id: str) -> str:
        # Where the log has expired the client keeps its position: ids never go back.
        return GetPosition(entry_id or self._saved, self.told).event_id

    def take(self) -> bytes:
        """Return the events that may be written, encoded."""
        self._notices.clear()
        self._session.told = self.told
        return super().take()

    async def _read_again(self) -> None:
        """Read what was missed while the connection was lost, unless another response has the turn by now."""
        try:
            if await self._worker.store.get(self._turn_key) != self._turn.encode():
                self.end()
        except StoreUnavailable:
            self.end()
        await self._read_further()

    async def _read_further(self) -> None:
        await super()._read_further()
        if self._catching_up and not self._reading_announcements:
            await self._catch_up_later()

    def _pause_if_full(self) -> None:
        super()._pause_if_full()
        # What is announced meanwhile is read from its log later, in order.
        self._catching_up = self._catching_up or self._paused

    # --- announcements -----------------------------------------------------------------------------------------------

    def announced(self, id: str, body: bytes | None) -> None:
        """Notify the client of a change, unless it was notified already or earlier ones are under way."""
        if self._catching_up or not later(id, self.told):
            return
        if self._session.stale:
            self._catching_up = True
            self._worker.spawn(self._catch_up_later())
        else:
            self._notify(id, body)

    async def _catch_up_later(self) -> None:
        """Notify the client of what it has not heard of, once the store can be read."""
        self._reading_announcements = True
        try:
            while self._session.get_stream is self and not self.ended:
                try:
                    await self._catch_up()
                except StoreUnavailable:
                    await asyncio.sleep(TURN_SECONDS)
                else:
                    break
        finally:
            self._reading_announcements = False

    async def _catch_up(self) -> None:
        """Notify the client of the changes until the last one that this worker has seen."""
        worker = self._worker
        while later(worker.position, self.told) and not self._paused:
            announcements = await worker.announcements_after(self.told)
            # Read after them, so that it has the subscriptions from before them.
            await self._session.load(required=True)
            if announcements is None:
                # Some were dropped or lost; the later ones that are kept are sent nevertheless.
                kept = await worker.announcements_after("") or ()
                announcements = [announcement for announcement in kept if later(announcement[0], self.told)]
                if len(announcements) > MAX_RETOLD:
                    announcements = []
                self._notify(position_before(announcements[0][0]) if announcements else worker.position, None)
            for id, body in announcements:
                if self._paused:
                    # The rest is read again once the client has read these.
                    break
                if later(id, self.told):
                    self._notify(id, body)
            if not announcements:
                break
        self._catching_up = self._paused

    def _notify(self, id: str, body: bytes | None) -> None:
        """Add the notices of an announcement.

        Only the id of the last one names this announcement: a client that lost the connection before it gets all again.
        """
        collected, repeatable = self._session.notices(body)
        self._unsaved = self._unsaved or not repeatable
        notices = [notice for notice in collected if notice not in self._notices]
        for notice in notices[:-1]:
            self._add(self._event_id(self._position), notice)
        self.told = id
        if notices:
            self._add(self._event_id(self._position), notices[-1])
            self._notices.update(notices)
            self._pause_if_full()

    # --- the end -----------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop reading; release the turn, if it was acquired, and store how far the client has read."""
        if self._session.get_stream is self and not self._pending:
            self._session.told = self.told
        self._leave()
        await self.aclose()
        if self._turn not in self._worker.turns:
            return
        if self._worker.is_alone:
            await self._release()
        else:
            self._worker.spawn(self._release())

    def _leave(self) -> None:
        session = self._session
        if session.log.streams.get(self._turn) is self:
            del session.log.streams[self._turn]
        if session.get_stream is self:
            session.get_stream = None

    async def _release(self) -> None:
        """Release the turn and store how far the client has come in one step: the next response reads it."""
        last = self.last_id if self._pending else self._event_id(self._position)
        released = Put(self._turn_key, b"", 0.001, old=self._turn.encode())
        try:
            await self._worker.store.commit(released, Put(self._position_key, last.encode(), LIFETIME))
        finally:
            # Until then other responses do not take the turn: they would read an older position.
            self._worker.turns.discard(self._turn)
            if self._session.turn_released is not None:
                self._session.turn_released.set()

    def save(self) -> None:
        """Store how far the client has come, if it was sent what may not be sent twice: this worker may die.

        Nothing is stored for the notice of a change: after such an end, a client that names no event may get it again.
        """
        position = GetPosition.parse(self.last_id)
        if position is not None and (self._unsaved or later(position.entry, self._saved)):
            self._saved, self._unsaved = position.entry, False
            self._worker.spawn(self._worker.store.put(self._position_key, self.last_id.encode(), ttl=LIFETIME))


def release_turn(worker: SessionWorker, message: WorkerMessage) -> None:
    """Release a turn that another worker waits for, if no response of this worker has it.

    If the write that took a turn succeeded and its reply was lost, the store names a turn that no response has.
    """
    if message.body.decode() not in worker.turns:
        worker.spawn(worker.store.replace(f"get:{message.key}", message.body, b"", ttl=0.001))
