"""A simulated Redis, and the network between it and the workers: what runs on it is the engine itself.

A ``SimulatedStore`` is a `RedisEngine` whose connections are simulated. What is sent over one connection arrives in
order, or not at all: a connection may break before a command arrives, after it was done, or while it is slow, and each
side notices it by itself, or does not. A restart breaks every connection; a failover also takes the contents back to an
earlier time, those of a replica that lagged behind, which has a history of its own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from tests.simulation.loop import EPOCH, Actor, SimulationLoop
from tests.simulation.redis_twin import RedisTwin, TwinProcess
from trunkline.store.interface import Entry
from trunkline.store.redis import RedisEngine

__all__ = ["TIMEOUT", "Faults", "SimulatedRedis", "SimulatedStore"]

#: The time in which Redis must answer, as it is by default.
TIMEOUT = 2.0
#: How often an end of a connection learns that it broke, and after how many seconds at most; otherwise it is silent.
_NOTICED, _NOTICED_SECONDS = 0.7, 0.2
#: A subscriber whose connection is silent is counted for so many seconds at most.
_COUNTED_SECONDS = 3.0


class Faults:
    """How often each command breaks its connection, and how slow it is."""

    __slots__ = ("after", "before", "latency", "slow")

    def __init__(self, before: float = 0.0, after: float = 0.0, slow: float = 0.0, latency: float = 0.002) -> None:
        self.before = before
        self.after = after
        self.slow = slow
        self.latency = latency


class SimulatedRedis:
    """What all workers share: a Redis, and whether it can be reached."""

    def __init__(
        self, loop: SimulationLoop, random: Random, trace: Callable[..., None], violated: Callable[[str], None]
    ) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self.violated = violated
        self.actor: Actor = loop.actor("store")
        self.twin = RedisTwin(now=lambda: EPOCH + loop.time(), random=random.randbytes)
        self.twin.publish = self._publish
        self.twin.appended = self._appended
        self.twin.admitted = lambda: self.admitted.append(loop.time())
        self.twin.writing = self._writing
        self.reachable = True
        self.faults = Faults()
        #: The workers that have reached it. Dicts as sets that keep their order.
        self.stores: dict[SimulatedStore, None] = {}
        self._pipes: dict[_Pipe, None] = {}
        self._subscribers: dict[str, dict[_Pipe, None]] = {}
        #: When writes were lost, by the clock of the loop, in which generation, and when the last worker noticed it.
        self.lost_at: float | None = None
        self.lost_generation = ""
        self.noticed_at: float | None = None
        #: When the channels of a worker were there again the last time.
        self.heard_at = 0.0
        #: When events were admitted since then.
        self.admitted: list[float] = []
        self._saved = b""

    @property
    def generation(self) -> str:
        """The generation."""
        return (self.twin.generation or b"").decode()

    @property
    def history(self) -> Mapping[str, list[Entry]]:
        """Every entry that was added and not lost, by log."""
        return self.twin.history

    def latency(self) -> float:
        """Return how long something is under way."""
        return self.faults.latency * (0.1 + self.random.random())

    # --- connections -------------------------------------------------------------------------------------------------

    async def connect(self, actor: Actor) -> _Pipe:
        """Return a new connection.

        Raises:
            RedisConnectionError: it cannot be reached.
        """
        await asyncio.sleep(self.latency())
        if not self.reachable:
            raise RedisConnectionError("the simulated Redis cannot be reached")
        pipe = _Pipe(self, actor)
        self._pipes[pipe] = None
        return pipe

    def subscribe(self, pipe: _Pipe, channel: str) -> None:
        """Deliver the messages of a channel to a connection."""
        self._subscribers.setdefault(channel, {})[pipe] = None

    def unsubscribe(self, pipe: _Pipe, channel: str) -> None:
        """End that."""
        others = self._subscribers.get(channel, {})
        others.pop(pipe, None)
        if not others:
            self._subscribers.pop(channel, None)

    def forget(self, pipe: _Pipe) -> None:
        """Called when Redis notices that a connection is gone."""
        self._pipes.pop(pipe, None)
        for channel in pipe.channels:
            self.unsubscribe(pipe, channel)
        pipe.channels.clear()

    def _publish(self, channel: str, data: bytes) -> int:
        pipes = tuple(self._subscribers.get(channel, ()))
        for pipe in pipes:
            pipe.deliver([[b"message", channel.encode(), data]])
        return len(pipes)

    def _appended(self, log: str, entry: Entry) -> None:
        self.trace("append %s %s", log, entry.id)

    def _writing(self, process: str) -> None:
        for store in self.stores:
            if store.process == process and store.has_lost_writes:
                self.violated(f"{store.actor.name} goes on writing, although acknowledged writes are gone")

    # --- failures ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Make it unreachable; every connection breaks."""
        self.trace("stops")
        self.reachable = False
        self._cut_all()

    def start(self) -> None:
        """Make it reachable again, perhaps as another process that has read its file."""
        self.trace("starts")
        self.reachable = True
        if self.lost_at is None and self.random.random() < 0.5:
            self.twin.restart()

    def save(self) -> None:
        """Remember the contents, for a failover that loses what comes after."""
        self._saved = self.twin.save()

    def fail_over(self) -> None:
        """Go back to the contents that were saved last, if a worker that is alive loses acknowledged writes by that.

        What only workers that have died wrote is missed by nobody.
        """
        processes = RedisTwin.saved_processes(self._saved)
        if not any(store.misses_writes(processes) for store in self.stores):
            return
        self.lost_at, self.noticed_at, self.lost_generation = self.loop.time(), None, self.generation
        self.twin.fail_over(self._saved)
        self.admitted.clear()
        self.trace("lost writes, generation %s", self.generation)
        self._cut_all()

    def _cut_all(self) -> None:
        for pipe in tuple(self._pipes):
            pipe.cut()

    def disconnect(self, store: SimulatedStore) -> None:
        """Called when a worker is gone."""
        self.stores.pop(store, None)
        for pipe in tuple(self._pipes):
            if pipe.actor is store.actor:
                pipe.is_closed = True
                self.forget(pipe)
        self._check_noticed()

    # --- observing ---------------------------------------------------------------------------------------------------

    def checked(self, store: SimulatedStore) -> None:
        """Called when a worker has read the generation."""
        self.stores[store] = None
        self._check_noticed()

    def unheard_since(self, began: float) -> bool:
        """Return whether the channels of a worker were broken at some time since then: it seems to be gone."""
        return self.heard_at >= began or any(store.is_silent for store in self.stores)

    def _check_noticed(self) -> None:
        """Look whether every worker knows the generation."""
        known = self.generation != self.lost_generation and all(
            store.generation == self.generation for store in self.stores
        )
        self.noticed_at = (self.noticed_at or self.loop.time()) if known else None

    def unnoticed_since(self, began: float) -> bool:
        """Return whether a worker did not know the generation at some time since then."""
        return self.lost_at is not None and (self.noticed_at is None or self.noticed_at >= began)


class _Pipe:
    """One connection over the network: what is under way, and whether it is broken."""

    def __init__(self, redis: SimulatedRedis, actor: Actor) -> None:
        self._redis = redis
        self.actor = actor
        #: Whether nothing travels any more; and whether the client has closed it, which arrives after what it sent.
        self.is_cut = False
        self.is_closed = False
        #: Whether the client knows that it is broken.
        self.has_failed = False
        self.channels: dict[str, None] = {}
        self._has_subscribed = False
        self._replies: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._arrival = self._delivery = 0.0

    # --- the client ---

    def send(self, commands: Sequence[Sequence[Any]]) -> None:
        """Send commands; failures are drawn here.

        Raises:
            RedisConnectionError: it is broken, and the client knows it.
        """
        if self.has_failed:
            raise RedisConnectionError("the simulated connection is broken")
        redis = self._redis
        faults, random = redis.faults, redis.random.random
        arriving, is_lost = commands, ""
        if faults.before or faults.after:
            for number, _ in enumerate(commands):
                chance = random()
                if chance < faults.before + faults.after:
                    is_lost = "command" if chance < faults.before else "reply"
                    arriving = commands[: number + (is_lost == "reply")]
                    break
        delay = redis.latency()
        if faults.slow and random() < faults.slow:
            # Perhaps slower than the timeout: done, but too late.
            delay = TIMEOUT * random() * 1.5
        self._arrival = max(self._arrival, redis.loop.time() + delay)
        redis.loop.schedule_at(redis.actor, self._arrival, self._arrive, arriving, is_lost)

    async def receive(self) -> Any:
        """Return the next reply or message.

        Raises:
            RedisConnectionError: the connection broke.
        """
        while not self._replies:
            if self.has_failed:
                raise RedisConnectionError("the simulated connection broke")
            self._waiter = self._redis.loop.create_future()
            await self._waiter
        return self._replies.popleft()

    def close(self) -> None:
        """Close it; what was sent before still arrives."""
        if not self.is_closed:
            self.is_closed = True
            self.fail()
            self._redis.loop.schedule(self._redis.actor, self._redis.latency(), self._redis.forget, self)

    def fail(self) -> None:
        """Called when the client notices that it is broken."""
        self.has_failed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- Redis ---

    def _arrive(self, commands: Sequence[Sequence[Any]], is_lost: str) -> None:
        if self.is_cut:
            return
        replies: list[Any] = []
        for command in commands:
            replies += self._execute(command)
        if is_lost:
            self.cut()
        else:
            self.deliver(replies)

    def _execute(self, command: Sequence[Any]) -> list[Any]:
        name, redis = command[0], self._redis
        if name == "SUBSCRIBE":
            for channel in command[1:]:
                if not self.is_closed:
                    self.channels[channel] = None
                    redis.subscribe(self, channel)
            if not self._has_subscribed:
                self._has_subscribed = True
                redis.trace("channels of %s are there", self.actor.name)
                redis.heard_at = redis.loop.time()
            return [[b"subscribe", channel.encode(), 1] for channel in command[1:]]
        if name == "UNSUBSCRIBE":
            for channel in command[1:]:
                self.channels.pop(channel, None)
                redis.unsubscribe(self, channel)
            return [[b"unsubscribe", channel.encode(), 1] for channel in command[1:]]
        return [redis.twin.execute(command)]

    def deliver(self, replies: list[Any]) -> None:
        """Send replies or a message to the client."""
        if not (self.is_cut or self.is_closed):
            redis = self._redis
            self._delivery = max(self._delivery, redis.loop.time() + redis.latency())
            redis.loop.schedule_at(self.actor, self._delivery, self._received, replies)

    def _received(self, replies: list[Any]) -> None:
        if not (self.is_cut or self.is_closed):
            self._replies += replies
            self._wake()

    def cut(self) -> None:
        """Break it: what is under way is lost; each side notices it soon, or does not."""
        if self.is_cut:
            return
        self.is_cut = True
        redis = self._redis
        redis.trace("a connection of %s breaks", self.actor.name)
        if redis.random.random() < _NOTICED:
            delay = redis.random.random() * _NOTICED_SECONDS
            redis.loop.schedule(self.actor, delay, self.fail)
            redis.loop.schedule(redis.actor, delay, redis.forget, self)
        else:
            redis.loop.schedule(redis.actor, redis.random.random() * _COUNTED_SECONDS, redis.forget, self)


class _SimulatedConnection:
    """What the engine uses of a connection of redis-py; commands are not encoded."""

    def __init__(self, redis: SimulatedRedis, actor: Actor) -> None:
        self._redis = redis
        self._actor = actor
        self.pipe: _Pipe | None = None

    async def connect(self) -> None:
        self.pipe = await self._redis.connect(self._actor)

    async def disconnect(self, nowait: bool = False) -> None:
        if self.pipe is not None:
            self.pipe.close()
            self.pipe = None

    def pack_command(self, *command: Any) -> list[Any]:
        return [command]

    def pack_commands(self, commands: Sequence[Any]) -> Sequence[Any]:
        return commands

    async def send_packed_command(self, commands: Sequence[Any], check_health: bool = True) -> None:
        self._connected().send(commands)

    async def send_command(self, *command: Any) -> None:
        self._connected().send([command])

    async def read_response(self, disconnect_on_error: bool = True) -> Any:
        reply = await self._connected().receive()
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    def _connected(self) -> _Pipe:
        if self.pipe is None:
            raise RedisConnectionError("the simulated connection is closed")
        return self.pipe


class _SimulatedAddress:
    """Where the simulated Redis is."""

    is_fixed = True

    def __init__(self, redis: SimulatedRedis, actor: Actor) -> None:
        self._redis = redis
        self._actor = actor

    def connection(self) -> _SimulatedConnection:
        return _SimulatedConnection(self._redis, self._actor)

    async def aclose(self) -> None:
        """Nothing is to be closed."""


class SimulatedStore(RedisEngine):
    """The engine of one worker, and what the world observes of it."""

    def __init__(self, redis: SimulatedRedis, actor: Actor) -> None:
        address: Any = _SimulatedAddress(redis, actor)
        super().__init__(
            "redis://simulated", name="simulated", timeout=TIMEOUT, random=redis.random.randbytes, address=address
        )
        self._redis = redis
        self.actor = actor

    @property
    def process(self) -> str:
        """The name of its hash."""
        return self._process_key

    @property
    def has_lost_writes(self) -> bool:
        """Whether acknowledged writes are gone, and it has not noticed it."""
        return self.misses_writes(self._redis.twin.processes)

    def misses_writes(self, processes: Mapping[str, TwinProcess]) -> bool:
        """Return whether acknowledged writes of this worker are not among these."""
        process = processes.get(self._process_key) or TwinProcess()
        return process.writes < self._writes or process.last < self._appends.acknowledged

    @property
    def is_silent(self) -> bool:
        """Whether nothing arrives on its channels."""
        pipe = self._channel_pipe()
        return not self._channels.connected or pipe is None or pipe.is_cut

    @property
    def unacknowledged(self) -> list[bytes]:
        """What is to be appended, or may be, and whose writer was not told so."""
        return [append.args[0] for append in self._appends._waiting]

    def break_channels(self) -> None:
        """Break the connection for channels."""
        if (pipe := self._channel_pipe()) is not None:
            pipe.cut()

    def _channel_pipe(self) -> _Pipe | None:
        connection: _SimulatedConnection | None = self._channels._connection
        return None if connection is None else connection.pipe

    def _checked(self, reply: list[Any]) -> None:
        super()._checked(reply)
        self._redis.checked(self)
