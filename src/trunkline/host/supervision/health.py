"""Checks whether a connected server still answers, and waits for one that may be busy with a call.

The server is sent ``ping``, or ``server/discover`` in the stateless era. After two in a row without an answer it counts
as silent. While another call is within its deadline the server may be busy with that, so the check waits for the call.
"""

from __future__ import annotations

from collections.abc import Callable

from trunkline.client.client import Client
from trunkline.client.contact import pause
from trunkline.errors import LinkError, TrunklineError
from trunkline.host.clocks import within
from trunkline.host.entries import ServerSettings
from trunkline.host.supervision.clients import in_flight, progress_at, wants_login
from trunkline.protocol.limits import Limits
from trunkline.timekeeper import Timekeeper

__all__ = ["SLEPT_SECONDS", "find_silence", "idle_seconds"]

#: If a timer fires this late, the machine slept; a busy loop alone does not delay it so much.
SLEPT_SECONDS = 5.0

_PING_SECONDS = 10.0
# A busy machine may need this long to answer a ping, however short the server's timeout is.
_SHORTEST_PING = 2.0
_MOST_MISSES = 2
# How often a silent server is checked again while calls are within their deadlines.
_AGAIN_SECONDS = 1.0


def idle_seconds(settings: ServerSettings) -> float:
    """Return how long a call of a server may be silent."""
    return Limits().idle_seconds if settings.timeout is None else settings.timeout


async def find_silence(
    client: Client,
    settings: ServerSettings,
    *,
    timekeeper: Timekeeper,
    heard_at: Callable[[], float],
    on_wait: Callable[[str], None] | None = None,
) -> str | None:
    """Return why a server counts as unresponsive; None if it gave a sign of life.

    ``heard_at`` returns the time of the last sign of life that the caller noted. ``on_wait`` is called while the server
    is silent and a call in flight is waited for.

    Raises:
        TrunklineError: the server requires a login.
    """
    now = timekeeper.clock.now
    began = now()

    def heard() -> bool:
        return max(heard_at(), progress_at(client)) > began

    why = await _unanswered(client, settings, timekeeper=timekeeper, heard=heard)
    while why is not None and in_flight(client):
        if on_wait is not None:
            on_wait(why)
        await pause(timekeeper, _AGAIN_SECONDS)
        if heard():
            return None
    return why


async def _unanswered(
    client: Client, settings: ServerSettings, *, timekeeper: Timekeeper, heard: Callable[[], bool]
) -> str | None:
    """Ping twice; return why the server counts as silent, or None if anything came back."""
    seconds = min(_PING_SECONDS, max(_SHORTEST_PING, idle_seconds(settings)))
    failure: LinkError | None = None
    for _ in range(_MOST_MISSES):
        asked = timekeeper.clock.now()
        try:
            await within(timekeeper, seconds, client.ping())
        except TrunklineError as error:
            if wants_login(error):
                raise
            slept = timekeeper.clock.now() - asked > seconds + SLEPT_SECONDS
            if not isinstance(error, LinkError) or slept or heard():
                return None
            failure = error
        else:
            return None
    return f"it did not answer {_MOST_MISSES} pings: {failure}"
