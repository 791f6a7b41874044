"""The hash seed of the Python servers that a host starts: drawn once per installation, and kept.

Python hashes texts differently in every process, so a server that writes a set into a description, an enum or a default
lists another definition at every start, and every start looks like a change. With one seed for all starts the
definition stays the same. The seed is random and readable by its owner alone, so it protects against chosen hash
collisions as well as a new one would. ``PYTHONHASHSEED`` in an entry, or in the environment of the host, wins over it.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from trunkline.errors import ConfigError
from trunkline.host.state_files import locked, read_private, write_private

__all__ = ["VARIABLE", "HashSeed"]

#: What Python reads its seed from.
VARIABLE = "PYTHONHASHSEED"
# 0 would switch the protection off.
_LARGEST = 4_294_967_295
_DIGITS = re.compile(r"[0-9]{1,10}")

log = logging.getLogger("trunkline.host")


class HashSeed:
    """The seed of one installation, in a file."""

    def __init__(self, path: Path) -> None:
        """Set the path of the file, which is read or created when the first server starts."""
        self._path = path
        self._value: str | None = None
        self._failed = False

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what to add to the environment of a server; empty if the seed cannot be stored."""
        given = environ.get(VARIABLE)
        if given:
            return {VARIABLE: given}
        if self._value is None and not self._failed:
            try:
                self._value = self._drawn()
            except (OSError, ConfigError) as error:
                self._failed = True
                log.warning("servers start without a fixed hash seed (%s): %s", VARIABLE, error)
        return {} if self._value is None else {VARIABLE: self._value}

    def _drawn(self) -> str:
        path = str(self._path)
        with locked(path):
            found = (read_private(path, what="the hash seed") or b"").decode("ascii", "replace").strip()
            if _DIGITS.fullmatch(found) and 0 < int(found) <= _LARGEST:
                return found
            value = str(1 + secrets.randbelow(_LARGEST))
            write_private(path, f"{value}\n".encode())
            return value
