"""Whether a repository's index names files of its working tree alone.

Git does not look at the names when it reads an index: it goes where they lead, and shows, stages or removes what is
there. So the names are read here as git reads them. It runs no git; what it cannot tell from the one file, it leaves to
whoever asks. Whatever is not as git writes it is refused.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

from trunkline.errors import ToolError
from trunkline.servers.git.files import read_plain

__all__ = ["Index", "check_names", "names_in", "read_index"]

#: How long an index may be, and all the names in it.
_MOST_BYTES = 128 * 1024 * 1024
_HEAD = 12
#: What stands before the id in an entry: times, sizes, owners, the mode.
_ABOUT = 40
_EXTENDED = 0x4000
#: The longest name whose length is told; also the bits that tell it.
_TOLD = 0xFFF
#: With one of these, what is in the index is not in this file alone, or not yet in it by name.
_ELSEWHERE = frozenset({b"link", b"sdir"})
#: The parts of a name that lead up, nowhere, or into the repository's own folder, between zero bytes.
_LEADS_OUT = (b"\0\0", b"\0.\0", b"\0..\0", b"\0.git\0")


class Index(NamedTuple):
    """An index as it was read."""

    path: str
    data: bytes
    #: Equal for two that hold the same.
    digest: bytes


class _OddError(Exception):
    """The file is not as git writes it."""


def read_index(git_dir: str) -> Index | None:
    """Read the index of a working tree, if it has one.

    Raises:
        ToolError: it cannot be read.
    """
    path = os.path.join(git_dir, "index")
    try:
        data = read_plain(path, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ToolError(f"'{path}' cannot be read: {error.strerror}.") from error
    return Index(path, data, hashlib.blake2b(data, digest_size=32).digest())


def names_in(index: Index, id_bytes: int) -> bytes | None:
    """Give the names in an index, each with a zero byte behind it; None if git has to be asked for them.

    Raises:
        ToolError: it is not as git writes it.
    """
    data, known = index.data, len(index.data) - id_bytes
    version = int.from_bytes(data[4:8], "big")
    try:
        if data[:4] != b"DIRC" or version not in (2, 3, 4) or known < _HEAD:
            raise _OddError
        names, end = (_short if version == 4 else _padded)(data, id_bytes + _ABOUT)
        if end > known:
            raise _OddError
    except (_OddError, IndexError):
        raise ToolError(f"'{index.path}' is not as git writes it: remove it and run git reset there.") from None
    return None if _elsewhere(data, end, known) else names


def check_names(index: Index, names: bytes) -> None:
    """Make sure that names stay in the working tree.

    Raises:
        ToolError: one leads out of it.
    """
    parts = (b"\0" + names).lower().replace(b"/", b"\0")
    if any(each in parts for each in _LEADS_OUT):
        raise ToolError(
            f"'{index.path}' names files that are not in the working tree, so git is not run on it: "
            "remove it and run git reset there."
        )


def _count(data: bytes) -> range:
    return range(int.from_bytes(data[8:12], "big"))


def _padded(data: bytes, flags_at: int) -> tuple[bytes, int]:
    """Read the entries of the second and third version: whole names, filled up to eight bytes."""
    names, at = [], _HEAD
    for _ in _count(data):
        where = at + flags_at
        flags = data[where] << 8 | data[where + 1]
        start = where + (4 if flags & _EXTENDED else 2)
        end = data.find(b"\0", start)
        told = flags & _TOLD
        # Git takes as many bytes as are told, and goes on reading where no zero byte follows.
        if end < start or (end - start != told if told < _TOLD else end - start < _TOLD):
            raise _OddError
        names.append(data[start : end + 1])
        at += (end - at + 8) & ~7
    return b"".join(names), at


def _short(data: bytes, flags_at: int) -> tuple[bytes, int]:
    """Read the entries of the fourth version: how much of the last name is left out, and what comes instead."""
    names, at, last, total = [], _HEAD, b"", 0
    for _ in _count(data):
        where = at + flags_at
        flags = data[where] << 8 | data[where + 1]
        dropped, start = _varint(data, where + (4 if flags & _EXTENDED else 2))
        end = data.find(b"\0", start)
        if end < start or dropped > len(last):
            raise _OddError
        last = last[: len(last) - dropped] + data[start:end]
        told = flags & _TOLD
        total += len(last) + 1
        # A few bytes more each time would make names without end.
        if total > _MOST_BYTES or (len(last) != told if told < _TOLD else len(last) < _TOLD):
            raise _OddError
        names.append(last)
        at = end + 1
    return b"".join(each + b"\0" for each in names), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value = byte & 127
    while byte & 128:
        at += 1
        byte = data[at]
        value = (value + 1 << 7) + (byte & 127)
        if value > _MOST_BYTES:
            raise _OddError
    return value, at + 1


def _elsewhere(data: bytes, at: int, end: int) -> bool:
    """Tell whether an extension, of those behind the entries, makes more or other names."""
    while at <= end - 8:
        if data[at : at + 4] in _ELSEWHERE:
            return True
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")
    return False
