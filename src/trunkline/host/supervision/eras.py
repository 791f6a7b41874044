"""The era of one server as known from earlier runs; cached in the same file as the server's catalog.

A server that needed the handshake is not probed again for a while. One that answered ``server/discover``, even too
late, gets as long to answer as a start may take: a slow start must not be mistaken for an older server.
"""

from __future__ import annotations

import asyncio
import logging
import time

from trunkline.client.client import Client
from trunkline.errors import RequestTimeout
from trunkline.host.catalog.keeping import KeptCatalogs
from trunkline.host.supervision.condition import Condition
from trunkline.protocol.revisions import NEWEST, Revision, find

__all__ = ["EraMemory", "shakes_hands"]

log = logging.getLogger("trunkline.host")


def shakes_hands(client: Client) -> bool:
    """Return True if a connected client agreed on a revision with a handshake."""
    return (find(client.revision or "") or NEWEST).handshake


class EraMemory:
    """The remembered era of one server."""

    def __init__(self, condition: Condition, cache: KeptCatalogs | None) -> None:
        """Start with a cache; without one nothing is remembered between runs."""
        self._condition = condition
        self._cache = cache
        self._met = False

    async def shook_hands(self) -> float | None:
        """Return when the server was last probed, if it needed the handshake; None after the first start of a run."""
        cache, entry, first = self._cache, self._condition.entry, not self._met
        self._met = True
        if not first or cache is None or entry.target is not None or entry.settings.era != "auto":
            return None
        return await asyncio.to_thread(cache.shook_hands, entry, time.time())

    async def expect(self, client: Client) -> None:
        """Let a client wait for its probe as long as a start may take, if the server is known to answer."""
        self._condition.discovers.clear()
        client._core.on_discovered = self._discovered
        cache, entry = self._cache, self._condition.entry
        if cache is None or entry.target is not None or entry.settings.era != "auto":
            return
        if await asyncio.to_thread(cache.discovers, entry):
            client._core.known = NEWEST

    def agreed(self, client: Client) -> None:
        """Note the era of a server that was just connected."""
        if not shakes_hands(client):
            self._condition.discovers.set()

    def _discovered(self, revision: Revision) -> None:
        log.info(
            "%s answered the era probe late with %s: its next start uses that",
            self._condition.entry.name,
            revision.name,
        )
        self._condition.discovers.set()

    async def doubted(self, client: Client, error: BaseException) -> BaseException:
        """Forget the era of a server whose start failed; return the failure, with a note about that."""
        client._core.forget_era()
        cache, entry = self._cache, self._condition.entry
        if cache is None or not isinstance(error, Exception):
            return error
        try:
            await asyncio.to_thread(cache.doubt, entry)
        except OSError as problem:
            log.warning("the remembered era of %s cannot be removed: %s", entry.name, problem)
        if not isinstance(error, RequestTimeout):
            return error
        said = f"{error}; the era was remembered from an earlier run, and the next start probes it again"
        return RequestTimeout(said, clock=error.clock, seconds=error.seconds)
