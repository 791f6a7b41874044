"""The hash seed of the Python servers that a host starts: drawn once per installation, and kept.

Python gives texts another hash in every process, so a server that writes a set into a description, an enum or a default
lists another definition at every start, and every start looks like a change. With one seed for all starts it lists the
same one. The seed is random and for its owner alone, so that it protects a server against chosen hash collisions as one
that is drawn at each start does. ``PYTHONHASHSEED`` in an entry, or in the environment of the host, counts before it.
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
        """Take the file's path; it is read, or made, when a server is first started."""
        self._path = path
        self._value: str | None = None
        self._failed = False

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what to add to the environment of a server; nothing if no seed can be kept."""
        given = environ.get(VARIABLE)
        if given:
            return {VARIABLE: given}
        if self._value is None and not self._failed:
            try:
                self._value = self._drawn()
            except (OSError, ConfigError) as error:
                self._failed = True
                log.warning("servers are started without a hash seed of their own: %s", error)
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
