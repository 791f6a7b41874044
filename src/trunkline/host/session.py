"""A session with the host, and the state that belongs to it alone.

A session owns its grants, its taint, its budget and its connections to servers. A server sees the calls made to it,
never a session or the answers of other servers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import trunkline.types as t
from trunkline.errors import TooManyRequests
from trunkline.host.judgement.grants import SessionGrants
from trunkline.host.judgement.taint import Taint
from trunkline.host.passing.lanes import Credentials
from trunkline.host.passing.pool import Lanes
from trunkline.host.sampling.context import ServerResults
from trunkline.protocol.caller import Principal

__all__ = ["Budget", "HostSession"]


class Budget:
    """The call limits of a session: concurrent calls, and calls per minute as a token bucket."""

    __slots__ = ("_at", "_left", "_now", "_per_second", "burst", "concurrent", "in_flight", "per_minute")

    def __init__(self, now: Callable[[], float], *, per_minute: float | None, concurrent: int) -> None:
        """Start with a full bucket: one minute of calls."""
        self._now = now
        self.per_minute = per_minute
        self._per_second = None if per_minute is None else per_minute / 60.0
        self.burst = 0.0 if per_minute is None else max(1.0, per_minute)
        self._left = self.burst
        self._at = now()
        self.concurrent = concurrent
        self.in_flight = 0

    def enter(self) -> None:
        """Start a call.

        Raises:
            TooManyRequests: the caller has too many calls in flight, or made too many in the last minute.
        """
        if self.in_flight >= self.concurrent:
            raise TooManyRequests(
                f"Too many calls at once: the limit is {self.concurrent} for each caller. "
                "Wait until one of them has ended, then try again",
                data={"limit": "concurrent", "allowed": self.concurrent, "retryAfter": 1},
            )
        wait = self._wait()
        if wait > 0:
            seconds = math.ceil(wait)
            raise TooManyRequests(
                f"Too many calls: the limit is {self.per_minute:g} a minute for each caller; try again in {seconds} s",
                data={"limit": "perMinute", "allowed": self.per_minute, "retryAfter": seconds},
            )
        self.in_flight += 1

    def leave(self) -> None:
        """End a call."""
        self.in_flight -= 1

    def _wait(self) -> float:
        """Take one call from the budget and return 0, or return the seconds until one is available."""
        if self._per_second is None:
            return 0.0
        now = self._now()
        self._left = min(self.burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return (1.0 - self._left) / self._per_second
        self._left -= 1.0
        return 0.0


class HostSession:
    """The state of one session."""

    __slots__ = (
        *("budget", "found", "grants", "id", "lanes", "log_level", "principal", "profile", "results", "taint"),
        "used_at",
    )

    def __init__(
        self,
        *,
        now: Callable[[], float],
        principal: Principal | None = None,
        profile: str | None = None,
        budget: Budget | None = None,
        credentials: Credentials | None = None,
        conversation: bool = True,
    ) -> None:
        """Create a session; ``conversation`` is False where its requests have nothing in common."""
        self.id = os.urandom(8).hex()
        self.principal = principal
        self.profile = profile
        self.grants = SessionGrants()
        #: The servers whose untrusted content entered the session.
        self.taint = Taint(kept=conversation)
        #: Recent results of each server, for its own sampling requests that ask for context.
        self.results = ServerResults()
        #: The wire names of tools found by tool search through the gateway, the latest last.
        self.found: dict[str, None] = {}
        self.lanes = Lanes(now, credentials)
        self.budget = budget or Budget(now, per_minute=None, concurrent=1024)
        #: The log messages a handshake client asked for by ``logging/setLevel``.
        self.log_level: t.LoggingLevel | None = None
        self.used_at = now()

    @property
    def subject(self) -> str | None:
        """The subject of the principal, for rules and the audit trail."""
        return None if self.principal is None else self.principal.subject

    @property
    def tainted(self) -> bool:
        """Whether untrusted content entered the session, from any server."""
        return bool(self.taint)

    async def aclose(self) -> None:
        """Close its connections."""
        await self.lanes.aclose()
