"""Reads audit trails: proves that one is whole, and finds entries in it.

It writes nothing and needs no running host; a host may go on writing meanwhile. A trail is the file, those it filled
before, and the note beside it of how far it had reached.

What ``verify`` finds: any change of a byte, any entry that was taken out, put in or moved, an end that was cut off
before the last note, and that the note itself is missing. What it cannot find by itself: entries cut off after that
note, and a trail that somebody who may write all these files wrote anew from some entry on, note included. An
``anchor``, the hash of an entry kept elsewhere, finds that too, for all up to that entry.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.audit.trail import GENESIS, Head, read_head, read_line, rotated_files
from trunkline.host.state_files import Busy, PathLock

__all__ = ["Verification", "Wanted", "query", "verify"]


class Verification(Struct, frozen=True, kw_only=True):
    """Whether a trail is whole, and if not, where it ceases to be."""

    ok: bool
    #: How many entries were read before the first fault.
    entries: int
    #: The file and the line of the first fault; a fault that stands in no line has none.
    file: str | None = None
    first_bad_line: int | None = None
    reason: str | None = None
    #: What the host remarked in the trail about the trail: an end that was torn, cut off or could not be checked.
    remarks: tuple[str, ...] = ()
    #: The last good entry: to be kept elsewhere, as an anchor.
    seq: int = 0
    hash: str = GENESIS


class Wanted(Struct, frozen=True, kw_only=True):
    """Which entries are looked for; what is None does not matter."""

    #: Globs.
    server: str | None = None
    tool: str | None = None
    kind: str | None = None
    stage: str | None = None
    principal: str | None = None
    profile: str | None = None
    session: str | None = None
    outcome: str | None = None
    effect: str | None = None
    act_id: str | None = None
    #: Seconds since the epoch; from the first on, and before the second.
    since: float | None = None
    until: float | None = None

    def fits(self, entry: dict[str, Any]) -> bool:
        """Tell whether an entry is looked for."""
        return (
            _like(self.server, entry.get("server"))
            and _like(self.tool, entry.get("name"))
            and all(getattr(self, each) in (None, entry.get(each)) for each in _EXACT)
            and (self.since is None or entry["at"] >= self.since)
            and (self.until is None or entry["at"] < self.until)
        )


_EXACT = ("kind", "stage", "principal", "profile", "session", "outcome", "effect", "act_id")
_ANYTHING = Wanted()
# The end of the year 9999: no clock shows more.
_LATEST = 253_402_300_800.0


def _like(pattern: str | None, value: Any) -> bool:
    return pattern is None or (isinstance(value, str) and fnmatchcase(value, pattern))


class _Part(Struct, frozen=True):
    """One file of a trail, and how much of it there was when reading began."""

    name: str
    file: BinaryIO
    size: int

    def lines(self) -> Iterator[bytes]:
        """Read line by line, no further than its end was."""
        left = self.size
        while left > 0:
            line = self.file.readline(left)
            if not line:
                return
            left -= len(line)
            yield line


@contextmanager
def _parts(path: str) -> Iterator[list[_Part]]:
    """Open all files of a trail at one moment, so that no entry is seen half and no file is missed as it moves."""
    with ExitStack() as stack:
        if os.path.exists(f"{path}.lock") and os.access(f"{path}.lock", os.W_OK):
            lock = PathLock(f"{path}.lock")
            try:
                lock.acquire()
                found = _open_all(path, stack)
            except Busy as error:
                raise ConfigError(f"{path}: the audit trail cannot be read: {error}.") from error
            finally:
                lock.close()
        else:
            found = _open_all(path, stack)
        yield found


def _open_all(path: str, stack: ExitStack) -> list[_Part]:
    found: list[_Part] = []
    for name in [*rotated_files(path), path]:
        try:
            file = stack.enter_context(open(name, "rb"))  # noqa: SIM115 - the stack closes it
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigError(f"{name}: the audit trail cannot be read: {error.strerror}.") from error
        found.append(_Part(name, file, os.fstat(file.fileno()).st_size))
    return found


# --- proving ---------------------------------------------------------------------------------------------------------


class _Fault(Exception):
    """The trail is not whole, for this reason."""


def verify(path: str | os.PathLike[str], *, partial: bool = False, anchor: str | None = None) -> Verification:
    """Prove that a trail is whole; with ``partial``, from the first entry that is there on.

    Raises:
        ConfigError: there is no trail, or it cannot be read.
    """
    path = os.path.abspath(os.fspath(path))
    try:
        # The note first: entries that come meanwhile are beyond it.
        noted = read_head(path)
    except ValueError as error:
        return Verification(ok=False, entries=0, reason=f"{error}: how far the trail reached is not known")
    with _parts(path) as parts:
        if not parts and noted is None:
            raise ConfigError(f"{path}: there is no audit trail.")
        return _Walk(path, noted, anchor, partial=partial).over(parts)


class _Note(Struct):
    note: str = ""


_note_decoder = msgspec.json.Decoder(_Note)
# How an entry about the trail itself begins: it belongs to no act.
_REMARK = b'"act_id":"","stage":"note"'
_MOST_REMARKS = 100


class _Walk:
    """One way through a trail."""

    def __init__(self, path: str, noted: Head | None, anchor: str | None, *, partial: bool) -> None:
        """Start before the first entry."""
        self._path = path
        self._noted = noted
        self._remarks: list[str] = []
        self._vouched = anchor is not None
        self._anchor = anchor
        self._partial = partial
        self._last = Head(0, GENESIS)
        self._entries = 0
        self._line = 0

    def over(self, parts: list[_Part]) -> Verification:
        """Follow the chain through all files."""
        for part in parts:
            try:
                for self._line, line in enumerate(part.lines(), 1):
                    self._step(line)
            except _Fault as fault:
                return self._found(str(fault), part.name, self._line)
        return self._found(self._missing())

    def _step(self, line: bytes) -> None:
        try:
            head, before = read_line(line)
        except ValueError as error:
            raise _Fault(f"the line {error}") from error
        follows = before == self._last.hash and head.seq == self._last.seq + 1
        if not follows and not (self._partial and self._entries == 0):
            raise _Fault(_gap(self._last, head))
        if self._noted is not None and head.seq == self._noted.seq and head.hash != self._noted.hash:
            raise _Fault(f"entry {head.seq} is not the one that was noted: the trail was written anew")
        if head.hash == self._anchor:
            self._anchor = None
        self._last = head
        self._entries += 1
        if _REMARK in line and len(self._remarks) < _MOST_REMARKS:
            self._remarks.append(f"entry {head.seq}: {_note_decoder.decode(line).note}")

    def _missing(self) -> str | None:
        """Say what should have come and did not."""
        if self._noted is not None and self._noted.seq > self._last.seq:
            return f"the end is missing: the trail had reached entry {self._noted.seq}, and is over at {self._last.seq}"
        # One that began only while this one was read has its head by now.
        if self._noted is None and self._entries and not self._vouched and not os.path.exists(f"{self._path}.head"):
            return (
                f"{self._path}.head is missing, so a cut-off end cannot be detected: restore it, or give the hash "
                f"of an entry that was kept elsewhere (--anchor)"
            )
        if self._anchor is not None:
            return f"no entry has the hash {self._anchor}: the trail was written anew, or this is another one"
        return None

    def _found(self, reason: str | None, file: str | None = None, line: int | None = None) -> Verification:
        return Verification(
            ok=reason is None,
            entries=self._entries,
            file=file,
            first_bad_line=line,
            reason=reason,
            remarks=tuple(self._remarks),
            seq=self._last.seq,
            hash=self._last.hash,
        )


def _gap(last: Head, found: Head) -> str:
    if last.seq == 0:
        return f"the trail begins with entry {found.seq}: those before it are missing"
    if found.seq == last.seq + 1:
        return f"entry {found.seq} does not continue entry {last.seq}: one of them was exchanged"
    return f"entry {found.seq} comes after entry {last.seq}: entries were taken out, put in or moved"


# --- finding ---------------------------------------------------------------------------------------------------------


def query(
    path: str | os.PathLike[str],
    wanted: Wanted = _ANYTHING,
    *,
    limit: int | None = None,
    on_unreadable: Callable[[str, int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Give the entries that are looked for, oldest first; with a limit, the newest so many of them.

    A line that is no entry is passed over, and its file and number told. Nothing here proves an entry: ``verify`` does.

    Raises:
        ConfigError: there is no trail, or it cannot be read.
    """
    found = _fitting(os.path.abspath(os.fspath(path)), wanted, on_unreadable)
    if limit is None:
        yield from found
    else:
        yield from deque(found, maxlen=max(limit, 0))


def _fitting(path: str, wanted: Wanted, on_unreadable: Callable[[str, int], None] | None) -> Iterator[dict[str, Any]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with _parts(path) as parts:
        if not parts:
            raise ConfigError(f"{path}: there is no audit trail.")
        for part in parts:
            for number, line in enumerate(part.lines(), 1):
                try:
                    entry = decode(line)
                    fits = 0 <= entry["at"] < _LATEST and wanted.fits(entry)
                except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
                    if on_unreadable is not None:
                        on_unreadable(part.name, number)
                    continue
                if fits:
                    yield entry
