"""The sampling limits of a server (which models, how many requests and tokens), and the count of what it used.

The limits of a server are in its entry, under ``sampling``. An entry of a project can only make them stricter than
those of the host. An invalid setting gives the server nothing. Usage is counted per server, across sessions, in memory;
the clock is passed in.

``ServerResults`` keeps earlier results of a server in a session, as context for its own sampling requests. A server may
ask for context (``includeContext``). It gets none unless a person says so, and then only its own results: they are kept
by session and by server, and no server gets those of another. The latest few are kept, each cut to a maximum length;
they are dropped with the session.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import fields

import trunkline.types as t
from trunkline.errors import ConfigError, RequestFailed
from trunkline.host.config.model import ServerEntry

__all__ = ["SamplingLimitExceeded", "SamplingLimits", "SamplingUsage", "ServerResults", "limits_for"]

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


_MOST_RESULTS = 8  # The last calls of a server are what its request is about.
_LONGEST = 4000  # About 1000 tokens for each result.
_MOST_SERVERS = 64  # More servers than one session uses.


class ServerResults:
    """The latest results of each server in one session."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        """Start with none."""
        self._kept: dict[str, deque[str]] = {}

    def keep(self, server: str, name: str, result: Any) -> None:
        """Keep the result of a tool call, a read or a prompt; one without text is not kept."""
        text = _text(result)
        if not text:
            return
        kept = self._kept.pop(server, None) or deque(maxlen=_MOST_RESULTS)
        # Ordered by last use, so that the least recently used server is dropped first.
        self._kept[server] = kept
        if len(self._kept) > _MOST_SERVERS:
            del self._kept[next(iter(self._kept))]
        cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} […]"
        kept.append(f"{name}:\n{cut}")

    def text(self, server: str) -> str:
        """Return the results of one server, oldest first; empty if there are none."""
        return "\n\n".join(self._kept.get(server, ()))


def _text(result: Any) -> str:
    if isinstance(result, t.CallToolResult):
        texts = [block.text for block in result.content if isinstance(block, t.TextContent)]
        structured = result.structured_content
        if not texts and structured is not UNSET and structured is not None:
            texts = [msgspec.json.encode(structured).decode()]
        return "\n".join(texts)
    if isinstance(result, t.ReadResourceResult):
        return "\n".join(each.text for each in result.contents if each.text is not None)
    if isinstance(result, t.GetPromptResult):
        blocks = [message.content for message in result.messages]
        return "\n".join(block.text for block in blocks if isinstance(block, t.TextContent))
    return ""
