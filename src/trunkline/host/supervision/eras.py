"""What one server is known to speak from earlier runs, read from and doubted in the file that keeps its catalog.

A server that shook hands is not asked again for a while. One that answered ``server/discover``, if only after the wait
for it was over, has as long to answer as a start may take: a slow start is not taken for an older server.
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
    """The memory of one server."""

    def __init__(self, condition: Condition, cache: KeptCatalogs | None) -> None:
        """Use a cache, or remember nothing between runs."""
        self._condition = condition
        self._cache = cache
        self._met = False

    async def shook_hands(self) -> float | None:
        """Return when the server was last asked, if it shook hands then; None after the first start of this run."""
        cache, entry, first = self._cache, self._condition.entry, not self._met
        self._met = True
        if not first or cache is None or entry.target is not None or entry.settings.era != "auto":
            return None
        return await asyncio.to_thread(cache.shook_hands, entry, time.time())

    async def expect(self, client: Client) -> None:
        """Have a client wait for the answer to its probe for as long as a start may take, if it is known to come."""
        self._condition.discovers.clear()
        client._core.on_discovered = self._discovered
        cache, entry = self._cache, self._condition.entry
        if cache is None or entry.target is not None or entry.settings.era != "auto":
            return
        if await asyncio.to_thread(cache.discovers, entry):
            client._core.known = NEWEST

    def agreed(self, client: Client) -> None:
        """Note what a server speaks that was just connected."""
        if not shakes_hands(client):
            self._condition.discovers.set()

    def _discovered(self, revision: Revision) -> None:
        log.info(
            "%s answered late that it speaks %s: its next start uses that", self._condition.entry.name, revision.name
        )
        self._condition.discovers.set()

    async def doubted(self, client: Client, error: BaseException) -> BaseException:
        """Forget what the server speaks after a start that failed; return the failure with that said."""
        client._core.forget_era()
        cache, entry = self._cache, self._condition.entry
        if cache is None or not isinstance(error, Exception):
            return error
        try:
            await asyncio.to_thread(cache.doubt, entry)
        except OSError as problem:
            log.warning("what %s speaks is not forgotten: %s", entry.name, problem)
        if not isinstance(error, RequestTimeout):
            return error
        said = f"{error}; it was known from an earlier run, and at its next start it is asked anew what it speaks"
        return RequestTimeout(said, clock=error.clock, seconds=error.seconds)
