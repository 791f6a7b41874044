"""A simulated store: one engine that keeps everything in memory, and a connection to it for each worker.

The engine is a `MemoryContents`. A ``SimulatedStore`` is what a worker has of it, and fails as the one on Redis does:
commands take time and overtake each other, an answer may be lost after the command was done, and after a failure every
call fails until a probe succeeds. Appends are sent in groups and in order, and repeated until they are answered; the
engine does each once. Channels have a connection of their own, whose messages arrive in order, until it breaks: what is
under way is lost, and the subscribers are told once it is there again. A restart breaks every connection; a failover
also takes the contents back to an earlier time. With them go the counts of acknowledged writes, from which a worker
notices it, as the scripts of the store on Redis do: then a new generation begins.
"""

from __future__ import annotations

import asyncio
import pickle
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

from tests.simulation.loop import EPOCH, Actor, SimulationLoop
from trunkline.errors import StoreUnavailable
from trunkline.store.interface import Appended, Commit, Delivery, Entry, Step, Store, Subscription
from trunkline.store.memory import MemoryContents, MemoryEngine

__all__ = ["Engine", "Faults", "SimulatedStore"]

#: As in the store on Redis: the time that a call may take, and the pauses between two probes, checks and attempts.
TIMEOUT, PROBE_SECONDS, CHECK_SECONDS, RETRY_SECONDS = 2.0, 0.2, 1.0, 0.05


class Faults:
    """How often each operation of a connection fails, and how slow it is."""

    __slots__ = ("after", "before", "latency", "slow")

    def __init__(self, before: float = 0.0, after: float = 0.0, slow: float = 0.0, latency: float = 0.002) -> None:
        self.before = before
        self.after = after
        self.slow = slow
        self.latency = latency


class _Process:
    """The hash of a process, as the scripts for Redis keep it: how much it has written."""

    __slots__ = ("last", "outcomes", "writes")

    def __init__(self) -> None:
        self.writes = 0
        #: The number of the last append, and the outcomes of all.
        self.last = 0
        self.outcomes: dict[int, Any] = {}


class Engine:
    """What all workers share: the contents, and whether they can be reached."""

    #: Whether a repeated append is done again; see `broken`.
    repeats_appends = False
    #: Whether a write is done and counted although acknowledged ones are gone, so that the next check finds none gone.
    counts_on = False

    def __init__(
        self, loop: SimulationLoop, random: Random, trace: Callable[..., None], violated: Callable[[str], None]
    ) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.violated = violated
        self.actor: Actor = loop.actor("store")
        self.contents = MemoryContents(now=lambda: EPOCH + loop.time(), random=random.randbytes)
        self.reachable = True
        self.faults = Faults()
        self.connections: list[SimulatedStore] = []
        #: Every entry that was added in this generation, by log; and the ids of those whose writers were told so.
        self.history: dict[str, list[Entry]] = {}
        self.acknowledged: set[str] = set()
        #: The counts of the processes.
        self.processes: dict[str, _Process] = {}
        #: When writes were lost, by the clock of the loop, in which generation, and when the last worker noticed it.
        self.lost_at: float | None = None
        self.lost_generation = ""
        self.noticed_at: float | None = None
        #: When the channels of a worker were there again the last time.
        self.heard_at = 0.0
        #: When events were admitted in this generation.
        self.admitted: list[float] = []
        self._saved = b""

    def latency(self) -> float:
        """Return how long something is under way."""
        return self.faults.latency * (0.1 + self.random.random())

    # --- failures ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Make the engine unreachable; every connection breaks."""
        self.trace("stops")
        self.reachable = False
        for connection in self.connections:
            connection.break_channels()
            connection.check_later()

    def start(self) -> None:
        """Make it reachable again."""
        self.trace("starts")
        self.reachable = True

    def save(self) -> None:
        """Remember the contents, for a failover that loses what comes after."""
        # Much faster than copy.deepcopy.
        self._saved = pickle.dumps((self.contents.tables, self.history, self.processes), pickle.HIGHEST_PROTOCOL)

    def fail_over(self) -> None:
        """Go back to the contents that were saved last, if a worker that is alive loses acknowledged writes by that.

        What only workers that have died wrote is missed by nobody.
        """
        tables, history, processes = pickle.loads(self._saved)
        if not any(any(connection.missing_writes(processes)) for connection in self.connections):
            return
        contents = self.contents
        contents.tables, self.history, self.processes = tables, history, processes
        self.lost_at, self.noticed_at, self.lost_generation = self.loop.time(), None, contents.generation
        self.admitted.clear()
        self.trace("lost writes, generation %s", contents.generation)
        for connection in self.connections:
            connection.break_channels()
            connection.writes_lost()

    def process(self, name: str) -> _Process:
        """Return the hash of a process."""
        return self.processes.setdefault(name, _Process())

    def check(self, name: str, acknowledged: int, writes: int, generation: str) -> tuple[str, bool]:
        """Return the generation, and whether writes of a process are gone; then a new one begins."""
        process = self.process(name)
        lost = process.last < acknowledged or process.writes < writes
        if lost and generation == self.contents.generation:
            self.contents.generation = self.random.randbytes(8).hex()
            self.trace("generation %s begins", self.contents.generation)
        return self.contents.generation, lost

    def disconnect(self, connection: SimulatedStore) -> None:
        """Called when a worker is gone: it is no subscriber any more."""
        if connection in self.connections:
            self.connections.remove(connection)
            connection.leave()
            self.check_noticed()

    def unheard_since(self, began: float) -> bool:
        """Return whether the channels of a worker were broken at some time since then: it seems to be gone."""
        return self.heard_at >= began or any(each.silent for each in self.connections)

    def check_noticed(self) -> None:
        """Look whether every worker knows the generation."""
        generation = self.contents.generation
        known = generation != self.lost_generation and all(
            each.generation in ("", generation) for each in self.connections
        )
        self.noticed_at = (self.noticed_at or self.loop.time()) if known else None

    def unnoticed_since(self, began: float) -> bool:
        """Return whether a worker did not know the generation at some time since then."""
        return self.lost_at is not None and (self.noticed_at is None or self.noticed_at >= began)


class _Append:
    __slots__ = ("data", "deadline", "future", "number", "operation")

    def __init__(
        self, operation: Callable[[], Coroutine[Any, Any, Any]], data: bytes, deadline: float, future: Any
    ) -> None:
        self.operation = operation
        self.data = data
        self.deadline = deadline
        self.future: asyncio.Future[Any] = future
        self.number = 0


class _Subscription:
    __slots__ = ("_store", "channel", "missed", "receive")

    def __init__(self, store: SimulatedStore, channel: str, receive: Callable[[bytes], None], missed: Any) -> None:
        self._store = store
        self.channel = channel
        self.receive = receive
        self.missed: Callable[[], None] | None = missed

    async def close(self) -> None:
        self._store.unsubscribe(self)


class SimulatedStore(Store):
    """One worker's connections to the engine; see `Store` for the methods."""

    def __init__(self, engine: Engine, actor: Actor) -> None:
        self._engine = engine
        self._loop = engine.loop
        self._actor = actor
        self._inner = MemoryEngine(engine.contents)
        self._generation = ""
        self._callbacks: list[Callable[[str], None]] = []
        self._down = False
        self._probing = False
        #: The name of its hash, and how many writes and appends the engine has acknowledged.
        self._process = actor.name
        self._writes = 0
        self._acknowledged = 0
        #: Whether the engine lost writes or appends of them, and this connection has not noticed it.
        self._lost = (False, False)
        self._failovers = 0
        # Appends: those that wait, and how many were numbered.
        self._waiting: deque[_Append] = deque()
        self._sending = False
        self._numbered = 0
        # Channels: the epoch grows when the connection breaks, so that what is under way then is dropped.
        self._epoch = 0
        self._connected = False
        #: Whether it is broken, and nothing arrives, although neither side has noticed.
        self._mute = False
        self._subscriptions: dict[str, list[_Subscription]] = {}
        self._heard: dict[str, Subscription] = {}
        self._last_arrival = 0.0

    # --- verbs -------------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        return await self._call("get", key, lambda: self._inner.get(key))  # type: ignore[no-any-return]

    async def commit(self, *steps: Step) -> Commit:
        names = ",".join(f"{type(step).__name__.lower()} {step[0]}" for step in steps)
        return await self._write("commit", names, lambda: self._inner.commit(*steps))  # type: ignore[no-any-return]

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
        limits: dict[str, Any] = {"ttl": ttl, "max_entries": max_entries, "max_bytes": max_bytes}

        async def operation() -> Appended:
            added = await self._inner.append(log, data, announce=announce, **limits)
            self._engine.history.setdefault(log, []).append(Entry(added.id, data))
            self._engine.trace("append %s %s", log, added.id)
            return added

        added = await self._add(operation, data, patience)
        self._engine.acknowledged.add(added.id)
        return added  # type: ignore[no-any-return]

    async def read(
        self, log: str, *, after: str = "", limit: int = 1000, inclusive: bool = False
    ) -> list[Entry] | None:
        inner = self._inner
        found = self._call("read", log, lambda: inner.read(log, after=after, limit=limit, inclusive=inclusive))
        return await found  # type: ignore[no-any-return]

    async def publish(self, channel: str, data: bytes) -> int:
        return await self._call("publish", channel, lambda: self._inner.publish(channel, data))  # type: ignore[no-any-return]

    async def admit(self, key: str, *, rate: float, burst: int, cost: int = 1) -> float:
        async def operation() -> float:
            wait = await self._inner.admit(key, rate=rate, burst=burst, cost=cost)
            if wait == 0.0:
                self._engine.admitted.append(self._loop.time())
            return wait

        return await self._call("admit", key, operation)  # type: ignore[no-any-return]

    async def take(self, queue: str, holder: str, *, lease: float, limit: int = 1) -> list[Delivery]:
        inner = self._inner
        return await self._call("take", queue, lambda: inner.take(queue, holder, lease=lease, limit=limit))  # type: ignore[no-any-return]

    async def renew(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        return await self._call("renew", queue, lambda: self._inner.renew(queue, holder, ids))  # type: ignore[no-any-return]

    async def release(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        return await self._call("release", queue, lambda: self._inner.release(queue, holder, ids))  # type: ignore[no-any-return]

    async def members(self, index: str, *, after: str = "", limit: int = 1000) -> list[str]:
        inner = self._inner
        return await self._call("members", index, lambda: inner.members(index, after=after, limit=limit))  # type: ignore[no-any-return]

    # --- its own life ------------------------------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        return not self._down and self._connected

    @property
    def has_lost_writes(self) -> bool:
        """Whether acknowledged writes are gone, and it has not noticed it."""
        return any(self._lost)

    @property
    def silent(self) -> bool:
        """Whether nothing arrives on its channels."""
        return self._mute or not self._connected

    @property
    def unacknowledged(self) -> list[bytes]:
        """What is to be appended, or may be, and whose writer was not told so."""
        return [append.data for append in self._waiting]

    @property
    def generation(self) -> str:
        return self._generation

    def on_new_generation(self, callback: Callable[[str], None]) -> None:
        self._callbacks.append(callback)

    async def connect(self) -> None:
        engine = self._engine
        if not engine.reachable:
            await asyncio.sleep(engine.latency())
            raise StoreUnavailable("the simulated store cannot be reached")
        if self not in engine.connections:
            engine.connections.append(self)
            self._connected = True
        self._found_generation(*await self._call("check", "", self._run_check, checks=True))
        self._check_until_noticed()

    async def aclose(self) -> None:
        self._engine.disconnect(self)

    async def _run_check(self) -> tuple[str, bool]:
        return self._engine.check(self._process, self._acknowledged, self._writes, self._generation)

    # --- commands ----------------------------------------------------------------------------------------------------

    async def _write(self, verb: str, name: str, operation: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        before, failovers = self._writes, self._failovers

        async def counted() -> tuple[int, Any]:
            found = self._engine.process(self._process)
            if found.writes < before and not self._engine.counts_on:
                return 0, None
            if failovers != self._failovers and not self._engine.counts_on:
                # A failover breaks the connection for commands, and no write is sent again on another one.
                return 0, None
            if self._lost[0]:
                self._engine.violated(f"{self._actor.name} goes on writing, although acknowledged writes are gone")
            done = await operation()
            found.writes += 1
            return found.writes, done

        writes, done = await self._call(verb, name, counted)
        if writes <= before:
            # The count of this worker's writes went back.
            self._check_soon()
            raise StoreUnavailable("the simulated store lost writes")
        self._writes = max(self._writes, writes)
        return done

    async def _call(
        self, verb: str, name: str, operation: Callable[[], Coroutine[Any, Any, Any]], *, checks: bool = False
    ) -> Any:
        """Send a command and wait for its answer.

        Raises:
            StoreUnavailable: there was none; it may have been done all the same.
        """
        if self._down and not checks:
            raise StoreUnavailable("the simulated store cannot be reached")
        answer = self._loop.create_future()
        try:
            self._send(operation, answer)
            return await answer
        except StoreUnavailable:
            self._engine.trace("%s %s of %s fails", verb, name, self._actor.name)
            self._failed()
            raise

    def _send(self, operation: Callable[[], Coroutine[Any, Any, Any]], answer: asyncio.Future[Any]) -> None:
        """Run an operation in the engine, even if this worker dies meanwhile; failures are drawn here."""
        engine, faults, random = self._engine, self._engine.faults, self._engine.random
        chance = random.random()
        if chance < faults.before:
            self._fail(answer, engine.latency())
            return
        lost = chance < faults.before + faults.after
        delay = engine.latency()
        if random.random() < faults.slow:
            # Slower than the timeout: done, but too late.
            delay = TIMEOUT * random.random() * 1.5
        if delay > TIMEOUT:
            self._fail(answer, TIMEOUT)
        self._loop.schedule(engine.actor, delay, self._arrive, operation, answer, lost)

    def _arrive(self, operation: Callable[[], Coroutine[Any, Any, Any]], answer: Any, lost: bool) -> None:
        engine = self._engine
        if not engine.reachable:
            self._fail(answer, engine.latency())
            return
        outcome = _result(operation())
        if lost:
            # The connection breaks, or nothing is heard until the timeout.
            self._fail(answer, engine.latency() if engine.random.random() < 0.5 else TIMEOUT)
        else:
            self._loop.schedule(self._actor, engine.latency(), _set_result, answer, outcome)

    def _fail(self, answer: asyncio.Future[Any], delay: float) -> None:
        self._loop.schedule(self._actor, delay, _set_failure, answer)

    # --- failure and recovery ----------------------------------------------------------------------------------------

    def _failed(self) -> None:
        self._down = True
        if not self._probing:
            self._probing = True
            self._loop.schedule(self._actor, PROBE_SECONDS, self._probe)

    def check_later(self) -> None:
        """Notice by the regular check that the engine is gone."""
        self._loop.schedule(self._actor, self._engine.random.random() * CHECK_SECONDS, self._check_regularly)

    def _check_regularly(self) -> None:
        if not self._engine.reachable:
            self._failed()

    def _probe(self) -> None:
        self._probing = False
        if not self._engine.reachable:
            self._failed()
            return
        self._down = False
        self._check()

    def _check(self) -> None:
        """Read the generation: whether acknowledged writes are still there."""
        if self._engine.reachable:
            self._found_generation(*_result(self._run_check()))

    def _check_soon(self) -> None:
        self._loop.schedule(self._actor, 0.0, self._check)

    def missing_writes(self, processes: Mapping[str, _Process]) -> tuple[bool, bool]:
        """Return whether acknowledged writes of this worker are not among these, and whether appends are not."""
        found = processes.get(self._process, _Process())
        return found.writes < self._writes, found.last < self._acknowledged

    def writes_lost(self) -> None:
        """Called when the engine lost writes: noticed with the first failure, or by the regular check."""
        self._failovers += 1
        self._lost = self.missing_writes(self._engine.processes)
        if self._engine.random.random() < 0.5:
            self._failed()
        self._loop.schedule(self._actor, self._engine.random.random() * CHECK_SECONDS, self._check_until_noticed)

    def _check_until_noticed(self) -> None:
        """Check once a second; nothing is found while no writes were lost, so that it is left out then."""
        if self._engine.lost_at is not None and self._engine.noticed_at is None:
            self._check()
            self._loop.schedule(self._actor, CHECK_SECONDS, self._check_until_noticed)

    def _found_generation(self, generation: str, lost: bool) -> None:
        before, self._generation = self._generation, generation
        if lost:
            # Count on from what is there.
            process = self._engine.process(self._process)
            self._writes, self._acknowledged = process.writes, process.last
        self._engine.check_noticed()
        if before and before != generation:
            self._lost = (False, False)
            for callback in self._callbacks:
                callback(generation)

    # --- appends -----------------------------------------------------------------------------------------------------

    async def _add(self, operation: Callable[[], Coroutine[Any, Any, Any]], data: bytes, patience: float | None) -> Any:
        if patience is None:
            if self._down:
                raise StoreUnavailable("the simulated store cannot be reached")
            patience = TIMEOUT
        future = self._loop.create_future()
        self._waiting.append(_Append(operation, data, self._loop.time() + patience, future))
        if not self._sending:
            self._sending = True
            self._loop.start(self._actor, self._send_appends())
        return await future

    async def _send_appends(self) -> None:
        while self._waiting:
            group = list(self._waiting)
            for append in group:
                if not append.number:
                    self._numbered += 1
                    append.number = self._numbered
            work = partial(self._append_all, self._acknowledged, [(each.number, each) for each in group])
            try:
                outcomes = await self._call("appends", str(group[0].number), work)
            except StoreUnavailable:
                outcomes = None
            if outcomes is None:
                for append in [each for each in self._waiting if each.deadline <= self._loop.time()]:
                    self._waiting.remove(append)
                    _set_failure(append.future)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._acknowledged = group[-1].number
            for append, outcome in zip(group, outcomes, strict=True):
                self._waiting.remove(append)
                if not append.future.done():
                    append.future.set_result(outcome)
        self._sending = False

    async def _append_all(self, acknowledged: int, group: Sequence[tuple[int, _Append]]) -> list[Any] | None:
        process = self._engine.process(self._process)
        if process.last < acknowledged:
            # Acknowledged appends are gone: nothing is done before the new generation is known.
            self._check_soon()
            return None
        if self._lost[1]:
            self._engine.violated(f"{self._actor.name} goes on appending, although acknowledged appends are gone")
        for number, append in group:
            if number not in process.outcomes or self._engine.repeats_appends:
                process.outcomes[number] = await append.operation()
                process.last = max(process.last, number)
        return [process.outcomes[number] for number, _ in group]

    # --- channels ----------------------------------------------------------------------------------------------------

    async def subscribe(
        self, channel: str, receive: Callable[[bytes], None], *, missed: Callable[[], None] | None = None
    ) -> Subscription:
        if self._down or not self._connected:
            raise StoreUnavailable("the simulated store cannot be reached")
        subscription = _Subscription(self, channel, receive, missed)
        self._subscriptions.setdefault(channel, []).append(subscription)
        confirmed = self._loop.create_future()
        delay = self._engine.latency()
        self._loop.schedule(self._engine.actor, delay, self._subscribed, channel, confirmed, self._epoch)
        try:
            await confirmed
        except BaseException:
            self.unsubscribe(subscription)
            raise
        return subscription

    def _subscribed(self, channel: str, confirmed: asyncio.Future[None], epoch: int) -> None:
        if epoch != self._epoch or self._mute or not self._engine.reachable:
            self._fail(confirmed, self._engine.latency())
            return
        self._listen(channel)
        self._loop.schedule(self._actor, self._in_order(), self._confirm, confirmed, epoch)

    def _confirm(self, confirmed: asyncio.Future[None], epoch: int) -> None:
        if epoch == self._epoch:
            _set_result(confirmed, None)
        else:
            _set_failure(confirmed)

    def _listen(self, channel: str) -> None:
        if channel in self._subscriptions and channel not in self._heard and self in self._engine.connections:
            receive = self._inner.subscribe(channel, lambda data: self._message(channel, data))
            self._heard[channel] = _result(receive)

    def unsubscribe(self, subscription: _Subscription) -> None:
        """Remove a subscription; the engine hears of it a moment later."""
        others = self._subscriptions.get(subscription.channel, [])
        if subscription in others:
            others.remove(subscription)
            if not others:
                del self._subscriptions[subscription.channel]
                delay = self._engine.latency()
                self._loop.schedule(self._engine.actor, delay, self._unlisten, subscription.channel)

    def _unlisten(self, channel: str) -> None:
        if channel not in self._subscriptions and (heard := self._heard.pop(channel, None)) is not None:
            _result(heard.close())

    def _in_order(self) -> float:
        """Return the delay of the next message: after those before it."""
        now = self._loop.time()
        self._last_arrival = max(self._last_arrival, now + self._engine.latency())
        return self._last_arrival - now

    def _message(self, channel: str, data: bytes) -> None:
        if self._mute:
            return
        self._loop.schedule(self._actor, self._in_order(), self._deliver, channel, data, self._epoch)

    def _deliver(self, channel: str, data: bytes, epoch: int) -> None:
        if epoch == self._epoch:
            for subscription in tuple(self._subscriptions.get(channel, ())):
                subscription.receive(data)

    def break_channels(self) -> None:
        """Break the connection for channels: what is under way is lost, and so is what follows until it is noticed."""
        self._epoch += 1
        self._mute = True
        self._engine.trace("channels of %s break", self._actor.name)
        silent = self._engine.random.random() * 0.2
        self._loop.schedule(self._actor, silent, self._noticed, self._epoch)

    def _noticed(self, epoch: int) -> None:
        if epoch == self._epoch:
            self._connected = False
            self.leave()
            delay = RETRY_SECONDS + self._engine.random.random()
            self._loop.schedule(self._engine.actor, delay, self._connect_channels, epoch)

    def leave(self) -> None:
        """Stop listening on every channel, as the engine sees it."""
        for heard in self._heard.values():
            _result(heard.close())
        self._heard.clear()

    def _connect_channels(self, epoch: int) -> None:
        if epoch != self._epoch or self not in self._engine.connections:
            return
        if not self._engine.reachable:
            self._loop.schedule(self._engine.actor, PROBE_SECONDS, self._connect_channels, epoch)
            return
        self._mute = False
        for channel in list(self._subscriptions):
            self._listen(channel)
        self._loop.schedule(self._actor, self._in_order(), self._channels_connected, epoch)

    def _channels_connected(self, epoch: int) -> None:
        if epoch != self._epoch:
            return
        self._connected = True
        self._engine.heard_at = self._loop.time()
        self._engine.trace("channels of %s are there again", self._actor.name)
        for subscription in [each for found in self._subscriptions.values() for each in found]:
            if subscription.missed is not None:
                subscription.missed()


def _result(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the store in memory waited")


def _set_result(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _set_failure(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(StoreUnavailable("the simulated store did not answer"))
        # Retrieved here: its caller may have gone.
        future.exception()
