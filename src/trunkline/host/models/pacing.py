"""How long a model is waited for and how much of it is read: tries before the first word, silence, and size.

Knows no provider. A turn is tried again only while nothing of it was given to anybody.
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
    """The bounds of a turn."""

    #: How often a turn is tried as long as nothing came.
    tries: int = 4
    #: The wait before the second try, in seconds; each one after is twice as long.
    first_wait: float = 0.5
    #: A wait that the provider asks for is kept if it is not longer than this.
    longest_wait: float = 20.0
    #: Longest silence, the one before the first word included.
    idle_seconds: float = 300.0
    #: Longest wait for a connection.
    connect_seconds: float = 15.0
    #: Most bytes of one answer.
    answer_bytes: int = 16 * 1024 * 1024


async def patiently(
    attempt: Callable[[], AsyncGenerator[ModelEvent, None]], pace: Pace
) -> AsyncGenerator[ModelEvent, None]:
    """Make a turn; one that fails before its first event, in a way that passes, is made again after a wait.

    Raises:
        ModelError: the last try failed, or one after its first event.
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
        # Many who were refused together are not to come back together.
        await asyncio.sleep(wait * random.uniform(0.75, 1.25) if asked is None else asked)
        wait *= 2


class Meter:
    """Counts what a provider sends, and ends what does not end by itself."""

    # So an endless stream of empty events comes to an end as well.
    _LEAST = 64

    def __init__(self, provider: Provider, limit: int) -> None:
        """Start at nothing."""
        self._provider = provider
        self._limit = limit
        self._left = limit

    def count(self, size: int) -> None:
        """Take note of an event of so many bytes.

        Raises:
            ModelError: that is more than any answer has.
        """
        self._left -= max(size, self._LEAST)
        if self._left < 0:
            raise cut_off(self._provider, f"it was stopped, as it wrote more than {self._limit} bytes")
