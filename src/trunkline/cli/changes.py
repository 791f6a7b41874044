"""Definitions that changed since they were accepted, told in lines: by a gateway, in a list, in a status."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from trunkline.cli.output import one_line
from trunkline.host.events import Inspected

__all__ = ["change_lines"]

# Of one server: a server that was updated may have changed all that it has.
_MOST_LINES = 3


def change_lines(inspected: Iterable[Inspected]) -> list[str]:
    """Say of each definition how it changed and what accepts it; of a server with many, the first ones and a count."""
    by_server: dict[str, list[Inspected]] = {}
    for each in inspected:
        if each.what == "changed":
            by_server.setdefault(each.server, []).append(each)
    lines: list[str] = []
    for server, changes in by_server.items():
        lines += [one_line(f"{_called(each)}: {each.reason}") for each in changes[:_MOST_LINES]]
        if more := len(changes[_MOST_LINES:]):
            target = shlex.quote(server)
            more_told = f"{more} more definitions changed; to see them, run: trunkline pins diff {target}"
            lines.append(one_line(f"{server}: {more_told}; to accept them all: trunkline pins accept {target}"))
    return lines


def _called(each: Inspected) -> str:
    return f"{each.server}/{each.name} ({each.kind})" if each.name else f"{each.server} ({each.kind})"
