"""A store on Redis or Valkey: the engine for several workers and machines.

Commands go over one connection, channels have another. When the connection for commands breaks it is made again at
once, and commands wait for that; if it fails, every call fails at once, and one task tries until Redis answers again: a
Redis that is gone costs a server nothing but what needs it. Before anything is sent over a new connection, Redis is
asked whether it still has all that it acknowledged; the same task asks once a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from redis.exceptions import NoScriptError, RedisError, ResponseError

from trunkline.errors import StoreUnavailable
from trunkline.store.interface import Appended, Commit, Delivery, Entry, Step, Store, Subscription, entry_position
from trunkline.store.redis_appends import Appends, has_lost_writes, refuses_all
from trunkline.store.redis_channels import RedisChannels
from trunkline.store.redis_commit import COMMIT, commit_arguments, commit_outcome
from trunkline.store.redis_connection import CommandConnection, RedisAddress, Request, is_cancelled, reason
from trunkline.store.redis_history import History, read_history, stored_history
from trunkline.store.redis_scripts import (
    ADMIT,
    APPEND,
    CHECK,
    LEASES,
    MEMBERS,
    PROCESS_SECONDS,
    TAKE,
    KeyNames,
    milliseconds,
)
from trunkline.store.stats import StoreStats

__all__ = ["RedisEngine"]

log = logging.getLogger("trunkline.store")

_SCRIPTS = (ADMIT, APPEND, CHECK, COMMIT, LEASES, MEMBERS, TAKE)
#: The name of each script in Redis.
_HASHES: Mapping[str, str] = MappingProxyType(
    {source: hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest() for source in _SCRIPTS}
)
#: Seconds between two checks, and between two attempts to connect.
_CHECK_SECONDS, _PROBE_SECONDS = 1.0, 0.2
#: Seconds before the hash of this process expires in which it is not relied on: the clocks differ.
_MARGIN_SECONDS = 3600
#: How many generations a process knows to have ended: a failover goes back by seconds, and each is one failover.
_ENDED = 16


class RedisEngine(Store):
    """What the workers of one server share, in Redis; see `Store` for the methods."""

    def __init__(
        self,
        url: str,
        *,
        name: str,
        timeout: float = 2.0,
        random: Callable[[int], bytes] = os.urandom,
        address: RedisAddress | None = None,
    ) -> None:
        """Use the Redis at a URL for the server of this name; nothing is connected yet.

        Servers of different names share one Redis without seeing each other. A call fails when Redis has not answered
        anything for ``timeout``. For the URL see `RedisAddress`; ``address`` makes connections in another way.

        Raises:
            ValueError: the URL is not valid.
        """
        self.url = url
        self._names = KeyNames(name)
        self._timeout = timeout
        self._random = random
        self._address = address or RedisAddress(url, timeout=timeout)
        self._commands = CommandConnection(self._address, timeout=timeout, on_lost=self._connection_lost)
        process = random(8).hex()
        #: The hash that counts the writes of this process.
        self._process_key: str = self._names.process(process)
        #: Only this process publishes here: hearing its own message proves that channels work.
        self._own_channel = f"~{process}"
        self.stats: StoreStats = StoreStats()
        self._channels = RedisChannels(
            self._address,
            prefix=self._names.prefix,
            own=self._own_channel,
            timeout=timeout,
            stats=self.stats,
            before_missed=self._try_open,
        )
        self._appends = Appends(self, timeout=timeout, lost=self._writes_lost)
        self._writes = 0
        #: Wall time of the last check that succeeded, as Redis counts the life of the hash.
        self._checked_at = 0.0
        self._opened_at = float("-inf")
        self._history: History | None = None
        self._generation = ""
        #: The generations before it.
        self._ended: deque[str] = deque(maxlen=_ENDED)
        self._callbacks: list[Callable[[str], None]] = []
        #: Checks regularly.
        self._task: asyncio.Task[None] | None = None
        self._check_now = asyncio.Event()
        #: Connects again: not the same task, since a check may wait for the connection.
        self._opener: asyncio.Task[None] | None = None
        self._open_now = asyncio.Event()
        self._opening = asyncio.Lock()
        self._down = False
        self._closed = False

    # --- values ------------------------------------------------------------------------------------------------------

    async def get(self, key: str) -> bytes | None:
        """Return a value."""
        value: bytes | None = await self._call("GET", self._names.value(key), repeatable=True)
        return value

    async def commit(self, *steps: Step) -> Commit:
        """Do all steps by one script, which counts one write of this process.

        Raises:
            StoreUnavailable: acknowledged writes are gone, too, and so may be what these steps were to be compared
                with: a nonce that is new may be a used one. The check starts a new generation; until then every commit
                fails.
        """
        if not steps:
            return Commit(True)
        keys, args = commit_arguments(steps, self._names)
        reply = await self._script(COMMIT, [self._process_key, *keys], [self._writes, *args])
        if isinstance(reply, int):
            self._writes = max(self._writes, reply)
        return commit_outcome(steps, reply)

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
        if patience is None:
            self._reach()
        channel = "" if announce is None else self._names.channel(announce)
        args = [data, max_entries, max_bytes, milliseconds(ttl), channel]
        return await self._appends.add(self._names.log(log), args, patience=patience)

    async def read(
        self, log: str, *, after: str = "", limit: int = 1000, inclusive: bool = False
    ) -> list[Entry] | None:
        """Return the entries after an id; one more is read, which must be that entry."""
        if after and entry_position(after) is None:
            return None
        count = limit + 1 if after else limit
        stream = self._names.log(log)[0]
        reply = await self._call("XRANGE", stream, after or "-", "+", "COUNT", count, repeatable=True)
        entries = [Entry(id.decode(), fields[1]) for id, fields in reply]
        if not after:
            return entries
        if not entries or entries[0].id != after:
            return None
        return entries[:limit] if inclusive else entries[1:]

    # --- channels ----------------------------------------------------------------------------------------------------

    async def publish(self, channel: str, data: bytes) -> int:
        """Send a message."""
        heard: int = await self._call("PUBLISH", self._names.channel(channel), data)
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
        wait: int = await self._script(ADMIT, [self._names.limit(key)], [round(1e6 / rate), burst, cost])
        return wait / 1e6

    # --- queues ------------------------------------------------------------------------------------------------------

    async def take(self, queue: str, holder: str, *, lease: float, limit: int = 1) -> list[Delivery]:
        """Lease entries."""
        taken = await self._script(TAKE, self._names.queue(queue), [holder, milliseconds(lease), limit])
        return [Delivery(id.decode(), data, attempt) for id, data, attempt in taken]

    async def renew(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Renew leases."""
        return await self._change_leases(queue, holder, "renew", ids)

    async def release(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """End leases."""
        return await self._change_leases(queue, holder, "release", ids)

    async def _change_leases(self, queue: str, holder: str, verb: str, ids: Sequence[str]) -> list[str]:
        leased = await self._script(LEASES, self._names.queue(queue), [holder, verb, *ids])
        return [id.decode() for id in leased]

    # --- indexes -----------------------------------------------------------------------------------------------------

    async def members(self, index: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """Return members."""
        members = await self._script(MEMBERS, self._names.index(index), [after, limit], repeatable=True)
        return [member.decode() for member in members]

    # --- its own life ------------------------------------------------------------------------------------------------

    @property
    def available(self) -> bool:
        """Whether Redis answers, and channels are heard."""
        return not self._down and self._channels.reachable

    @property
    def generation(self) -> str:
        """The generation."""
        return self._generation

    def on_new_generation(self, callback: Callable[[str], None]) -> None:
        """Register a callback."""
        self._callbacks.append(callback)

    async def connect(self) -> None:
        """Connect, load the scripts and read the generation; if it fails, the engine goes on trying by itself."""
        try:
            await self._open()
        finally:
            self._start()
        await self._channels.start()

    async def aclose(self) -> None:
        """Disconnect; commands that come later fail instead of connecting again."""
        self._closed = True
        for task in (self._task, self._opener):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self._appends.aclose()
        await self._channels.aclose()
        await self._commands.aclose()
        await self._address.aclose()

    # --- commands ----------------------------------------------------------------------------------------------------

    def _reach(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._down:
            raise StoreUnavailable("Redis cannot be reached; the server keeps trying")
        # A command that comes before `connect` waits for the connection.
        self._start()

    async def _call(self, *command: Any, repeatable: bool = False) -> Any:
        """Send a command and return the reply.

        Raises:
            StoreUnavailable: Redis did not answer, or refused the command.
        """
        with self.stats.operation():
            self._reach()
            try:
                return await self._commands.call(*command, repeatable=repeatable)
            except NoScriptError:
                raise
            except ResponseError as error:
                if has_lost_writes(error):
                    self._writes_lost()
                    raise StoreUnavailable("Redis lost writes that it had acknowledged") from error
                if refuses_all(error):
                    self._commands.drop(error)
                # Otherwise only this command: a Redis without memory for a write still answers reads.
                raise StoreUnavailable(f"Redis refused a command: {reason(error)}") from error

    async def _script(self, source: str, keys: list[str], args: list[Any], *, repeatable: bool = False) -> Any:
        for _ in range(2):
            try:
                return await self._call("EVALSHA", _HASHES[source], len(keys), *keys, *args, repeatable=repeatable)
            except NoScriptError:
                # They were flushed.
                await self._load()
        raise StoreUnavailable("Redis loses its scripts as soon as they are loaded")

    async def _load(self) -> None:
        for source in _SCRIPTS:
            await self._call("SCRIPT", "LOAD", source, repeatable=True)

    async def run_group(self, calls: list[tuple[list[str], list[Any]]]) -> list[Any]:
        """Run the append script for each; called by `Appends`."""
        with self.stats.operation():
            self._reach()
            replies = [
                self._commands.call("EVALSHA", _HASHES[APPEND], 1 + len(keys), self._process_key, *keys, *args)
                for keys, args in calls
            ]
            # Replies come in order: after the last there are all of them.
            await asyncio.wait(replies[-1:])
            outcomes = [reply.exception() or reply.result() for reply in replies]
        for outcome in outcomes:
            if isinstance(outcome, NoScriptError):
                await self._load()
                break
            if refuses_all(outcome):
                self._commands.drop(outcome)
            if isinstance(outcome, StoreUnavailable) or refuses_all(outcome):
                raise outcome
        return outcomes

    # --- the connection ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._task is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._check_regularly(), name="trunkline-store")
            self._opener = loop.create_task(self._stay_connected(), name="trunkline-store-connection")

    def _connection_lost(self, error: BaseException) -> None:
        """Called when the connection for commands is lost: it is made again at once, if Redis has not fallen silent."""
        if isinstance(error, TimeoutError):
            self._failed(error)
        self._open_now.set()

    def _writes_lost(self) -> None:
        """Called when Redis lost writes that it had acknowledged: the check starts a new generation."""
        self._check_now.set()

    def _failed(self, error: BaseException) -> None:
        if not self._down:
            log.warning("the store cannot be reached: %s", reason(error))
        self._down = True
        self._channels.not_sent_to_itself()
        self._channels.fail_pending()
        self._commands.fail_waiting(f"Redis did not answer: {reason(error)}")

    async def _stay_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while not is_cancelled():
            self._open_now.clear()
            if self._commands.connected:
                await self._open_now.wait()
                # A connection that breaks as soon as it is made is not made again at once.
                await asyncio.sleep(max(0.0, self._opened_at + _PROBE_SECONDS - loop.time()))
            try:
                await self._open()
                if not self._channels.started:
                    await self._channels.start()
            except StoreUnavailable:
                await asyncio.sleep(_PROBE_SECONDS)
            except Exception:
                log.exception("connecting to the store failed")
                await asyncio.sleep(_PROBE_SECONDS)

    async def _check_regularly(self) -> None:
        while not is_cancelled():
            self._check_now.clear()
            try:
                if self._commands.connected:
                    await self._check()
            except StoreUnavailable:
                pass
            except Exception:
                log.exception("the check of the store failed")
            try:
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._check_now.wait()
            except TimeoutError:
                pass

    async def _open(self) -> None:
        """Connect, unless that was done already.

        Raises:
            StoreUnavailable: it failed.
        """
        async with self._opening:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            if self._commands.connected:
                return
            try:
                await self._commands.open(self._greet)
            except (RedisError, OSError, TimeoutError) as error:
                self._failed(error)
                raise StoreUnavailable(f"Redis cannot be reached: {reason(error)}") from error
            self._opened_at = asyncio.get_running_loop().time()
            if self._down:
                log.warning("the store can be reached again")
            self._down = False
            self._channels.try_now()

    async def _try_open(self) -> None:
        """Connect if that can be done now."""
        with contextlib.suppress(StoreUnavailable):
            await self._open()

    async def _greet(self, request: Request) -> None:
        """Load the scripts, and check by the history of this Redis that nothing was lost, before anything is sent."""
        names = self._names
        server, replication, settings, stored, generation = await request(
            [
                ("INFO", "server"),
                ("INFO", "replication"),
                ("CONFIG", "GET", "append*"),
                ("HMGET", names.history, "run", "replication", "durable"),
                ("GET", names.generation),
            ]
        )
        for reply in (server, replication, stored, generation):
            if isinstance(reply, ResponseError):
                raise reply
        history = read_history(server, replication, settings, one_address=self._address.is_fixed)
        before = self._history or stored_history(stored)
        check = self._check_command(
            history,
            is_proven=before is None or history.continues(before),
            generation=self._generation or (generation or b"").decode(),
        )
        *_, found = await request([*(("SCRIPT", "LOAD", source) for source in _SCRIPTS), check])
        if isinstance(found, ResponseError):
            raise found
        self._history = history
        self._checked(found)

    # --- lost writes -------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        """Check that Redis still has the acknowledged writes, and that channels are heard."""
        assert self._history is not None
        self._reach()
        connection = self._channels.sending_to_itself()
        # Sent with the command after it, whose reply comes later: one round trip for both.
        publishing = self._commands.call("PUBLISH", self._names.channel(self._own_channel), b"")
        replication = await self._call("INFO", "replication", repeatable=True)
        try:
            history = self._history.at(replication)
        except RedisError as error:
            self._commands.drop(error)
            raise StoreUnavailable(f"Redis refused a command: {reason(error)}") from error
        check = self._check_command(history, is_proven=history.continues(self._history), generation=self._generation)
        try:
            found = await self._call(*check)
        except NoScriptError:
            await self._load()
            found = await self._call(*check)
        self._history = history
        self._checked(found)
        try:
            heard = await publishing
        except ResponseError as error:
            raise StoreUnavailable(f"Redis refused a command: {reason(error)}") from error
        if self._channels.is_connected_by(connection) and (not heard or self._channels.silent):
            # Redis no longer knows the connection for channels, or does not reach it, although it seems to be open.
            await self._channels.drop()

    def _check_command(self, history: History, *, is_proven: bool, generation: str) -> tuple[Any, ...]:
        if self._checked_at and time.time() - self._checked_at > PROCESS_SECONDS - _MARGIN_SECONDS:
            # After so long without contact the hash has expired, which is no lost write.
            self._writes = self._appends.acknowledged = 0
        keys = [self._process_key, self._names.generation, self._names.history]
        args = [self._random(8).hex(), self._appends.acknowledged, self._writes, generation, int(is_proven)]
        args += [history.run, history.replication, int(history.durable), *self._ended]
        return ("EVALSHA", _HASHES[CHECK], len(keys), *keys, *args)

    def _checked(self, reply: list[Any]) -> None:
        self._checked_at = self.stats.last_success = time.time()
        generation, has_lost = reply[0].decode(), reply[1]
        before, self._generation = self._generation, generation
        if has_lost:
            # Count on from what is there.
            self._appends.acknowledged, self._writes = reply[2:]
        if before and before != generation:
            self._ended.append(before)
            # They are about what there was before.
            self._commands.fail_waiting("Redis lost writes that it had acknowledged")
            log.error("the store lost acknowledged writes: all sessions end, and handles are invalid")
            for callback in self._callbacks:
                callback(generation)
