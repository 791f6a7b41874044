"""Reading of audit trails: verifies that one is complete and unchanged, and queries its entries.

Nothing is written and no running host is needed; a host may go on writing meanwhile. A trail consists of the current
file, the rotated files before it, and the head file beside it, which records how far the trail had reached.

``verify`` detects any changed byte, any entry that was removed, inserted or moved, an end that was cut off before the
recorded head, and a missing head. It cannot detect by itself entries that were cut off after the recorded head, or a
trail that someone with write access to all these files rewrote from some entry on, including the head. An ``anchor``,
the hash of an entry that is kept elsewhere, detects that too, for all entries up to that one.
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
from trunkline.host.audit.trail import GENESIS, TrailHead, parse_line, read_head, rotated_files
from trunkline.host.state_files import LockTimeout, PathLock

__all__ = ["AuditFilter", "Verification", "query", "query_newest", "verify"]


class Verification(Struct, frozen=True, kw_only=True):
    """Whether a trail is intact, and if not, where it breaks."""

    ok: bool
    #: The number of entries before the first fault.
    entries: int
    #: File and line of the first fault; None if it is not in a line.
    file: str | None = None
    first_bad_line: int | None = None
    reason: str | None = None
    #: The host's own notes in the trail about its state: an end that was torn, cut off or could not be checked.
    remarks: tuple[str, ...] = ()
    #: The last valid entry, to be kept elsewhere as an anchor.
    seq: int = 0
    hash: str = GENESIS


class AuditFilter(Struct, frozen=True, kw_only=True):
    """A filter of entries; members that are None match everything."""

    #: Glob patterns.
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
    #: Seconds since the epoch; ``since`` is inclusive, ``until`` exclusive.
    since: float | None = None
    until: float | None = None

    def matches(self, entry: dict[str, Any]) -> bool:
        """Return True if an entry matches."""
        return (
            _matches_glob(self.server, entry.get("server"))
            and _matches_glob(self.tool, entry.get("name"))
            and all(getattr(self, each) in (None, entry.get(each)) for each in _EXACT)
            and (self.since is None or entry["at"] >= self.since)
            and (self.until is None or entry["at"] < self.until)
        )


_EXACT = ("kind", "stage", "principal", "profile", "session", "outcome", "effect", "act_id")
_MATCH_ALL = AuditFilter()
# The end of the year 9999, the last that can be formatted.
_LATEST = 253_402_300_800.0


def _matches_glob(pattern: str | None, value: Any) -> bool:
    return pattern is None or (isinstance(value, str) and fnmatchcase(value, pattern))


class _TrailFile(Struct, frozen=True):
    """One file of a trail, with its size when reading began."""

    name: str
    file: BinaryIO
    size: int

    def lines(self) -> Iterator[bytes]:
        """Yield the lines up to that size."""
        left = self.size
        while left > 0:
            line = self.file.readline(left)
            if not line:
                return
            left -= len(line)
            yield line


@contextmanager
def _open_files(path: str) -> Iterator[list[_TrailFile]]:
    """Open all files of a trail under its lock, so that no entry is read partially and no rotation is missed."""
    with ExitStack() as stack:
        if os.path.exists(f"{path}.lock") and os.access(f"{path}.lock", os.W_OK):
            lock = PathLock(f"{path}.lock")
            try:
                lock.acquire()
                found = _open_all(path, stack)
            except LockTimeout as error:
                raise ConfigError(f"{path}: cannot read the audit trail: {error}.") from error
            finally:
                lock.close()
        else:
            found = _open_all(path, stack)
        yield found


def _open_all(path: str, stack: ExitStack) -> list[_TrailFile]:
    found: list[_TrailFile] = []
    for name in [*rotated_files(path), path]:
        try:
            file = stack.enter_context(open(name, "rb"))  # noqa: SIM115 - the stack closes it
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigError(f"{name}: cannot read the audit trail: {error.strerror}.") from error
        found.append(_TrailFile(name, file, os.fstat(file.fileno()).st_size))
    return found


# --- verifying -------------------------------------------------------------------------------------------------------


class _BrokenChain(Exception):
    """The trail is not intact, for this reason."""


def verify(path: str | os.PathLike[str], *, partial: bool = False, anchor: str | None = None) -> Verification:
    """Verify a trail; with ``partial``, from the first existing entry on.

    Raises:
        ConfigError: there is no trail, or it cannot be read.
    """
    path = os.path.abspath(os.fspath(path))
    try:
        # The head first: entries that are written meanwhile come after it.
        noted = read_head(path)
    except ValueError as error:
        return Verification(ok=False, entries=0, reason=f"{error}: it is not known how far the trail had reached")
    with _open_files(path) as parts:
        if not parts and noted is None:
            raise ConfigError(f"{path}: there is no audit trail.")
        return _ChainVerifier(path, noted, anchor, partial=partial).over(parts)


class _Note(Struct):
    note: str = ""


_note_decoder = msgspec.json.Decoder(_Note)
# The beginning of an entry about the trail itself, which belongs to no act.
_REMARK = b'"act_id":"","stage":"note"'
_MOST_REMARKS = 100  # A damaged file could have one in each line.


class _ChainVerifier:
    """One pass over a trail."""

    def __init__(self, path: str, noted: TrailHead | None, anchor: str | None, *, partial: bool) -> None:
        """Start before the first entry."""
        self._path = path
        self._noted = noted
        self._remarks: list[str] = []
        self._vouched = anchor is not None
        self._anchor = anchor
        self._partial = partial
        self._last = TrailHead(0, GENESIS)
        self._entries = 0
        self._line = 0

    def over(self, parts: list[_TrailFile]) -> Verification:
        """Verify the chain through all files."""
        for part in parts:
            try:
                for self._line, line in enumerate(part.lines(), 1):
                    self._step(line)
            except _BrokenChain as fault:
                return self._found(str(fault), part.name, self._line)
        return self._found(self._missing())

    def _step(self, line: bytes) -> None:
        try:
            head, before = parse_line(line)
        except ValueError as error:
            raise _BrokenChain(f"the line {error}") from error
        follows = before == self._last.hash and head.seq == self._last.seq + 1
        if not follows and not (self._partial and self._entries == 0):
            raise _BrokenChain(_gap(self._last, head))
        if self._noted is not None and head.seq == self._noted.seq and head.hash != self._noted.hash:
            raise _BrokenChain(f"entry {head.seq} differs from the recorded head: the trail was rewritten")
        if head.hash == self._anchor:
            self._anchor = None
        self._last = head
        self._entries += 1
        if _REMARK in line and len(self._remarks) < _MOST_REMARKS:
            self._remarks.append(f"entry {head.seq}: {_note_decoder.decode(line).note}")

    def _missing(self) -> str | None:
        """Return what is missing at the end."""
        if self._noted is not None and self._noted.seq > self._last.seq:
            return f"the end is missing: the trail had reached entry {self._noted.seq}, but ends at {self._last.seq}"
        # A trail that was started while this one was read has its head by now.
        if self._noted is None and self._entries and not self._vouched and not os.path.exists(f"{self._path}.head"):
            return (
                f"{self._path}.head is missing, so a cut-off end cannot be detected: restore it, or give the hash "
                f"of an entry that was kept elsewhere (--anchor)"
            )
        if self._anchor is not None:
            return f"no entry has the hash {self._anchor}: the trail was rewritten, or this is another trail"
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


def _gap(last: TrailHead, found: TrailHead) -> str:
    if last.seq == 0:
        return f"the trail begins with entry {found.seq}: the entries before it are missing"
    if found.seq == last.seq + 1:
        return f"entry {found.seq} does not continue entry {last.seq}: one of them was replaced"
    return f"entry {found.seq} follows entry {last.seq}: entries were removed, inserted or moved"


# --- querying --------------------------------------------------------------------------------------------------------


def query(
    path: str | os.PathLike[str],
    where: AuditFilter = _MATCH_ALL,
    *,
    limit: int | None = None,
    on_unreadable: Callable[[str, int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the matching entries, oldest first; with a limit, only the newest ones.

    A line that is not an entry is skipped and reported to ``on_unreadable`` with its file and number. Entries are not
    verified here: ``verify`` does that.

    Raises:
        ConfigError: there is no trail, or it cannot be read.
    """
    found = _matching_entries(os.path.abspath(os.fspath(path)), where, on_unreadable)
    if limit is None:
        yield from found
    else:
        yield from deque(found, maxlen=max(limit, 0))


def query_newest(
    path: str | os.PathLike[str],
    where: AuditFilter = _MATCH_ALL,
    *,
    text: str = "",
    before: int | None = None,
    limit: int,
) -> tuple[list[dict[str, Any]], int | None]:
    """Return the newest matching entries, newest first, and the number to pass as ``before`` for the next page.

    ``text`` is searched in whole entries, regardless of case. Of several files, only as many are read as needed.

    Raises:
        ConfigError: there is no trail, or it cannot be read.
    """
    wanted = text.casefold()
    found: list[dict[str, Any]] = []
    path = os.path.abspath(os.fspath(path))
    with _open_files(path) as parts:
        if not parts:
            raise ConfigError(f"{path}: there is no audit trail.")
        for part in reversed(parts):
            # One more than requested shows whether there are more.
            newest = deque[dict[str, Any]](maxlen=limit + 1 - len(found))
            for line in part.lines():
                if wanted and wanted not in line.decode("utf-8", "replace").casefold():
                    continue
                entry = _decode_entry(line)
                if entry is not None and (before is None or entry["seq"] < before) and where.matches(entry):
                    newest.append(entry)
            found += reversed(newest)
            if len(found) > limit:
                break
    return found[:limit], found[limit - 1]["seq"] if len(found) > limit else None


def _decode_entry(line: bytes) -> dict[str, Any] | None:
    """Decode a line; return None if it is not an entry."""
    try:
        entry = msgspec.json.decode(line, type=dict[str, Any])
        return entry if 0 <= entry["at"] < _LATEST and isinstance(entry["seq"], int) else None
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return None


def _matching_entries(
    path: str, where: AuditFilter, on_unreadable: Callable[[str, int], None] | None
) -> Iterator[dict[str, Any]]:
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with _open_files(path) as parts:
        if not parts:
            raise ConfigError(f"{path}: there is no audit trail.")
        for part in parts:
            for number, line in enumerate(part.lines(), 1):
                try:
                    entry = decode(line)
                    fits = 0 <= entry["at"] < _LATEST and where.matches(entry)
                except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
                    if on_unreadable is not None:
                        on_unreadable(part.name, number)
                    continue
                if fits:
                    yield entry
