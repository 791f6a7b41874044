"""The interface of a store: everything of a server that outlives a request, and that its workers share.

Keys, logs, channels, queues and indexes are named by short texts; each kind has its own names. Values are bytes. Times
are seconds. Every coroutine ends within a bounded time: it returns, or raises `StoreUnavailable`, and the next call
tries again. A write that failed so may have been done all the same, unless the method says otherwise.

Writes are *steps*, and `Store.commit` does several of them at once or none: a record, its places in the indexes and its
entry in a queue never differ. ``put``, ``replace``, ``delete`` and the other short forms are commits of one step. No
verb costs more if more is stored.

A store that lost writes which it had acknowledged (a failover to a replica that lagged behind, a restart without its
file) gets a new *generation*: whatever was derived from the old one must end, since it may have gaps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from msgspec import Struct

__all__ = [
    "Appended",
    "Commit",
    "Delete",
    "Delivery",
    "Enqueue",
    "Entry",
    "Finish",
    "FullIndex",
    "Index",
    "IndexLimits",
    "Publish",
    "Put",
    "Step",
    "Store",
    "Subscription",
    "entry_position",
]


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
    """An index that has no room for one more member, and which of its limits says so: "members" or "weight"."""

    name: str
    limit: str


# --- steps of a commit -----------------------------------------------------------------------------------------------


class Put(Struct, frozen=True, gc=False):
    """Set a value that expires; with a condition, only if it holds."""

    key: str
    value: bytes
    ttl: float
    #: The value that must be there now.
    old: bytes | None = None
    #: Whether there must be none now.
    only_if_absent: bool = False


class Delete(Struct, frozen=True, gc=False):
    """Delete the value, the log and the count of a name."""

    key: str


class Index(Struct, frozen=True, gc=False):
    """Add a member to indexes, or renew it there, and remove it from others.

    The condition: each index has room for it, or for its greater weight.
    """

    member: str
    into: Mapping[str, IndexLimits]
    out_of: Sequence[str] = ()
    weight: int = 0
    ttl: float = 1.0


class Enqueue(Struct, frozen=True, gc=False):
    """Add an entry to a queue, leased to a holder if there is one; an entry of this id is replaced."""

    queue: str
    id: str
    data: bytes
    holder: str = ""


class Finish(Struct, frozen=True, gc=False):
    """Remove an entry of a queue, if the holder still has it; no condition."""

    queue: str
    holder: str
    id: str


class Publish(Struct, frozen=True, gc=False):
    """Send a message on a channel."""

    channel: str
    data: bytes


Step: TypeAlias = Put | Delete | Index | Enqueue | Finish | Publish


class Commit(NamedTuple):
    """The outcome of a commit."""

    #: Whether all steps were done; otherwise none was, since a condition did not hold.
    done: bool
    #: The index that has no room, if that is why.
    full: FullIndex | None = None


class Subscription(Protocol):
    """A subscription to a channel."""

    async def close(self) -> None:
        """End the subscription; never raises."""


class Store(ABC):
    """What outlives the requests of one server, and what its workers share."""

    #: Whether the contents outlive the process.
    durable: bool = True
    #: Whether only this user on this machine can read the contents: then values need no encryption.
    private: bool = False

    @property
    def path(self) -> str | None:
        """The file that has the contents, if it is one."""
        return None

    # --- values: one key, one value, which expires ---

    @abstractmethod
    async def get(self, key: str) -> bytes | None:
        """Return a value; None if there is none."""

    @abstractmethod
    async def commit(self, *steps: Step) -> Commit:
        """Do all steps at once, in their order, or none if the condition of one does not hold.

        Conditions are those before the first step: no two steps of a commit may be about the same key, or the same
        member of an index.
        """

    async def put(self, key: str, value: bytes, *, ttl: float, only_if_absent: bool = False) -> bool:
        """Set a value; return False if it was to be set only if absent, and is present."""
        return (await self.commit(Put(key, value, ttl, only_if_absent=only_if_absent))).done

    async def replace(self, key: str, old: bytes, new: bytes, *, ttl: float) -> bool:
        """Set a value if it is ``old`` now, in one step; return whether it was."""
        return (await self.commit(Put(key, new, ttl, old))).done

    async def delete(self, *keys: str) -> None:
        """Delete values, logs and counts of these names."""
        await self.commit(*map(Delete, keys))

    # --- logs: entries in order, the oldest are dropped ---

    @abstractmethod
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

    def append_now(
        self, log: str, data: bytes, *, ttl: float, max_entries: int, max_bytes: int, announce: str | None = None
    ) -> Appended | None:
        """Add an entry at once, where that takes no waiting; None if `append` must be awaited instead.

        Raises:
            StoreUnavailable: it cannot be added.
        """
        return None

    @abstractmethod
    async def read(
        self, log: str, *, after: str = "", limit: int = 1000, inclusive: bool = False
    ) -> list[Entry] | None:
        """Return the entries after an id, with ``inclusive`` from this one on; without an id the oldest kept.

        None if the entry with that id is not kept: what followed it may be incomplete.
        """

    # --- channels: messages to those who listen now ---

    @abstractmethod
    async def publish(self, channel: str, data: bytes) -> int:
        """Send a message; return how many subscribers heard it."""

    @abstractmethod
    async def subscribe(
        self, channel: str, receive: Callable[[bytes], None], *, missed: Callable[[], None] | None = None
    ) -> Subscription:
        """Call ``receive`` with each message from now on, in the event loop.

        ``missed`` is called when the connection was lost and is there again: messages may be missing.
        """

    # --- limits ---

    @abstractmethod
    async def admit(self, key: str, *, rate: float, burst: int, cost: int = 1) -> float:
        """Count ``cost`` events against a rate per second (GCRA); return 0, or for how many seconds they must wait.

        Up to ``burst`` events are admitted at once. Events that must wait are not counted.
        """

    # --- queues: each entry is leased to one worker at a time, at least once ---

    async def enqueue(self, queue: str, id: str, data: bytes, *, holder: str = "") -> None:
        """Add an entry, leased to a holder if there is one; an entry of this id is replaced."""
        await self.commit(Enqueue(queue, id, data, holder))

    @abstractmethod
    async def take(self, queue: str, holder: str, *, lease: float, limit: int = 1) -> list[Delivery]:
        """Lease entries to a holder: those whose lease was not renewed for ``lease`` seconds, and those without one."""

    @abstractmethod
    async def renew(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Renew leases; return the ids that the holder still has."""

    @abstractmethod
    async def release(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """End leases that the holder still has, so that any worker can take the entries; return their ids."""

    async def finish(self, queue: str, holder: str, ids: Sequence[str]) -> None:
        """Remove the entries that the holder still has."""
        await self.commit(*(Finish(queue, holder, id) for id in ids))

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
        return (await self.commit(Index(member, into, out_of, weight, ttl))).full

    @abstractmethod
    async def members(self, index: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return the members of an index after a text, in their order."""

    # --- its own life; ``stats`` of type `StoreStats` is optional ---

    @property
    @abstractmethod
    def available(self) -> bool:
        """Whether the last contact succeeded."""

    @property
    @abstractmethod
    def generation(self) -> str:
        """Changes when acknowledged writes were lost; known once connected."""

    @abstractmethod
    def on_new_generation(self, callback: Callable[[str], None]) -> None:
        """Register a callback for each new generation."""

    @abstractmethod
    async def connect(self) -> None:
        """Connect, so that the generation is known; called before anything else, and again if it failed."""

    @abstractmethod
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
