"""Lines on how the servers of a gateway are: every change for a person who watches, what needs a hand for a log.

An application keeps what a gateway writes on stderr in its log. There a server that cannot be used is told once, with
the reason and the step that mends it. It prints nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from trunkline.cli.output import clip_middle, one_line
from trunkline.host.supervision.condition import HOPELESS
from trunkline.host.supervision.upstream import Status

__all__ = ["StateLines", "nothing_served"]

_LONGEST_REASON = 300
#: States that last until a person does something. Those that a person chose are no news.
_NEEDS_A_HAND = HOPELESS - {"disabled", "stopped"}


class StateLines:
    """Chooses and formats the lines; remembers what was told of each server."""

    def __init__(self, *, every: bool, remote: Iterable[str] = ()) -> None:
        """Set whether every change is reported, or only those that need attention.

        Servers at a URL are retried for ever and are never ``broken``.
        """
        self._every = every
        self._remote = frozenset(remote)
        self._told: dict[str, tuple[str, str]] = {}

    def lines(self, server: str, state: str, reason: str | None) -> Iterator[str]:
        """Yield the line for a state that a server reached, if it says something new."""
        if state in ("ready", "partial"):
            self._told.pop(server, None)
        if state == "starting" and server in self._told:
            # Another attempt; the next line says whether it did better.
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
    """Return what to do about a state whose reason does not say so itself."""
    if state in ("broken", "misconfigured"):
        return f"; to find out more, run: trunkline doctor {shlex.quote(server)}"
    return ""


def nothing_served(statuses: Iterable[Status]) -> str | None:
    """Return a sentence if no server can be used and none is about to start; else None."""
    found = list(statuses)
    if any(each.state not in HOPELESS or each.tools or each.prompts or each.resources for each in found):
        return None
    if not found:
        return "no server is configured, so nothing is served"
    return "none of the servers can be used, so nothing is served; trunkline status shows why for each"
