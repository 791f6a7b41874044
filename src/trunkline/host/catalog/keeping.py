"""The cache of what servers offered in their last run, so that a server can be listed before it is started.

The era is cached as well: a server that needed the handshake is not probed in the next run, and one that answers
``server/discover`` gets as long to answer as a start may take. One file per server, in a folder of the user, written
whole or not at all. An entry is valid only for the exact launch it was written for. A file that cannot be read, is too
large, or belongs to another launch is ignored. Calls block for as long as a small file takes: use a thread from an
event loop.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.host.catalog.offerings import Offering
from trunkline.host.entries import ServerEntry
from trunkline.host.state_files import write_private
from trunkline.protocol.revisions import find

__all__ = ["KeptCatalogs", "launch_key"]

_FORMAT = 1
_MOST_BYTES = 16 * 1024 * 1024
_MOST_FILES = 256
_ERA_SECONDS = 7 * 86_400.0
T = TypeVar("T", "_File", "_Era")


class _File(Struct, frozen=True):
    format: int
    name: str
    key: str
    offering: Offering
    #: Seconds since the epoch at which its era was last probed.
    probed_at: float = 0.0
    #: Whether it answered ``server/discover``, if only after the handshake had been tried.
    discovers: bool = False


class _Spoken(Struct, frozen=True):
    revision: str


class _Era(Struct, frozen=True):
    """The part of a file with the era of the server; the lists are skipped."""

    format: int
    name: str
    key: str
    offering: _Spoken
    probed_at: float = 0.0
    discovers: bool = False


def launch_key(entry: ServerEntry) -> str:
    """Return a digest of everything that determines what a server offers: how it is reached, with what, in which era.

    Values of variables are included, since credentials determine what a server shows; a digest does not reveal them.
    """
    launch = [
        entry.command,
        sorted(entry.env.items()),
        entry.cwd,
        entry.url,
        sorted(entry.headers.items()),
        entry.type,
        repr(entry.auth),
        entry.settings.era,
    ]
    return hashlib.sha256(msgspec.json.encode(launch)).hexdigest()


class KeptCatalogs:
    """The cached offerings of servers, in a folder."""

    def __init__(self, folder: Path, *, most_bytes: int = _MOST_BYTES, most_files: int = _MOST_FILES) -> None:
        """Set the folder, which is created on first use; an offering over the size limit is not cached."""
        self._folder = folder
        self._most_bytes = most_bytes
        self._most_files = most_files

    def get(self, entry: ServerEntry) -> Offering | None:
        """Return what a server offered in its last run with this launch; None if unknown."""
        kept = self._read(entry, _File)
        return None if kept is None else kept.offering

    def shook_hands(self, entry: ServerEntry, now: float) -> float | None:
        """Return when the era of a server was last probed, if it used the handshake and that was recent; else None.

        A newer version under the same command may support more, so it is probed again from time to time.
        """
        kept = self._read(entry, _Era)
        revision = None if kept is None else find(kept.offering.revision)
        if kept is None or kept.discovers or revision is None or not revision.handshake:
            return None
        return kept.probed_at if 0 <= now - kept.probed_at < _ERA_SECONDS else None

    def discovers(self, entry: ServerEntry) -> bool:
        """Return True if the server answered ``server/discover`` in an earlier run."""
        kept = self._read(entry, _Era)
        return kept is not None and kept.discovers

    def note_discovery(self, entry: ServerEntry) -> None:
        """Record that a server answers ``server/discover``; does nothing if no catalog of it is cached.

        Raises:
            OSError: the file cannot be written.
        """
        self._rewrite(entry, discovers=True)

    def doubt(self, entry: ServerEntry) -> None:
        """Forget the era of a server, so that the next start probes it; its offering stays cached.

        Raises:
            OSError: the file cannot be written.
        """
        self._rewrite(entry, probed_at=0.0, discovers=False)

    def _rewrite(self, entry: ServerEntry, **changes: Any) -> None:
        kept = self._read(entry, _File)
        if kept is not None:
            write_private(str(self._path(entry.name)), msgspec.json.encode(replace(kept, **changes)))

    def _read(self, entry: ServerEntry, kind: type[T]) -> T | None:
        try:
            with open(self._path(entry.name), "rb") as file:
                content = file.read(self._most_bytes + 1)
            kept: Any = msgspec.json.decode(content, type=kind)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        fits = kept.format == _FORMAT and kept.name == entry.name and kept.key == launch_key(entry)
        return kept if fits and len(content) <= self._most_bytes else None

    def put(
        self,
        entry: ServerEntry,
        offering: Offering,
        *,
        probed_at: float = 0.0,
        discovers: bool = False,
        holds_secret: Callable[[str], bool] | None = None,
    ) -> bool:
        """Cache what a server offers; return True if it was cached. Incomplete offerings, or with secrets, never are.

        ``probed_at`` is when its era was last probed, ``discovers`` whether it answered the probe.

        Raises:
            OSError: the file cannot be written.
        """
        if offering.failures:
            return False
        content = msgspec.json.encode(_File(_FORMAT, entry.name, launch_key(entry), offering, probed_at, discovers))
        if len(content) > self._most_bytes or (holds_secret is not None and holds_secret(content.decode())):
            self.forget(entry.name)
            return False
        write_private(str(self._path(entry.name)), content)
        self._tidy()
        return True

    def forget(self, name: str) -> None:
        """Remove what is cached of a server."""
        with suppress(OSError):
            self._path(name).unlink()

    def _path(self, name: str) -> Path:
        # A digest: names may differ in case alone, or contain characters that some file systems reject.
        return self._folder / f"{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"

    def _tidy(self) -> None:
        """Remove the least recently started servers when there are too many."""
        files: list[tuple[float, str]] = []
        with os.scandir(self._folder) as entries:
            for entry in entries:
                # Another host may remove files at the same time.
                with suppress(OSError):
                    files += [(entry.stat().st_mtime, entry.path)] if entry.name[0] != "." else ()
        for _, path in sorted(files)[: -self._most_files or None] if len(files) > self._most_files else ():
            with suppress(OSError):
                os.unlink(path)
