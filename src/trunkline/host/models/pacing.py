"""The limits of a model's turn: retries before the first event, silence, and size.

Knows no provider. A turn is retried only while nothing of it has been delivered.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from msgspec import Struct

from trunkline.host.models.failures import Provider, cut_off
from trunkline.host.models.interface import ModelError, ModelEvent

__all__ = ["Meter", "Pace", "patiently"]


class Pace(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a turn."""

    #: The number of attempts as long as nothing arrived.
    tries: int = 4
    #: The delay before the second attempt, in seconds; it doubles with each further one.
    first_wait: float = 0.5
    #: A delay that the provider requests is respected if it is not longer than this.
    longest_wait: float = 20.0
    #: Timeout for silence, including that before the first event.
    idle_seconds: float = 300.0
    #: Timeout for connecting.
    connect_seconds: float = 15.0
    #: Maximum size of one answer in bytes.
    answer_bytes: int = 16 * 1024 * 1024


async def patiently(
    attempt: Callable[[], AsyncGenerator[ModelEvent, None]], pace: Pace
) -> AsyncGenerator[ModelEvent, None]:
    """Run a turn; if it fails transiently before its first event, retry it after a delay.

    Raises:
        ModelError: the last attempt failed, or one after its first event.
    """
    wait = pace.first_wait
    for left in range(pace.tries - 1, -1, -1):
        begun = False
        try:
            async with aclosing(attempt()) as events:
                async for event in events:
                    begun = True
                    yield event
            return
        except ModelError as error:
            asked = error.retry_after
            too_long = asked is not None and asked > pace.longest_wait
            if begun or not left or not error.passing or too_long:
                raise
        # Many clients that were rejected together should not come back together.
        await asyncio.sleep(wait * random.uniform(0.75, 1.25) if asked is None else asked)
        wait *= 2


class Meter:
    """Counts the bytes that a provider sends, and ends an endless answer."""

    # The minimum per event, so that an endless stream of empty events ends as well.
    _LEAST = 64

    def __init__(self, provider: Provider, limit: int) -> None:
        """Start at zero."""
        self._provider = provider
        self._limit = limit
        self._left = limit

    def count(self, size: int) -> None:
        """Count an event of this many bytes.

        Raises:
            ModelError: the limit is exceeded.
        """
        self._left -= max(size, self._LEAST)
        if self._left < 0:
            raise cut_off(self._provider, f"it was stopped after more than {self._limit} bytes")
