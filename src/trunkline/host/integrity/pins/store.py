"""The store of pins.

What every server offered when it was first seen, in one file that several processes may write, and the lock file: the
pins that a team agreed on, by server and name, kept beside the configuration. A server is identified by its name and
by how it is reached (endpoint_identity), so another server under the same name starts anew. If the file cannot be
read or written, nothing can be vouched for: the caller gets an error and serves nothing that should be pinned. The
file is never overwritten unread. A lock file holds digests only, sorted, so that a change to it is one line; how a
server is reached is not in it, since that differs between machines.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.host.config.model import ServerEntry
from trunkline.host.integrity.fingerprints import executed_code, shown_url, writable_text
from trunkline.host.integrity.pins.definitions import matches_pin, reorderable_places
from trunkline.host.integrity.pins.records import (
    PIN_KINDS,
    CurrentDefinition,
    Pin,
    PinKey,
    PinNotice,
    ServerPins,
    ServerSnapshot,
    former_pins_after,
    record_for_snapshot,
    update_record,
)
from trunkline.host.state_files import locked, read_private, write_private

__all__ = [
    "LockedPin",
    "ObservedPins",
    "PinLock",
    "PinStore",
    "encode_lock",
    "endpoint_identity",
    "make_lock",
    "read_lock",
]

_MAX_LOCK_BYTES = 32 * 1024 * 1024  # Lock files have about 100 bytes for each tool.


class LockedPin(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The pin that is required under one name."""

    pin: str
    #: A person has accepted the scan's findings in it.
    vetted: bool = False


class PinLock(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Pins by server, kind and name."""

    version: Literal[1] = 1
    servers: dict[str, dict[str, dict[str, LockedPin]]] = {}

    def find(self, server: str, kind: str, name: str) -> LockedPin | None:
        """Return the required pin of a name; None if the file has none."""
        return self.servers.get(server, {}).get(kind, {}).get(name)

    def pins_of(self, server: str) -> dict[PinKey, str]:
        """Return the pins of a server."""
        kinds = self.servers.get(server, {})
        return {(kind, name): each.pin for kind in PIN_KINDS for name, each in kinds.get(kind, {}).items()}

    def joined(self, other: PinLock) -> PinLock:
        """Return this lock file with the servers of another one added or replaced."""
        return PinLock(servers={**self.servers, **other.servers})


def make_lock(records: Iterable[ServerPins]) -> PinLock:
    """Build a lock file from the accepted pins that are not gone; of two records of a name the newer counts."""
    servers: dict[str, dict[str, dict[str, LockedPin]]] = {}
    for record in sorted(records, key=lambda each: (each.name, each.since)):
        kinds: dict[str, dict[str, LockedPin]] = {}
        for pin in sorted(record.pins, key=lambda each: (each.kind, each.name)):
            if pin.gone_since is None:
                kinds.setdefault(pin.kind, {})[pin.name] = _locked_pin(pin)
        servers[record.name] = kinds
    return PinLock(servers=servers)


def _locked_pin(pin: Pin) -> LockedPin:
    return LockedPin(pin.pin, pin.vetted)


def encode_lock(lock: PinLock) -> bytes:
    """Encode a lock file; equal locks give equal bytes."""
    whole = {"version": lock.version, "servers": lock.servers}
    return msgspec.json.format(msgspec.json.encode(whole, order="sorted"), indent=2) + b"\n"


def read_lock(path: str | os.PathLike[str]) -> PinLock:
    """Read a lock file.

    Raises:
        ConfigError: it cannot be read or parsed.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MAX_LOCK_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)}: the lock file cannot be read: {error.strerror}.") from error
    try:
        if len(content) > _MAX_LOCK_BYTES:
            raise msgspec.ValidationError(f"it has more than {_MAX_LOCK_BYTES} bytes")
        return msgspec.json.decode(content, type=PinLock)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{os.fspath(path)}: not a lock file ({error}); create one with: trunkline pins export FILE"
        ) from error


# Records of one name; if a server is started in ever new ways, the oldest records are dropped.
_MAX_RECORDS_PER_NAME = 32
# Definitions of one name that were accepted before the current one.
_MOST_FORMER = 8
_Records = dict[tuple[str, str], ServerPins]


class ObservedPins(Struct, frozen=True):
    """The result of comparing servers with their pins."""

    #: The pins of each server, as they apply to its snapshot.
    records: Mapping[str, ServerPins]
    notices: tuple[PinNotice, ...] = ()
    #: The records to store.
    kept: tuple[ServerPins, ...] = ()


class _PinFile(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The content of the pins file."""

    version: Literal[1]
    servers: list[ServerPins] = []
    #: Imported pins, expected of servers when they are first seen.
    expected: PinLock = PinLock()


def endpoint_identity(entry: ServerEntry) -> tuple[str, str]:
    """Return how a server is reached: as a digest, and as a text for display.

    It is the command with its arguments, the path of its script, and the folder if the entry names one; or the URL
    without the values of its query. Secrets, variables and headers are left out: a renewed token does not make a new
    server. If a different server is mistaken for the old one, it is compared with it, and shows up as changed.
    """
    if entry.url is not None:
        parts = urlsplit(entry.url) if "://" in entry.url else None
        words = [entry.url] if parts is None else [parts.scheme, parts.hostname or "", str(_port(parts)), parts.path]
        shown = shown_url(entry)
    elif entry.command is not None:
        words = [entry.redact(word) for word in entry.command]
        cwd = os.path.realpath(entry.cwd or os.curdir)
        scripts = [path for kind, path in executed_code(entry.command, cwd) if kind == "file"]
        # A program with a relative path is another one in another folder.
        beside = os.sep in entry.command[0] and not os.path.isabs(entry.command[0])
        words += [*scripts, entry.cwd or "", cwd if beside else ""]
        shown = entry.shown
    else:
        words, shown = ["in this process", type(entry.target).__qualname__], entry.shown
    return hashlib.sha256(msgspec.json.encode([writable_text(word) for word in words])).hexdigest(), writable_text(
        shown
    )


def _port(parts: object) -> int | None:
    try:
        port: int | None = parts.port  # type: ignore[attr-defined]
    except ValueError:
        return None
    return port


class PinStore:
    """The pins of all servers, in a file."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """Use the file at this path; it is created when a server is first seen."""
        self._path = os.path.abspath(os.fspath(path))
        self._clock = clock
        self._mark: tuple[int, int, int] | None = None
        self._known = _PinFile(version=1)

    def __repr__(self) -> str:
        """Show the path of the file."""
        return f"PinStore({self._path!r})"

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self._path)

    @property
    def outdated(self) -> bool:
        """Whether the file changed since it was last read, for example because a change was accepted."""
        return _file_version(self._path) != self._mark

    def servers(self) -> list[ServerPins]:
        """Return the records of all servers, sorted by name.

        Raises:
            ConfigError: the file cannot be read.
        """
        return sorted(self._read().servers, key=lambda record: (record.name, -record.since))

    def find(self, server: str, key: str) -> ServerPins | None:
        """Return the record of a server with this identity; None if there is none.

        Raises:
            ConfigError: the file cannot be read.
        """
        return next((each for each in self._read().servers if (each.name, each.key) == (server, key)), None)

    def observe(
        self, snapshots: Iterable[ServerSnapshot], *, lock: PinLock | None = None, hide: Callable[[str], str] = str
    ) -> ObservedPins:
        """Update the pins from snapshots of servers, and return them; the file is written only if they changed.

        A snapshot from an earlier run (a cached catalog) is only compared with the pins: it changes none and causes no
        notices.

        ``hide`` removes secrets from texts that are stored for display.

        Raises:
            ConfigError: the file cannot be read or written, so nothing can be vouched for.
        """
        looks = tuple(snapshots)
        observed = self._observed(self._read(), looks, lock, hide)
        if not _differs(observed, self._known):
            return observed
        with self._changing() as records:
            # Another process may have updated the file in the meantime.
            observed = self._observed(self._known, looks, lock, hide)
            records.update({(record.name, record.key): record for record in observed.kept})
        return observed

    def accept(self, server: ServerPins, kind: str, name: str, *, pin: str, exact: bool = False) -> Pin:
        """Accept the current definition of a name, as a person has seen it: its drift, and the scan's findings in it.

        If it differs from the accepted one in nothing but order, any order is accepted from now on where the order
        differs; ``exact`` accepts this order only. If it was accepted once before, the server alternates between
        definitions, and those that were accepted since then stay accepted beside it. If the accepted definition was
        seen after it, another process sees that one, and both are accepted.

        Raises:
            ConfigError: it is gone, or has changed again; or the file cannot be read or written.
        """
        return self._review(server, kind, name, pin=pin, vetted=True, exact=exact)

    def mark_viewed(self, server: ServerPins, kind: str, name: str, *, pin: str) -> Pin:
        """Mark a new definition as viewed by a person; raises as ``accept``."""
        return self._review(server, kind, name, pin=pin, vetted=False)

    def block(self, server: ServerPins, kind: str, name: str, *, pin: str, blocked: bool = True) -> Pin:
        """Block the changed definition of a name, so that it is hidden until it is accepted; or undo that.

        Raises:
            ConfigError: it is gone, has changed again, or has not changed; or the file cannot be read or written.
        """
        with self._changing() as records:
            record = records.get((server.name, server.key))
            known = None if record is None else record.find(kind, name)
            if record is None or known is None:
                raise ConfigError(f"{server.name}/{name} is no longer pinned.")
            if known.drift is None or known.drift.pin != pin:
                raise ConfigError(f"{server.name}/{name} has changed again since it was shown: review it again.")
            after = replace(known, drift=replace(known.drift, blocked=blocked))
            pins = [after if each.key == known.key else each for each in record.pins]
            records[record.name, record.key] = replace(record, pins=pins)
        return after

    def import_lock(self, lock: PinLock) -> int:
        """Accept the pins of a lock file, also for servers not seen yet; return how many pins changed.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        count = 0
        with self._changing(expected=lock) as records:
            for key, record in records.items():
                pins = [self._locked(pin, lock, record.name) for pin in record.pins]
                count += sum(after is not pin for after, pin in zip(pins, record.pins, strict=True))
                if any(after is not pin for after, pin in zip(pins, record.pins, strict=True)):
                    records[key] = replace(record, pins=pins)
        return count

    def forget(self, server: str) -> int:
        """Delete the pins of a server, so that it is new when it is next seen; return the number of records.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        with self._changing() as records:
            found = [key for key in records if key[0] == server]
            for key in found:
                del records[key]
        return len(found)

    # --- one change --------------------------------------------------------------------------------------------------

    def _observed(
        self, book: _PinFile, snapshots: tuple[ServerSnapshot, ...], lock: PinLock | None, hide: Callable[[str], str]
    ) -> ObservedPins:
        records: dict[str, ServerPins] = {}
        notices: list[PinNotice] = []
        kept: list[ServerPins] = []
        by_key = {(record.name, record.key): record for record in book.servers}
        for snapshot in snapshots:
            record = by_key.get((snapshot.server, snapshot.key))
            after, noticed = update_record(
                record,
                snapshot,
                now=self._clock(),
                siblings=() if record is not None else [each for each in book.servers if each.name == snapshot.server],
                expected=book.expected.pins_of(snapshot.server),
                accepts=None if lock is None else _accepting(lock, snapshot.server),
                hide=hide,
            )
            records[snapshot.server] = record_for_snapshot(after, snapshot)
            if not snapshot.recalled:
                kept.append(after)
                notices += noticed
        return ObservedPins(records, tuple(notices), tuple(kept))

    def _review(self, server: ServerPins, kind: str, name: str, *, pin: str, vetted: bool, exact: bool = False) -> Pin:
        with self._changing() as records:
            record = records.get((server.name, server.key))
            known = None if record is None else record.find(kind, name)
            if record is None or known is None:
                raise ConfigError(f"{server.name}/{name} is no longer pinned.")
            after = self._accepted(known, pin, vetted=vetted, exact=exact)
            if after is None:
                raise ConfigError(f"{server.name}/{name} has changed again since it was shown: review it again.")
            pins = [after if each.key == known.key else each for each in record.pins]
            records[record.name, record.key] = replace(record, pins=pins)
        return after

    def _accepted(self, known: Pin, pin: str, *, vetted: bool, exact: bool) -> Pin | None:
        if known.drift is None and known.pin == pin:
            return replace(known, new=False, vetted=known.vetted or vetted)
        waiting = known.recent_other(self._clock()) if known.drift is None else known.drift
        if waiting is None or waiting.pin != pin or not vetted:
            return None
        before, after = known.definition, waiting.definition
        orders = {} if exact or before is None or after is None else reorderable_places(before, after, known.orders)
        return replace(
            known,
            pin=waiting.pin,
            definition=waiting.definition,
            since=self._clock(),
            new=False,
            renamed_from=None,
            vetted=True,
            drift=None,
            other=None,
            former=former_pins_after(known, pin)[:_MOST_FORMER],
            orders=orders,
            exact=exact,
            page=None,
        )

    def _locked(self, pin: Pin, lock: PinLock, server: str) -> Pin:
        """Return a pin after importing a lock file."""
        entry = lock.find(server, pin.kind, pin.name)
        known = entry is not None and matches_pin(entry.pin, pin.pin, pin.definition)
        if entry is None or (known and pin.vetted >= entry.vetted and not pin.new):
            return pin
        if known:
            return replace(pin, new=False, vetted=pin.vetted or entry.vetted)
        here = pin.drift is not None and matches_pin(entry.pin, pin.drift.pin, pin.drift.definition)
        return Pin(
            kind=pin.kind,
            name=pin.name,
            pin=pin.drift.pin if here and pin.drift is not None else entry.pin,
            since=self._clock(),
            definition=pin.drift.definition if here and pin.drift is not None else None,
            vetted=entry.vetted,
            gone_since=pin.gone_since,
            # The current definition is not the one in the lock file.
            drift=None if here else pin.drift,
        )

    # --- the file ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _changing(self, *, expected: PinLock | None = None) -> Iterator[_Records]:
        """Read the file, yield its records to be changed, and write it back, under its lock."""
        try:
            with locked(self._path):
                before = self._read()
                records = {(record.name, record.key): record for record in before.servers}
                yield records
                wanted = before.expected if expected is None else before.expected.joined(expected)
                after = _PinFile(version=1, servers=_limit_records(records), expected=wanted)
                if after != before:
                    write_private(self._path, msgspec.json.format(msgspec.json.encode(after), indent=1) + b"\n")
                    self._known, self._mark = after, _file_version(self._path)
        except OSError as error:
            raise ConfigError(
                f"{self._path}: pins cannot be saved ({error.strerror or error}), so nothing that should be pinned is "
                "served: make the folder writable, or set TRUNKLINE_HOME to another."
            ) from error

    def _read(self) -> _PinFile:
        mark = _file_version(self._path)
        if mark == self._mark and mark is not None:
            return self._known
        content = read_private(self._path, what="pins")
        try:
            self._known = _PinFile(version=1) if content is None else msgspec.json.decode(content, type=_PinFile)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(
                f"{self._path}: pins cannot be parsed ({error}), so nothing that should be pinned is served. "
                "Repair the file, or delete it: every server is then new, and is pinned as it is."
            ) from error
        self._mark = mark
        return self._known


def _accepting(lock: PinLock, server: str) -> Callable[[PinKey, CurrentDefinition], bool]:
    def accepts(key: PinKey, seen: CurrentDefinition) -> bool:
        entry = lock.find(server, *key)
        return entry is not None and seen.has_pin(entry.pin)

    return accepts


def _differs(observed: ObservedPins, book: _PinFile) -> bool:
    known = {(record.name, record.key): record for record in book.servers}
    return any(known.get((record.name, record.key)) is not record for record in observed.kept)


def _limit_records(records: _Records) -> list[ServerPins]:
    """Sort records, and drop the oldest ones of a name that has too many."""
    kept: list[ServerPins] = []
    for name in sorted({name for name, _ in records}):
        own = sorted((each for each in records.values() if each.name == name), key=lambda each: -each.since)
        kept += own[:_MAX_RECORDS_PER_NAME]
    return kept


def _file_version(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
