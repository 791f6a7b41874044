"""Rewrites a file of another application atomically, with a backup beside it that can be restored byte for byte.

The name of the backup has the time and a digest of what was written, which shows whether the file was changed since: a
later change by someone else is never undone together with ours. A symbolic link stays a link.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.state_files import stage

__all__ = ["Backup", "backups_of", "read_whole", "rewrite", "undo"]

# Some applications keep the history of conversations in the same file.
_MOST_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"\.trunkline-(\d{8}T\d{6})-(\d+)-([0-9a-f]{16})\.(bak|absent)")


class Backup(Struct, frozen=True, kw_only=True):
    """The contents of a file before it was rewritten."""

    path: Path
    at: str
    #: Orders backups made within the same second.
    number: int
    #: A digest of what was written.
    mark: str
    #: True if the file did not exist before.
    absent: bool


def read_whole(path: Path) -> bytes | None:
    """Return the contents of a file; None if it does not exist.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{path}: the file is larger than {_MOST_BYTES // 1024**2} MiB; is it the right file?")
    return content


def rewrite(path: Path, content: bytes, *, before: bytes | None, clock: Callable[[], float] = time.time) -> Backup:
    """Replace the contents of a file that was read as ``before``; return the backup.

    Raises:
        ConfigError: the file has changed since it was read, or cannot be written.
    """
    real = Path(os.path.realpath(path))
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        backup = _keep(real, before, _mark(content), clock)
        try:
            _replace(real, content, before=before)
        except BaseException:
            with suppress(OSError):
                backup.path.unlink()
            raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error
    return backup


def _keep(real: Path, before: bytes | None, mark: str, clock: Callable[[], float]) -> Backup:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.localtime(clock()))
    number = max((each.number + 1 for each in backups_of(real) if each.at == stamp), default=0)
    kind = "absent" if before is None else "bak"
    path = real.with_name(f"{real.name}.trunkline-{stamp}-{number}-{mark}.{kind}")
    os.replace(stage(str(path), before or b""), path)
    return Backup(path=path, at=stamp, number=number, mark=mark, absent=before is None)


def _replace(real: Path, content: bytes, *, before: bytes | None) -> None:
    other = stage(str(real), content)
    try:
        if before is not None:
            os.chmod(other, real.stat().st_mode & 0o7777)
        if read_whole(real) != before:
            raise ConfigError(f"{real}: another program has just changed it; nothing was written, try again")
        os.replace(other, real)
    except BaseException:
        with suppress(OSError):
            os.unlink(other)
        raise


def backups_of(path: Path) -> list[Backup]:
    """Return the backups of a file, the oldest first."""
    real = Path(os.path.realpath(path))
    found = []
    for name in os.listdir(real.parent) if real.parent.is_dir() else ():
        match = _NAME.fullmatch(name[len(real.name) :]) if name.startswith(real.name) else None
        if match is not None:
            at, number, mark, kind = match.groups()
            found.append(
                Backup(path=real.with_name(name), at=at, number=int(number), mark=mark, absent=kind == "absent")
            )
    return sorted(found, key=lambda backup: (backup.at, backup.number))


def undo(path: Path, *, dry_run: bool = False) -> tuple[Backup, bytes | None, bytes | None]:
    """Restore the last backup; return the backup, and the contents before and after.

    Raises:
        ConfigError: there is no backup, or the file was changed since.
    """
    real = Path(os.path.realpath(path))
    kept = backups_of(real)
    if not kept:
        raise ConfigError(f"{path}: there is no backup by trunkline beside it, so nothing can be undone")
    backup, now = kept[-1], read_whole(real)
    if now is None or _mark(now) != backup.mark:
        raise ConfigError(
            f"{path}: the file was changed since, and restoring the backup would undo that too; remove the entry by "
            f"hand, or compare the file with {backup.path.name}"
        )
    old = None if backup.absent else read_whole(backup.path)
    if not dry_run:
        _restore(real, old, now, backup)
    return backup, now, old


def _restore(real: Path, old: bytes | None, now: bytes, backup: Backup) -> None:
    try:
        if backup.absent:
            real.unlink()
        else:
            assert old is not None
            _replace(real, old, before=now)
        backup.path.unlink()
    except OSError as error:
        raise ConfigError(f"{real}: cannot be written: {error.strerror or error}") from error


def _mark(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
