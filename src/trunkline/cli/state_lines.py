"""Formats the state changes of a gateway's servers: all of them for a terminal, those that need attention for a log.

Applications keep the stderr of a gateway in their log. There, a server that cannot be used is reported once, with the
reason and the next step. This module prints nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from trunkline.cli.output import clip_middle, one_line
from trunkline.host.supervision.condition import HOPELESS
from trunkline.host.supervision.upstream import Status

__all__ = ["StateLines", "nothing_served"]

_LONGEST_REASON = 300
#: States that last until the user acts. States that the user chose are not reported.
_NEEDS_A_HAND = HOPELESS - {"disabled", "stopped"}


class StateLines:
    """Selects and formats the lines; remembers what was reported about each server."""

    def __init__(self, *, every: bool, remote: Iterable[str] = ()) -> None:
        """Set whether every change is reported, or only those that need attention.

        Servers at a URL are retried forever and are never ``broken``.
        """
        self._every = every
        self._remote = frozenset(remote)
        self._told: dict[str, tuple[str, str]] = {}

    def lines(self, server: str, state: str, reason: str | None) -> Iterator[str]:
        """Yield the line for a state that a server reached, if it says something new."""
        if state in ("ready", "partial"):
            self._told.pop(server, None)
        if state == "starting" and server in self._told:
            # Another attempt; the next state says whether it succeeded.
            return
        trouble = (reason or "").partition(": ")[2] if state == "waiting" else reason or ""
        last = self._told.get(server)
        if state == "waiting" or state in _NEEDS_A_HAND:
            wanted = self._every or state in _NEEDS_A_HAND or server in self._remote
            news = (state, trouble) if self._every else (state, "")
            if not wanted or last == news:
                return
            self._told[server] = news
        elif not self._every:
            return
        why = f": {clip_middle(one_line(reason), _LONGEST_REASON)}" if reason else ""
        yield f"{one_line(server)}: {state}{why}{_step(server, state)}"


def _step(server: str, state: str) -> str:
    """Return the next step for a state whose reason does not name one."""
    if state in ("broken", "misconfigured"):
        return f"; to find out more, run: trunkline doctor {shlex.quote(server)}"
    return ""


def nothing_served(statuses: Iterable[Status]) -> str | None:
    """Return a sentence if no server can be used and none is about to start; else None."""
    found = list(statuses)
    if any(each.state not in HOPELESS or each.tools or each.prompts or each.resources for each in found):
        return None
    if not found:
        return "no servers configured, so nothing is served"
    return "none of the servers can be used, so nothing is served; to see why, run: trunkline status"
