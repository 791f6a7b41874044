"""FastMCP's event store: events of a stream in a key-value store, for clients that come back for them."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

from pydantic import BaseModel

from trunkline.compat.auth.stores import ModelStore
from trunkline.compat.features.state import MemoryStorage
from trunkline.compat.sse import EventMessage
from trunkline.compat.sse import EventStore as _Base
from trunkline.compat.streams import _message
from trunkline.compat.types import to_plain

__all__ = ["EventEntry", "EventStore", "SessionScopedEventStore", "StreamEventList"]

#: The number of locks that streams share.
_LOCK_STRIPES = 64


class EventEntry(BaseModel):
    """One stored event; an event without a message only marks a place in its stream."""

    event_id: str
    stream_id: str
    message: dict[str, Any] | None


class StreamEventList(BaseModel):
    """The events of a stream, oldest first."""

    event_ids: list[str]


class EventStore(_Base):
    """Keeps the newest events of each stream, for a time."""

    def __init__(self, storage: Any = None, max_events_per_stream: int = 100, ttl: int | None = 3600) -> None:
        """Initialize with a key-value store; by default in memory."""
        self._storage = storage or MemoryStorage()
        self._max_events_per_stream = max_events_per_stream
        self._ttl = ttl
        # A list is read, changed and written: tasks of one stream must not do that at the same time.
        self._stream_locks = tuple(asyncio.Lock() for _ in range(_LOCK_STRIPES))
        self._event_store = ModelStore(self._storage, EventEntry, "fastmcp_events")
        self._stream_store = ModelStore(self._storage, StreamEventList, "fastmcp_streams")

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store an event and return its id; beyond the limit the oldest is forgotten."""
        event_id = str(uuid4())
        plain = None if message is None else to_plain(getattr(message, "root", message))
        entry = EventEntry(event_id=event_id, stream_id=stream_id, message=plain)
        await self._event_store.put(key=event_id, value=entry, ttl=self._ttl)
        async with self._stream_locks[hash(stream_id) % _LOCK_STRIPES]:
            listed = await self._stream_store.get(key=stream_id)
            ids = [*(listed.event_ids if listed else ()), event_id]
            kept = ids[-self._max_events_per_stream :]
            for old in ids[: -self._max_events_per_stream]:
                await self._event_store.delete(key=old)
            await self._stream_store.put(key=stream_id, value=StreamEventList(event_ids=kept), ttl=self._ttl)
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        """Send the events after one to a callback, and return the stream's id; None if the event is not known."""
        entry = await self._event_store.get(key=last_event_id)
        listed = None if entry is None else await self._stream_store.get(key=entry.stream_id)
        if entry is None or listed is None or last_event_id not in listed.event_ids:
            return None
        for event_id in listed.event_ids[listed.event_ids.index(last_event_id) + 1 :]:
            event = await self._event_store.get(key=event_id)
            if event is not None and event.message is not None:
                await send_callback(EventMessage(_message(event.message), event_id))
        return entry.stream_id


class SessionScopedEventStore(_Base):
    """An event store seen by one session: it cannot read what another stored, though both name streams alike."""

    def __init__(self, event_store: Any, session_id: str) -> None:
        """Initialize with the shared store."""
        self._store = event_store
        self._prefix = f"{session_id}:"

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Store an event of this session."""
        stored: str = await self._store.store_event(self._prefix + stream_id, message)
        return stored

    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        """Send this session's events after one to a callback; None if the event is another session's."""
        events: list[Any] = []

        async def collect(event: Any) -> None:
            events.append(event)

        stream = await self._store.replay_events_after(last_event_id, collect)
        if stream is None or not stream.startswith(self._prefix):
            return None
        for event in events:
            await send_callback(event)
        return str(stream.removeprefix(self._prefix))
