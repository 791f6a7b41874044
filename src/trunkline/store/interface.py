"""The interface of a store: what the workers of one server share, in sixteen verbs.

Keys, logs, channels, queues and indexes are named by short texts; each kind has its own names. Values are bytes. Times
are seconds. Every coroutine ends within a bounded time: it returns, or raises `StoreUnavailable`, and the next call
tries again. A write that failed so may have been done all the same, unless the method says otherwise.

A store that lost writes which it had acknowledged (a failover to a replica that lagged behind, a restart without
its file) gets a new *generation*: whatever was derived from the old one must end, since it may have gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

__all__ = ["Appended", "Delivery", "Entry", "FullIndex", "IndexLimits", "Store", "Subscription", "entry_position"]


class Entry(NamedTuple):
    """An entry of a log; ids grow from entry to entry, see `entry_position`."""

    id: str
    data: bytes


class Appended(NamedTuple):
    """The outcome of an append: the id of the entry, and how many subscribers it was announced to."""

    id: str
    heard: int


class Delivery(NamedTuple):
    """An entry of a queue that was leased to a worker, and how often it has been leased until now."""

    id: str
    data: bytes
    attempt: int


class IndexLimits(NamedTuple):
    """How many members an index may have, and their total weight; 0 for any."""

    members: int = 0
    weight: int = 0


class FullIndex(NamedTuple):
    """An index that has no room for one more member, and which of its limits says so."""

    name: str
    limit: str


class Subscription(Protocol):
    """A subscription to a channel."""

    async def close(self) -> None:
        """End the subscription; never raises."""


class Store(Protocol):
    """What the workers of one server share."""

    # --- values: one key, one value, which expires ---

    async def get(self, key: str) -> bytes | None:
        """Return a value; None if there is none."""

    async def put(self, key: str, value: bytes, *, ttl: float, only_if_absent: bool = False) -> bool:
        """Set a value; return False if it was to be set only if absent, and is present."""

    async def replace(self, key: str, old: bytes, new: bytes, *, ttl: float) -> bool:
        """Set a value if it is ``old`` now, in one step; return whether it was."""

    async def delete(self, *keys: str) -> None:
        """Delete values, logs and counts of these names."""

    # --- logs: entries in order, the oldest are dropped ---

    async def append(
        self,
        log: str,
        data: bytes,
        *,
        ttl: float,
        max_entries: int,
        max_bytes: int,
        announce: str | None = None,
        patience: float | None = None,
    ) -> Appended:
        """Add an entry exactly once, and drop the oldest while there are too many or too large ones.

        With ``announce`` it is published on that channel in the same step, as ``<id> <data>``: the messages of one
        channel have the order of the log. The entries of one process to one log keep their order. With ``patience`` it
        tries for so long before it raises.
        """

    async def read(
        self, log: str, *, after: str = "", limit: int = 1000, inclusive: bool = False
    ) -> list[Entry] | None:
        """Return the entries after an id, with ``inclusive`` from this one on; without an id the oldest kept.

        None if the entry with that id is not kept: what followed it may be incomplete.
        """

    # --- channels: messages to those who listen now ---

    async def publish(self, channel: str, data: bytes) -> int:
        """Send a message; return how many subscribers heard it."""

    async def subscribe(
        self, channel: str, receive: Callable[[bytes], None], *, missed: Callable[[], None] | None = None
    ) -> Subscription:
        """Call ``receive`` with each message from now on, in the event loop.

        ``missed`` is called when the connection was lost and is there again: messages may be missing.
        """

    # --- limits ---

    async def admit(self, key: str, *, rate: float, burst: int, cost: int = 1) -> float:
        """Count ``cost`` events against a rate per second (GCRA); return 0, or for how many seconds they must wait.

        Up to ``burst`` events are admitted at once. Events that must wait are not counted.
        """

    # --- queues: each entry is leased to one worker at a time, at least once ---

    async def enqueue(self, queue: str, data: bytes, *, holder: str = "") -> str:
        """Add an entry exactly once, publish its id on the channel of the queue's name, and return the id.

        With ``holder`` it is leased to this holder in the same step.
        """

    async def take(self, queue: str, holder: str, *, lease: float, limit: int = 1) -> list[Delivery]:
        """Lease entries to a holder: those whose lease was not renewed for ``lease`` seconds first, then new ones."""

    async def renew(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Renew leases; return the ids that the holder still has."""

    async def finish(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Remove entries that the holder still has; return their ids."""

    async def release(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """End leases that the holder still has, so that any worker can take the entries; return their ids."""

    # --- indexes: sets of names, ordered by text, each with a weight and its own time to live ---

    async def index(
        self,
        member: str,
        *,
        into: Mapping[str, IndexLimits],
        out_of: Sequence[str] = (),
        weight: int = 0,
        ttl: float,
    ) -> FullIndex | None:
        """Add a member to indexes, or renew it there, and remove it from others, in one step.

        If one has no room for it, or for its greater weight, nothing is changed, and this index is returned.
        """

    async def members(self, index: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the members of an index after a text, in their order."""

    # --- its own life; ``stats`` of type `StoreStats` is optional ---

    @property
    def available(self) -> bool:
        """Whether the last contact succeeded."""

    @property
    def generation(self) -> str:
        """Changes when acknowledged writes were lost; known once connected."""

    def on_new_generation(self, callback: Callable[[str], None]) -> None:
        """Register a callback for each new generation."""

    async def connect(self) -> None:
        """Connect, so that the generation is known; called before anything else, and again if it failed."""

    async def aclose(self) -> None:
        """Disconnect; subscriptions end."""


def entry_position(id: str) -> tuple[int, int] | None:
    """Parse an entry id into a position that can be compared; None if it is not an entry id."""
    first, dash, second = id.partition("-")
    # Both are numbers of 64 bits, which have at most 20 digits; Redis refuses greater ones.
    if not (dash and id.isascii() and first.isdigit() and second.isdigit() and len(id) <= 41):
        return None
    position = int(first), int(second)
    return position if max(position) < 1 << 64 else None
