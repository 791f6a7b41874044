"""The lock file: the pins that a team agreed on, by server and name, to keep beside the configuration.

It holds digests only, sorted, so that a change to it is one line. How a server is reached is not in it, since that
differs between machines. Reading the file is the only I/O here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.pins.records import PINNED, Key, Pin, ServerPins

__all__ = ["LockedPin", "PinLock", "lock_of", "read_lock", "written"]

_MOST_BYTES = 32 * 1024 * 1024


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

    def pins_of(self, server: str) -> dict[Key, str]:
        """Return the pins of a server."""
        kinds = self.servers.get(server, {})
        return {(kind, name): each.pin for kind in PINNED for name, each in kinds.get(kind, {}).items()}

    def joined(self, other: PinLock) -> PinLock:
        """Return this lock file with the servers of another one added or replaced."""
        return PinLock(servers={**self.servers, **other.servers})


def lock_of(records: Iterable[ServerPins]) -> PinLock:
    """Build a lock file from the accepted pins that are not gone; of two records of a name the newer counts."""
    servers: dict[str, dict[str, dict[str, LockedPin]]] = {}
    for record in sorted(records, key=lambda each: (each.name, each.since)):
        kinds: dict[str, dict[str, LockedPin]] = {}
        for pin in sorted(record.pins, key=lambda each: (each.kind, each.name)):
            if pin.gone_since is None:
                kinds.setdefault(pin.kind, {})[pin.name] = _locked(pin)
        servers[record.name] = kinds
    return PinLock(servers=servers)


def _locked(pin: Pin) -> LockedPin:
    return LockedPin(pin.pin, pin.vetted)


def written(lock: PinLock) -> bytes:
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
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)}: the lock file cannot be read: {error.strerror}.") from error
    try:
        if len(content) > _MOST_BYTES:
            raise msgspec.ValidationError(f"it has more than {_MOST_BYTES} bytes")
        return msgspec.json.decode(content, type=PinLock)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{os.fspath(path)}: not a lock file ({error}); create one with: trunkline pins export FILE"
        ) from error
