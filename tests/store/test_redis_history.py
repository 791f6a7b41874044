"""What Redis says of its own history, and when that proves that it lost nothing: restarts, failovers, plain cuts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ReadOnlyError, RedisError

from tests.store.redis_server import RedisServer, needs_redis, redis_server
from tests.store.test_redis import connected, until
from trunkline.store.redis import RedisEngine
from trunkline.store.redis_history import History, read_history, stored_history

ONE = History("run one", "replication one", durable=False, offset=100)
NO_ID = "0" * 40


@pytest.mark.parametrize(
    ("before", "after", "continues"),
    [
        pytest.param(ONE, ONE._replace(offset=0), True, id="the same process"),
        pytest.param(ONE, ONE._replace(replication="other"), True, id="another replication id after an hour alone"),
        pytest.param(
            ONE, ONE._replace(replication="new", previous="other", previous_end=900), False, id="was a replica"
        ),
        pytest.param(
            ONE,
            ONE._replace(replication="new", previous="replication one", previous_end=101),
            True,
            id="was a replica of nothing",
        ),
        pytest.param(
            ONE, History("two", "new", False, 500, "replication one", 101), True, id="a failover with everything"
        ),
        pytest.param(
            ONE, History("two", "new", False, 500, "replication one", 100), False, id="a failover that lacks a byte"
        ),
        pytest.param(
            ONE._replace(durable=True),
            History("two", "new", True, 500, "replication one", 100),
            False,
            id="a failover that lacks a byte, to a durable one",
        ),
        pytest.param(
            ONE._replace(offset=-1),
            History("two", "new", False, 500, "replication one", 900),
            False,
            id="a failover that a new process sees",
        ),
        pytest.param(
            ONE, History("two", "replication one", False, 100), True, id="a restart that kept its replication id"
        ),
        pytest.param(ONE, History("two", "replication one", False, 99), False, id="the same from an older file"),
        pytest.param(ONE, History("two", "new", False), False, id="a restart"),
        pytest.param(ONE, History("two", "new", True), False, id="a restart that is durable only now"),
        pytest.param(ONE._replace(durable=True), History("two", "new", False), False, id="durable only before"),
        pytest.param(ONE._replace(durable=True), History("two", "new", True), True, id="a restart of a durable one"),
    ],
)
def test_a_history_continues_another_only_if_nothing_can_be_missing(
    before: History, after: History, continues: bool
) -> None:
    assert after.continues(before) == continues


def test_a_history_is_read_from_what_redis_says() -> None:
    replication = b"# Replication\r\nrole:master\r\nmaster_replid:abc\r\nmaster_replid2:%s\r\n" % NO_ID.encode()
    replication += b"master_repl_offset:7\r\nsecond_repl_offset:-1\r\n"
    always: list[bytes] = [b"appendonly", b"yes", b"appendfsync", b"always"]
    read: list[tuple[object, bool, bool]] = [
        (always, True, True),
        (always, False, False),
        ([b"appendonly", b"no", b"appendfsync", b"always"], True, False),
        (RedisError("NOPERM"), True, False),
    ]
    for settings, one_address, durable in read:
        history = read_history(b"run_id:r\r\n", replication, settings, one_address=one_address)
        assert history == History("r", "abc", durable, 7, NO_ID, -1)
    with pytest.raises(RedisError, match="run_id"):
        read_history(b"# Server", replication, always, one_address=True)
    with pytest.raises(ReadOnlyError):
        read_history(b"run_id:r\r\n", b"role:slave\r\n", always, one_address=True)
    assert stored_history([None, None, None]) is None
    assert stored_history([b"r", b"abc", b"1"]) == History("r", "abc", True)


class Switch:
    """An address that leads to one Redis, then to another."""

    def __init__(self) -> None:
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.close()
            return
        for copy in (self._copy(reader, up_writer), self._copy(up_reader, writer)):
            self._tasks.add(asyncio.create_task(copy))

    async def aclose(self) -> None:
        """Wait until every connection has ended: its client is closed."""
        async with asyncio.timeout(120):
            await asyncio.gather(*self._tasks)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def switched(*servers: RedisServer) -> AsyncIterator[tuple[Switch, str]]:
    switch = Switch()
    switch.port = servers[0].port
    server = await asyncio.start_server(switch.serve, "127.0.0.1", 0)
    try:
        yield switch, f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()
        await switch.aclose()


@pytest.fixture
def replicated() -> Iterator[tuple[RedisServer, RedisServer]]:
    """A master and its replica."""
    with ExitStack() as stack:
        master, replica = (stack.enter_context(redis_server()) for _ in range(2))
        replica.stop()
        replica.start("--replicaof", f"127.0.0.1 {master.port}")
        yield master, replica


async def execute(server: RedisServer, *command: str) -> Any:
    async with Redis.from_url(server.url) as raw:
        return await raw.execute_command(*command)  # type: ignore[no-untyped-call]


async def up_to_date(master: RedisServer, replica: RedisServer) -> None:
    async with asyncio.timeout(120), Redis.from_url(master.url) as one, Redis.from_url(replica.url) as other:
        while True:
            wanted, reached = await one.info("replication"), await other.info("replication")
            if reached["master_link_status"] == "up" and reached["slave_repl_offset"] >= wanted["master_repl_offset"]:
                return


def reopening(store: RedisEngine) -> Callable[[], bool]:
    """Return a function that returns whether the connection was made again since now."""
    opened_at = store._opened_at
    return lambda: store._opened_at != opened_at


async def dead_process(url: str) -> None:
    """Store a nonce, and end without a trace in another process."""
    store = RedisEngine(url, name="test")
    await store.connect()
    assert await store.put("nonce", b"", ttl=600, only_if_absent=True)
    await store.aclose()


@needs_redis
@pytest.mark.parametrize("first_is_alive", [True, False], ids=["a process that lives", "a new process"])
@pytest.mark.parametrize(
    ("options", "is_same"),
    [
        pytest.param(("--appendfsync", "always"), True, id="with a file that has every write"),
        pytest.param(("--appendfsync", "everysec"), False, id="with a file that may lack some"),
        pytest.param(("--appendonly", "no"), False, id="without a file"),
    ],
)
async def test_a_restart_keeps_the_generation_only_if_redis_wrote_before_it_acknowledged(
    own_redis: RedisServer, options: tuple[str, ...], is_same: bool, first_is_alive: bool
) -> None:
    own_redis.stop()
    own_redis.start(*options)
    async with connected(own_redis) as store:
        await store.put("key", b"1", ttl=60)
        before = store.generation
        if first_is_alive:
            reopened = reopening(store)
            own_redis.stop()
            own_redis.start(*options)
            await until(reopened)
            assert (store.generation == before) == is_same
    if not first_is_alive:
        own_redis.stop()
        own_redis.start(*options)
        async with connected(own_redis) as other, connected(own_redis) as another:
            assert (other.generation == before) == is_same
            assert another.generation == other.generation


@needs_redis
async def test_a_write_of_a_process_that_has_died_is_not_forgotten_silently(own_redis: RedisServer) -> None:
    """Redis goes back to its snapshot; the process that lives has lost nothing of its own."""
    own_redis.stop()
    own_redis.start("--appendonly", "no", "--dbfilename", "dump.rdb")
    async with connected(own_redis) as store:
        await store.put("key", b"1", ttl=600)
        await execute(own_redis, "SAVE")
        before = store.generation
        await dead_process(own_redis.url)
        own_redis.stop()
        own_redis.start("--appendonly", "no", "--dbfilename", "dump.rdb")
        await until(lambda: store.generation != before)
        assert (await store.get("key"), await store.get("nonce")) == (b"1", None)


@needs_redis
async def test_a_cut_connection_changes_nothing(own_redis: RedisServer) -> None:
    own_redis.stop()
    own_redis.start("--appendonly", "no")
    async with connected(own_redis) as store:
        before, reopened = store.generation, reopening(store)
        await execute(own_redis, "CLIENT", "KILL", "TYPE", "normal")
        await until(reopened)
        assert store.generation == before


@needs_redis
async def test_a_failover_to_a_replica_that_has_everything_changes_nothing(
    replicated: tuple[RedisServer, RedisServer],
) -> None:
    master, replica = replicated
    await up_to_date(master, replica)
    async with switched(master) as (switch, url):
        store = RedisEngine(url, name="test")
        await store.connect()
        try:
            await store.put("key", b"1", ttl=600)
            await store._check()
            before = store.generation
            await up_to_date(master, replica)
            reopened = reopening(store)
            master.stop()
            await execute(replica, "REPLICAOF", "NO", "ONE")
            switch.port = replica.port
            await until(reopened)
            assert (store.generation, await store.get("key")) == (before, b"1")
            assert await store.put("key", b"2", ttl=600)
        finally:
            await store.aclose()


@needs_redis
async def test_a_failover_to_a_replica_that_lags_behind_begins_a_generation(
    replicated: tuple[RedisServer, RedisServer],
) -> None:
    """What is lost was written by a process that has died; the one that lives has lost nothing of its own."""
    master, replica = replicated
    async with switched(master) as (switch, url):
        store = RedisEngine(url, name="test")
        await store.connect()
        try:
            await store.put("key", b"1", ttl=600)
            await up_to_date(master, replica)
            await execute(replica, "REPLICAOF", "127.0.0.1", "1")
            await dead_process(master.url)
            # As the task does it once a second: it has seen that Redis was further.
            await store._check()
            before = store.generation
            master.stop()
            await execute(replica, "REPLICAOF", "NO", "ONE")
            switch.port = replica.port
            await until(lambda: store.generation != before)
            await until(lambda: store.available)
            assert (await store.get("key"), await store.get("nonce")) == (b"1", None)
        finally:
            await store.aclose()
