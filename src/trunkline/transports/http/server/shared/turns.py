"""The GET stream of a session: which response of which worker is it, and which changes its client was notified of.

A value in the store names the response that has the turn. Changes are announced in a log that all workers read; the
worker with the turn stores their notices as events, each with the announcement that it belongs to, so that another one
goes on where this one ended, also if it died. If two workers store the same notice, the client reads the first.
"""

from __future__ import annotations

import asyncio

from trunkline.errors import StoreUnavailable
from trunkline.protocol.revisions import Feature
from trunkline.transports.http.server.response import SSEResponse
from trunkline.transports.http.server.shared.facts import LIFETIME
from trunkline.transports.http.server.shared.sessions import SharedAcceptor, SharedSession
from trunkline.transports.http.server.shared.streams import GET_STREAM, LogStream, Told, told_all
from trunkline.transports.http.server.shared.worker import (
    MAX_RETOLD,
    SharedWorker,
    WorkerMessage,
    later,
    position_before,
)
from trunkline.transports.link import AcceptedConnection

__all__ = ["TURN_SECONDS", "Turn", "release_turn"]

#: Seconds between two attempts of a second GET stream to become the first, and between two checks of other workers.
TURN_SECONDS = 1.0


class Turn:
    """The turn of one response to be the GET stream of a session, among the responses of all workers."""

    def __init__(
        self,
        worker: SharedWorker,
        acceptor: SharedAcceptor,
        session: SharedSession,
        response: SSEResponse,
        *,
        after: str | None,
        retry_ms: int,
    ) -> None:
        """Prepare to acquire the turn; ``after`` is the last event that a client which resumes the stream has."""
        self._worker = worker
        self._acceptor = acceptor
        self._session = session
        self._response = response
        self._after = after
        self._retry_ms = retry_ms
        self._token = worker.next_name()
        #: What the response reads.
        self.stream: LogStream
        self._connection: AcceptedConnection | None = None
        #: The last announcement that was sent to the client, and whether earlier ones are being sent.
        self._told = session.facts.since
        self._catching_up = False
        self._saved = ("", "")

    @property
    def _key(self) -> str:
        return f"get:{self._session.facts.key}"

    # --- acquiring it ------------------------------------------------------------------------------------------------

    async def begin(self) -> bool:
        """Acquire the turn if it is free; a client that resumes the stream acquires it in any case."""
        self._worker.turns.add(self._token)
        begun = False
        try:
            begun = await self._take() and await self._read()
        finally:
            if not begun:
                self._worker.turns.discard(self._token)
        return begun

    async def _take(self) -> bool:
        store, token = self._worker.store, self._token.encode()
        if self._after is not None:
            await store.put(self._key, token, ttl=LIFETIME)
        elif not await store.put(self._key, token, ttl=LIFETIME, only_if_absent=True):
            holder = await store.get(self._key) or b""
            if holder != token and await self._is_held(holder):
                return False
            return await store.replace(self._key, holder, token, ttl=LIFETIME)
        return True

    async def _is_held(self, holder: bytes) -> bool:
        """Return whether a response has the turn that the store names; its worker releases it if none has."""
        name = holder.decode()
        worker = name.partition("-")[0]
        if worker == self._worker.id:
            return name in self._worker.turns
        return bool(await self._worker.send(worker, WorkerMessage("turn", self._session.facts.key, holder)))

    async def _read(self) -> bool:
        session, log = self._session, self._session.shared_log
        position, told = _positions(await self._worker.store.get(f"got:{session.facts.key}"))
        position = self._after if self._after is not None else position
        known = told_all(session.facts.since)
        if position:
            known = max(known, await log.told_at(position))
        stream = log.read(GET_STREAM, after=position, told=known, may_go_on=self._is_mine)
        try:
            await stream.start()
            if stream.ended and self._after is None:
                # What followed the saved position is not kept; begin with what is.
                await stream.aclose()
                stream = log.read(GET_STREAM, after="", told=known, may_go_on=self._is_mine)
                await stream.start()
            await self._start(stream, max(stream.told, told_all(told)))
        except BaseException:
            self._leave(stream)
            await stream.aclose()
            raise
        return True

    async def _start(self, stream: LogStream, told: Told) -> None:
        """Write the stream to the response, after the notices of what was announced while no response had the turn."""
        session = self._session
        # From here on announcements that arrive are not missed: `_catch_up` goes on until the last of them.
        self._catching_up = True
        self.stream = stream
        session.shared_log.streams[self._token] = stream
        session.turn = self
        session.own_stream.has_gap = False
        self._connection = session.standing_connection()
        if told:
            self._told = f"{told[0]}-{told[1]}"
        await self._catch_up(partly=bool(told) and told != told_all(self._told))
        session.own_stream.since = self._told
        self._response.move(stream)
        if Feature.STREAM_POLLING in session.features and self._after is None:
            session.own_stream.push(b"", retry=self._retry_ms, merge=True)

    async def wait(self) -> None:
        """Wait until it is this response's turn; checked regularly."""
        self._session.waiting_responses.append(self._response)
        try:
            while True:
                await asyncio.sleep(TURN_SECONDS)
                try:
                    if await self.begin():
                        return
                except StoreUnavailable:
                    continue
        finally:
            self._session.waiting_responses.remove(self._response)

    # --- announcements -----------------------------------------------------------------------------------------------

    def announced(self, id: str, body: bytes | None) -> None:
        """Notify the client of a change, unless it was notified already or earlier ones are under way."""
        if self._catching_up or not later(id, self._told):
            return
        if self._session.stale:
            self._catching_up = True
            self._worker.spawn(self._catch_up_later())
        else:
            self._tell(id, body)

    async def _catch_up_later(self) -> None:
        """Notify the client once it is known what it is subscribed to."""
        while self._session.turn is self:
            try:
                await self._catch_up()
            except StoreUnavailable:
                await asyncio.sleep(TURN_SECONDS)
            else:
                break

    async def _catch_up(self, *, partly: bool = False) -> None:
        """Notify the client of the changes until the last one that this worker has seen.

        With ``partly`` some notices of the last one may be missing: all are stored again, and those that the client has
        are not read again.
        """
        worker = self._worker
        while partly or later(worker.position, self._told):
            found = await worker.announcements_after(self._told, inclusive=partly)
            # Read after them, so that it has the subscriptions from before them.
            await self._session.load(required=True)
            partly = False
            if found is None:
                # Some were dropped or lost; the later ones that are kept are sent nevertheless.
                kept = [each for each in await worker.announcements_after("") or () if later(each[0], self._told)]
                found = kept if len(kept) <= MAX_RETOLD else []
                self._tell(position_before(found[0][0]) if found else worker.position, None)
            for id, body in found:
                self._tell(id, body)
            if not found:
                break
        self._catching_up = False

    def _tell(self, id: str, body: bytes | None) -> None:
        connection = self._connection
        assert connection is not None
        self._told = id
        self._session.own_stream.announce(id, lambda: self._acceptor.notify(connection, body))

    # --- the end -----------------------------------------------------------------------------------------------------

    async def end(self) -> None:
        """Release the turn, and store how far the client has read."""
        stream: LogStream | None = getattr(self, "stream", None)
        if stream is None:
            return
        told = self._position(stream)
        self._leave(stream)
        await stream.aclose()
        self._worker.spawn(self._release(told))

    def _leave(self, stream: LogStream) -> None:
        session = self._session
        self._worker.turns.discard(self._token)
        session.shared_log.streams.pop(self._token, None)
        if session.turn is self:
            session.turn = None
            session.own_stream.since = ""

    async def _release(self, position: tuple[str, str]) -> None:
        if await self._worker.store.replace(self._key, self._token.encode(), b"", ttl=0.001):
            await self._store(position)

    def save(self) -> None:
        """Store how far the client has come, if it has moved: this worker may die."""
        position = self._position(self.stream)
        if position != self._saved:
            self._saved = position
            self._worker.spawn(self._store(position))

    def _position(self, stream: LogStream) -> tuple[str, str]:
        """Return the last event that was written, and the last announcement whose notices are all stored."""
        own = self._session.own_stream
        return stream.last_id, self._saved[1] if own.unstored or own.has_gap else self._told

    async def _store(self, position: tuple[str, str]) -> None:
        await self._worker.store.put(f"got:{self._session.facts.key}", " ".join(position).encode(), ttl=LIFETIME)

    async def _is_mine(self) -> bool:
        return await self._worker.store.get(self._key) == self._token.encode()


def release_turn(worker: SharedWorker, message: WorkerMessage) -> None:
    """Release a turn that another worker waits for, if no response of this worker has it.

    A turn whose taking was not answered is in the store, although its response was refused.
    """
    if message.body.decode() not in worker.turns:
        worker.spawn(worker.store.replace(f"get:{message.key}", message.body, b"", ttl=0.001))


def _positions(stored: bytes | None) -> tuple[str, str]:
    """Return how far a client has come in its GET stream, and in the announcements."""
    events, _, announcements = (stored or b"").decode().partition(" ")
    return events, announcements
