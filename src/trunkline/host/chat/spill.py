"""Outputs that are too large for a conversation: each in a private file, to be paged and searched.

The files of a conversation are in a separate folder that only their owner can read. They are bounded in size and
number, the oldest make room for new ones, and all of them expire. A model names an output by its id, which is looked up
in a table and is never part of a path. Everything here blocks on the disk; callers use a thread.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from trunkline.host.state_files import private_folder

__all__ = ["MOST_BYTES", "MOST_OUTPUTS", "MOST_TOTAL_BYTES", "Output", "Spill", "SpillError", "sweep"]

#: Limits: bytes of one output, bytes and number of outputs of one conversation.
MOST_BYTES = 16 * 1024 * 1024
MOST_TOTAL_BYTES = 128 * 1024 * 1024  # Eight outputs of the largest size, in one conversation.
MOST_OUTPUTS = 256  # More than the calls of a long conversation whose results were too large.
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_NAME = re.compile(r"[0-9a-f]{8,64}")
_FILE = re.compile(r"out-([0-9]{1,9})\.[a-z0-9]{1,8}")
_SWEEP_SECONDS = 600.0  # Old outputs are removed while a long conversation goes on.
_MOST_MATCHES = 50  # More matches do not help a model; it narrows the pattern instead.
_AROUND = 120  # Characters on each side of a match: enough to tell matches apart.
_LONGEST_PATTERN = 1000  # Patterns have tens of characters; the linear-time engine compiles longer ones slowly.
_CUT = "\n[truncated here: the output was larger than the limit]"


class SpillError(ValueError):
    """An output cannot be read or searched; the message says why, for a model."""


class Output(Struct, frozen=True):
    """One spilled output."""

    id: str
    path: str
    bytes: int
    #: Whether it is text, and can be paged and searched.
    text: bool


class Spill:
    """The outputs of one conversation."""

    def __init__(
        self, folder: Path, name: str, *, seconds: float = 24 * 3600.0, clock: Callable[[], float] = time.time
    ) -> None:
        """Use the folder of all conversations and this one's name; nothing is written yet.

        Existing outputs under this name are found again.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"not the name of a conversation: {name!r}")
        self.name = name
        self._all = folder
        self._folder = folder / name
        self._seconds = seconds
        self._clock = clock
        self._swept_at = float("-inf")
        # Several calls may end at once, each in its own thread.
        self._writing = threading.Lock()
        self._outputs: dict[str, Output] = {each.id: each for each in _found(self._folder)}
        self._count = max((int(each.id.removeprefix("out-")) for each in self._outputs.values()), default=0)

    def __len__(self) -> int:
        """Return the number of outputs."""
        return len(self._outputs)

    def keep(self, content: str | bytes, *, suffix: str = "txt") -> Output:
        """Write an output to a file; one beyond the limit is truncated, and the file says so.

        Raises:
            OSError: it cannot be written.
        """
        text = isinstance(content, str)
        data = content.encode("utf-8", "replace") if isinstance(content, str) else content
        if len(data) > MOST_BYTES:
            data = data[: MOST_BYTES - len(_CUT)] + (_CUT.encode() if text else b"")
        with self._writing:
            return self._write(data, text=text, suffix=suffix)

    def _write(self, data: bytes, *, text: bool, suffix: str) -> Output:
        now = self._clock()
        if now - self._swept_at > _SWEEP_SECONDS:
            self._swept_at = now
            sweep(private_folder(self._all), older_than=now - self._seconds)
        self._make_room(len(data))
        self._count += 1
        name = f"out-{self._count}"
        path = self._folder / f"{name}.{suffix if re.fullmatch('[a-z0-9]{1,8}', suffix) else 'bin'}"
        private_folder(self._folder)
        with open(os.open(path, _FLAGS, 0o600), "wb") as file:
            try:
                file.write(data)
                file.flush()
            except OSError:
                # A partial output would be mistaken for the whole.
                os.unlink(path)
                raise
        output = self._outputs[name] = Output(name, str(path), len(data), text)
        return output

    def clear(self) -> None:
        """Delete all outputs."""
        for name in tuple(self._outputs):
            self._drop(name)
        with suppress(OSError):
            self._folder.rmdir()

    def read(self, name: str, *, offset: int = 0, limit: int = 8000) -> str:
        """Return a part of an output, in characters, with a line that says which part it is.

        Raises:
            SpillError: there is no such output, or it is not text.
        """
        text = self._text(name)
        offset = max(0, offset)
        part = text[offset : offset + max(1, limit)]
        end = offset + len(part)
        if not part:
            raise SpillError(f"{name} has {len(text)} characters; there is nothing at offset {offset}.")
        more = f"continue with offset {end}" if end < len(text) else "the end"
        return f"[{name}, characters {offset} to {end} of {len(text)}; {more}]\n{part}"

    def search(self, name: str, pattern: str) -> str:
        """Return the matches of a pattern in an output, each with some context.

        The pattern is RE2, which matches in linear time; without that engine it is searched for literally.

        Raises:
            SpillError: there is no such output, it is not text, or the pattern is invalid.
        """
        if not pattern or len(pattern) > _LONGEST_PATTERN:
            raise SpillError(f"A pattern must have 1 to {_LONGEST_PATTERN} characters.")
        text = self._text(name)
        spans, linear = _spans(text, pattern)
        found = list(islice(spans, _MOST_MATCHES + 1))
        how = "" if linear else " (searched literally: no regular expression engine is installed)"
        if not found:
            return f"[{name}: nothing matches{how}]"
        more = f"the first {_MOST_MATCHES} of more" if len(found) > _MOST_MATCHES else str(len(found))
        lines = [f"[{name}: {more} matches{how}; each with its offset for read_output]"]
        lines += [f"{start}: {_around(text, start, end)}" for start, end in found[:_MOST_MATCHES]]
        return "\n".join(lines)

    def _text(self, name: str) -> str:
        output = self._outputs.get(name)
        if output is None:
            known = ", ".join(islice(reversed(self._outputs), 5))
            raise SpillError(f"There is no output {name[:40]!r}" + (f"; the latest are {known}." if known else "."))
        if not output.text:
            raise SpillError(f"{name} is not text.")
        try:
            return Path(output.path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            self._outputs.pop(name, None)
            raise SpillError(f"{name} has expired; call the tool again if you need its output.") from None

    def _make_room(self, size: int) -> None:
        """Delete the oldest outputs until there is room for one more."""
        while self._outputs and (
            len(self._outputs) >= MOST_OUTPUTS
            or sum(each.bytes for each in self._outputs.values()) + size > MOST_TOTAL_BYTES
        ):
            self._drop(next(iter(self._outputs)))

    def _drop(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(self._outputs.pop(name).path)


def sweep(folder: Path, *, older_than: float) -> int:
    """Delete outputs of all conversations that are older than a moment; return how many.

    Only files with names of outputs are touched, and links are not followed.
    """
    count = 0
    for entry in _listed(folder):
        if not _NAME.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
            continue
        for each in _listed(Path(entry.path)):
            with suppress(OSError):
                if _FILE.fullmatch(each.name) and each.stat(follow_symlinks=False).st_mtime < older_than:
                    os.unlink(each.path)
                    count += 1
        with suppress(OSError):
            # A conversation that still writes creates its folder again.
            os.rmdir(entry.path)
    return count


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _found(folder: Path) -> Iterable[Output]:
    numbered = []
    for entry in _listed(folder):
        match = _FILE.fullmatch(entry.name)
        if match and entry.is_file(follow_symlinks=False):
            size = entry.stat(follow_symlinks=False).st_size
            output = Output(f"out-{match[1]}", entry.path, size, entry.name.endswith(".txt"))
            numbered.append((int(match[1]), output))
    return [output for _, output in sorted(numbered, key=lambda each: each[0])]


def _spans(text: str, pattern: str) -> tuple[Iterator[tuple[int, int]], bool]:
    """Return the matches of a pattern, and whether it was used as a regular expression."""
    from importlib import import_module

    try:
        re2: Any = import_module("re2")
    except ImportError:
        return _plain_spans(text, pattern), False
    options = re2.Options()
    options.log_errors, options.never_capture = False, True
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0]
        shown = why.decode(errors="replace") if isinstance(why, bytes) else str(why)
        raise SpillError(f"Not a valid RE2 pattern: {shown}") from None
    return (match.span() for match in compiled.finditer(text)), True


def _plain_spans(text: str, words: str) -> Iterator[tuple[int, int]]:
    start = text.find(words)
    while start >= 0:
        yield start, start + len(words)
        start = text.find(words, start + len(words))


def _around(text: str, start: int, end: int) -> str:
    """Return a match with some of its line."""
    left = max(text.rfind("\n", 0, start) + 1, start - _AROUND)
    line_end = text.find("\n", start)
    right = min(len(text) if line_end < 0 else line_end, max(end, start) + _AROUND, start + 4 * _AROUND)
    return text[left:right]
