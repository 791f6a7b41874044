"""The ruleset of the kernel's Landlock: which rights are denied by default, and where they are granted; pure.

A right that a kernel does not know yet cannot be denied there; the table says since which version each exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from trunkline.host.sandbox.reach import Reach

__all__ = ["ruleset"]

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE = 1 << 14
_IOCTL_DEV = 1 << 15
#: Creating and removing files, folders, sockets, pipes and links; creating devices (bits 6 and 11) is never granted.
_CHANGE = sum(1 << bit for bit in (4, 5, 7, 8, 9, 10, 12))
_REFER = 1 << 13
_DEVICES = 1 << 6 | 1 << 11

#: The rights that each version added.
_SINCE = (
    (1, _EXECUTE | _WRITE_FILE | _READ_FILE | _READ_DIR | _CHANGE | _DEVICES),
    (2, _REFER),
    (3, _TRUNCATE),
    (5, _IOCTL_DEV),
)
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_WRITE = _READ | _WRITE_FILE | _CHANGE | _REFER | _TRUNCATE
_DEVICE = _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
#: The rights that apply to a file; the others apply to folders only.
FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

_SCOPED_SINCE = 6
#: Abstract Unix sockets, and signals.
_ABSTRACT, _SIGNALS = 1, 2


def ruleset(version: int, reach: Reach, *, sandboxed_sockets: bool) -> dict[str, Any]:
    """Return the handled rights, the scopes and the rules, for ``enter_sandbox``."""
    handled = 0
    for since, rights in _SINCE:
        if version >= since:
            handled |= rights
    scoped = 0 if version < _SCOPED_SINCE else _SIGNALS | _ABSTRACT if sandboxed_sockets else _SIGNALS
    rules = [
        *_rules(reach.system, _READ & handled),
        *_rules(reach.read, _READ & handled),
        *_rules(reach.write, _WRITE & handled),
        *_rules(reach.devices, _DEVICE & handled),
    ]
    return {
        "handled": handled,
        "scoped": scoped,
        "of_files": FILE_RIGHTS,
        "of_writing": _WRITE & handled,
        "rules": rules,
    }


def _rules(paths: Iterable[str], rights: int) -> list[list[Any]]:
    return [[path, rights] for path in paths]
