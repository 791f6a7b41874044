"""The sampling limits of a server (which models, how many requests and tokens), and the count of what it used.

The limits of a server are in its entry, under ``sampling``. An entry of a project can only make them stricter than
those of the host. An invalid setting gives the server nothing. Usage is counted per server, across sessions, in memory;
the clock is passed in.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from trunkline.errors import ConfigError, RequestFailed
from trunkline.host.config.model import ServerEntry

__all__ = ["SamplingLimitExceeded", "SamplingLimits", "SamplingUsage", "limits_for"]

_MINUTE = 60.0  # In seconds.
_HOUR = 3600.0  # In seconds.


class SamplingLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a server may use of the user's models."""

    #: The models that may answer it, as globs over ``provider:model``; None: the host's.
    models: tuple[str, ...] | None = None
    #: Requests per minute, including those that are denied.
    per_minute: int = 10
    #: Tokens per hour, of requests and answers together.
    tokens: int = 100_000
    #: Tokens of one answer.
    max_tokens: int = 4096
    #: Concurrent requests; further ones are denied.
    concurrent: int = 4
    #: How many tool-calling rounds the conversation in a request may have.
    rounds: int = 16

    def __post_init__(self) -> None:
        """Reject negative numbers."""
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{each.name} must be an integer of at least 0")


_COUNTS = tuple(each.name for each in fields(SamplingLimits) if each.name != "models")
_NAMES = tuple(each.name for each in fields(SamplingLimits))


def limits_for(entry: ServerEntry, usual: SamplingLimits) -> SamplingLimits:
    """Return the limits of a server: those of its entry, else the defaults.

    Raises:
        ConfigError: the entry's limits are invalid.
    """
    written = entry.settings.sampling
    if written is None:
        return usual
    if not isinstance(written, Mapping):
        raise ConfigError(f"{entry.name}: sampling must be an object with {', '.join(_NAMES)}")
    given = {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(name)).lower(): value for name, value in written.items()}
    try:
        own = msgspec.convert({**msgspec.to_builtins(usual), **given}, SamplingLimits)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{entry.name}: sampling is invalid: {error}; its keys are {', '.join(_NAMES)}") from error
    if entry.source.scope != "project":
        return own
    # The author of a project must not decide how much of this user's models its servers may use.
    narrower = {name: min(getattr(own, name), getattr(usual, name)) for name in _COUNTS}
    return SamplingLimits(models=usual.models, **narrower)


class SamplingLimitExceeded(RequestFailed):
    """A server exceeded its sampling limits."""


class SamplingUsage:
    """The recent usage of one server."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Start without usage."""
        self._now = now
        self._asked: deque[float] = deque()
        self._spent: deque[_SpentTokens] = deque()
        self._open = 0

    @contextmanager
    def request(self, limits: SamplingLimits) -> Iterator[None]:
        """Count a request while the context is open.

        Raises:
            SamplingLimitExceeded: there are too many in the last minute, or at once.
        """
        now = self._now()
        while self._asked and self._asked[0] <= now - _MINUTE:
            self._asked.popleft()
        if self._open >= limits.concurrent:
            raise SamplingLimitExceeded(
                f"Too many sampling requests at once: {limits.concurrent} is the limit", code=-1
            )
        if len(self._asked) >= limits.per_minute:
            seconds = math.ceil(self._asked[0] + _MINUTE - now) if self._asked else int(_MINUTE)
            raise SamplingLimitExceeded(
                f"Too many sampling requests: {limits.per_minute} a minute is the limit; try again in {seconds} s",
                code=-1,
                data={"retryAfter": seconds},
            )
        self._asked.append(now)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    def requests_left(self, limits: SamplingLimits) -> int:
        """Return how many requests are left in this minute."""
        return max(0, limits.per_minute - len(self._asked))

    def tokens_left(self, limits: SamplingLimits) -> int:
        """Return how many tokens are left in this hour."""
        before = self._now() - _HOUR
        while self._spent and self._spent[0].at <= before:
            self._spent.popleft()
        return max(0, limits.tokens - sum(each.tokens for each in self._spent))

    def reserve(self, tokens: int) -> Callable[[int], None]:
        """Reserve tokens; return a function to call with the number actually used."""
        spent = _SpentTokens(self._now(), tokens)
        self._spent.append(spent)

        def settle(used: int) -> None:
            spent.tokens = used

        return settle


class _SpentTokens:
    """Tokens used at one moment."""

    __slots__ = ("at", "tokens")

    def __init__(self, at: float, tokens: int) -> None:
        self.at = at
        self.tokens = tokens
