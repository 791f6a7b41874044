"""The git index: whether it names only files of its working tree.

Git does not validate names when it reads an index: it follows them, and shows, stages or removes what they lead to.
So the names are parsed here as git parses them. Runs no git; if the names are not all in this one file, the caller has
to ask git. Anything that git would not write is rejected.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

from trunkline.errors import ToolError
from trunkline_servers.git.location import read_regular_file

__all__ = ["Index", "check_index_names", "index_names", "read_index"]

#: Largest index, and most bytes of all names in it.
_MOST_BYTES = 128 * 1024 * 1024
_HEAD = 12
#: Bytes before the id in an entry: times, sizes, owners, mode.
_ABOUT = 40
_EXTENDED = 0x4000
#: The longest name whose length is stored; also the mask of the length bits.
_TOLD = 0xFFF
#: Extensions with which this file does not contain all names of the index.
_ELSEWHERE = frozenset({b"link", b"sdir"})
#: Parts of a name that are empty or lead up or into the git folder, between zero bytes.
_LEADS_OUT = (b"\0\0", b"\0.\0", b"\0..\0", b"\0.git\0")


class Index(NamedTuple):
    """The content of an index file."""

    path: str
    data: bytes
    #: Digest of the content.
    digest: bytes


class _InvalidIndexError(Exception):
    """The file is malformed."""


def read_index(git_dir: str) -> Index | None:
    """Read the index of a working tree; None if it has none.

    Raises:
        ToolError: it cannot be read.
    """
    path = os.path.join(git_dir, "index")
    try:
        data = read_regular_file(path, _MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ToolError(f"'{path}' cannot be read: {error.strerror}.") from error
    return Index(path, data, hashlib.blake2b(data, digest_size=32).digest())


def index_names(index: Index, id_bytes: int) -> bytes | None:
    """Return the names in an index, each followed by a zero byte; None if git has to list them.

    Raises:
        ToolError: the index is malformed.
    """
    data, known = index.data, len(index.data) - id_bytes
    version = int.from_bytes(data[4:8], "big")
    try:
        if data[:4] != b"DIRC" or version not in (2, 3, 4) or known < _HEAD:
            raise _InvalidIndexError
        names, end = (_names_v4 if version == 4 else _names_v2)(data, id_bytes + _ABOUT)
        if end > known:
            raise _InvalidIndexError
    except (_InvalidIndexError, IndexError):
        raise ToolError(f"'{index.path}' is not as git writes it: remove it and run git reset there.") from None
    return None if _has_external_names(data, end, known) else names


def check_index_names(index: Index, names: bytes) -> None:
    """Check that names stay in the working tree.

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


def _names_v2(data: bytes, flags_at: int) -> tuple[bytes, int]:
    """Parse entries of versions 2 and 3: complete names, padded to eight bytes."""
    names, at = [], _HEAD
    for _ in _count(data):
        where = at + flags_at
        flags = data[where] << 8 | data[where + 1]
        start = where + (4 if flags & _EXTENDED else 2)
        end = data.find(b"\0", start)
        told = flags & _TOLD
        # Git trusts the stored length, and reads on if no zero byte follows.
        if end < start or (end - start != told if told < _TOLD else end - start < _TOLD):
            raise _InvalidIndexError
        names.append(data[start : end + 1])
        at += (end - at + 8) & ~7
    return b"".join(names), at


def _names_v4(data: bytes, flags_at: int) -> tuple[bytes, int]:
    """Parse entries of version 4: how much of the previous name to drop, and what to append."""
    names, at, last, total = [], _HEAD, b"", 0
    for _ in _count(data):
        where = at + flags_at
        flags = data[where] << 8 | data[where + 1]
        dropped, start = _varint(data, where + (4 if flags & _EXTENDED else 2))
        end = data.find(b"\0", start)
        if end < start or dropped > len(last):
            raise _InvalidIndexError
        last = last[: len(last) - dropped] + data[start:end]
        told = flags & _TOLD
        total += len(last) + 1
        # Names that share prefixes could expand without bound.
        if total > _MOST_BYTES or (len(last) != told if told < _TOLD else len(last) < _TOLD):
            raise _InvalidIndexError
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
            raise _InvalidIndexError
    return value, at + 1


def _has_external_names(data: bytes, at: int, end: int) -> bool:
    """Return True if an extension after the entries adds or changes names."""
    while at <= end - 8:
        if data[at : at + 4] in _ELSEWHERE:
            return True
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")
    return False
