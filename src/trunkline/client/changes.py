"""Changes of a server's lists and resources as an async iterator, the same in both eras.

In stateless revisions a listener is its own long request, ``subscriptions/listen``, and its notifications name it; in
handshake revisions notifications come unasked, and resources are subscribed to one by one. When the connection is lost
the listener reopens on the new one and yields ``missed``, as changes may have gone unseen. The queue is bounded: equal
changes are merged, and an overflow becomes a single ``missed``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

import trunkline.types as t
from trunkline.client.connect import FOREVER
from trunkline.client.session import ClientSession, sleep
from trunkline.errors import ConnectionLost, LinkError, MissingCapability, RequestTimeout, TrunklineError
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import Feature
from trunkline.timers import Timers
from trunkline.types import RequestId

__all__ = ["Change", "ChangeFilter", "ChangeKind", "ChangeStream", "ListenerOwner", "ListenerRegistry"]

ChangeKind: TypeAlias = Literal["tools", "prompts", "resources", "resource", "missed"]
_LISTS: tuple[Literal["tools", "prompts", "resources"], ...] = ("tools", "prompts", "resources")
# A server that dies again and again is not restarted in a tight loop: the delay doubles until a change arrives.
_FIRST_WAIT = 0.1
_LONGEST_WAIT = 30.0  # A server that comes back is noticed within half a minute.


class Change(Struct, frozen=True):
    """A change of a list, or with a URI of a resource; ``missed`` means that changes may have gone unseen."""

    kind: ChangeKind
    uri: str | None = None


class ChangeFilter(Struct, frozen=True):
    """The changes that a listener wants; with ``explicit``, a kind that the server cannot report is an error."""

    lists: frozenset[str]
    uris: tuple[str, ...]
    explicit: bool

    @classmethod
    def of(
        cls,
        *,
        tools: bool | None,
        prompts: bool | None,
        resources: bool | str | Iterable[str] | None,
        uris: str | Iterable[str],
    ) -> ChangeFilter:
        """Build the filter from the arguments of ``Client.listen``; without arguments it covers all lists."""
        wanted_uris = _uris(uris)
        if resources is not None and not isinstance(resources, bool):
            wanted_uris, resources = (*wanted_uris, *_uris(resources)), False
        wanted_lists = {"tools": tools, "prompts": prompts, "resources": resources}
        if not wanted_uris and all(value is None for value in wanted_lists.values()):
            return cls(frozenset(_LISTS), (), explicit=False)
        return cls(frozenset(name for name, value in wanted_lists.items() if value), wanted_uris, explicit=True)

    def covers(self, change: Change) -> bool:
        """Return True if the change matches; a change below a subscribed resource belongs to it."""
        if change.kind != "resource":
            return change.kind in self.lists
        uri = change.uri or ""
        return any(uri == wanted or uri.startswith(f"{wanted.rstrip('/')}/") for wanted in self.uris)


def _uris(uris: str | Iterable[str]) -> tuple[str, ...]:
    return (uris,) if isinstance(uris, str) else tuple(uris)


class ListenerOwner(Protocol):
    """What a listener needs from its client."""

    listeners: ListenerRegistry
    limits: Limits

    @property
    def clock(self) -> Timers:
        """The timers that measure waits."""

    async def get_session(self) -> ClientSession:
        """Return an open session, or raise the reason why there is none."""

    async def add_subscription(self, uri: str) -> None:
        """Subscribe to a resource, in a handshake revision."""

    async def drop_subscription(self, uri: str) -> None:
        """Unsubscribe, unless other subscribers remain."""


class ListenerRegistry:
    """The open listeners of one client; delivers each notification to the right ones."""

    __slots__ = ("_by_id", "_listeners")

    def __init__(self) -> None:
        """Start empty."""
        self._listeners: set[ChangeStream] = set()
        self._by_id: dict[RequestId, ChangeStream] = {}

    def add(self, listener: ChangeStream, id: RequestId | None = None) -> None:
        """Register a listener, with the id of its request if it has one."""
        self._listeners.add(listener)
        if id is not None:
            self._by_id[id] = listener

    def remove(self, listener: ChangeStream) -> None:
        """Remove a listener."""
        self._listeners.discard(listener)
        self.forget_request(listener)

    def forget_request(self, listener: ChangeStream) -> None:
        """Forget the request of a listener, which is about to send another one."""
        for id in [id for id, known in self._by_id.items() if known is listener]:
            del self._by_id[id]

    def find(self, id: Any) -> ChangeStream | None:
        """Return the listener whose request has this id."""
        return self._by_id.get(id) if isinstance(id, int | str) else None

    def notify(self, change: Change) -> None:
        """Deliver a change to every listener that wants it."""
        for listener in self._listeners:
            if listener.wanted.covers(change):
                listener.notify(change)

    def lost(self) -> None:
        """Called when the connection is lost."""
        self._by_id.clear()
        for listener in list(self._listeners):
            listener.connection_lost()

    def end(self) -> None:
        """End all listeners: the client is closed."""
        for listener in list(self._listeners):
            listener.end()


class ChangeStream:
    """An async iterator over changes; ``async with`` opens it at once and closes it at the end."""

    def __init__(self, owner: ListenerOwner, wanted: ChangeFilter) -> None:
        """Create a listener that is not open yet."""
        self.wanted = wanted
        #: The changes that the server agreed to report; None in handshake revisions, where it does not say.
        self.acknowledged: t.SubscriptionFilter | None = None
        self._owner = owner
        self._pending: dict[Change, None] = {}
        self._news = asyncio.Event()
        self._acknowledgement: asyncio.Future[None] | None = None
        self._request: asyncio.Task[Any] | None = None
        self._session: ClientSession | None = None
        self._id: RequestId | None = None
        self._held: list[str] = []
        self._opened = False
        self._lost = False
        self._ended = False
        self._failure: Exception | None = None
        self._losses = 0

    # --- public ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> ChangeStream:
        """Open, and wait until the server has acknowledged."""
        try:
            await self._open()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the listener."""
        await self.aclose()

    def __aiter__(self) -> AsyncIterator[Change]:
        """Iterate; without ``async with``, the listener is open as long as the loop runs."""
        return self if self._opened else self._iterate()

    async def _iterate(self) -> AsyncIterator[Change]:
        async with self:
            async for change in self:
                yield change

    async def __anext__(self) -> Change:
        """Wait for the next change.

        Raises:
            StopAsyncIteration: the server ended the subscription, or the client or this listener was closed.
            TrunklineError: it cannot be opened again.
        """
        while True:
            if self._pending:
                change = next(iter(self._pending))
                del self._pending[change]
                return change
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._ended:
                raise StopAsyncIteration
            if self._lost:
                await self._reopen()
                continue
            self._news.clear()
            await self._news.wait()

    async def aclose(self) -> None:
        """Stop listening and notify the server. Any task may call this, any number of times."""
        self.end()
        self._owner.listeners.remove(self)
        await self._withdraw()
        held, self._held = self._held, []
        for uri in held:
            # Raised here, the refusal of a server would replace the cancellation that closes this listener.
            with contextlib.suppress(TrunklineError):
                await self._owner.drop_subscription(uri)

    # --- called by the registry --------------------------------------------------------------------------------------

    def notify(self, change: Change) -> None:
        """Queue a change; one that is queued already is not queued twice."""
        self._losses = 0
        if len(self._pending) >= self._owner.limits.notices and change not in self._pending:
            self._pending.clear()
            change = Change("missed")
        self._pending[change] = None
        self._news.set()

    def acknowledge(self, accepted: t.SubscriptionFilter) -> None:
        """Called when the server acknowledged the subscription, with what it will report."""
        self.acknowledged = accepted
        if self._acknowledgement is not None and not self._acknowledgement.done():
            self._acknowledgement.set_result(None)

    def connection_lost(self) -> None:
        """Called when the connection is lost."""
        self._lost = True
        self._news.set()

    def end(self) -> None:
        """End; queued changes can still be read."""
        self._ended = True
        self._news.set()

    def subscription_ended(self) -> None:
        """Called when the server ended the subscription; our request is dropped without a cancellation."""
        if self._session is not None and self._id is not None and self._session.connection.peer.waits(self._id):
            self._session.connection.peer.send_cancel(self._id, notify=False)
            if self._request is not None:
                self._request.cancel()
        self.end()

    # --- opening -----------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._opened = True
        session = await self._owner.get_session()
        self._session = session
        self._check(session)
        if Feature.LISTEN in session.revision.features:
            await self._subscribe(session)
            return
        self._owner.listeners.add(self)
        for uri in self.wanted.uris if not self._held else ():
            await self._owner.add_subscription(uri)
            self._held.append(uri)

    def _check(self, session: ClientSession) -> None:
        """Raise if none of the wanted changes can ever arrive."""
        needed = [f"{name}.listChanged" for name in sorted(self.wanted.lists)]
        needed += ["resources.subscribe"] if self.wanted.uris else []
        missing = [capability for capability in needed if not session.declared(capability)]
        if missing and (self.wanted.explicit or missing == needed):
            raise MissingCapability(
                f"The server did not declare {missing[0]}, so there is nothing to listen to.", capability=missing[0]
            )

    async def _subscribe(self, session: ClientSession) -> None:
        """Send the long request and wait for its acknowledgement."""
        offered = {name for name in self.wanted.lists if session.declared(f"{name}.listChanged")}
        wanted = t.SubscriptionFilter(
            tools_list_changed="tools" in offered or None,
            prompts_list_changed="prompts" in offered or None,
            resources_list_changed="resources" in offered or None,
            resource_subscriptions=list(self.wanted.uris) or None,
        )
        params = t.SubscriptionsListenRequestParams(notifications=wanted, meta=session.meta)
        connection = session.connection
        self._id = connection.peer.new_id()
        self._acknowledgement = asyncio.get_running_loop().create_future()
        self._owner.listeners.add(self, self._id)
        request = connection.request("subscriptions/listen", params, timeouts=FOREVER, id=self._id)
        self._request = asyncio.ensure_future(request)
        self._request.add_done_callback(self._answered)
        seconds = self._owner.limits.idle_seconds
        row = self._owner.clock.after(seconds, self._too_late)
        try:
            await self._acknowledgement
        except BaseException:
            await self._withdraw()
            raise
        finally:
            row.cancel()

    async def _withdraw(self) -> None:
        request, self._request = self._request, None
        if request is not None:
            request.cancel()
            await asyncio.wait([request])

    def _too_late(self) -> None:
        seconds = self._owner.limits.idle_seconds
        error = RequestTimeout(f"no acknowledgement after {seconds:g} s", clock="idle", seconds=seconds)
        if self._acknowledgement is not None and not self._acknowledgement.done():
            self._acknowledgement.set_exception(error)

    def _answered(self, request: asyncio.Task[Any]) -> None:
        """Called when the long request ended: with a result, an error, or its connection."""
        failure = None if request.cancelled() else request.exception()
        if request is not self._request or request.cancelled():
            return
        if self._acknowledgement is not None and not self._acknowledgement.done():
            error = failure or ConnectionLost("the server ended the subscription before it began")
            self._acknowledgement.set_exception(error)
        elif isinstance(failure, ConnectionLost):
            self.connection_lost()
        else:
            self._failure = failure if isinstance(failure, Exception) else None
            self.end()

    async def _reopen(self) -> None:
        """Reopen on a new connection, and queue ``missed``."""
        if self._losses:
            await sleep(self._owner.clock, min(_FIRST_WAIT * 2 ** (self._losses - 1), _LONGEST_WAIT))
        self._losses += 1
        self._lost = False
        self._request = None
        self._owner.listeners.forget_request(self)
        try:
            await self._open()
        except LinkError as error:
            if self._ended:
                return
            if not self._tries_again(error):
                raise
            self._lost = True
            return
        self._pending[Change("missed")] = None

    def _tries_again(self, error: LinkError) -> bool:
        """Return True if a remote server may only be away for a moment: it is not ours to restart."""
        separate = self._session is not None and self._session.link.independent_requests
        return separate and isinstance(error, ConnectionLost) and self._losses <= self._owner.limits.resumptions
