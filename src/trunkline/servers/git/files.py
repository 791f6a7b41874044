"""Bounded reads of small regular files that affect what git does. A read never blocks."""

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
        OSError: it does not exist, is not a regular file, or is longer.
    """
    # Opening a pipe would otherwise block until it has a writer.
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
    """Return the contents of files, None for one that cannot be read."""
    return {path: _content(path) for path in paths}


def _content(path: str) -> bytes | None:
    try:
        return read_plain(path, _MOST_BYTES)
    except (OSError, ValueError):
        return None
