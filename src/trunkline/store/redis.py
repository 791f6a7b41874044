"""A store on Redis or Valkey: the engine for several workers and machines.

Commands go through a small pool of connections, each bounded in time; channels have a connection of their own. After a
failure every call fails at once, and one task probes until Redis answers again: a Redis that is gone costs a server
nothing but what needs it. The same task looks once a second whether acknowledged writes are still there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from trunkline.errors import StoreUnavailable
from trunkline.store.interface import (
    Appended,
    Delivery,
    Entry,
    FullIndex,
    IndexLimits,
    Subscription,
    entry_position,
)
from trunkline.store.redis_appends import Appends, has_lost_writes, refuses_all
from trunkline.store.redis_channels import Channels, is_cancelled, reason
from trunkline.store.redis_scripts import PROCESS_SECONDS, SCRIPTS
from trunkline.store.stats import StoreStats

__all__ = ["RedisEngine"]

log = logging.getLogger("trunkline.store")

T = TypeVar("T")

#: Connections for commands. Redis runs one command at a time; more of them would only wait there.
_CONNECTIONS = 8
#: Seconds between two checks, and between two probes while Redis is gone.
_CHECK_SECONDS, _PROBE_SECONDS = 1.0, 0.2
#: Seconds before the hash of this process expires in which it is not relied on: the clocks differ.
_MARGIN_SECONDS = 3600
#: How many generations a process knows to have ended: a failover goes back by seconds, and each is one failover.
_ENDED = 16
_FAILURES = (RedisError, OSError, TimeoutError)


class RedisEngine:
    """What the workers of one server share, in Redis; see `Store` for the methods."""

    def __init__(
        self, url: str, *, name: str, timeout: float = 2.0, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        """Use the Redis at a URL for the server of this name; nothing is connected yet.

        Servers of different names share one Redis without seeing each other. No call takes longer than ``timeout``.
        """
        # A hash tag: on a cluster all keys of a server lie in one slot, as the scripts need it.
        self._prefix = f"{{trunkline:{name.replace('{', '(').replace('}', ')')}}}:"
        self._timeout = timeout
        self._random = random
        settings: dict[str, Any] = {
            "socket_connect_timeout": timeout,
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            "client_name": "trunkline",
        }
        pool = BlockingConnectionPool.from_url(
            url, max_connections=_CONNECTIONS, timeout=timeout, socket_timeout=timeout, **settings
        )
        self._client: Redis = Redis(connection_pool=pool)
        listening = ConnectionPool.from_url(url, socket_timeout=None, **settings)
        self._process = random(8).hex()
        #: Only this process publishes here: hearing its own message proves that channels work.
        self._own_channel = f"~{self._process}"
        self.stats: StoreStats = StoreStats()
        self._channels = Channels(
            listening, prefix=self._prefix, own=self._own_channel, timeout=timeout, stats=self.stats
        )
        self._appends = Appends(self, lost=self._writes_lost)
        self._hashes: dict[str, str] = {}
        self._writes = 0
        #: Wall time of the last check that succeeded, as Redis counts the life of the hash.
        self._checked_at = 0.0
        self._generation = ""
        #: The generations before it.
        self._ended: deque[str] = deque(maxlen=_ENDED)
        self._callbacks: list[Callable[[str], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._check_now: asyncio.Event = asyncio.Event()
        self._down = False
        self._closed = False

    # --- values ------------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        """Return a value."""
        value: bytes | None = await self._call(self._client.get(self._key(key)))
        return value

    async def put(self, key: str, value: bytes, *, ttl: float, only_if_absent: bool = False) -> bool:
        """Set a value."""
        return await self._write("put", [self._key(key)], [value, _milliseconds(ttl), int(only_if_absent)])

    async def replace(self, key: str, old: bytes, new: bytes, *, ttl: float) -> bool:
        """Set a value if it is ``old`` now."""
        return await self._write("replace", [self._key(key)], [old, new, _milliseconds(ttl)])

    async def delete(self, *keys: str) -> None:
        """Delete values, logs and counts."""
        found = [name for key in keys for name in (self._key(key), self._log(key), self._size(key), self._limit(key))]
        await self._write("delete", found, [])

    # --- logs --------------------------------------------------------------------------------------------------------

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
        """Add an entry, in one group with those of other callers."""
        channel = "" if announce is None else self._prefix + announce
        args = [data, max_entries, max_bytes, _milliseconds(ttl), channel, "entry"]
        return await self._append([self._log(log), self._size(log)], args, patience)

    async def read(
        self, log: str, *, after: str = "", limit: int = 1000, inclusive: bool = False
    ) -> list[Entry] | None:
        """Return the entries after an id; one more is read, which must be that entry."""
        if after and entry_position(after) is None:
            return None
        count = limit + 1 if after else limit
        found = await self._call(self._client.xrange(self._log(log), min=after or "-", count=count))
        entries = [Entry(id.decode(), fields[b"d"]) for id, fields in found]
        if not after:
            return entries
        if not entries or entries[0].id != after:
            return None
        return entries[:limit] if inclusive else entries[1:]

    # --- channels ----------------------------------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes) -> int:
        """Send a message."""
        heard: int = await self._call(self._client.publish(self._prefix + channel, data))
        return heard

    async def subscribe(
        self, channel: str, receive: Callable[[bytes], None], *, missed: Callable[[], None] | None = None
    ) -> Subscription:
        """Receive messages."""
        self._reach()
        return await self._channels.subscribe(channel, receive, missed)

    # --- limits ------------------------------------------------------------------------------------------------------

    async def admit(self, key: str, *, rate: float, burst: int, cost: int = 1) -> float:
        """Count events."""
        wait: int = await self._script("admit", [self._limit(key)], [round(1e6 / rate), burst, cost])
        return wait / 1e6

    # --- queues ------------------------------------------------------------------------------------------------------

    async def enqueue(self, queue: str, data: bytes, *, holder: str = "") -> str:
        """Add an entry."""
        name = self._queue(queue)
        args = [data, 0, 0, 0, self._prefix + queue, "id", *([holder] if holder else [])]
        appended = await self._append([name, f"{name}:size"], args, None)
        return appended.id

    async def take(self, queue: str, holder: str, *, lease: float, limit: int = 1) -> list[Delivery]:
        """Lease entries."""
        found = await self._script("take", [self._queue(queue)], [holder, _milliseconds(lease), limit])
        return [Delivery(id.decode(), data, attempt) for id, data, attempt in found]

    async def renew(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Renew leases."""
        return await self._hold(queue, holder, "renew", ids)

    async def finish(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Remove entries."""
        return await self._hold(queue, holder, "finish", ids)

    async def release(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """End leases."""
        return await self._hold(queue, holder, "release", ids)

    async def _hold(self, queue: str, holder: str, verb: str, ids: Sequence[str]) -> list[str]:
        found = await self._script("hold", [self._queue(queue)], [holder, verb, *ids])
        return [id.decode() for id in found]

    # --- indexes -----------------------------------------------------------------------------------------------------

    async def index(
        self,
        member: str,
        *,
        into: Mapping[str, IndexLimits],
        out_of: Sequence[str] = (),
        weight: int = 0,
        ttl: float,
    ) -> FullIndex | None:
        """Add a member."""
        keys = [self._own_hash, *(key for name in (*into, *out_of) for key in self._index(name))]
        limits = [number for each in into.values() for number in each]
        args = [member, weight, _milliseconds(ttl), len(into), *limits]
        _, full, limit = await self._counted("index", keys, args)
        return FullIndex(list(into)[full - 1], limit.decode()) if full else None

    async def members(self, index: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return members."""
        found = await self._script("members", self._index(index), [after, limit])
        return [member.decode() for member in found]

    # --- its own life ------------------------------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """Whether Redis answers, and channels are heard."""
        return not self._down and self._channels.connected

    @property
    def generation(self) -> str:
        """The generation."""
        return self._generation

    def on_new_generation(self, callback: Callable[[str], None]) -> None:
        """Register a callback."""
        self._callbacks.append(callback)

    async def connect(self) -> None:
        """Connect, load the scripts and read the generation."""
        await self._channels.start()
        await self._check()
        self._start_checks()

    async def aclose(self) -> None:
        """Disconnect; commands that come later fail instead of connecting again."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._appends.aclose()
        await self._channels.aclose()
        await self._client.aclose()
        await self._client.connection_pool.aclose()

    # --- commands ----------------------------------------------------------------------------------------------------

    def _key(self, key: str) -> str:
        return f"{self._prefix}value:{key}"

    def _log(self, log: str) -> str:
        return f"{self._prefix}log:{log}"

    def _size(self, log: str) -> str:
        return f"{self._prefix}size:{log}"

    def _limit(self, key: str) -> str:
        return f"{self._prefix}limit:{key}"

    def _queue(self, queue: str) -> str:
        return f"{self._prefix}queue:{queue}"

    def _index(self, index: str) -> list[str]:
        return [f"{self._prefix}index:{index}:{part}" for part in ("order", "until", "weight")]

    @property
    def _own_hash(self) -> str:
        return f"{self._prefix}process:{self._process}"

    def _reach(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._down:
            raise StoreUnavailable("Redis cannot be reached; the server keeps trying")

    async def _call(self, command: Any) -> Any:
        """Await a command, for a bounded time.

        Raises:
            StoreUnavailable: Redis did not answer, or refused the command.
        """
        with self.stats.operation():
            try:
                self._reach()
            except StoreUnavailable:
                command.close()
                raise
            return await self._answer(command)

    async def _answer(self, command: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await command
        except NoScriptError:
            raise
        except _FAILURES as error:
            if has_lost_writes(error):
                self._writes_lost()
                raise StoreUnavailable("Redis lost writes that it had acknowledged") from error
            if isinstance(error, ResponseError) and not refuses_all(error):
                # Only this command: a Redis without memory for a write still answers reads.
                raise StoreUnavailable(f"Redis refused a command: {reason(error)}") from error
            self._failed(error)
            raise StoreUnavailable(f"Redis did not answer: {reason(error)}") from error

    async def _script(self, name: str, keys: list[str], args: list[Any]) -> Any:
        for _ in range(2):
            try:
                return await self._call(self._run_script(name, keys, args))
            except NoScriptError:
                # Redis was restarted: it has no scripts.
                self._hashes.clear()
        raise StoreUnavailable("Redis loses its scripts as soon as they are loaded")

    async def _run_script(self, name: str, keys: list[str], args: list[Any]) -> Any:
        if name not in self._hashes:
            await self._load()
        return await self._client.evalsha(self._hashes[name], len(keys), *keys, *args)

    async def _load(self) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for source in SCRIPTS.values():
                pipeline.script_load(source)
            self._hashes = dict(zip(SCRIPTS, await pipeline.execute(), strict=True))

    async def _write(self, name: str, keys: list[str], args: list[Any]) -> bool:
        return bool((await self._counted(name, [self._own_hash, *keys], args))[1])

    async def _counted(self, name: str, keys: list[str], args: list[Any]) -> list[Any]:
        """Run a script that counts the writes of this process, and does nothing if acknowledged ones are gone.

        Raises:
            StoreUnavailable: they are, and so may be what this write was to be compared with: a nonce that is new
                may be a used one. The check starts a new generation; until then every write fails.
        """
        process = self._process
        found: list[Any] = await self._script(name, keys, [*args, self._writes])
        if process == self._process:
            self._writes = max(self._writes, found[0])
        return found

    async def _append(self, keys: list[str], args: list[Any], patience: float | None) -> Appended:
        if patience is None:
            self._reach()
        return await self._appends.add(keys, args, patience=self._timeout if patience is None else patience)

    async def run_group(self, calls: list[tuple[list[str], list[Any]]]) -> list[Any]:
        """Run the append script for each; called by `Appends`."""
        return await self._call(self._run_group(calls))  # type: ignore[no-any-return]

    async def _run_group(self, calls: list[tuple[list[str], list[Any]]]) -> list[Any]:
        if "append" not in self._hashes:
            await self._load()
        async with self._client.pipeline(transaction=False) as pipeline:
            for keys, args in calls:
                pipeline.evalsha(self._hashes["append"], 1 + len(keys), self._own_hash, *keys, *args)
            outcomes: list[Any] = await pipeline.execute(raise_on_error=False)
        for outcome in outcomes:
            if isinstance(outcome, NoScriptError):
                self._hashes.clear()
            elif isinstance(outcome, OSError | TimeoutError) or refuses_all(outcome):
                raise outcome
        return outcomes

    # --- failure and recovery ----------------------------------------------------------------------------------------

    def _failed(self, error: BaseException) -> None:
        if not self._down:
            log.warning("the store cannot be reached: %s", reason(error))
        self._down = True
        self._check_now.set()
        # A command may have failed before anything connected; it too must find out that Redis is back.
        self._start_checks()

    def _start_checks(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._check_regularly(), name="trunkline-store")

    def _writes_lost(self) -> None:
        """Called when Redis lost writes that it had acknowledged: the check starts a new generation."""
        self._check_now.set()

    async def _check_regularly(self) -> None:
        while not is_cancelled():
            self._check_now.clear()
            try:
                async with asyncio.timeout(_PROBE_SECONDS if self._down else _CHECK_SECONDS):
                    # A failure wakes it up once; after that it probes at its own pace.
                    await self._check_now.wait()
                if self._down:
                    await asyncio.sleep(_PROBE_SECONDS)
            except TimeoutError:
                pass
            try:
                await self._check()
            except StoreUnavailable:
                continue
            except Exception:
                log.exception("the check of the store failed")

    async def _check(self) -> None:
        """Check that Redis answers and still has the acknowledged writes; if it lost any, start a new generation."""
        if self._checked_at and time.time() - self._checked_at > PROCESS_SECONDS - _MARGIN_SECONDS:
            # After so long without contact the hash has expired, which is no lost write.
            self._start_count()
        fresh = self._random(8).hex()
        keys = [self._own_hash, f"{self._prefix}generation"]
        try:
            async with asyncio.timeout(self._timeout):
                args = [fresh, self._appends.acknowledged, self._writes, self._generation, *self._ended]
                try:
                    found = await self._run_script("check", keys, args)
                except NoScriptError:
                    await self._load()
                    found = await self._run_script("check", keys, args)
                self._channels.sending_to_itself()
                heard = await self._client.publish(self._prefix + self._own_channel, b"")
        except _FAILURES as error:
            self._channels.not_sent_to_itself()
            self._failed(error)
            raise StoreUnavailable(f"Redis did not answer: {reason(error)}") from error
        if self._down:
            log.warning("the store can be reached again")
        self._down = False
        self._checked_at = self.stats.last_success = time.time()
        if self._channels.connected and (not heard or self._channels.silent):
            # Redis no longer knows the connection for channels, or does not reach it, although it seems to be open.
            await self._channels.drop()
        self._found_generation(found[0].decode(), lost=bool(found[1]))

    def _found_generation(self, generation: str, *, lost: bool) -> None:
        before, self._generation = self._generation, generation
        if lost:
            # What was counted is gone.
            self._start_count()
        if before and before != generation:
            self._ended.append(before)
            log.error("the store lost acknowledged writes: all sessions end, and handles are invalid")
            for callback in self._callbacks:
                callback(generation)

    def _start_count(self) -> None:
        """Count writes from zero, in a hash of another name."""
        self._process = self._random(8).hex()
        self._writes = 0
        self._appends.reset()


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))
