"""Lines about definitions that changed since they were accepted, or that the scan hides."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from trunkline.cli.output import counted, one_line
from trunkline.host.events import Inspected
from trunkline.host.pins.views import target_of

__all__ = ["change_lines"]

# Per server: an update may have changed all definitions of a server.
_MOST_LINES = 3
# The kinds that are reported, and the words for the remaining ones.
_MORE: Mapping[str, str] = MappingProxyType({"changed": " changed", "hidden": ", hidden by the scan"})


def change_lines(inspected: Iterable[Inspected]) -> list[str]:
    """Return a line for each changed or hidden definition with the command to accept it; of many, a few and a count."""
    groups: dict[tuple[str, str], list[Inspected]] = {}
    for each in inspected:
        if each.what in _MORE:
            groups.setdefault((each.server, each.what), []).append(each)
    lines: list[str] = []
    for (server, what), changes in groups.items():
        lines += [one_line(f"{_called(each)}: {_reason(each)}") for each in changes[:_MOST_LINES]]
        if more := len(changes[_MOST_LINES:]):
            target = shlex.quote(server)
            told = f"{counted(more, 'more definition')}{_MORE[what]}; to see them, run: trunkline pins diff {target}"
            lines.append(one_line(f"{server}: {told}; to accept them all: trunkline pins accept {target}"))
    return lines


def _reason(each: Inspected) -> str:
    if each.what == "changed":
        return each.reason
    target = target_of(each.server, each.kind, each.name)
    return f"hidden, cannot be used: {each.reason}; to accept it: trunkline pins accept {target}"


def _called(each: Inspected) -> str:
    return f"{each.server}/{each.name} ({each.kind})" if each.name else f"{each.server} ({each.kind})"
