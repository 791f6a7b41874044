"""Lines about definitions that changed since they were accepted, for ``serve``, ``list`` and ``status``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from trunkline.cli.output import counted, one_line
from trunkline.host.events import Inspected

__all__ = ["change_lines"]

# For each server: an updated server may have changed all of its definitions.
_MOST_LINES = 3


def change_lines(inspected: Iterable[Inspected]) -> list[str]:
    """Return a line for each changed definition, with how to accept it; for many, the first few and a count."""
    by_server: dict[str, list[Inspected]] = {}
    for each in inspected:
        if each.what == "changed":
            by_server.setdefault(each.server, []).append(each)
    lines: list[str] = []
    for server, changes in by_server.items():
        lines += [one_line(f"{_called(each)}: {each.reason}") for each in changes[:_MOST_LINES]]
        if more := len(changes[_MOST_LINES:]):
            target = shlex.quote(server)
            see = f"to see all changes, run: trunkline pins diff {target}"
            accept = f"to accept all: trunkline pins accept {target}"
            lines.append(one_line(f"{server}: {counted(more, 'more definition')} changed; {see}; {accept}"))
    return lines


def _called(each: Inspected) -> str:
    return f"{each.server}/{each.name} ({each.kind})" if each.name else f"{each.server} ({each.kind})"
