"""The sessions that a worker holds: how many, of which callers, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from trunkline.protocol.caller import Origin, Session, owner_name
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import Revision, find_revision
from trunkline.transports.http.server.asgi import HTTPException
from trunkline.transports.http.server.sessions.facts import SessionFacts
from trunkline.transports.http.server.sessions.session import HttpSession, SessionAcceptor
from trunkline.transports.http.server.sessions.worker import SessionWorker

__all__ = ["SessionRegistry"]

#: A session that any worker can serve is dropped here after so many seconds without a request.
_RESIDENT_SECONDS = 300.0


class SessionRegistry:
    """The sessions that a worker holds."""

    __slots__ = ("_acceptor", "_limits", "_owners", "_worker", "by_id", "by_key", "now")

    def __init__(
        self, limits: Limits, worker: SessionWorker, acceptor: SessionAcceptor, *, now: Callable[[], float]
    ) -> None:
        """Start without sessions; ``now`` returns monotonic time."""
        self._limits = limits
        self.now: Callable[[], float] = now
        self._worker = worker
        self._acceptor = acceptor
        self.by_id: dict[str, HttpSession] = {}
        self.by_key: dict[str, HttpSession] = {}
        #: The sessions of each owner, the oldest first: dicts as sets that keep their order.
        self._owners: dict[str, dict[HttpSession, None]] = {}

    def has_room(self, owner: str) -> bool:
        """Return whether one more session can be held, perhaps in the place of one that is not in use."""
        return len(self.by_id) < self._limits.sessions or self._dispensable(owner) is not None

    def make_room(self, owner: str) -> None:
        """Drop a session that is not in use, if there are too many."""
        if len(self.by_id) >= self._limits.sessions and (session := self._dispensable(owner)) is not None:
            self._worker.spawn(self.remove(session))

    def _dispensable(self, owner: str) -> HttpSession | None:
        """Return the oldest idle session of an owner, or of the one with the most: who opens many loses its own."""
        most = max(self._owners.values(), key=len)
        for sessions in (self._owners.get(owner, {}), most):
            if (idle := next((session for session in sessions if not session.busy), None)) is not None:
                return idle
        return None

    def hold(self, id: str, facts: SessionFacts, session: Session) -> HttpSession:
        """Add a session to this worker."""
        held = HttpSession(
            id, facts, session, worker=self._worker, acceptor=self._acceptor, limits=self._limits, now=self.now()
        )
        self.by_id[id] = held
        self.by_key[facts.key] = held
        self._owners.setdefault(held.owner, {})[held] = None
        return held

    def open(self, id: str, facts: SessionFacts, session: Session, origin: Origin) -> HttpSession:
        """Add the session that a client has just opened, with the sender of ``initialize``."""
        revision = session.revision
        # Of the headers only the revision is kept: it holds for all requests, and a stateless one is known by it.
        kept_origin = Origin("http", origin.principal, version_headers(revision), origin.address)
        session.caller = replace(session.caller, origin=kept_origin)
        held = self.hold(id, facts, session)
        # Nobody has changed it yet.
        held.known_changes = held.changes
        if self._worker.is_alone:
            held.connect()
        else:
            session.ready()
        return held

    def revive(self, id: str, facts: SessionFacts, address: str | None) -> HttpSession | None:
        """Add a session that another worker opened; return None if its revision is not known here, or there is no room.

        Its client has been told by another worker that it is open; whether it has sent ``notifications/initialized`` is
        known there alone, so that it counts as ready.
        """
        revision = find_revision(facts.revision)
        if revision is None:
            return None
        origin = Origin("http", facts.principal, version_headers(revision), address)
        owner = owner_name(origin.principal, origin.address)
        if not self.has_room(owner):
            return None
        self.make_room(owner)
        session = Session(revision, facts.client_info, facts.capabilities, origin=origin)
        session.ready()
        return self.hold(id, facts, session)

    def remove(self, session: HttpSession, failure: HTTPException | None = None) -> Coroutine[Any, Any, None]:
        """Drop a session here; awaiting the coroutine ends its requests and streams at this worker."""
        if self.by_id.get(session.id) is session:
            del self.by_id[session.id], self.by_key[session.facts.key]
            sessions = self._owners[session.owner]
            del sessions[session]
            if not sessions:
                del self._owners[session.owner]
        return self._close(session, failure)

    async def _close(self, session: HttpSession, failure: HTTPException | None) -> None:
        await session.aclose(failure)
        if self._worker.is_alone:
            await self.forget(session.facts.key)

    async def forget(self, key: str) -> None:
        """Delete what the store has of a session."""
        names = (f"{kind}:{key}" for kind in ("events", "state", "facts", "got", "get"))
        await self._worker.store.delete(*names)

    def __len__(self) -> int:
        return len(self.by_id)

    def end_expired(self) -> list[Coroutine[Any, Any, None]]:
        """Remove the sessions that were idle for too long; awaiting the coroutines ends them."""
        return [self.remove(session) for session in self.expired()]

    def expired(self) -> Iterator[HttpSession]:
        """Yield the sessions that were idle for too long, and those whose time is over; tidy up the others."""
        now, wall, loop_now = self.now(), self._worker.now(), asyncio.get_running_loop().time()
        for session in list(self.by_id.values()):
            session.log.sweep(loop_now)
            if session.get_stream is not None:
                session.get_stream.save()
            if session.facts.expires <= wall:
                yield session
            elif session.busy:
                session.seen = now
            elif now - session.seen > self._idle_seconds(session):
                yield session

    def _idle_seconds(self, session: HttpSession) -> float:
        if not self._worker.is_alone:
            return _RESIDENT_SECONDS
        return self._limits.session_seconds if session.session.initialized else self._limits.unready_seconds


@cache
def version_headers(revision: Revision) -> Mapping[str, str]:
    """Return the headers that are kept of a session."""
    return MappingProxyType({"mcp-protocol-version": revision.name})
