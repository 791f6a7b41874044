"""Bounded reads of files in untrusted folders: links, pipes and large files are rejected."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from trunkline.errors import ToolError

__all__ = ["read_file"]


def read_file(folder: Path, name: str, most: int) -> bytes | None:
    """Return the content of a file; None if it does not exist.

    Raises:
        ToolError: it cannot be read, is not a regular file, or has more than ``most`` bytes.
    """
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(folder / name, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ToolError(f"{name} in {folder} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ToolError(f"{name} in {folder} is not a file")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ToolError(f"{name} in {folder} is larger than {most} bytes, which is more than is read")
    return content
