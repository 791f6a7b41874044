"""The rate limit of an endpoint: how many requests each caller may send.

A caller is a principal, or the address of a client without one. Several workers count together in their store;
while it does not answer in time, each worker counts by itself, so that a limit never delays or stops a server. What a
worker has admitted itself is counted there in any case: a flood at one worker is refused without asking the store.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from trunkline.errors import StoreUnavailable
from trunkline.protocol.caller import owner_name
from trunkline.protocol.rate_limit import RateCounts, RateLimit
from trunkline.transports.http.server.asgi import TOO_MANY, HTTPException
from trunkline.transports.http.server.request import HttpRequest

if TYPE_CHECKING:
    from trunkline.store.interface import Store

__all__ = ["RequestLimiter"]

log = logging.getLogger("trunkline.http")

#: How long a request waits for the store to count it: a thousand times what Redis needs, so that a busy machine
#: does not lose the count. It is waited only by requests in flight when Redis stops answering, and by one a second.
_PATIENCE_SECONDS = 1.0
#: For how long after a failure each worker counts by itself, before one request tries the store again.
_PAUSE_SECONDS = 1.0


class RequestLimiter:
    """Counts the requests of each caller, and refuses those over the limit."""

    def __init__(
        self,
        limit: RateLimit,
        *,
        store: Store | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set the limit; with a store that the workers share it holds for all of them together."""
        self._limit = limit
        self._counts = RateCounts(limit)
        self._store = store
        self._now = now
        #: When the store may be asked again after a failure; None while it answers.
        self._retry_at: float | None = None

    async def admit(self, request: HttpRequest, cost: int = 1) -> None:
        """Count a request, or several in one body.

        Raises:
            HTTPException: the caller has sent too many.
        """
        most = self._limit.most_at_once
        if cost > most:
            raise HTTPException(TOO_MANY, f"A batch may have at most {most} requests here", code=TOO_MANY)
        key = owner_name(request.principal, request.client_address)
        wait = self._counts.wait(key, now=self._now(), cost=cost)
        if not wait and self._store is not None:
            shared = await self._shared_wait(self._store, key, cost)
            # Others may have been counted here meanwhile; if the store did not answer, that alone decides.
            wait = self._counts.wait(key, now=self._now(), cost=cost) if shared is None else shared
        if wait:
            seconds = max(1, math.ceil(wait))
            raise HTTPException(
                TOO_MANY,
                f"Too many requests; try again in {seconds} s",
                code=TOO_MANY,
                headers=((b"retry-after", b"%d" % seconds),),
            )
        self._counts.count(key, now=self._now(), cost=cost)

    async def _shared_wait(self, store: Store, key: str, cost: int) -> float | None:
        """Return how long a request must wait by the count of all workers; None if they cannot be asked now."""
        now = self._now()
        if self._retry_at is not None:
            if now < self._retry_at:
                return None
            # This request tries; those that arrive meanwhile are counted here.
            self._retry_at = now + _PAUSE_SECONDS
        limit = self._limit
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                wait = await store.admit(f"rate:{key}", rate=limit.per_second, burst=limit.most_at_once, cost=cost)
        except (StoreUnavailable, TimeoutError):
            if self._retry_at is None:
                log.warning("the rate limit is counted by each worker until the store can be reached")
            self._retry_at = self._now() + _PAUSE_SECONDS
            return None
        if self._retry_at is not None:
            log.warning("the rate limit is counted for all workers together again")
            self._retry_at = None
        return wait
