"""Posts a client's answers to requests of the server, again while the server cannot accept them.

An answer is often the work of a person, and a call waits for it: it must outlast a short outage of the server or what
is behind it. A server that receives an answer twice ignores the second one, since its request is no longer pending.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import aiohttp

from trunkline.errors import ConnectionLost, HttpError
from trunkline.transports.http.client.errors import NETWORK_ERRORS

__all__ = ["AnswerRefused", "post_answer"]

log = logging.getLogger("trunkline.transports")

# An outage that lasts longer is no restart any more; the request also has timeouts of its own.
_RETRY_SECONDS = 60.0
# A server that asks for more is tried earlier: the call waits, and one small request does no harm.
_LONGEST_DELAY = 10.0
# A server that says 0 is not flooded.
_SHORTEST_DELAY = 0.1
# Without a connection there is no Retry-After; what the servers of this package send is used.
_USUAL_DELAY = 1.0
# Too many requests; not available now.
_TEMPORARY = frozenset({429, 503})
# The session, or the request in it, is unknown; gone.
_GONE = frozenset({404, 410})


class AnswerRefused(Exception):
    """The server no longer waits for an answer, and no earlier attempt can have delivered it."""

    def __init__(self, error: HttpError) -> None:
        """Store the response."""
        super().__init__(str(error))
        self.error = error


async def post_answer(post: Callable[[], Awaitable[None]], ended: Collection[asyncio.Future[Any]]) -> None:
    """Post an answer, again for a bounded time while the server cannot be reached or asks to retry later.

    It is given up quietly when one of ``ended`` is done: then nothing waits for the answer any more.

    Raises:
        AnswerRefused: the server no longer waits for it.
        TrunklineError, NETWORK_ERRORS: it was not accepted.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + _RETRY_SECONDS
    perhaps_delivered = False
    while True:
        failure: Exception
        try:
            return await post()
        except HttpError as error:
            if error.status in _GONE and not perhaps_delivered:
                raise AnswerRefused(error) from error
            if error.status not in _TEMPORARY or error.retry_after is None:
                raise
            failure, delay = error, _delay(error.retry_after)
        except (ConnectionLost, *NETWORK_ERRORS) as error:
            failure, delay = error, _USUAL_DELAY
            # Only what never had a connection was surely not delivered.
            perhaps_delivered = perhaps_delivered or not isinstance(error.__cause__, aiohttp.ClientConnectorError)
        if clock() + delay > until:
            raise failure
        log.debug("an answer is sent again in %g s: %s", delay, failure)
        if ended:
            done, _ = await asyncio.wait(ended, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return None
        else:
            await asyncio.sleep(delay)


def _delay(retry_after: str) -> float:
    """Return how long to wait; a date is not computed with, since the clocks may differ."""
    text = retry_after.strip()
    if not (text.isascii() and text.isdecimal()):
        return _USUAL_DELAY
    return min(max(float(text), _SHORTEST_DELAY), _LONGEST_DELAY)
