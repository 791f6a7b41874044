"""A lock file: the pins that a team agreed on, by server and name, to keep beside the configuration.

It holds digests and nothing else, sorted, so that a change of it is one line. It says nothing of how a server is
reached, which differs from one machine to the next. Reading it is all the I/O there is.
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
    """What must be found under one name."""

    pin: str
    #: Somebody has seen what the scan finds in it, and accepts that.
    vetted: bool = False


class PinLock(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Pins by server, kind and name."""

    version: Literal[1] = 1
    servers: dict[str, dict[str, dict[str, LockedPin]]] = {}

    def find(self, server: str, kind: str, name: str) -> LockedPin | None:
        """Find what must be there under a name."""
        return self.servers.get(server, {}).get(kind, {}).get(name)

    def pins_of(self, server: str) -> dict[Key, str]:
        """Give the pins of a server."""
        kinds = self.servers.get(server, {})
        return {(kind, name): each.pin for kind in PINNED for name, each in kinds.get(kind, {}).items()}

    def joined(self, other: PinLock) -> PinLock:
        """Give this one with the servers of another in place of its own."""
        return PinLock(servers={**self.servers, **other.servers})


def lock_of(records: Iterable[ServerPins]) -> PinLock:
    """Make a lock file of what is accepted; what is gone is not in it. Of two records of a name the newer counts."""
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
    """Write a lock file: equal locks are equal bytes."""
    whole = {"version": lock.version, "servers": lock.servers}
    return msgspec.json.format(msgspec.json.encode(whole, order="sorted"), indent=2) + b"\n"


def read_lock(path: str | os.PathLike[str]) -> PinLock:
    """Read a lock file.

    Raises:
        ConfigError: there is none, or it cannot be understood.
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
            f"{os.fspath(path)}: this is no lock file ({error}); make one with: trunkline pins export FILE"
        ) from error
