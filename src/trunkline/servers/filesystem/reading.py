"""Reading files, their first and last lines, folder listings and file metadata. Every read is bounded."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from msgspec import Struct

from trunkline.errors import ToolError
from trunkline.servers.filesystem.kernel import birth_seconds
from trunkline.servers.filesystem.limits import FileLimits, shown_size
from trunkline.servers.filesystem.walking import Denied, Ground, Place, visible

__all__ = [
    "Entry",
    "describe",
    "entries_of",
    "head_lines",
    "listing",
    "opened",
    "read_bytes",
    "sizes",
    "tail_lines",
    "text_of",
]

_BLOCK = 64 * 1024
#: The collation order of characters other than letters.
_SIGNS = "_-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789"


class Entry(Struct, frozen=True):
    """One entry of a folder; a link is not a folder, whatever it points to."""

    name: str
    is_folder: bool
    is_link: bool


@contextmanager
def opened(place: Place) -> Iterator[int]:
    """Open a regular file for reading."""
    descriptor = place.open_file()
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def read_bytes(place: Place, most: int) -> bytes:
    """Read a whole file.

    Raises:
        ToolError: it is larger than allowed.
    """
    descriptor, said = place.open_sized()
    try:
        _check_size(said, most)
        blocks, size = [], 0
        # One byte more than expected: if it is missing, the file has ended.
        while block := os.read(descriptor, said - size + 1 if size < said else _BLOCK):
            size += len(block)
            # The reported size may be outdated, or meaningless.
            _check_size(size, most)
            blocks.append(block)
            if size == said:
                break
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)
    finally:
        os.close(descriptor)


def text_of(data: bytes) -> str:
    """Decode bytes as UTF-8; invalid bytes become U+FFFD."""
    return data.decode("utf-8", "replace")


def head_lines(place: Place, count: int, *, most: int) -> str:
    """Return the first lines of a file, reading no more than needed."""
    data, seen = bytearray(), 0
    with opened(place) as descriptor:
        while seen < count and (block := os.read(descriptor, _BLOCK)):
            seen += block.count(b"\n")
            data += block
            _check_lines(len(data), most)
    lines = bytes(data).split(b"\n")
    if not lines[-1]:
        lines.pop()
    return text_of(b"\n".join(lines[:count]))


def tail_lines(place: Place, count: int, *, most: int) -> str:
    """Return the last lines of a file, with plain newlines, reading no more than needed."""
    blocks: list[bytes] = []
    with opened(place) as descriptor:
        start, seen, size = os.fstat(descriptor).st_size, 0, 0
        # One more newline than lines: the last line ends with one.
        while start > 0 and seen <= count:
            length = min(_BLOCK, start)
            start -= length
            block = os.pread(descriptor, length, start)
            seen, size = seen + block.count(b"\n"), size + len(block)
            blocks.append(block)
            _check_lines(size, most)
    text = b"".join(reversed(blocks)).replace(b"\r\n", b"\n")
    return text_of(b"\n".join(text.removesuffix(b"\n").split(b"\n")[-count:]))


def entries_of(directory: int, most: int) -> tuple[list[Entry], bool]:
    """Return the entries of an open folder by name, and whether there are more."""
    found: list[Entry] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(found) >= most:
                return _sorted(found), True
            found.append(Entry(entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink()))
    return _sorted(found), False


def listing(place: Place, limits: FileLimits) -> str:
    """List a folder, one entry per line."""
    with _folder(place) as directory:
        found, more = entries_of(directory, limits.entries)
    return "\n".join([f"{_mark(each)} {visible(each.name)}" for each in found] + _and_more(more, limits))


def sizes(ground: Ground, place: Place, *, by_size: bool, limits: FileLimits) -> str:
    """List a folder with sizes and totals."""
    with _folder(place) as directory:
        found, more = entries_of(directory, limits.entries)
        sized = [(each, _size(ground, place, each, directory)) for each in found]
    sized.sort(key=(lambda each: -each[1]) if by_size else (lambda each: _as_read(each[0].name)))
    files = [size for each, size in sized if not each.is_folder]
    rows = [
        f"{_mark(each)} {visible(each.name).ljust(30)} {'' if each.is_folder else shown_size(size).rjust(10)}"
        for each, size in sized
    ]
    total = f"Total: {len(files)} files, {len(sized) - len(files)} directories"
    return "\n".join([*rows, *_and_more(more, limits), "", total, f"Combined size: {shown_size(sum(files))}"])


def describe(place: Place) -> str:
    """Return the metadata of an entry, one fact per line."""
    flags = getattr(os, "O_PATH", os.O_RDONLY)
    descriptor = place.open(flags)
    try:
        found, born = os.fstat(descriptor), birth_seconds(descriptor)
    finally:
        os.close(descriptor)
    facts = {
        "size": str(found.st_size),
        "created": _shown_time(found.st_ctime if born is None else born),
        "modified": _shown_time(found.st_mtime),
        "accessed": _shown_time(found.st_atime),
        "isDirectory": str(stat.S_ISDIR(found.st_mode)).lower(),
        "isFile": str(stat.S_ISREG(found.st_mode)).lower(),
        "permissions": f"{found.st_mode:o}"[-3:],
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items())


@contextmanager
def _folder(place: Place) -> Iterator[int]:
    directory = place.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield directory
    finally:
        os.close(directory)


def _size(ground: Ground, place: Place, entry: Entry, directory: int) -> int:
    """Return the size of an entry; for a link, that of its target if the target is allowed."""
    try:
        if entry.is_link:
            found = ground.use(os.path.join(place.path, entry.name), lambda target: target.status())
        else:
            found = os.stat(entry.name, dir_fd=directory, follow_symlinks=False)
    except (Denied, OSError):
        return 0
    return 0 if found is None else found.st_size


def _mark(entry: Entry) -> str:
    return "[DIR]" if entry.is_folder else "[FILE]"


def _and_more(more: bool, limits: FileLimits) -> list[str]:
    return [f"(There are more than {limits.entries} entries; these are only some of them.)"] if more else []


def _sorted(entries: list[Entry]) -> list[Entry]:
    """Sort entries by the bytes of their names; for ASCII names that is the order of the characters."""
    plain = all([entry.name.isascii() for entry in entries])  # noqa: C419
    return sorted(entries, key=_name if plain else _bytes)


def _name(entry: Entry) -> str:
    return entry.name


def _bytes(entry: Entry) -> bytes:
    return os.fsencode(entry.name)


def _as_read(name: str) -> tuple[Sequence[int], str]:
    """Return a sort key for human readers: punctuation, digits, letters, lower case before upper case."""
    place: Callable[[str], int] = _SIGNS.find
    folded = [place(each) if place(each) >= 0 else len(_SIGNS) + ord(each) for each in name.casefold()]
    return folded, name.swapcase()


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise ToolError(
            f"The file is larger than {shown_size(most)}, the most that is read at once: read its first or last lines "
            "with head or tail, or start the server with a larger --max-file-bytes."
        )


def _check_lines(size: int, most: int) -> None:
    # Up to one block is read beyond the limit.
    if size > most + _BLOCK:
        raise ToolError(
            f"These lines are longer than {shown_size(most)}, the most that is read at once: ask for fewer."
        )


def _shown_time(seconds: float) -> str:
    try:
        moment = datetime.fromtimestamp(seconds).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} s since 1970"
    zone = moment.tzname()
    return f"{moment:%a %b %d %Y %H:%M:%S GMT%z} ({'Coordinated Universal Time' if zone == 'UTC' else zone})"
