"""The limits of the filesystem server, and the budget of one call."""

from __future__ import annotations

import time

from msgspec import Struct

from trunkline.errors import ConfigError, ToolError

__all__ = ["Budget", "FileLimits", "OutOfTime", "shown_size"]

_UNITS = ("B", "KB", "MB", "GB", "TB")


class FileLimits(Struct, frozen=True, kw_only=True):
    """How much one call may read, write and visit; sizes in bytes, times in seconds."""

    #: Most bytes read from or written to a file.
    file_bytes: int = 10 * 1024 * 1024
    #: Most folder entries that a listing, tree or search visits.
    entries: int = 50_000
    #: Deepest folder level of a tree or search.
    depth: int = 64
    #: Time limit for a tree, a search, the edits of a file, or reading several files.
    seconds: float = 30.0
    #: Most files that are watched at once.
    watches: int = 1024
    #: Polling interval where the system does not report changes.
    poll_seconds: float = 1.0

    def __post_init__(self) -> None:
        """Check that every limit is positive."""
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} of the filesystem server is more than zero, not {getattr(self, name)}.")


class OutOfTime(ToolError):
    """A call has used up its time, or its caller is gone."""


class Budget:
    """The remaining entries and time of one call."""

    __slots__ = ("_deadline", "_left", "_limits", "_stopped")

    def __init__(self, limits: FileLimits) -> None:
        """Start with the full budget."""
        self._limits = limits
        self._left = limits.entries
        self._deadline = time.monotonic() + limits.seconds
        self._stopped = False

    @property
    def left(self) -> int:
        """The number of entries left."""
        return max(self._left, 0)

    def spend(self) -> None:
        """Count one entry.

        Raises:
            ToolError: no entries are left.
        """
        self._left -= 1
        if self._left < 0:
            raise ToolError(f"There are more than {self._limits.entries} entries")
        # Called for each of many thousands of entries: the condition is repeated here to save the call.
        if self._stopped or time.monotonic() > self._deadline:
            self.check_time()

    def check_time(self) -> None:
        """Check that there is time left.

        Raises:
            OutOfTime: there is none left.
        """
        if self._stopped or time.monotonic() > self._deadline:
            raise OutOfTime(f"It takes longer than {self._limits.seconds:g} seconds")

    def check_depth(self, depth: int) -> None:
        """Check that a folder may be entered.

        Raises:
            ToolError: it is too deep.
        """
        if depth > self._limits.depth:
            raise ToolError(f"There are folders more than {self._limits.depth} deep")

    def stop(self) -> None:
        """Make the work end at its next step; may be called from any thread."""
        self._stopped = True


def shown_size(size: int) -> str:
    """Format a number of bytes in the largest unit of which there is at least one."""
    unit = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size} B" if unit == 0 else f"{size / 1024**unit:.2f} {_UNITS[unit]}"
