"""Subscriptions through the gateway: which resources of which servers somebody in front wants to hear of.

What is wanted is read off those who listen, in both eras, whenever one comes or goes; so nothing is counted, and
nothing can leak. A server is listened to by one task, which is begun again when what is wanted there changes or the
server is lost; each change goes to the gateway's hub under the URI it has in front.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from trunkline.errors import TrunklineError
from trunkline.host.names import outer_uri
from trunkline.host.upstream import Upstream
from trunkline.server.dispatch import ServedConnection
from trunkline.server.subscriptions import Hub, Listener, Sink

__all__ = ["GatewayHub", "Watches"]

log = logging.getLogger("trunkline.host")
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0


class GatewayHub(Hub):
    """Brings changes to those in front, and says when one comes or goes."""

    __slots__ = ("_on_change", "_on_leave")

    def __init__(self, on_change: Callable[[], None], on_leave: Callable[[Sink], None]) -> None:
        """Say whom to tell."""
        super().__init__()
        self._on_change = on_change
        self._on_leave = on_leave

    def attach(self, sink: Sink) -> None:
        """Let somebody hear."""
        super().attach(sink)
        self._on_change()

    def detach(self, sink: Sink) -> None:
        """Let somebody go."""
        known = sink in self._sinks
        super().detach(sink)
        if known:
            self._on_leave(sink)
            self._on_change()

    def wanted(self) -> frozenset[str]:
        """Give the URIs that somebody wants to hear of."""
        found: set[str] = set()
        for sink in self._sinks:
            if isinstance(sink, Listener):
                found |= sink.uris
            elif isinstance(sink, ServedConnection) and sink.session is not None:
                found |= sink.session.subscriptions
        return frozenset(found)


class Watches:
    """The servers that are listened to."""

    def __init__(self, upstreams: Callable[[], Mapping[str, Upstream]], tell: Callable[[str], None]) -> None:
        """Take where servers are found, and whom to tell of a change, by the URI in front."""
        self._upstreams = upstreams
        self._tell = tell
        self._watched: dict[str, tuple[frozenset[str], asyncio.Task[None]]] = {}
        #: Set while a server is really listened to.
        self._heard: dict[str, asyncio.Event] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def follow(self, wanted: Iterable[tuple[str, str]]) -> None:
        """Listen to what is wanted from now on: pairs of a server and a URI of its own."""
        by_server: dict[str, set[str]] = {}
        for server, uri in wanted:
            by_server.setdefault(server, set()).add(uri)
        for server in [server for server in self._watched if server not in by_server]:
            self._watched.pop(server)[1].cancel()
            self._heard.pop(server, None)
        for server, wants in by_server.items():
            uris, before = self._watched.get(server, (frozenset(), None))
            if uris != wants:
                self._begin(server, frozenset(wants), before)

    def _begin(self, server: str, uris: frozenset[str], before: asyncio.Task[None] | None) -> None:
        """Listen to a server; what listened before goes on until the new one does, so that nothing falls between."""
        heard = self._heard[server] = asyncio.Event()
        if before is not None:
            self._leaving.add(before)
            before.add_done_callback(self._leaving.discard)
        task = asyncio.get_running_loop().create_task(self._watch(server, uris, heard, before))
        self._watched[server] = (uris, task)
        if before is not None:
            task.add_done_callback(lambda done: before.cancel())

    async def settled(self, servers: Iterable[str], seconds: float) -> None:
        """Wait until these servers are listened to, but not for long: one that cannot be keeps nobody waiting."""
        waits = [heard.wait() for server in set(servers) if (heard := self._heard.get(server)) is not None]
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*waits)
        except TimeoutError:
            log.debug("not listening to all of %s yet", servers)

    async def aclose(self) -> None:
        """Listen to nothing any more."""
        tasks = [*(task for _, task in self._watched.values()), *self._leaving]
        self._watched = {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _watch(
        self, server: str, uris: frozenset[str], heard: asyncio.Event, before: asyncio.Task[None] | None
    ) -> None:
        pause = _FIRST_PAUSE
        while (upstream := self._upstreams().get(server)) is not None:
            try:
                client = await upstream.reach()
                with upstream.using():
                    async with client.listen(uris=sorted(uris)) as changes:
                        heard.set()
                        if before is not None:
                            before.cancel()
                        async for change in changes:
                            pause = _FIRST_PAUSE
                            for uri in uris if change.uri is None else (change.uri,):
                                self._tell(outer_uri(server, uri))
            except TrunklineError as error:
                log.debug("not listening to %s: %s", server, error)
            heard.clear()
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
            # What was changed while nobody listened is not known: whoever wanted to hear looks again.
            for uri in uris:
                self._tell(outer_uri(server, uri))
