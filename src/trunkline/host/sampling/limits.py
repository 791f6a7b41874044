"""What a server may have of the user's models: which ones, how often, and how many tokens; and the count of it.

The limits of a server stand in its entry, under ``sampling``. An entry of a project may only make them narrower than
those of the host. A setting that cannot be understood gives the server nothing. Counts are kept by server, whatever the
session, in memory; the caller gives the time.
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
from trunkline.host.entries import ServerEntry

__all__ = ["OverBudget", "SamplingAccount", "SamplingLimits", "limits_for"]

_MINUTE = 60.0
_HOUR = 3600.0


class SamplingLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much a server may have of the user's models."""

    #: The models that may answer it, as globs over ``provider:model``; None: those of the host.
    models: tuple[str, ...] | None = None
    #: Requests in a minute, those that are denied included.
    per_minute: int = 10
    #: Tokens in an hour, of requests and answers together.
    tokens: int = 100_000
    #: Tokens of one answer.
    max_tokens: int = 4096
    #: Requests at once; those beyond are refused.
    concurrent: int = 4
    #: How often a model may have called tools before, in the conversation that is sent.
    rounds: int = 16

    def __post_init__(self) -> None:
        """Refuse what is no number of things."""
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, int) and value < 0:
                raise ValueError(f"{each.name} is a whole number from 0 on")


_COUNTS = tuple(each.name for each in fields(SamplingLimits) if each.name != "models")
_NAMES = tuple(each.name for each in fields(SamplingLimits))


def limits_for(entry: ServerEntry, usual: SamplingLimits) -> SamplingLimits:
    """Give the limits of a server: what its entry says, else what is usual.

    Raises:
        ConfigError: what the entry says makes no sense.
    """
    written = entry.settings.sampling
    if written is None:
        return usual
    if not isinstance(written, Mapping):
        raise ConfigError(f"{entry.name}: sampling is an object with {', '.join(_NAMES)}")
    given = {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(name)).lower(): value for name, value in written.items()}
    try:
        own = msgspec.convert({**msgspec.to_builtins(usual), **given}, SamplingLimits)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{entry.name}: sampling makes no sense: {error}; it has {', '.join(_NAMES)}") from error
    if entry.source.scope != "project":
        return own
    # Whoever wrote a project does not say what its servers may have of this user's.
    narrower = {name: min(getattr(own, name), getattr(usual, name)) for name in _COUNTS}
    return SamplingLimits(models=usual.models, **narrower)


class OverBudget(RequestFailed):
    """A server asked for more than it may have."""


class SamplingAccount:
    """What one server had lately."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Start with nothing."""
        self._now = now
        self._asked: deque[float] = deque()
        self._spent: deque[_Spent] = deque()
        self._open = 0

    @contextmanager
    def request(self, limits: SamplingLimits) -> Iterator[None]:
        """Count a request while it lasts.

        Raises:
            OverBudget: there were too many in the last minute, or are at once.
        """
        now = self._now()
        while self._asked and self._asked[0] <= now - _MINUTE:
            self._asked.popleft()
        if self._open >= limits.concurrent:
            raise OverBudget(f"Too many sampling requests at once: {limits.concurrent} is the limit", code=-1)
        if len(self._asked) >= limits.per_minute:
            seconds = math.ceil(self._asked[0] + _MINUTE - now) if self._asked else int(_MINUTE)
            raise OverBudget(
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
        """Say how many more requests this minute has."""
        return max(0, limits.per_minute - len(self._asked))

    def tokens_left(self, limits: SamplingLimits) -> int:
        """Say how many more tokens this hour has."""
        before = self._now() - _HOUR
        while self._spent and self._spent[0].at <= before:
            self._spent.popleft()
        return max(0, limits.tokens - sum(each.tokens for each in self._spent))

    def reserve(self, tokens: int) -> Callable[[int], None]:
        """Count the tokens that may be used now; the function that comes back is told how many it were."""
        spent = _Spent(self._now(), tokens)
        self._spent.append(spent)

        def settle(used: int) -> None:
            spent.tokens = used

        return settle


class _Spent:
    """Tokens that were had at a time."""

    __slots__ = ("at", "tokens")

    def __init__(self, at: float, tokens: int) -> None:
        self.at = at
        self.tokens = tokens
