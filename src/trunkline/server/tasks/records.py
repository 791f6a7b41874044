"""The tasks of a server in its store: a record each, its places in the indexes, and an entry in a queue while it runs.

All three change in one commit, so that they never differ. A record is changed only by compare-and-set, and by any
worker; the one that runs the task, its *runner*, holds a lease on the entry (``leases.py``). In a store that only this
process sees there is no queue: no other runner could take a task over. The indexes are those of `StoreBudget`, which
also list the tasks of an owner, and one of its unfinished tasks. Where others can read the store, records and status
messages are sealed: they have the arguments, answers and results of calls.

This module runs nothing and knows neither requests nor connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import StoreUnavailable, TooManyRequests
from trunkline.protocol.caller import Principal, owner_name
from trunkline.protocol.limits import Limits
from trunkline.server.store_budget import TASKS, StoreBudget, weight_of
from trunkline.server.tasks.record import Change, TaskRecord, owner_of
from trunkline.store.interface import (
    Commit,
    Delete,
    Enqueue,
    Finish,
    Index,
    IndexLimits,
    Publish,
    Put,
    Step,
    Store,
    Subscription,
)

if TYPE_CHECKING:
    from trunkline.protocol.seal import Seal

__all__ = ["QUEUE", "HeldTask", "TaskLimits", "TaskRecords", "runner_channel", "when_reachable"]

log = logging.getLogger("trunkline")

T = TypeVar("T")
#: How long an unfinished task is kept if no worker runs at all, and a task that is kept for ever.
_UNFINISHED_SECONDS, _FOREVER_SECONDS = 30 * 24 * 3600.0, 10 * 366 * 24 * 3600.0
#: The shortest time to live: zero is none.
_SHORTEST_SECONDS = 0.001
#: The status message of a task is of no use after a day without another.
_MESSAGE_SECONDS = 24 * 3600.0
#: Attempts to change a record that others change at the same time; one worker makes its changes in turn.
_ATTEMPTS = 100
#: Seconds between two attempts to reach the store; doubled after each, up to the second.
_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
#: How long a change of a task waits to be stored: longer than outages that are repaired, but not for ever.
_PATIENCE_SECONDS = 24 * 3600.0
#: Longer than any id that we make; an id comes from the client.
_MAX_ID = 200
#: The queue of the unfinished tasks.
QUEUE = "tasks"
#: An outcome that makes a task longer by no more is stored without a limit: a task can always end, if with an error.
_SMALL_OUTCOME = 1024
_ANY = IndexLimits()
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(TaskRecord).decode


class TaskLimits(Struct, frozen=True, kw_only=True):
    """Limits for the tasks of a server; their bytes count against `Limits.store_bytes` and `owner_store_bytes`."""

    #: Unfinished tasks of one caller: a user, or a network address where callers are not authenticated.
    per_caller: int = 1000


class TaskNames(NamedTuple):
    """The name of a task in indexes, which sorts by the time of creation, and that of its owner."""

    member: str
    owner: str


class HeldTask:
    """An unfinished task whose lease this runner holds, as it was stored last."""

    __slots__ = ("data", "lost_at", "names", "record", "refreshed")

    def __init__(self, record: TaskRecord, data: bytes, now: float, names: TaskNames | None = None) -> None:
        self.record = record
        self.names: TaskNames = names or _names(record)
        #: The stored bytes; empty if they are unknown, after a write without an answer.
        self.data = data
        #: When it was written last so that it does not expire.
        self.refreshed = now
        #: Since when the lease is gone; None while it is held.
        self.lost_at: float | None = None


class TaskRecords:
    """The stored tasks, as one runner sees them: one server in one event loop of one process."""

    def __init__(
        self,
        store: Store,
        seal: Seal | None = None,
        *,
        runner: str,
        now: Callable[[], float],
        limits: TaskLimits | None = None,
        budget: StoreBudget | None = None,
        shared: bool = True,
        connect: Callable[[], Awaitable[object]] | None = None,
        journal_limits: Limits | None = None,
    ) -> None:
        """Use a store, which its owner closes; ``now`` returns wall time. Without a seal, nothing is encrypted.

        ``connect`` connects the store at the first contact.
        """
        self.store: Store = store
        self.connect: Callable[[], Awaitable[object]] = connect or store.connect
        self.runner: str = runner
        #: Whether other processes may use the store: then they are told of changes, and leases are renewed.
        self.shared: bool = shared
        self.now: Callable[[], float] = now
        #: The tasks of this runner.
        self.held: dict[str, HeldTask] = {}
        self.limits: TaskLimits = limits or TaskLimits()
        self._seal = seal
        self._journal_limits = journal_limits or Limits()
        #: In memory what runs is there for as long as its process: it need not be written again, nor looked for.
        self._unfinished_seconds = _UNFINISHED_SECONDS if self.shared else inf
        self._most_unfinished = IndexLimits(members=self.limits.per_caller)
        self._budget = budget or StoreBudget(Limits())
        #: What is called when a task changes, by its id.
        self._watchers: dict[str, list[Callable[[], None]]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create(self, record: TaskRecord) -> None:
        """Store a new task, leased to this runner.

        Raises:
            TooManyRequests: a limit is reached.
        """
        if not self.limits.per_caller:
            # An index has no limit then.
            raise self._too_many_unfinished()
        store, names, data, seconds = self.store, _names(record), self._encoded(record), self._unfinished_seconds
        if not store.generation:
            await self.connect()
        indexes = self._budget.indexes(names.owner)
        into = {indexes.unfinished: self._most_unfinished, **indexes.limited}
        steps: list[Step] = [
            Index(names.member, into, (), weight_of(len(data)), seconds),
            Put(_key(record.id), data, seconds, None, True),
        ]
        if self.shared:
            steps.append(Enqueue(QUEUE, record.id, b"", self.runner))
        commit = await store.commit(*steps)
        if commit.full is not None:
            commit = await self._make_room(names, commit, steps)
        if not commit.done:
            raise RuntimeError(f"there is a task with the id {record.id} already")
        self.held[record.id] = HeldTask(record, data, record.created, names)

    async def get(self, id: str) -> TaskRecord | None:
        """Return a task; None if there is none, or it has expired.

        The status message of one that runs at another worker is the last that this one stored.
        """
        data, held = await self.read(id), self.held.get(id)
        if held is not None and held.data == data:
            return held.record
        record = self.decoded(id, data)
        if held is not None:
            # Another worker has changed it: the next change reads it first.
            held.data = b""
        if record is None or record.finished or not self.shared or record.runner == self.runner:
            return record
        key = _message_key(id)
        message = await self.store.get(key)
        return record if message is None else replace(record, message=self._opened(key, message).decode())

    async def update(self, id: str, change: Change) -> TaskRecord | None:
        """Apply a change atomically, announce it, and return the new record; None if there is no such task.

        Raises:
            TooManyRequests: it needs more memory than is allowed, and the task is not finished.
            InvalidParams: its journal would be too large.
        """
        held = self.held.get(id)
        if held is not None and held.data:
            # Other workers rarely change it, so the bytes stored last are tried before reading.
            after = await self._changed(held.record, held.data, change)
            if after is not None:
                return after
        async with self._locks.setdefault(id, asyncio.Lock()):
            for _ in range(_ATTEMPTS):
                data = await self.read(id)
                before = self.decoded(id, data)
                if data is None or before is None:
                    return None
                after = await self._changed(before, data, change)
                if after is not None:
                    return after
        raise StoreUnavailable(f"The task {id} is being changed by too many requests at once; try again")

    async def page(
        self, principal: Principal | None, *, after: tuple[float, str] | None, limit: int, address: str | None = None
    ) -> Sequence[TaskRecord]:
        """Return tasks of a principal, or of the address of anonymous callers, after a time of creation and an id.

        The oldest come first.
        """
        owner, position = owner_of(principal), TASKS if after is None else _member(*after)
        index = next(iter(self._budget.indexes(owner_name(principal, address)).limited))
        page: list[TaskRecord] = []
        while len(page) < limit:
            if not self.store.generation:
                await self.connect()
            members = await self.store.members(index, after=position, limit=limit - len(page))
            if not members:
                break
            position = members[-1]
            records = await asyncio.gather(*(self.get(member.partition(" ")[2]) for member in members))
            # Those of other clients of the same user are in the index, too.
            page += [record for record in records if record is not None and record.owner == owner]
        return page

    async def set_message(self, id: str, message: str) -> None:
        """Store the status message of a task that runs here, for the other workers, and announce it."""
        key = _message_key(id)
        sealed = self._sealed(key, message.encode())
        await self.store.commit(Put(key, sealed, _MESSAGE_SECONDS), Publish(_channel(id), b""))

    async def watch(self, id: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call a function when a task may have changed, here or at another worker; return a function that stops it."""
        subscription: Subscription | None = None
        if self.shared:
            subscription = await self.store.subscribe(_channel(id), lambda _: changed(), missed=changed)
        self._watchers.setdefault(id, []).append(changed)

        async def stop() -> None:
            watchers = self._watchers.get(id, [])
            if changed in watchers:
                watchers.remove(changed)
            if not watchers:
                self._watchers.pop(id, None)
            if subscription is not None:
                await subscription.close()

        return stop

    def notify_watchers(self, id: str) -> None:
        """Call what watches a task that was changed here."""
        for changed in tuple(self._watchers.get(id, ())):
            changed()

    async def refresh(self, held: HeldTask, *steps: Step) -> None:
        """Write an unfinished record again, so that it does not expire while it runs, and do other steps with it.

        If another worker has changed it since, nothing is done.
        """
        record, seconds, names = held.record, self._unfinished_seconds, held.names
        indexes = self._budget.indexes(names.owner)
        into = {indexes.unfinished: _ANY, **indexes.unlimited}
        await self.store.commit(
            Put(_key(record.id), held.data, seconds, held.data),
            Index(names.member, into, (), weight_of(len(held.data)), seconds),
            *steps,
        )
        held.refreshed = self.now()

    # --- the stored form ---------------------------------------------------------------------------------------------

    async def read(self, id: str) -> bytes | None:
        """Return the stored bytes of a task; None if there is none."""
        if len(id) > _MAX_ID:
            return None
        if not self.store.generation:
            await self.connect()
        return await self.store.get(_key(id))

    def decoded(self, id: str, data: bytes | None) -> TaskRecord | None:
        """Return a record; None if there is none, or it has expired by our clock.

        Raises:
            DecodeError: it is of another version, or was sealed with other keys.
        """
        if data is None:
            return None
        record = _decode(data if self._seal is None else self._opened(_key(id), data))
        return None if record.expires is not None and record.expires <= self.now() else record

    def _encoded(self, record: TaskRecord) -> bytes:
        plain = _encode(record)
        return plain if self._seal is None else self._sealed(_key(record.id), plain)

    def _sealed(self, key: str, plain: bytes) -> bytes:
        return plain if self._seal is None else self._seal.seal(plain, binding=key.encode()).encode()

    def _opened(self, key: str, data: bytes) -> bytes:
        if self._seal is None:
            return data
        from trunkline.protocol.seal import InvalidSeal

        try:
            return self._seal.open(data.decode("ascii", "replace"), binding=key.encode())
        except InvalidSeal:
            raise msgspec.DecodeError(f"{key} was not sealed with the keys of this server") from None

    # --- changes -----------------------------------------------------------------------------------------------------

    async def _changed(self, before: TaskRecord, data: bytes, change: Change) -> TaskRecord | None:
        """Apply a change to a record as it was read; None if it has changed since."""
        after = change(before)
        if after.journal is not before.journal:
            after.journal.check_size(self._journal_limits)
        if after is before:
            if after.finished:
                self.held.pop(after.id, None)
            return after
        id, encoded, held = before.id, self._encoded(after), self.held.get(before.id)
        names = _names(after) if held is None else held.names
        steps = self._steps(before, data, after, encoded, names, is_held=held is not None)
        try:
            commit = await self.store.commit(*steps)
            if commit.full is not None:
                commit = await self._make_room(names, commit, steps)
        except BaseException:
            # It may have been done all the same: the next change reads the record first.
            if held is not None:
                held.data = b""
            raise
        if not commit.done:
            return None
        if after.finished or after.runner != self.runner:
            self.held.pop(id, None)
        elif held is not None:
            held.record, held.data = after, encoded
        return after

    def _steps(
        self,
        before: TaskRecord,
        data: bytes,
        after: TaskRecord,
        encoded: bytes,
        names: TaskNames,
        *,
        is_held: bool,
    ) -> list[Step]:
        """Return the steps of a change: the record, and all that follows from it."""
        id, indexes, weight = after.id, self._budget.indexes(names.owner), weight_of(len(encoded))
        if after.finished:
            expires = after.expires
            seconds = _FOREVER_SECONDS if expires is None else expires - self.now()
            if seconds < _SHORTEST_SECONDS:
                seconds = _SHORTEST_SECONDS
            # The result cannot be produced again, so that what others have stored does not count.
            into = indexes.of_share if len(encoded) - len(data) > _SMALL_OUTCOME else indexes.unlimited
            steps: list[Step] = [
                Put(_key(id), encoded, seconds, data),
                Index(names.member, into, (indexes.unfinished,), weight, seconds),
            ]
            if self.shared:
                # An entry that another worker has taken meanwhile is removed by it.
                steps.append(Finish(QUEUE, self.runner if is_held else before.runner, id))
                steps.append(Delete(_message_key(id)))
        else:
            seconds = self._unfinished_seconds
            steps = [Put(_key(id), encoded, seconds, data)]
            if weight != weight_of(len(data)):
                # A task can always be taken over.
                into = indexes.limited if after.runner == before.runner else indexes.unlimited
                steps.append(Index(names.member, into, (), weight, seconds))
        if self.shared:
            for runner in {before.runner, after.runner} - {self.runner}:
                steps.append(Publish(runner_channel(runner), id.encode()))
            if after.status != before.status or after.requests != before.requests or after.runner != before.runner:
                steps.append(Publish(_channel(id), b""))
        return steps

    async def _make_room(self, names: TaskNames, commit: Commit, steps: Sequence[Step]) -> Commit:
        """Repeat a commit for which there was no room, after dropping older tasks and states of the same owner.

        Raises:
            TooManyRequests: there is still no room.
        """
        commit = await self._budget.make_room(self.store, names.owner, commit, steps)
        full = commit.full
        if full is not None:
            raise self._too_many_unfinished() if full.limit == "members" else self._budget.refusal(full)
        return commit

    def _too_many_unfinished(self) -> TooManyRequests:
        most = self.limits.per_caller
        return TooManyRequests(
            f"Too many tasks: the limit per_caller of {most} is reached; wait until tasks finish, or cancel some",
            data={"limit": "per_caller", "allowed": most},
        )


async def when_reachable(work: Callable[[], Awaitable[T]], *, seconds: float | None = None) -> T:
    """Call ``work``; retry while the store cannot be reached, for up to ``seconds``, by default for a day.

    Raises:
        StoreUnavailable: the time is up.
    """
    loop, pause = asyncio.get_running_loop(), _PAUSE
    patience = _PATIENCE_SECONDS if seconds is None else seconds
    until = loop.time() + patience
    while True:
        try:
            return await work()
        except StoreUnavailable as error:
            if loop.time() + pause > until:
                if seconds is None:
                    log.error(
                        "a change of a task could not be stored for %g s and is dropped: %s", patience, error.message
                    )
                raise
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def runner_channel(runner: str) -> str:
    """Return the channel on which a runner hears what other workers change in its tasks."""
    return f"tasks:runner:{runner}"


def _key(id: str) -> str:
    return f"task:{id}"


def _message_key(id: str) -> str:
    return f"task-message:{id}"


def _channel(id: str) -> str:
    return f"task:{id}"


def _member(created: float, id: str) -> str:
    """Return the name of a task in indexes, which sorts by its time of creation in microseconds."""
    return f"{TASKS}{str(round(created * 1e6) if created > 0 else 0).zfill(17)} {id}"


def _names(record: TaskRecord) -> TaskNames:
    return TaskNames(_member(record.created, record.id), record.caller.owner)
