"""Reads the files of a configuration as text: bounded, and with a sentence of its own for everything that can be wrong.

A file that was found and not named must be a plain one: whatever else lies under its name might never end.
"""

from __future__ import annotations

import os
import stat

from trunkline.errors import ConfigError

__all__ = ["MAX_BYTES", "Unreadable", "read_text"]

#: Largest file that is read.
MAX_BYTES = 1024 * 1024

_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class Unreadable(ConfigError):
    """A file cannot be read as text; it says why, and the fix."""

    def __init__(self, message: str, *, fix: str | None = None, line: int | None = None, absent: bool = False) -> None:
        """Keep the fix and the place beside the sentence."""
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.line = line
        self.absent = absent


def read_text(path: str, *, plain_only: bool) -> str:
    """Give the text of a file, without a byte order mark.

    Raises:
        Unreadable: it cannot be read; the sentence does not repeat the path.
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
    # A pipe without a writer must not stop whoever only looks what lies there.
    flags = os.O_RDONLY | (getattr(os, "O_NONBLOCK", 0) if plain_only else 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if plain_only and not stat.S_ISREG(mode):
                raise Unreadable("it is no plain file")
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise Unreadable("there is no such file", fix="is the name right?", absent=True) from error
    except IsADirectoryError as error:
        raise Unreadable("it is a folder", fix="name the file in it") from error
    except PermissionError as error:
        raise Unreadable("it may not be read by this user", fix="give yourself the right to read it") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "the name is no file name"
        raise Unreadable(f"it cannot be read: {reason}") from error
