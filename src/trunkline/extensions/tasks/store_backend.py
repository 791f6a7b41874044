"""Tasks on a store: any worker answers for any of them, and takes over those of a worker that died.

A record is a value, changed only by compare-and-set. Its task has an entry in a queue for as long as it is unfinished:
the runner holds a lease on the entry and renews it, and an entry whose lease ran out is the trace of a dead runner.
Indexes count the tasks of all workers and list those of an owner. Records and status messages are sealed with the keys
of the server: they have the arguments, answers and results of calls.

The entry is added before the record, and removed after the indexes have changed. So whatever a process that dies leaves
half done is completed by the worker that takes the entry next.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import StoreUnavailable
from trunkline.extensions.tasks.backend import Change, TaskLimits, TaskListener, too_many_tasks
from trunkline.extensions.tasks.record import TaskRecord, start_again
from trunkline.protocol.seal import InvalidSeal, Seal
from trunkline.store.interface import Delivery, IndexLimits, Store, Subscription

__all__ = ["LEASE_SECONDS", "StoreTaskBackend"]

log = logging.getLogger("trunkline")

#: A process may stall for so long, in a collection of garbage or a blocking call, before its tasks are taken over.
LEASE_SECONDS = 30.0
#: How long an unfinished task is kept if no worker runs at all, and a task that is kept for ever.
_UNFINISHED_SECONDS, _FOREVER_SECONDS = 30 * 24 * 3600.0, 10 * 366 * 24 * 3600.0
#: The status message of a task is of no use after a day without another.
_MESSAGE_SECONDS = 24 * 3600.0
#: A task that runs for days keeps its record: it is written again once a day.
_REFRESH_SECONDS = 24 * 3600.0
#: Entries whose lease was given back have been idle since 1970, longer than any outage.
_GIVEN_BACK_SECONDS = 1e8
#: The most tasks that one call of `claim` takes over: others, and later calls, take the rest.
_CLAIM = 64
#: Leases that are renewed in one step, so that no step blocks the store for long.
_RENEW = 500
#: Attempts to change a record that others change at the same time; one worker makes its changes in turn.
_ATTEMPTS = 100
#: Seconds between two attempts while the store cannot be reached, and for the last work when closing.
_PAUSE, _CLOSE_SECONDS = 1.0, 5.0
#: Longer than any id that we make; an id comes from the client.
_MAX_ID = 200
_QUEUE, _LEFT, _ALL = "tasks", "tasks:left", "tasks"
_decoder = msgspec.json.Decoder(TaskRecord)


class _Ticket(Struct, frozen=True, array_like=True):
    """The entry of a task in the queue: enough to clean up after the task without its record."""

    id: str
    #: Its name in the indexes, which sorts by the time of creation.
    member: str
    #: The owner, as part of the names of indexes.
    owner: str


class _Held:
    """A task whose lease a runner of this process holds."""

    __slots__ = ("entry", "lost_at", "refreshed", "settled", "ticket")

    def __init__(self, entry: str, ticket: _Ticket, now: float) -> None:
        self.entry = entry
        self.ticket = ticket
        self.refreshed = now
        #: Since when the lease is gone; None while it is held.
        self.lost_at: float | None = None
        #: The final record, if the indexes and the queue have still to follow.
        self.settled: TaskRecord | None = None


class _Runner:
    """A runner of this process."""

    __slots__ = ("held", "listener", "subscription")

    def __init__(self) -> None:
        self.held: dict[str, _Held] = {}
        self.listener: TaskListener | None = None
        self.subscription: Subscription | None = None


class StoreTaskBackend:
    """Stores tasks on a store; see `SharedTaskBackend` for the methods."""

    durable: bool = True

    def __init__(
        self,
        store: Store,
        seal: Seal | None = None,
        *,
        now: Callable[[], float],
        lease: float = LEASE_SECONDS,
    ) -> None:
        """Use a store, which its owner closes; ``now`` returns wall time. Without a seal, nothing is encrypted."""
        self.store: Store = store
        self._seal = seal
        self._now = now
        self.lease: float = lease
        self._runners: dict[str, _Runner] = {}
        #: The entries of ended runners whose leases have not been released yet.
        self._to_release: list[tuple[str, list[str]]] = []
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._keeper: asyncio.Task[None] | None = None
        self._chores: set[asyncio.Task[None]] = set()
        self._left: Subscription | None = None
        #: Since when the store has answered without interruption, by the clock of the event loop.
        self._steady_since: float | None = None

    # --- as a backend ------------------------------------------------------------------------------------------------

    async def create(self, record: TaskRecord, limits: TaskLimits) -> None:
        """Store a new task, leased to its runner."""
        store, ticket = self.store, _ticket(record)
        entry = record.id
        await store.enqueue(_QUEUE, entry, msgspec.msgpack.encode(ticket), holder=record.runner)
        unfinished = _unfinished(ticket)
        into = {
            unfinished: IndexLimits(members=limits.per_caller),
            _ALL: IndexLimits(members=limits.total, weight=limits.memory_bytes),
            _owned(ticket): IndexLimits(),
        }
        full = await store.index(ticket.member, into=into, weight=record.size, ttl=_UNFINISHED_SECONDS)
        if full is not None:
            with contextlib.suppress(StoreUnavailable):
                await store.finish(_QUEUE, record.runner, [entry])
            if full.name == unfinished:
                raise too_many_tasks("per_caller", limits.per_caller)
            if full.limit == "members":
                raise too_many_tasks("total", limits.total)
            raise too_many_tasks("memory_bytes", limits.memory_bytes)
        # Anything that fails until here leaves an entry without a record, which `claim` of any worker removes.
        await store.put(_key(record.id), self._encoded(record), ttl=_UNFINISHED_SECONDS)
        self._runner(record.runner).held[record.id] = _Held(entry, ticket, self._now())
        self._start()

    async def get(self, id: str) -> TaskRecord | None:
        """Return a task; the status message of one that runs at another worker is the last that this one stored."""
        record = self._decoded(id, await self._read(id))
        if record is None or record.finished or record.runner in self._runners:
            return record
        message = await self.store.get(_message_key(id))
        return record if message is None else replace(record, message=self._opened(_message_key(id), message).decode())

    async def update(self, id: str, change: Change) -> TaskRecord | None:
        """Apply a change by compare-and-set, and announce it."""
        async with self._locks.setdefault(id, asyncio.Lock()):
            for _ in range(_ATTEMPTS):
                found = await self._read(id)
                before = self._decoded(id, found)
                if found is None or before is None:
                    return None
                after = change(before)
                if after is before or await self._replace(id, found, after):
                    break
            else:
                raise StoreUnavailable(f"The task {id} is being changed by too many requests at once; try again")
            if after.finished and (not before.finished or self._held(id) is not None):
                await self._settle(after)
        if after is not before:
            await self._announce(before, after)
        return after

    async def page(self, owner: str | None, *, after: tuple[float, str] | None, limit: int) -> Sequence[TaskRecord]:
        """Return tasks of an owner."""
        index = f"tasks:of:{_owner(owner)}"
        position = "" if after is None else _member(*after)
        found: list[TaskRecord] = []
        while len(found) < limit:
            members = await self.store.members(index, after=position, limit=limit - len(found))
            if not members:
                break
            position = members[-1]
            records = await asyncio.gather(*(self.get(member.partition(" ")[2]) for member in members))
            found += [record for record in records if record is not None]
        return found

    async def claim(self, runner: str) -> Sequence[TaskRecord]:
        """Take over the tasks of ended runners, at most some at a time.

        A lease that ran out proves nothing as long as the store could not be reached: all others ran out too. So
        the first time after an outage, and after the start, every runner may renew its leases before they count.
        """
        self._runner(runner)
        self._start()
        await self._release_ended()
        # First those of this process, which may have been suspended itself.
        await self._renew()
        lease = self.lease if self._is_steady() else _GIVEN_BACK_SECONDS
        taken: list[TaskRecord] = []
        try:
            while len(taken) < _CLAIM:
                found = await self.store.take(_QUEUE, runner, lease=lease, limit=_CLAIM - len(taken))
                for delivery in found:
                    record = await self._take_over(delivery, runner)
                    if record is not None:
                        taken.append(record)
                if not found:
                    break
        except StoreUnavailable:
            self._interrupted()
        return taken

    def release(self, runner: str) -> None:
        """Release the leases of a runner as soon as the store can be reached."""
        ended = self._runners.pop(runner, None)
        if ended is None:
            return
        self._to_release.append((runner, [held.entry for held in ended.held.values()]))
        if asyncio._get_running_loop() is not None:
            chore = asyncio.ensure_future(self._leave(ended))
            self._chores.add(chore)
            chore.add_done_callback(self._chores.discard)

    async def aclose(self) -> None:
        """Release the leases of ended runners and stop renewing leases; the store stays open."""
        if self._chores:
            await asyncio.wait(tuple(self._chores), timeout=_CLOSE_SECONDS)
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        left, self._left = self._left, None
        if left is not None:
            await left.close()

    # --- as a shared backend -----------------------------------------------------------------------------------------

    def join(self, runner: str, listener: TaskListener) -> None:
        """Start to renew leases and to listen."""
        self._runner(runner).listener = listener
        self._start()

    async def watch(self, id: str, changed: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call a function after each change of a task."""
        subscription = await self.store.subscribe(_channel(id), lambda _: changed(), missed=changed)
        return subscription.close

    async def set_message(self, id: str, message: str) -> None:
        """Store a status message, and announce it."""
        sealed = self._sealed(_message_key(id), message.encode())
        await self.store.put(_message_key(id), sealed, ttl=_MESSAGE_SECONDS)
        await self.store.publish(_channel(id), b"")

    # --- records -----------------------------------------------------------------------------------------------------

    async def _read(self, id: str) -> bytes | None:
        return await self.store.get(_key(id)) if len(id) <= _MAX_ID else None

    async def _replace(self, id: str, found: bytes, record: TaskRecord) -> bool:
        return await self.store.replace(_key(id), found, self._encoded(record), ttl=self._ttl(record))

    def _encoded(self, record: TaskRecord) -> bytes:
        return self._sealed(_key(record.id), msgspec.json.encode(record))

    def _decoded(self, id: str, found: bytes | None) -> TaskRecord | None:
        """Return a record; None if there is none, or it has expired by our clock.

        Raises:
            DecodeError: it is of another version, or was sealed with other keys.
        """
        if found is None:
            return None
        record = _decoder.decode(self._opened(_key(id), found))
        return None if record.expires is not None and record.expires <= self._now() else record

    def _sealed(self, key: str, plain: bytes) -> bytes:
        return plain if self._seal is None else self._seal.seal(plain, binding=key.encode()).encode()

    def _opened(self, key: str, found: bytes) -> bytes:
        if self._seal is None:
            return found
        try:
            return self._seal.open(found.decode("ascii", "replace"), binding=key.encode())
        except InvalidSeal:
            raise msgspec.DecodeError(f"{key} was not sealed with the keys of this server") from None

    def _ttl(self, record: TaskRecord) -> float:
        if not record.finished:
            return _UNFINISHED_SECONDS
        # At least a moment: a time to live of zero is not one.
        return _FOREVER_SECONDS if record.expires is None else max(record.expires - self._now(), 0.001)

    async def _settle(self, record: TaskRecord) -> None:
        """Update the indexes and the queue for a finished task; what fails is retried later."""
        ticket, held = _ticket(record), self._held(record.id)
        if held is not None:
            held.settled = record
        into = {_ALL: IndexLimits(), _owned(ticket): IndexLimits()}
        with contextlib.suppress(StoreUnavailable):
            await self.store.index(
                ticket.member, into=into, out_of=[_unfinished(ticket)], weight=record.size, ttl=self._ttl(record)
            )
            if held is not None:
                await self._finish(record.id, held.entry)
                await self.store.delete(_message_key(record.id))

    async def _finish(self, id: str, entry: str) -> None:
        """Remove the entry of a task that a runner of this process holds."""
        for name, runner in tuple(self._runners.items()):
            held = runner.held.get(id)
            if held is not None and held.entry == entry:
                await self.store.finish(_QUEUE, name, [entry])
                runner.held.pop(id, None)

    async def _announce(self, before: TaskRecord, after: TaskRecord) -> None:
        """Notify the runner of a task and its watchers of a change; one that was disconnected reads it again later."""
        with contextlib.suppress(StoreUnavailable):
            for name in {before.runner, after.runner} - self._runners.keys():
                await self.store.publish(_runner_channel(name), after.id.encode())
            if after.status != before.status or after.questions != before.questions or after.runner != before.runner:
                await self.store.publish(_channel(after.id), b"")

    # --- leases ------------------------------------------------------------------------------------------------------

    def _runner(self, name: str) -> _Runner:
        return self._runners.setdefault(name, _Runner())

    def _held(self, id: str) -> _Held | None:
        return next((each.held[id] for each in self._runners.values() if id in each.held), None)

    async def _take_over(self, delivery: Delivery, runner: str) -> TaskRecord | None:
        """Take over the task of an entry that was leased to a runner; return it if it may run again."""
        try:
            ticket = msgspec.msgpack.decode(delivery.data, type=_Ticket)
            record = self._decoded(ticket.id, await self._read(ticket.id))
        except msgspec.DecodeError:
            # Not held from here on, so that a worker of its version can take it when the lease has run out.
            log.exception("a task that another worker has left cannot be read; it may be of another version")
            return None
        own = self._held(ticket.id)
        if record is not None and own is not None and not record.finished and record.runner in self._runners:
            # It runs here; its lease ran out, and no other worker took it first.
            own.entry, own.lost_at = delivery.id, None
            return None
        held = self._runner(runner).held[ticket.id] = _Held(delivery.id, ticket, self._now())
        if record is None:
            indexes = [_ALL, _unfinished(ticket), _owned(ticket)]
            await self.store.index(ticket.member, into={}, out_of=indexes, ttl=1.0)
            await self._finish(ticket.id, delivery.id)
            return None

        def change(each: TaskRecord) -> TaskRecord:
            unchanged = each.runner == record.runner and each.attempts == record.attempts
            return start_again(each, runner, self._now()) if unchanged else each

        try:
            after = await self.update(ticket.id, change)
        except BaseException:
            # It may have been changed all the same; then the next one that takes it counts this as an attempt.
            self._runner(runner).held.pop(ticket.id, None)
            raise
        if after is None or after.finished or after.runner != runner:
            if after is None and self._held(ticket.id) is held:
                await self._finish(ticket.id, delivery.id)
            return None
        return after

    async def _renew(self) -> None:
        """Renew the leases of this process, and find out which are gone."""
        for name, runner in tuple(self._runners.items()):
            entries = {held.entry: id for id, held in runner.held.items() if held.lost_at is None}
            ids = list(entries)
            for start in range(0, len(ids), _RENEW):
                some = ids[start : start + _RENEW]
                kept = set(await self.store.renew(_QUEUE, name, some))
                for entry in some:
                    held = runner.held.get(entries[entry])
                    if entry not in kept and held is not None and held.entry == entry:
                        held.lost_at = self._now()
            for id, held in tuple(runner.held.items()):
                if held.settled is not None:
                    await self._settle_again(runner, id, held)
                elif held.lost_at is not None:
                    await self._check_lost(name, runner, id, held)
                elif self._now() - held.refreshed >= _REFRESH_SECONDS:
                    await self._refresh(id, held)
        self._continued()

    async def _settle_again(self, runner: _Runner, id: str, held: _Held) -> None:
        assert held.settled is not None
        if held.lost_at is not None:
            # Another worker has the entry, and does it.
            runner.held.pop(id, None)
        elif await self._keep_outcome(id, held.settled):
            await self._settle(held.settled)

    async def _keep_outcome(self, id: str, settled: TaskRecord) -> bool:
        """Store an outcome again whose write was lost; return False if that must be tried again.

        Without its entry in the queue no worker would take over a task that is unfinished.
        """
        found = await self._read(id)
        record = self._decoded(id, found)
        if found is None or record is None or record.finished:
            return True
        if (record.runner, record.attempts) != (settled.runner, settled.attempts):
            # It was taken over; its entry is that of the other worker.
            return False
        return await self._replace(id, found, settled)

    async def _check_lost(self, name: str, runner: _Runner, id: str, held: _Held) -> None:
        """Find out what happened to a task whose lease is gone."""
        assert held.lost_at is not None
        record = self._decoded(id, await self._read(id))
        if record is not None and not record.finished and record.runner == name:
            # The worker that took the entry will change the record, or let it go. If neither happens in time, the queue
            # has lost the entry.
            if self._now() - held.lost_at >= self.lease:
                await self.store.enqueue(_QUEUE, held.entry, msgspec.msgpack.encode(held.ticket), holder=name)
                held.lost_at = None
            return
        runner.held.pop(id, None)
        if runner.listener is not None:
            runner.listener.lease_lost(id)

    async def _refresh(self, id: str, held: _Held) -> None:
        """Write an unfinished record again, so that it does not expire while it runs."""
        found = await self._read(id)
        record = self._decoded(id, found)
        if found is None or record is None or record.finished:
            return
        await self._replace(id, found, record)
        into = {name: IndexLimits() for name in (_ALL, _unfinished(held.ticket), _owned(held.ticket))}
        await self.store.index(held.ticket.member, into=into, weight=record.size, ttl=_UNFINISHED_SECONDS)
        held.refreshed = self._now()

    async def _release_ended(self) -> None:
        """Release the leases of ended runners, and notify the other workers."""
        while self._to_release:
            runner, entries = self._to_release[0]
            for start in range(0, len(entries), _RENEW):
                await self.store.release(_QUEUE, runner, entries[start : start + _RENEW])
            if entries:
                await self.store.publish(_LEFT, runner.encode())
            # Released by now; it may have been done by another call meanwhile.
            self._to_release = [each for each in self._to_release if each[0] != runner]

    async def _leave(self, ended: _Runner) -> None:
        if ended.subscription is not None:
            await ended.subscription.close()
        # The keeper goes on trying, if there is one; otherwise the leases run out.
        with contextlib.suppress(StoreUnavailable):
            await self._release_ended()

    # --- the keeper --------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start to renew leases regularly."""
        if self._keeper is None or self._keeper.done() or self._keeper.get_loop().is_closed():
            self._keeper = asyncio.get_running_loop().create_task(self._keep(), name="trunkline-task-leases")

    async def _keep(self) -> None:
        pause, task = 0.0, asyncio.current_task()
        # A cancellation can be lost: before Python 3.12 ``asyncio.wait_for``, which redis-py uses, swallows some.
        while (self._runners or self._to_release) and not (task is not None and task.cancelling()):
            await asyncio.sleep(pause)
            # Three attempts for each lease.
            pause = self.lease / 3
            try:
                await self.store.connect()
                await self._listen()
                await self._release_ended()
                await self._renew()
            except StoreUnavailable:
                self._interrupted()
                pause = min(_PAUSE, pause)
            except Exception:
                log.exception("the leases of tasks could not be renewed")

    async def _listen(self) -> None:
        if self._left is None:
            self._left = await self.store.subscribe(_LEFT, self._tasks_left)
        for name, runner in tuple(self._runners.items()):
            if runner.subscription is None and runner.listener is not None:
                listener = runner.listener
                receive = partial(_changed, listener)
                runner.subscription = await self.store.subscribe(_runner_channel(name), receive, missed=self._missed)
                # What came before was missed.
                listener.changes_missed()
                listener.tasks_left()

    def _tasks_left(self, data: bytes) -> None:
        for name, runner in tuple(self._runners.items()):
            if runner.listener is not None and name != data.decode():
                runner.listener.tasks_left()

    def _missed(self) -> None:
        self._interrupted()
        for runner in tuple(self._runners.values()):
            if runner.listener is not None:
                runner.listener.changes_missed()
                runner.listener.tasks_left()

    def _interrupted(self) -> None:
        self._steady_since = None

    def _continued(self) -> None:
        if self._steady_since is None:
            self._steady_since = asyncio.get_running_loop().time()

    def _is_steady(self) -> bool:
        since = self._steady_since
        return since is not None and asyncio.get_running_loop().time() - since >= self.lease


def _changed(listener: TaskListener, data: bytes) -> None:
    listener.task_changed(data.decode())


def _key(id: str) -> str:
    return f"task:{id}"


def _message_key(id: str) -> str:
    return f"task-message:{id}"


def _channel(id: str) -> str:
    return f"task:{id}"


def _runner_channel(runner: str) -> str:
    return f"tasks:runner:{runner}"


def _owner(owner: str | None) -> str:
    """Return an owner as part of a name: identities can be long, and hold any character."""
    return "" if owner is None else hashlib.sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _member(created: float, id: str) -> str:
    """Return the name of a task in indexes, which sorts by its time of creation in microseconds."""
    return f"{max(0, round(created * 1e6)):017d} {id}"


def _ticket(record: TaskRecord) -> _Ticket:
    return _Ticket(record.id, _member(record.created, record.id), _owner(record.owner))


def _unfinished(ticket: _Ticket) -> str:
    return f"tasks:unfinished:{ticket.owner}"


def _owned(ticket: _Ticket) -> str:
    return f"tasks:of:{ticket.owner}"
