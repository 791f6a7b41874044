"""Reads small plain files whole, those that decide what git does. It never waits, and never reads without end."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable

__all__ = ["contents", "read_plain"]

_MOST_BYTES = 1024 * 1024


def read_plain(path: str, most: int) -> bytes:
    """Read a file of at most ``most`` bytes.

    Raises:
        OSError: it is not there, not a plain file, or longer.
    """
    # Opening a pipe would otherwise wait for somebody to write to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", path)
        parts, left = [], most + 1
        while left and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    if not left:
        raise OSError(errno.EFBIG, f"it is longer than {most} bytes", path)
    return b"".join(parts)


def contents(paths: Iterable[str]) -> dict[str, bytes | None]:
    """Give what is in files, None for one that cannot be read."""
    return {path: _content(path) for path in paths}


def _content(path: str) -> bytes | None:
    try:
        return read_plain(path, _MOST_BYTES)
    except (OSError, ValueError):
        return None
