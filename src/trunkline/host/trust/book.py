"""Whether a server may run: the store of the user's approvals.

Servers that the user configured or named are trusted. A server found in a project folder came with the project, so it
runs only after the user has approved it, under that name, in that folder, with that fingerprint; any difference needs a
new approval. The store must be outside the projects it covers, and a store that cannot be read approves nothing.
Nothing is started here.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.entries import ServerEntry
from trunkline.host.state_files import locked, read_private, write_private
from trunkline.host.trust.fingerprints import Fingerprint, fingerprint_of, readable, shown_url

__all__ = [
    "Approval",
    "Change",
    "Standing",
    "State",
    "TrustBook",
    "project_folder",
    "shown_command",
]

State: TypeAlias = Literal["trusted", "approved", "new", "changed", "revoked"]

# Folders of a project in which editors store its configuration file.
_EDITORS = frozenset({".vscode", ".cursor"})


class Approval(Struct, frozen=True, kw_only=True):
    """An approval of the user; a revoked one is kept, to distinguish it from one that never existed."""

    name: str
    #: The real path of the project's folder.
    folder: str
    #: The configuration file, as it was named then.
    file: str
    #: Seconds since the epoch.
    at: float
    #: The command or URL, without secrets.
    shown: str
    digest: str
    parts: dict[str, str]
    marks: dict[str, str]
    revoked_at: float | None = None


class Change(Struct, frozen=True):
    """A part that differs from what was approved; None where there is, or was, no such part."""

    part: str
    before: str | None
    now: str | None

    def __str__(self) -> str:
        """Describe the change in one line."""
        if self.before == self.now:
            return f"{self.part}: a value that is not shown"
        return f"{self.part}: {self.before or '(nothing)'} -> {self.now or '(nothing)'}"


class Standing(Struct, frozen=True):
    """Whether a server may run, and why: the outcome of a trust check."""

    state: State
    reason: str
    changes: tuple[Change, ...] = ()
    #: Why it cannot be approved either.
    obstacle: str | None = None

    @property
    def may_run(self) -> bool:
        """Whether it may be started or contacted."""
        return self.state in ("trusted", "approved")


class _Book(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of the file."""

    version: Literal[1] = 1
    approvals: list[Approval] = []


class TrustBook:
    """The user's approvals, in one file that several processes may write."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.time) -> None:
        """Set the path of the file, which is created with the first approval."""
        self._path = Path(os.path.realpath(path))
        self._clock = clock

    def __repr__(self) -> str:
        """Show the path of the file."""
        return f"TrustBook({str(self._path)!r})"

    async def check(self, entry: ServerEntry) -> tuple[bool, str | None]:
        """Return whether a server may run as it is now, and if not, why; called by the supervisor."""
        if entry.source.scope != "project":
            return True, None
        standing = self.standing(entry, await fingerprint_of(entry))
        return standing.may_run, None if standing.may_run else standing.reason

    def standing(self, entry: ServerEntry, now: Fingerprint) -> Standing:
        """Return the trust status of a server; "new", with the reason, if the store cannot be read."""
        if entry.source.scope != "project":
            return Standing("trusted", f"it is in {entry.source}, which the user wrote or named")
        try:
            folder = self._folder(entry)
            kept = self._read().get((entry.name, folder))
        except ConfigError as error:
            return Standing("new", str(error), obstacle=str(error))
        fix = f"run: trunkline trust approve {shlex.quote(entry.name)}"
        if kept is None:
            return Standing("new", f"it came with the project in {folder} and is not approved; {fix}")
        if kept.revoked_at is not None:
            return Standing("revoked", f"its approval was revoked; {fix}", _changes(kept, now))
        if kept.digest != now.digest:
            changes = _changes(kept, now)
            what = ", ".join(change.part for change in changes)
            return Standing("changed", f"it changed since it was approved ({what}); {fix}", changes)
        return Standing("approved", f"it was approved on {time.strftime('%Y-%m-%d', time.localtime(kept.at))}")

    def approve(self, entry: ServerEntry, seen: Fingerprint) -> Approval:
        """Approve a server as the user has seen it; replaces an earlier approval under its name.

        Raises:
            ConfigError: the entry needs no approval or cannot have one, or the store cannot be read or written.
        """
        approval = Approval(
            name=entry.name,
            folder=self._folder(entry),
            file=readable(_absolute(entry.source.file or "")),
            at=self._clock(),
            shown=readable(shown_command(entry)),
            digest=seen.digest,
            parts=seen.parts,
            marks=seen.marks,
        )
        with self._changing() as kept:
            kept[approval.name, approval.folder] = approval
        return approval

    def revoke(self, name: str, folder: str | os.PathLike[str] | None = None) -> bool:
        """Revoke the approvals of a name, in one folder or in all; return True if there was one.

        Raises:
            ConfigError: the store cannot be read or written.
        """
        real = None if folder is None else readable(os.path.realpath(folder))
        with self._changing() as kept:
            taken = {
                key: msgspec.structs.replace(approval, revoked_at=self._clock())
                for key, approval in kept.items()
                if approval.name == name and real in (None, approval.folder) and approval.revoked_at is None
            }
            kept.update(taken)
        return bool(taken)

    def approvals(self) -> list[Approval]:
        """Return all approvals, including revoked ones, by name and folder.

        Raises:
            ConfigError: the store cannot be read.
        """
        return [approval for _, approval in sorted(self._read().items())]

    def _folder(self, entry: ServerEntry) -> str:
        """Return the real path of the project that an entry came with."""
        if entry.source.scope != "project" or entry.source.file is None:
            raise ConfigError(f"{entry.name} is from {entry.source}: only servers of a project's file are approved.")
        folder = project_folder(entry.source.file)
        if self._path.is_relative_to(folder):
            raise ConfigError(
                f"Approvals are kept in {self._path}, inside the project folder {folder}, which could so approve its "
                "own servers: set TRUNKLINE_HOME to a folder outside, or name the file yourself with --config."
            )
        return readable(folder)

    @contextmanager
    def _changing(self) -> Iterator[dict[tuple[str, str], Approval]]:
        """Read the approvals, let the caller change them, and write them back, under a lock."""
        path = str(self._path)
        try:
            with locked(path):
                kept = self._read()
                before = dict(kept)
                yield kept
                if kept != before:
                    book = _Book(approvals=[approval for _, approval in sorted(kept.items())])
                    write_private(path, msgspec.json.format(msgspec.json.encode(book)) + b"\n")
        except OSError as error:
            raise ConfigError(f"{path}: approvals cannot be kept: {error.strerror or error}.") from error

    def _read(self) -> dict[tuple[str, str], Approval]:
        content = read_private(str(self._path), what="approvals")
        try:
            book = _Book() if content is None else msgspec.json.decode(content, type=_Book)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self._path}: approvals cannot be understood ({error}), so nothing is approved. Repair the file, or "
                "delete it and approve again."
            ) from error
        return {(approval.name, approval.folder): approval for approval in book.approvals}


def project_folder(file: str) -> str:
    """Return the real path of the project folder that a configuration file belongs to."""
    folder = os.path.realpath(os.path.dirname(_absolute(file)))
    return os.path.dirname(folder) if os.path.basename(folder) in _EDITORS else folder


def _absolute(file: str) -> str:
    return os.path.abspath(os.path.expanduser(file))


def _changes(before: Approval, now: Fingerprint) -> tuple[Change, ...]:
    names = dict.fromkeys([*before.marks, *now.marks])
    return tuple(
        Change(name, before.parts.get(name), now.parts.get(name))
        for name in names
        if before.marks.get(name) != now.marks.get(name)
    )


def shown_command(entry: ServerEntry) -> str:
    """Return the whole command or the URL of an entry, with secrets masked."""
    if entry.command is None:
        return shown_url(entry) if entry.url is not None else "(in this process)"
    # Secrets are masked first: once quoted, a secret that contains a quote is no longer found.
    return shlex.join(entry.redact(word) for word in entry.command)
