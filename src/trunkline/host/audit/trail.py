"""The audit trail: what was done, by whom and on whose authority, as lines of JSON that form a hash chain.

An entry has reached the kernel before ``record`` returns, by a single write of a whole line: killing the process loses
nothing that was acknowledged. ``sync`` flushes it to the disk, and records in a file beside the trail how far it has
reached, so that a cut-off end is detected too. That file, the head, exists from the beginning: a trail without one was
tampered with. What is missing when a trail is opened is logged and recorded, and a missing end stays a gap in the
chain. Several processes may append to one file, each line under a lock.

A line is ``{"seq":…,"at":…,"prev":"…", …,"hash":"…"}``. Its hash is the SHA-256 of the previous hash and of the line's
own bytes without ``,"hash":"…"``: the bytes as written, so there is no second encoding of the same entry. An act that
cannot be recorded is not performed: ``AuditFailed`` is a reason to deny.

A note (``note_entry``) records a request to the user's side, which is not performed at a server.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from glob import escape, glob
from hashlib import sha256
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from trunkline.errors import TrunklineError
from trunkline.host.authorization.policy.decisions import Act
from trunkline.host.state_files import PathLock, write_staged

__all__ = [
    "GENESIS",
    "AuditEntry",
    "AuditFailed",
    "AuditTrail",
    "Outcome",
    "Stage",
    "TrailHead",
    "note_entry",
    "parse_line",
    "read_head",
    "result_digest",
    "rotated_files",
]

Stage: TypeAlias = Literal["begun", "ended", "denied", "note"]
#: ``asked``: the server returned a question, and the caller answers with another call.
Outcome: TypeAlias = Literal["ok", "tool-error", "error", "lost", "cancelled", "denied", "asked"]
#: The previous hash of the first entry.
GENESIS = "0" * 64

_MAX_BYTES = 64 * 1024 * 1024  # About 100,000 calls; a file of this size can still be opened in an editor.
_TAIL_BYTES = 8 * 1024  # Several entries, so that the last one is usually found in one read.
_SEAL = re.compile(rb',"hash":"([0-9a-f]{64})"\}\n\Z')
_SEAL_LENGTH = len(',"hash":""}\n') + 64
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
log = logging.getLogger("trunkline.host")

_encoder = msgspec.json.Encoder()
_sorted_encoder = msgspec.json.Encoder(order="sorted")


class AuditFailed(TrunklineError):
    """The audit trail cannot be written, so the act must not be performed; the message names the file and the fix."""


class AuditEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry; members that are None are not written."""

    #: Links the begin and the end of an act.
    act_id: str
    stage: Stage
    kind: str | None = None
    server: str | None = None
    name: str | None = None
    session: str | None = None
    principal: str | None = None
    profile: str | None = None
    caller: str | None = None
    #: The policy's decision, and the rule it came from.
    effect: str | None = None
    rule: str | None = None
    #: Who decided: ``policy``, ``grant:<id>``, ``user``, ``client`` (the gateway's client, which asked its own user or
    #: may have answered by itself) or ``deadline``.
    by: str | None = None
    pin: str | None = None
    #: The arguments, redacted.
    arguments: Any = None
    outcome: Outcome | None = None
    #: The digest of the result, see ``result_digest``.
    digest: str | None = None
    latency_ms: float | None = None
    note: str | None = None


class TrailHead(Struct, frozen=True, forbid_unknown_fields=True):
    """How far a trail has reached: the number and hash of its last entry."""

    seq: int
    hash: str


class _ChainMembers(Struct):
    """The members of a line that form the chain."""

    seq: int
    at: float
    prev: str


_START = TrailHead(0, GENESIS)
_chain_decoder = msgspec.json.Decoder(_ChainMembers)
_head_decoder = msgspec.json.Decoder(TrailHead)


def result_digest(value: Any) -> str:
    """Return the digest of a result: of its JSON with sorted members, or of bytes as they are."""
    data = value if isinstance(value, bytes) else _sorted_encoder.encode(value)
    return f"sha256:{sha256(data).hexdigest()}"


def parse_line(line: bytes) -> tuple[TrailHead, str]:
    """Verify one line, including its newline; return its number and hash, and the previous hash it names.

    Raises:
        ValueError: it is not an entry, or was changed.
    """
    found = _SEAL.search(line)
    if found is None:
        raise ValueError("is not a complete entry")
    body = line[:-_SEAL_LENGTH] + b"}"
    try:
        sealed = _chain_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError("is not an entry") from error
    seal = found.group(1).decode()
    if sha256(sealed.prev.encode() + body).hexdigest() != seal:
        raise ValueError("was changed: its hash does not match")
    return TrailHead(sealed.seq, seal), sealed.prev


def read_head(path: str) -> TrailHead | None:
    """Read the recorded head of a trail: how far it had reached at its last sync; None if there is none.

    Raises:
        ValueError: the head file cannot be read.
    """
    try:
        with open(f"{path}.head", "rb") as file:
            return _head_decoder.decode(file.read())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}.head cannot be read") from error


def rotated_files(path: str) -> list[str]:
    """List the rotated files of a trail, oldest first."""
    root, extension = os.path.splitext(path)
    found = glob(f"{escape(root)}-{'[0-9]' * 12}{escape(extension)}")
    return sorted(found)


class AuditTrail:
    """Appends to one trail; thread-safe."""

    def __init__(self, path: str, lock: PathLock, *, clock: Callable[[], float], max_bytes: int) -> None:
        """Use what ``open`` prepared."""
        self._path = path
        self._lock = lock
        self._clock = clock
        self._max_bytes = max_bytes
        self._mutex = threading.Lock()
        self._file: int | None = None
        self._inode = -1
        self._size = -1
        self._head = _START
        self._noted = -1
        self._begun = False
        self._closed = False

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time, max_bytes: int = _MAX_BYTES
    ) -> AuditTrail:
        """Open or create a trail; a torn end is moved to another file, and that is recorded in the trail.

        What is missing from the trail (its head, its end, its beginning) is logged as a warning; the first two are
        recorded in the trail as well.

        Raises:
            AuditFailed: the file cannot be opened, or its last line is not an entry.
        """
        path = os.path.abspath(os.fspath(path))
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            lock = PathLock(f"{path}.lock")
        except OSError as error:
            raise _failed(path, error) from error
        trail = cls(path, lock, clock=clock, max_bytes=max_bytes)
        try:
            trail._locked(trail._catch_up)
            trail._begin()
        except BaseException:
            trail._shut()
            raise
        return trail

    def __repr__(self) -> str:
        """Show the path and the last number."""
        return f"AuditTrail({self._path!r}, seq={self._head.seq})"

    @property
    def path(self) -> str:
        """The current file."""
        return self._path

    @property
    def head(self) -> TrailHead:
        """The last entry that this object knows."""
        return self._head

    def record(self, entry: AuditEntry) -> int:
        """Write an entry and return its number; once this returns, the entry survives the end of this process.

        Raises:
            AuditFailed: it was not written; do not perform the act.
        """
        try:
            members = _encoder.encode(entry)[1:]
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise AuditFailed(f"Cannot encode an entry for the audit trail: {error}.") from error
        return self._locked(self._append_current, members)

    def sync(self) -> None:
        """Flush the recorded entries to disk, and record the head; this may take long, so call it in a thread.

        Raises:
            AuditFailed: the disk cannot be written.
        """
        with self._mutex:
            head = self._head
            if self._file is None or head.seq == self._noted:
                return
            # A duplicate, since a rotation may close the original meanwhile.
            file = os.dup(self._file)
        try:
            os.fsync(file)
            self._note(head)
        except OSError as error:
            raise _failed(self._path, error) from error
        finally:
            os.close(file)

    def close(self) -> None:
        """Sync and close the trail; a second call does nothing."""
        if not self._closed:
            try:
                self.sync()
            finally:
                with self._mutex:
                    self._shut()

    def _shut(self) -> None:
        self._closed = True
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._lock.close()

    def _locked(self, work: Callable[..., int], *arguments: Any) -> int:
        """Call a function under the lock, which excludes other threads and processes."""
        with self._mutex:
            if self._closed:
                raise AuditFailed(f"The audit trail {self._path} is closed.")
            try:
                self._lock.acquire()
                try:
                    return work(*arguments)
                finally:
                    self._lock.release()
            except OSError as error:
                # The cached state of the file may be wrong now.
                self._size = -1
                raise _failed(self._path, error) from error

    # --- under the lock ----------------------------------------------------------------------------------------------

    def _append_current(self, members: bytes) -> int:
        """Append an entry after those of other processes."""
        self._catch_up()
        return self._append(members)

    def _append(self, members: bytes) -> int:
        seq, prev = self._head.seq + 1, self._head.hash.encode()
        body = b'{"seq":%d,"at":%.6f,"prev":"%s",%s' % (seq, self._clock(), prev, members)
        seal = sha256(prev + body).hexdigest()
        line = b'%s,"hash":"%s"}\n' % (body[:-1], seal.encode())
        if self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
        self._write(line)
        self._head = TrailHead(seq, seal)
        return seq

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        written = os.write(self._file, line)
        if written != len(line):
            # The disk is full: a partial line would be a torn end.
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise OSError(28, "No space left on device")
        self._size += written

    def _rotate(self) -> None:
        assert self._file is not None
        root, extension = os.path.splitext(self._path)
        os.fsync(self._file)
        if os.name != "posix":
            # On other systems an open file cannot be renamed.
            os.close(self._file)
            self._file = None
        with suppress(OSError):
            # If another process prevents it, this file keeps growing.
            os.rename(self._path, f"{root}-{self._head.seq:012d}{extension}")
        self._reopen()

    def _reopen(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        self._file = os.open(self._path, _APPEND, 0o600)
        found = os.fstat(self._file)
        self._inode, self._size = found.st_ino, found.st_size

    def _catch_up(self) -> int:
        """Update the state after writes of other processes; without any, this is one stat call."""
        try:
            found = os.stat(self._path)
            if found.st_size == self._size and found.st_ino == self._inode:
                return self._head.seq
        except FileNotFoundError:
            pass
        self._reopen()
        assert self._file is not None
        torn = _torn_end(self._file, self._size)
        if torn:
            kept = _put_aside(self._path, torn)
            os.ftruncate(self._file, self._size - len(torn))
            self._size -= len(torn)
        remarks = self._go_on_from(self._end())
        if torn:
            remarks.append(f"the file ended with {len(torn)} bytes of an incomplete entry, moved to {kept}")
        for text in remarks:
            self._append(_remark(text))
        return self._head.seq

    def _go_on_from(self, end: TrailHead) -> list[str]:
        """Choose the entry that the next one continues; return the remarks to record.

        A trail that is shorter than its head says was cut; continuing from the head keeps the gap visible.
        """
        remarks: list[str] = []
        if not self._begun or end.seq == 0:
            try:
                noted = read_head(self._path)
            except ValueError as error:
                if end.seq == 0:
                    raise AuditFailed(f"{error}: {_FIX.format(path=self._path)}") from error
                noted = end
                remarks.append(f"{error}: entries after {end.seq} may have been cut off")
            if noted is None and end.seq:
                remarks.append(f"{self._path}.head was missing: entries after {end.seq} may have been cut off")
            if noted is not None and noted.seq > self._head.seq:
                self._head = noted
        if end.seq < self._head.seq:
            reached = self._head.seq
            remarks.append(f"the end was missing: the trail had reached entry {reached}, but ended at {end.seq}")
        else:
            self._head = end
        for text in remarks:
            log.warning("the audit trail %s is not intact: %s (run trunkline audit verify)", self._path, text)
        return remarks

    def _begin(self) -> None:
        """Log a warning if the beginning is missing, and write the head if there is none."""
        self._begun = True
        if (first := _first_number(self._path)) not in (None, 1):
            log.warning(
                "the audit trail %s begins with entry %d: the entries before it are missing, or were moved away "
                "(trunkline audit verify --partial checks the rest)",
                self._path,
                first,
            )
        if not os.path.exists(f"{self._path}.head"):
            try:
                self._note(self._head)
            except OSError as error:
                raise _failed(self._path, error) from error

    def _end(self) -> TrailHead:
        """Return the last entry, of this file or of a rotated one."""
        assert self._file is not None
        if self._size:
            return _last_entry(self._path, self._file, self._size)
        for path in reversed(rotated_files(self._path)):
            with open(path, "rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                if size:
                    return _last_entry(path, file.fileno(), size)
        return _START

    def _note(self, head: TrailHead) -> None:
        """Write the head file, unless another process has recorded a later head."""
        path = f"{self._path}.head"
        staged = write_staged(path, _encoder.encode(head) + b"\n")
        try:
            self._locked(self._swap, staged, path, head)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(staged)

    def _swap(self, staged: str, path: str, head: TrailHead) -> int:
        with suppress(ValueError):
            noted = read_head(self._path)
            if noted is not None and noted.seq > head.seq:
                return noted.seq
        os.replace(staged, path)
        self._noted = head.seq
        return head.seq


_FIX = "run trunkline audit verify {path} for details; move the file and its .head away to start a new trail."


def _failed(path: str, error: OSError) -> AuditFailed:
    return AuditFailed(
        f"Cannot write the audit trail {path}: {error.strerror or error}. No act is performed without it."
    )


def _remark(text: str) -> bytes:
    return _encoder.encode(AuditEntry(act_id="", stage="note", note=text))[1:]


def _first_number(path: str) -> int | None:
    """Return the number of the first existing entry; None if there is none, or it cannot be read."""
    for name in [*rotated_files(path), path]:
        with suppress(OSError, ValueError), open(name, "rb") as file:
            if line := file.readline():
                return parse_line(line)[0].seq
    return None


def _torn_end(file: int, size: int) -> bytes:
    """Return the bytes after the last newline."""
    start, tail = size, b""
    while start > 0 and b"\n" not in tail:
        step = min(_TAIL_BYTES, start)
        start -= step
        tail = _read_at(file, start, step) + tail
    return tail[tail.rfind(b"\n") + 1 :]


def _last_entry(path: str, file: int, size: int) -> TrailHead:
    """Parse the last line of a file that ends with a newline."""
    start, tail = size, b""
    while start > 0 and tail.count(b"\n") < 2:
        step = min(_TAIL_BYTES, start)
        start -= step
        tail = _read_at(file, start, step) + tail
    line = tail[tail.rfind(b"\n", 0, len(tail) - 1) + 1 :]
    try:
        return parse_line(line)[0]
    except ValueError as error:
        raise AuditFailed(f"The last line of {path} {error}: {_FIX.format(path=path)}") from error


def _read_at(file: int, start: int, count: int) -> bytes:
    os.lseek(file, start, os.SEEK_SET)
    data = b""
    while len(data) < count:
        more = os.read(file, count - len(data))
        if not more:
            break
        data += more
    return data


def _put_aside(path: str, torn: bytes) -> str:
    """Save a torn end in its own file; return its name."""
    number = 1
    while True:
        other = f"{path}.torn-{number}"
        try:
            descriptor = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        except FileExistsError:
            number += 1
            continue
        with open(descriptor, "wb") as file:
            file.write(torn)
            file.flush()
            os.fsync(file.fileno())
        return os.path.basename(other)


def note_entry(act: Act, **more: Any) -> AuditEntry:
    """Build the audit entry for a request to the user's side."""
    return AuditEntry(
        act_id=os.urandom(8).hex(),
        stage="note",
        kind=act.kind,
        server=act.server,
        name=act.name,
        session=act.session,
        principal=act.principal,
        profile=act.profile,
        caller=act.caller,
        **more,
    )
