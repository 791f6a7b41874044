"""Reads the files of a configuration as text: bounded, and with a specific message for each failure.

A file that was found rather than named must be a regular file: a pipe or device under its name might never end.
"""

from __future__ import annotations

import os
import stat

from trunkline.errors import ConfigError

__all__ = ["MAX_BYTES", "Unreadable", "read_text"]

#: The largest file that is read.
MAX_BYTES = 1024 * 1024

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class Unreadable(ConfigError):
    """A file that cannot be read as text, with the reason and the fix."""

    def __init__(self, message: str, *, fix: str | None = None, line: int | None = None, absent: bool = False) -> None:
        """Store the fix and the line beside the message."""
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.line = line
        self.absent = absent


def read_text(path: str, *, plain_only: bool) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        UnreadableFile: it cannot be read; the message does not repeat the path.
    """
    data = _read(path, plain_only=plain_only)
    if len(data) > MAX_BYTES:
        raise Unreadable(f"the file is larger than {MAX_BYTES // 1024} KiB", fix="is it the right file?")
    if data.startswith(_UTF16):
        raise Unreadable("the file is encoded as UTF-16", fix="save it as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable("the file is not encoded as UTF-8", fix="save it as UTF-8", line=line) from error


def _read(path: str, *, plain_only: bool) -> bytes:
    # Opening a pipe without a writer must not block a search for configuration files.
    flags = os.O_RDONLY | (getattr(os, "O_NONBLOCK", 0) if plain_only else 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if plain_only and not stat.S_ISREG(mode):
                raise Unreadable("it is not a regular file")
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise Unreadable("there is no such file", fix="is the name right?", absent=True) from error
    except IsADirectoryError as error:
        raise Unreadable("it is a folder", fix="name the file in it") from error
    except PermissionError as error:
        raise Unreadable("it is not readable by this user", fix="grant yourself read access") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the name is no file name"
        raise Unreadable(f"it cannot be read: {reason}") from error
