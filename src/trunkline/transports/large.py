"""The memory of a process that is there for one link, while large messages pass through it.

By default the C library maps each large buffer, faults it in page by page and unmaps it again, message after message:
half of the processor time of a message of a megabyte. So when the first one comes it is told to keep what is freed, and
when none has come for a while, to give everything back.
"""

from __future__ import annotations

import asyncio
from functools import cache

__all__ = ["LargeMessages", "give_back", "keep_freed_memory"]

# glibc's malloc.h: how much freed memory is kept, and how many buffers may be mapped on their own.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4
_KEPT = 256 * 1024 * 1024
_QUIET_SECONDS = 5.0


class LargeMessages:
    """Keeps freed memory while large messages come."""

    __slots__ = ("_came", "_looking")

    def __init__(self) -> None:
        """Wait for the first."""
        self._came = False
        self._looking = False

    def came(self, loop: asyncio.AbstractEventLoop) -> None:
        """Learn that a part of a large message came or went."""
        self._came = True
        if not self._looking and keep_freed_memory():
            self._looking = True
            loop.call_later(_QUIET_SECONDS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._came:
            self._came = False
            loop.call_later(_QUIET_SECONDS, self._look, loop)
            return
        self._looking = False
        give_back()


@cache
def keep_freed_memory() -> bool:
    """Have the C library keep freed memory instead of giving it back; tell whether it does."""
    import ctypes

    try:
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, _KEPT))
    except (OSError, AttributeError):
        # Another C library than glibc; it has its own ways.
        return False


def give_back() -> None:
    """Have the C library give back all that is free."""
    import ctypes

    ctypes.CDLL(None).malloc_trim(0)
