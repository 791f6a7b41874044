"""The book of pins: what every server offered when it was first seen, in one file that several processes may write.

A server is known by its name and by how it is reached (``reach_of``), so another server under the same name starts
anew. A file that cannot be read, or not be written, vouches for nothing: whoever asks is told so and serves nothing of
what should be pinned. It is never written over unread.
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
from trunkline.host.entries import ServerEntry
from trunkline.host.pins.locks import PinLock
from trunkline.host.pins.orders import free_orders
from trunkline.host.pins.pin import is_pin
from trunkline.host.pins.records import Key, Notice, Pin, Seen, ServerPins, Sight, as_seen, sighted, succeeded
from trunkline.host.state_files import locked, read_private, write_private
from trunkline.host.trust.commands import run_by
from trunkline.host.trust.fingerprints import readable, shown_url

__all__ = ["Observed", "PinBook", "reach_of"]

# Of one name: whoever starts a server in ever new ways forgets the oldest.
_MOST_WAYS = 32
# Of one name: definitions that were accepted before the present one.
_MOST_FORMER = 8
_Records = dict[tuple[str, str], ServerPins]


class Observed(Struct, frozen=True):
    """What came of looking at servers."""

    #: What is pinned of each server, as it holds for what was seen.
    records: Mapping[str, ServerPins]
    notices: tuple[Notice, ...] = ()
    #: What the book keeps of each server.
    kept: tuple[ServerPins, ...] = ()


class _Book(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The file, as it lies there."""

    version: Literal[1]
    servers: list[ServerPins] = []
    #: What was imported for servers, to be found there when they are first seen.
    expected: PinLock = PinLock()


def reach_of(entry: ServerEntry) -> tuple[str, str]:
    """Say how a server is reached: as a digest, and as it may be shown.

    It is the command with its arguments, where its script is, and the folder if the entry names one; or the address
    without its query's values. Secrets, variables and headers are left out: a renewed token is no new server, and one
    that is taken for the old although it is not is compared with it, and shows itself as changed.
    """
    if entry.url is not None:
        parts = urlsplit(entry.url) if "://" in entry.url else None
        words = [entry.url] if parts is None else [parts.scheme, parts.hostname or "", str(_port(parts)), parts.path]
        shown = shown_url(entry)
    elif entry.command is not None:
        words = [entry.redact(word) for word in entry.command]
        cwd = os.path.realpath(entry.cwd or os.curdir)
        scripts = [path for kind, path in run_by(entry.command, cwd) if kind == "file"]
        # A program that is named by a path from where we are is another one elsewhere.
        beside = os.sep in entry.command[0] and not os.path.isabs(entry.command[0])
        words += [*scripts, entry.cwd or "", cwd if beside else ""]
        shown = entry.shown
    else:
        words, shown = ["in this process", type(entry.target).__qualname__], entry.shown
    return hashlib.sha256(msgspec.json.encode([readable(word) for word in words])).hexdigest(), readable(shown)


def _port(parts: object) -> int | None:
    try:
        port: int | None = parts.port  # type: ignore[attr-defined]
    except ValueError:
        return None
    return port


class PinBook:
    """What is pinned, in a file."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """Take the file's path; it is made when a server is first seen."""
        self._path = os.path.abspath(os.fspath(path))
        self._clock = clock
        self._mark: tuple[int, int, int] | None = None
        self._known = _Book(version=1)

    def __repr__(self) -> str:
        """Name the file."""
        return f"PinBook({self._path!r})"

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self._path)

    @property
    def outdated(self) -> bool:
        """Tell whether the file is another one than was last read: somebody accepted something."""
        return _mark(self._path) != self._mark

    def servers(self) -> list[ServerPins]:
        """List what is pinned, by name.

        Raises:
            ConfigError: the book cannot be read.
        """
        return sorted(self._read().servers, key=lambda record: (record.name, -record.since))

    def observe(
        self, sights: Iterable[Sight], *, lock: PinLock | None = None, hide: Callable[[str], str] = str
    ) -> Observed:
        """Take looks at servers in, and give what is pinned of each now; only what changed is written.

        Of a look at what a server offered in an earlier run nothing is written and nothing is noticed: it is only held
        to what is pinned.

        ``hide`` takes secrets out of what is kept to be shown.

        Raises:
            ConfigError: the book cannot be read or written, so nothing can be said.
        """
        looks = tuple(sights)
        observed = self._observed(self._read(), looks, lock, hide)
        if not _differs(observed, self._known):
            return observed
        with self._changing() as records:
            # Another process may have looked in the meantime.
            observed = self._observed(self._known, looks, lock, hide)
            records.update({(record.name, record.key): record for record in observed.kept})
        return observed

    def accept(self, server: ServerPins, kind: str, name: str, *, pin: str, exact: bool = False) -> Pin:
        """Accept what is there under a name, as somebody has seen it: drift, and what the scan finds in it.

        If it differs from what was accepted in nothing but order, every order is accepted from now on where the order
        differs (``orders.py``); ``exact`` accepts this order only. If it was accepted once before, the server
        alternates between definitions, and those that were accepted since then stay accepted beside it. If the accepted
        definition was seen after it, another process has that one, and both are accepted.

        Raises:
            ConfigError: it is not there any more, or is another one by now; or the book cannot be read or written.
        """
        return self._look(server, kind, name, pin=pin, vetted=True, exact=exact)

    def note_look(self, server: ServerPins, kind: str, name: str, *, pin: str) -> Pin:
        """Note that somebody has looked at something that was new; raises as ``accept``."""
        return self._look(server, kind, name, pin=pin, vetted=False)

    def expect(self, lock: PinLock) -> int:
        """Take the pins of a lock file as accepted, also for servers that were not seen yet; give how many differed.

        Raises:
            ConfigError: the book cannot be read or written.
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
        """Forget all that is pinned of a server; it is new when it is next seen. Gives how many records there were.

        Raises:
            ConfigError: the book cannot be read or written.
        """
        with self._changing() as records:
            found = [key for key in records if key[0] == server]
            for key in found:
                del records[key]
        return len(found)

    # --- one change --------------------------------------------------------------------------------------------------

    def _observed(
        self, book: _Book, sights: tuple[Sight, ...], lock: PinLock | None, hide: Callable[[str], str]
    ) -> Observed:
        records: dict[str, ServerPins] = {}
        notices: list[Notice] = []
        kept: list[ServerPins] = []
        by_key = {(record.name, record.key): record for record in book.servers}
        for sight in sights:
            record = by_key.get((sight.server, sight.key))
            after, noticed = sighted(
                record,
                sight,
                now=self._clock(),
                siblings=() if record is not None else [each for each in book.servers if each.name == sight.server],
                expected=book.expected.pins_of(sight.server),
                accepts=None if lock is None else _accepting(lock, sight.server),
                hide=hide,
            )
            records[sight.server] = as_seen(after, sight)
            if not sight.recalled:
                kept.append(after)
                notices += noticed
        return Observed(records, tuple(notices), tuple(kept))

    def _look(self, server: ServerPins, kind: str, name: str, *, pin: str, vetted: bool, exact: bool = False) -> Pin:
        with self._changing() as records:
            record = records.get((server.name, server.key))
            known = None if record is None else record.find(kind, name)
            if record is None or known is None:
                raise ConfigError(f"{server.name}/{name} is not pinned any more.")
            after = self._accepted(known, pin, vetted=vetted, exact=exact)
            if after is None:
                raise ConfigError(f"{server.name}/{name} has changed again since it was shown: look at it once more.")
            pins = [after if each.key == known.key else each for each in record.pins]
            records[record.name, record.key] = replace(record, pins=pins)
        return after

    def _accepted(self, known: Pin, pin: str, *, vetted: bool, exact: bool) -> Pin | None:
        if known.drift is None and known.pin == pin:
            return replace(known, new=False, vetted=known.vetted or vetted)
        waiting = known.other_at(self._clock()) if known.drift is None else known.drift
        if waiting is None or waiting.pin != pin or not vetted:
            return None
        before, after = known.definition, waiting.definition
        orders = {} if exact or before is None or after is None else free_orders(before, after, known.orders)
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
            former=succeeded(known, pin)[:_MOST_FORMER],
            orders=orders,
        )

    def _locked(self, pin: Pin, lock: PinLock, server: str) -> Pin:
        """Give what a lock file makes of a pin."""
        entry = lock.find(server, pin.kind, pin.name)
        known = entry is not None and is_pin(entry.pin, pin.pin, pin.definition)
        if entry is None or (known and pin.vetted >= entry.vetted and not pin.new):
            return pin
        if known:
            return replace(pin, new=False, vetted=pin.vetted or entry.vetted)
        here = pin.drift is not None and is_pin(entry.pin, pin.drift.pin, pin.drift.definition)
        return Pin(
            kind=pin.kind,
            name=pin.name,
            pin=pin.drift.pin if here and pin.drift is not None else entry.pin,
            since=self._clock(),
            definition=pin.drift.definition if here and pin.drift is not None else None,
            vetted=entry.vetted,
            gone_since=pin.gone_since,
            # What is there now is not what the file wants.
            drift=None if here else pin.drift,
        )

    # --- the file ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _changing(self, *, expected: PinLock | None = None) -> Iterator[_Records]:
        """Read, have it changed and write it back while nobody else does."""
        try:
            with locked(self._path):
                before = self._read()
                records = {(record.name, record.key): record for record in before.servers}
                yield records
                wanted = before.expected if expected is None else before.expected.joined(expected)
                after = _Book(version=1, servers=_bounded(records), expected=wanted)
                if after != before:
                    write_private(self._path, msgspec.json.format(msgspec.json.encode(after), indent=1) + b"\n")
                    self._known, self._mark = after, _mark(self._path)
        except OSError as error:
            raise ConfigError(
                f"{self._path}: pins cannot be kept ({error.strerror or error}), so nothing that should be pinned is "
                "served: make the folder writable, or have TRUNKLINE_HOME name another."
            ) from error

    def _read(self) -> _Book:
        mark = _mark(self._path)
        if mark == self._mark and mark is not None:
            return self._known
        content = read_private(self._path, what="pins")
        try:
            self._known = _Book(version=1) if content is None else msgspec.json.decode(content, type=_Book)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(
                f"{self._path}: pins cannot be understood ({error}), so nothing that should be pinned is served. "
                "Repair the file, or delete it: every server is then new, and is pinned as it is."
            ) from error
        self._mark = mark
        return self._known


def _accepting(lock: PinLock, server: str) -> Callable[[Key, Seen], bool]:
    def accepts(key: Key, seen: Seen) -> bool:
        entry = lock.find(server, *key)
        return entry is not None and seen.has_pin(entry.pin)

    return accepts


def _differs(observed: Observed, book: _Book) -> bool:
    known = {(record.name, record.key): record for record in book.servers}
    return any(known.get((record.name, record.key)) is not record for record in observed.kept)


def _bounded(records: _Records) -> list[ServerPins]:
    """Sort records, and forget the oldest of a name that is reached in ever new ways."""
    kept: list[ServerPins] = []
    for name in sorted({name for name, _ in records}):
        own = sorted((each for each in records.values() if each.name == name), key=lambda each: -each.since)
        kept += own[:_MOST_WAYS]
    return kept


def _mark(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
