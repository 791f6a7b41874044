"""One accounting of what a server stores for its callers: handles, large request states, used nonces and tasks.

Everything that is stored for a caller is a member of two indexes, written in the commit that stores it: ``kept``, of
all owners, with the limit ``Limits.store_bytes``, and ``kept:<owner>``, with the share of one,
``Limits.owner_store_bytes``. An owner is a user, or a network where there are none (`owner_name`). A member weighs the
bytes of its record and a fixed amount, so that the limits bound the number of records too.

Members are named by their kind and, where the oldest must be found first, by time: ``h:<key>``, ``n:<nonce>``,
``s:<name>``, ``t:<time> <id>``. So the index of an owner lists its tasks, too.

Records that can be dropped make room for new ones of the same owner, the oldest first: large request states, whose call
can be started again, then finished tasks. Handles, nonces and unfinished tasks are never dropped, and nothing of
another owner is. This module knows nothing of what the records contain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from trunkline.errors import StoreUnavailable, TooManyRequests
from trunkline.store.interface import Commit, Delete, FullIndex, Index, IndexLimits, Step, Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from trunkline.protocol.limits import Limits

__all__ = ["HANDLES", "NONCES", "STATES", "TASKS", "OwnerIndexes", "StoreBudget", "weight_of"]

#: The kinds of members.
HANDLES, NONCES, STATES, TASKS = "h:", "n:", "s:", "t:"
#: The index of all owners, of which that of one begins with the same text.
_ALL = "kept"
#: What a record costs in an engine beside its bytes: keys, places in indexes and in the queue.
_OVERHEAD_BYTES = 512
#: Bytes are rounded up to so many: most changes of a record leave its weight, and need not be written to the indexes.
_STEP_BYTES = 512
#: How many records are dropped before each new attempt to store one: few if little room is needed, some dozens at most.
_DROPPED = (1, 2, 4, 8, 16, 32)
#: How many names of tasks are read at once while finished ones are looked for, and how often.
_PAGE, _PAGES = 512, 8
#: When to try again, in seconds: something may have expired by then.
_RETRY_SECONDS = 30
_UNLIMITED = IndexLimits()
#: The codes of the errors, which are HTTP statuses too: the caller has stored too much, or all callers together have.
_FULL_SHARE, _FULL_STORE = 429, 503
#: Where the records of kinds that can be dropped are stored, and the part of the name that identifies one.
_STATE_KEY, _TASK_KEY = "state:", "task:"


def weight_of(size: int) -> int:
    """Return the weight of a record of so many bytes."""
    return _OVERHEAD_BYTES + -(-size // _STEP_BYTES) * _STEP_BYTES


class OwnerIndexes(NamedTuple):
    """The indexes of the records of one owner, with their limits."""

    #: Of its unfinished tasks.
    unfinished: str
    #: Those that count whatever is stored, with the limits of the owner and of all.
    limited: Mapping[str, IndexLimits]
    #: The same, with the limit of the owner alone.
    of_share: Mapping[str, IndexLimits]
    #: The same without limits.
    unlimited: Mapping[str, IndexLimits]


class StoreBudget:
    """The limits of what a server stores; they hold for all of its workers together."""

    def __init__(self, limits: Limits) -> None:
        """Set the limits."""
        self._limits = limits
        #: A limit of 0 admits nothing, while an index has none then.
        total = IndexLimits(weight=max(1, limits.store_bytes))
        share = IndexLimits(weight=max(1, limits.owner_store_bytes))

        @lru_cache(maxsize=256)
        def indexes(owner: str) -> OwnerIndexes:
            index = f"{_ALL}:{owner}"
            return OwnerIndexes(
                f"tasks:unfinished:{owner}",
                # The share first: an owner that is over both limits is told of its own.
                {index: share, _ALL: total},
                {index: share, _ALL: _UNLIMITED},
                {index: _UNLIMITED, _ALL: _UNLIMITED},
            )

        #: Return the indexes of an owner.
        self.indexes: Callable[[str], OwnerIndexes] = indexes
        #: Bytes in this process that wait until the store can be reached, by owner.
        self._waiting = Counter[str]()

    @property
    def share(self) -> int:
        """The most that the records of one owner may weigh."""
        return min(self._limits.owner_store_bytes, self._limits.store_bytes)

    async def make_room(self, store: Store, owner: str, commit: Commit, steps: Sequence[Step]) -> Commit:
        """Repeat a commit for which there was no room, after dropping the oldest of its owner that can be dropped.

        Raises:
            StoreUnavailable: nothing can be stored now.
        """
        if commit.full is None or commit.full.limit != "weight":
            return commit
        members = await self._droppable(store, owner)
        for count in _DROPPED:
            if not members or commit.full is None:
                break
            await self._drop(store, owner, members[:count])
            del members[:count]
            commit = await store.commit(*steps)
        return commit

    def refusal(self, full: FullIndex) -> TooManyRequests:
        """Return the error for an index without room: it says which limit is reached, and what helps."""
        if full.name == _ALL:
            name, code, where, advice = "store_bytes", _FULL_STORE, "on this server", "Try again later."
        else:
            name, code, where = "owner_store_bytes", _FULL_SHARE, "for this caller"
            advice = "Delete values and cancel tasks that are no longer needed, or wait until they expire."
        most: int = getattr(self._limits, name)
        return TooManyRequests(
            f"No more can be stored {where}: the limit {name}={most} is reached. {advice}",
            code=code,
            data={"limit": name, "allowed": most, "retryAfter": _RETRY_SECONDS},
        )

    @contextmanager
    def waiting(self, owner: str, size: int) -> Iterator[None]:
        """Count bytes of an owner that wait in this process until the store can be reached again.

        Raises:
            StoreUnavailable: what waits already is too large to keep these too.
        """
        waiting, limits = self._waiting, self._limits
        if waiting[owner] + size > limits.owner_store_bytes or waiting.total() + size > limits.store_bytes:
            raise StoreUnavailable(f"{size} bytes cannot wait until the store can be reached: too many wait already")
        waiting[owner] += size
        try:
            yield
        finally:
            waiting[owner] -= size
            if not waiting[owner]:
                del waiting[owner]

    # --- dropping ----------------------------------------------------------------------------------------------------

    async def _droppable(self, store: Store, owner: str) -> list[str]:
        """Return members that can be dropped, those first that go first."""
        index, most = f"{_ALL}:{owner}", sum(_DROPPED)
        states = [name for name in await store.members(index, after=STATES, limit=most) if name.startswith(STATES)]
        return states + await self._finished_tasks(store, owner, most - len(states))

    async def _finished_tasks(self, store: Store, owner: str, most: int) -> list[str]:
        """Return finished tasks, the oldest first."""
        finished: list[str] = []
        position = TASKS
        for _ in range(_PAGES):
            if len(finished) >= most:
                break
            tasks = await store.members(f"{_ALL}:{owner}", after=position, limit=_PAGE)
            # Read after the other index: a task that is there and not here has finished. Names have the same order in
            # both, so that as many names reach as far.
            unfinished = await store.members(self.indexes(owner).unfinished, after=position, limit=len(tasks) or 1)
            finished += sorted(set(tasks).difference(unfinished))
            if len(tasks) < _PAGE:
                break
            position = tasks[-1]
        return finished[:most]

    async def _drop(self, store: Store, owner: str, members: list[str]) -> None:
        indexes = tuple(self.indexes(owner).unlimited)
        steps: list[Step] = []
        for member in members:
            steps += (Delete(_key_of(member)), Index(member, {}, indexes))
        await store.commit(*steps)


def _key_of(member: str) -> str:
    """Return the key of the record of a member that can be dropped."""
    if member.startswith(TASKS):
        return _TASK_KEY + member.partition(" ")[2]
    return _STATE_KEY + member.removeprefix(STATES)
