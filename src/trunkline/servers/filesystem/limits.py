"""The caps of the filesystem server in one record, and the budget that one call spends."""

from __future__ import annotations

import time

from msgspec import Struct

from trunkline.errors import ConfigError, ToolError

__all__ = ["Budget", "FileLimits", "OutOfTime", "shown_size"]

_UNITS = ("B", "KB", "MB", "GB", "TB")


class FileLimits(Struct, frozen=True, kw_only=True):
    """What one call may read, write and look at; sizes in bytes, times in seconds."""

    #: Most bytes read from a file, or written to one.
    file_bytes: int = 10 * 1024 * 1024
    #: Most entries of folders that a listing, a tree or a search looks at.
    entries: int = 50_000
    #: How many folders deep a tree or a search goes.
    depth: int = 64
    #: Longest time of a tree, a search, the edits of a file, or reading several.
    seconds: float = 30.0
    #: Most files whose changes are watched at once.
    watches: int = 1024
    #: How often files are looked at where the system does not tell of changes.
    poll_seconds: float = 1.0

    def __post_init__(self) -> None:
        """See that each leaves something to do."""
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} of the filesystem server is more than zero, not {getattr(self, name)}.")


class OutOfTime(ToolError):
    """A call has taken all of its time, or nobody waits for it any more."""


class Budget:
    """What is left of the entries and the time of one call."""

    __slots__ = ("_deadline", "_left", "_limits", "_stopped")

    def __init__(self, limits: FileLimits) -> None:
        """Start with all of it."""
        self._limits = limits
        self._left = limits.entries
        self._deadline = time.monotonic() + limits.seconds
        self._stopped = False

    @property
    def left(self) -> int:
        """How many entries are left."""
        return max(self._left, 0)

    def spend(self) -> None:
        """Take one entry.

        Raises:
            ToolError: nothing is left.
        """
        self._left -= 1
        if self._left < 0:
            raise ToolError(f"There are more than {self._limits.entries} entries")
        # This is said for each of many thousands: the question comes before the call that answers it.
        if self._stopped or time.monotonic() > self._deadline:
            self.check_time()

    def check_time(self) -> None:
        """See whether there is time left.

        Raises:
            OutOfTime: there is none.
        """
        if self._stopped or time.monotonic() > self._deadline:
            raise OutOfTime(f"It takes longer than {self._limits.seconds:g} seconds")

    def check_depth(self, depth: int) -> None:
        """See whether a folder may be entered.

        Raises:
            ToolError: it is too deep.
        """
        if depth > self._limits.depth:
            raise ToolError(f"There are folders more than {self._limits.depth} deep")

    def stop(self) -> None:
        """Let the work end at its next step; any thread may say so."""
        self._stopped = True


def shown_size(size: int) -> str:
    """Show a number of bytes in the largest unit that leaves a whole part."""
    unit = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size} B" if unit == 0 else f"{size / 1024**unit:.2f} {_UNITS[unit]}"
