"""The Redis of the simulation answers as a real one does: each script on random inputs, and each command."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from redis import Connection
from redis.exceptions import ResponseError

from tests.simulation.redis_twin import RedisTwin
from tests.store.conftest import shared_redis
from tests.store.redis_server import RedisServer, needs_redis
from trunkline.store.interface import Delete, Enqueue, Finish, Index, IndexLimits, Publish, Put, Step
from trunkline.store.redis import _HASHES, _SCRIPTS
from trunkline.store.redis_commit import COMMIT, commit_arguments, commit_outcome
from trunkline.store.redis_scripts import ADMIT, APPEND, CHECK, LEASES, MEMBERS, TAKE, KeyNames

__all__ = ["shared_redis"]

pytestmark = needs_redis

#: How many commands are compared in each test.
COUNT = 300
KEYS = ("a", "b", "c")
IDS = tuple(f"id{number}" for number in range(6))
#: Milliseconds that no test lasts.
LONG = 600_000


class Pair:
    """A real Redis and its twin, which get the same commands."""

    def __init__(self, connection: Any, name: str, seed: str) -> None:
        self._connection = connection
        self.twin = RedisTwin(now=time.time, random=os.urandom)
        self.names = KeyNames(name)
        self.random = Random(seed)
        #: The id that the twin has given to an entry, by the log and the id in Redis.
        self._twin_ids: dict[tuple[str, bytes], bytes] = {}
        for source in _SCRIPTS:
            self.same("SCRIPT", "LOAD", source)

    def ask(self, *command: Any) -> tuple[Any, Any]:
        """Send a command to both."""
        self._connection.send_command(*command)
        reply: Any
        try:
            reply = self._connection.read_response()
        except ResponseError as error:
            reply = error
        return reply, self.twin.execute(command)

    def run(self, source: str, keys: list[str], args: list[Any]) -> tuple[Any, Any]:
        """Run a script on both."""
        return self.ask("EVALSHA", _HASHES[source], len(keys), *keys, *args)

    def same(self, *command: Any) -> Any:
        """Send a command to both, and compare what they reply."""
        real, twin = (_comparable(reply) for reply in self.ask(*command))
        assert twin == real, command
        return real

    def same_run(self, source: str, keys: list[str], args: list[Any]) -> Any:
        """Run a script on both, and compare what they reply."""
        return self.same("EVALSHA", _HASHES[source], len(keys), *keys, *args)

    def commit(self, *steps: Step, acknowledged: int = 0) -> Any:
        """Commit steps to both, and compare the outcomes."""
        keys, args = commit_arguments(steps, self.names)
        replies = self.run(COMMIT, [self.names.process("p"), *keys], [acknowledged, *args])
        if isinstance(replies[0], ResponseError):
            assert _comparable(replies[1]) == _comparable(replies[0])
            return None
        real, twin = ((commit_outcome(steps, reply), isinstance(reply, int) and reply) for reply in replies)
        assert twin == real, steps
        return real[1]

    def record(self, log: str, ids: tuple[bytes, bytes]) -> None:
        """Record that an entry of a log has these ids, and compare them with what was recorded."""
        real, twin = ids
        assert self._twin_ids.setdefault((log, real), twin) == twin

    def recorded(self, log: str) -> list[tuple[bytes, bytes]]:
        """Return the ids of the entries that a log has or had."""
        return [(real, twin) for (name, real), twin in self._twin_ids.items() if name == log]


def _comparable(reply: Any) -> Any:
    return f"{type(reply).__name__}: {str(reply).split(' ')[0]}" if isinstance(reply, ResponseError) else reply


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """A real Redis and its twin; what is in one is in the other."""
    server: RedisServer = request.getfixturevalue("shared_redis")
    connection: Any = Connection(host="127.0.0.1", port=server.port, protocol=2)  # type: ignore[no-untyped-call]
    connection.connect()
    try:
        yield Pair(connection, uuid4().hex, request.node.name)
    finally:
        connection.disconnect()


def random_step(random: Random) -> Step:
    key, id, data = random.choice(KEYS), random.choice(IDS), b"%d" % random.randrange(3)
    limits = {name: IndexLimits(random.randrange(4), random.randrange(9)) for name in random.sample(KEYS, 2)}
    kinds: list[Callable[[], Step]] = [
        lambda: Put(key, data, 600),
        lambda: Put(key, data, 600, only_if_absent=True),
        lambda: Put(key, data, 600, old=b"%d" % random.randrange(3)),
        lambda: Delete(key),
        lambda: Index(id, limits, random.sample(KEYS, 1), random.randrange(4), 600),
        lambda: Enqueue(key, id, data, random.choice(["", "ada"])),
        lambda: Finish(key, "ada", id),
        lambda: Publish(key, data),
    ]
    return random.choice(kinds)()


def test_commits(pair: Pair) -> None:
    random, writes = pair.random, 0
    for _ in range(COUNT):
        steps = [random_step(random) for _ in range(random.randrange(1, 4))]
        writes = pair.commit(*steps, acknowledged=writes + random.choice([-1, 0, 0, 0, 1])) or writes
        for key in KEYS:
            pair.same("GET", pair.names.value(key))
            pair.same_run(MEMBERS, pair.names.index(key), ["", 10])
    assert writes > COUNT / 10


def test_members(pair: Pair) -> None:
    random = pair.random
    for _ in range(COUNT):
        member = "".join(random.choices("abcxyz", k=2))
        pair.commit(Index(member, {"all": IndexLimits()} if random.random() < 0.7 else {}, ["all"], 0, 600))
        after = random.choice(["", "a", "".join(random.choices("abcxyz", k=2))])
        pair.same_run(MEMBERS, pair.names.index("all"), [after, random.randrange(1, 5)])


def test_queues(pair: Pair) -> None:
    random, keys = pair.random, pair.names.queue("jobs")
    taken = 0
    for number in range(COUNT):
        # An entry that is enqueued again keeps its place in Redis, and gets a new one in memory; it has a new id here.
        holder, ids = random.choice(["ada", "bob"]), [f"id{max(0, number - random.randrange(9))}" for _ in range(2)]
        chance = random.random()
        if chance < 0.4:
            pair.commit(Enqueue("jobs", f"id{number}", b"%d" % number, random.choice(["", "", holder])))
        elif chance < 0.6:
            pair.commit(Finish("jobs", holder, ids[0]))
        elif chance < 0.8:
            taken += len(pair.same_run(TAKE, keys, [holder, LONG, 1]))
        elif chance < 0.9:
            pair.same_run(LEASES, keys, [holder, "renew", *ids])
        else:
            pair.same_run(LEASES, keys, [holder, "release", ids[0]])
            # Entries that were released one after another have no order in Redis: each is taken before the next.
            taken += len(pair.same_run(TAKE, keys, [holder, LONG, 1]))
    assert taken > COUNT / 10


def test_limits(pair: Pair) -> None:
    random, refused = pair.random, 0
    interval = 1_000_000_000
    for _ in range(COUNT):
        args = [interval, random.choice([3, 30]), random.randrange(1, 3)]
        real, twin = pair.run(ADMIT, [pair.names.limit(random.choice(KEYS))], args)
        # The clock goes on between the two; an interval is a thousand seconds.
        assert (real == 0) == (twin == 0)
        assert abs(real - twin) < interval / 2
        refused += real > 0
    assert 0 < refused < COUNT


def test_appends(pair: Pair) -> None:
    random, process = pair.random, pair.names.process("p")
    last, logs = 0, dict[int, str]()
    for _ in range(COUNT):
        number = last + 1 if random.random() < 0.6 else max(1, last - random.randrange(5))
        acknowledged, before = (max(0, last - random.randrange(-1, 4)) for _ in range(2))
        log, data = random.choice(KEYS), b"x" * random.randrange(12)
        args = [data, random.choice([2, 10]), random.choice([20, 200]), LONG, number, acknowledged, before, ""]
        replies = pair.run(APPEND, [process, *pair.names.log(log)], args)
        if isinstance(replies[0], ResponseError):
            assert _comparable(replies[1]) == _comparable(replies[0])
        else:
            # A repeated append is the entry of the log that it was for at first.
            logs[number] = log = logs.get(number, log)
            pair.record(log, (replies[0][0], replies[1][0]))
            assert replies[0][1] == replies[1][1] == 0
            last = max(last, number)
        _compare_entries(pair, log)
    assert len(logs) > COUNT / 4


def _compare_entries(pair: Pair, log: str) -> None:
    """Compare what is read from the beginning, and from an entry that may be gone."""
    stream = pair.names.log(log)[0]
    starts = [(b"-", b"-"), *pair.random.sample(pair.recorded(log), min(1, len(pair.recorded(log))))]
    for start in starts:
        # Each has ids of its own.
        real, twin = (pair.ask("XRANGE", stream, id.decode(), "+", "COUNT", 3)[n] for n, id in enumerate(start))
        assert [fields for _, fields in twin] == [fields for _, fields in real]
        for ids in zip((id for id, _ in real), (id for id, _ in twin), strict=True):
            pair.record(log, ids)


def test_checks(pair: Pair) -> None:
    random, names = pair.random, pair.names
    generations: list[str] = []
    for number in range(COUNT):
        if random.random() < 0.3:
            pair.commit(Put("a", b"", 600))
        known = random.choice([*generations[-2:], ""])
        ended = random.sample(generations, min(len(generations), random.choice([0, 0, 0, 1])))
        args = [f"g{number}", random.choice([0, 0, 1]), random.randrange(9), known, random.choice([0, 1, 1])]
        args += [random.choice(["run1", "run2"]), "replication", random.choice([0, 1]), *ended]
        reply = pair.same_run(CHECK, [names.process("p"), names.generation, names.history], args)
        generations.append(reply[0].decode())
        pair.same("GET", names.generation)
        pair.same("HMGET", names.history, "run", "replication", "durable")
    assert len(set(generations)) > 10


def test_what_says_the_history(pair: Pair) -> None:
    server, twin_server = pair.ask("INFO", "server")
    replication, twin_replication = pair.ask("INFO", "replication")
    for real, twin in ((server, twin_server), (replication, twin_replication)):
        fields = {line.partition(b":")[0] for line in twin.splitlines() if b":" in line}
        assert fields <= {line.partition(b":")[0] for line in real.splitlines()}
    pair.same("PUBLISH", pair.names.channel("a"), b"nobody hears it")
    real, twin = pair.ask("CONFIG", "GET", "append*")
    settings = dict(zip(real[::2], real[1::2], strict=True))
    assert dict(zip(twin[::2], twin[1::2], strict=True)).items() <= settings.items()
    real, twin = pair.ask("EVALSHA", "0" * 40, 0)
    assert type(twin) is type(real)
