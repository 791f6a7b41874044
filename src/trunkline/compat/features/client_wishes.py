"""What a client declared and chose: its capabilities, and the least level of log messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trunkline.server.context import wants_level

__all__ = ["includes", "is_wanted"]


def is_wanted(caller: Any, level: str) -> bool:
    """Return whether a log message is sent: both frameworks send all until the client chooses another level."""
    if caller.revision.handshake and caller.log_level == _DEFAULT_LEVEL:
        return True
    return wants_level(caller.log_level, level)  # type: ignore[arg-type]


#: What our server takes a client to want that chose no level.
_DEFAULT_LEVEL = "info"


def includes(declared: Any, wanted: Any) -> bool:
    """Return whether a capability record has all that another has."""
    if not isinstance(wanted, Mapping):
        return True
    return isinstance(declared, Mapping) and all(
        name in declared and includes(declared[name], inner) for name, inner in wanted.items()
    )
