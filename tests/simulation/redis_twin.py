"""What a Redis answers to the commands and scripts of the store: their meaning in Python, over the tables in memory.

It knows only what `RedisEngine` sends; `tests/simulation/test_redis_twin.py` compares each script with the one in Lua,
run by a real Redis.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from redis.exceptions import NoScriptError, ResponseError

from trunkline.store.interface import (
    Delete,
    Enqueue,
    Entry,
    Finish,
    FullIndex,
    Index,
    IndexLimits,
    Publish,
    Put,
    Step,
    entry_position,
)
from trunkline.store.memory_tables import MemoryTables
from trunkline.store.redis_commit import COMMIT
from trunkline.store.redis_scripts import ADMIT, APPEND, CHECK, LEASES, MEMBERS, RING, TAKE

__all__ = ["RedisTwin", "TwinProcess"]

_NO_ID = "0" * 40


class TwinProcess:
    """The hash of a process: how much it has written, and the outcomes of its last appends."""

    __slots__ = ("last", "outcomes", "writes")

    def __init__(self) -> None:
        self.last = 0
        self.writes = 0
        #: The number, the subscribers and the id of an append, by its place in the ring.
        self.outcomes: dict[int, tuple[int, int, str]] = {}


def _name(key: str) -> str:
    """Return the name in a key such as ``{trunkline:server}:value:name``."""
    return key.partition("}:")[2].partition(":")[2]


def _group_name(key: str) -> str:
    """Return the name in a key that has several parts, such as ``{trunkline:server}:queue:name:leased``."""
    return _name(key).rpartition(":")[0]


class RedisTwin:
    """The contents of one Redis, and what each command does to them."""

    #: Whether a repeated append is done again; see `broken`.
    repeats_appends = False

    def __init__(self, *, now: Callable[[], float], random: Callable[[int], bytes]) -> None:
        """Start empty; ``now`` returns wall time."""
        self._now = now
        self._random = random
        self._last_id = (0, 0)
        self.tables = MemoryTables()
        self.processes: dict[str, TwinProcess] = {}
        self.generation: bytes | None = None
        #: The history that a process has stored.
        self.stored_history: tuple[bytes, ...] = ()
        #: Every entry that was added, by log.
        self.history: dict[str, list[Entry]] = {}
        self.scripts: set[str] = set()
        self.run_id = random(20).hex()
        self.replication_id = random(20).hex()
        self.previous_id, self.previous_end = _NO_ID, -1
        self.offset = 0
        #: Delivers a message; returns to how many subscribers.
        self.publish: Callable[[str, bytes], int] = lambda _channel, _data: 0
        #: Called with the names of the process and the log, and the entry; and when events were admitted.
        self.appended: Callable[[str, Entry], None] = lambda _log, _entry: None
        self.admitted: Callable[[], None] = lambda: None
        #: Called before a process writes.
        self.writing: Callable[[str], None] = lambda _process: None

    # --- failover ----------------------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """Return the contents as a replica has them now."""
        # Much faster than copy.deepcopy.
        contents = (self.tables, self.processes, self.generation, self.stored_history, self.history, self.offset)
        return pickle.dumps(contents, pickle.HIGHEST_PROTOCOL)

    def fail_over(self, saved: bytes) -> None:
        """Become the replica that had these contents."""
        contents = pickle.loads(saved)
        self.tables, self.processes, self.generation, self.stored_history, self.history, self.offset = contents
        self.previous_id, self.previous_end = self.replication_id, self.offset + 1
        self.replication_id = self._random(20).hex()
        self.restart()

    @staticmethod
    def saved_processes(saved: bytes) -> dict[str, TwinProcess]:
        """Return the hashes of the processes in saved contents."""
        processes: dict[str, TwinProcess] = pickle.loads(saved)[1]
        return processes

    def restart(self) -> None:
        """Be another process with the same contents; scripts are not kept."""
        self.run_id = self._random(20).hex()
        self.scripts.clear()

    def process(self, key: str) -> TwinProcess:
        """Return the hash of a process."""
        return self.processes.setdefault(key, TwinProcess())

    # --- commands ----------------------------------------------------------------------------------------------------

    def execute(self, command: Sequence[Any]) -> Any:
        """Return the reply to a command; an error reply is returned, too."""
        name = command[0]
        if name == "EVALSHA":
            return self._run_script(*command[1:])
        return _COMMANDS[name](self, *command[1:])

    def _get(self, key: str) -> bytes | None:
        return self.generation if key.endswith("}:generation") else self.tables.value(_name(key), self._now())

    def _xrange(self, key: str, start: str, _end: str, _count: str, count: int) -> list[Any]:
        log = self.tables.log(_name(key), self._now())
        if log is None:
            return []
        entries = log.read("" if start == "-" else start, count, inclusive=True)
        if entries is None:
            entries = [entry for entry in log.read("", len(log), inclusive=True) or () if _is_from(entry.id, start)]
        return [[entry.id.encode(), [b"d", entry.data]] for entry in entries[:count]]

    def _publish(self, channel: str, data: bytes) -> int:
        self.offset += 1
        return self.publish(channel, data)

    def _info(self, section: str) -> bytes:
        if section == "server":
            return f"# Server\r\nrun_id:{self.run_id}\r\n".encode()
        lines = (
            "# Replication",
            "role:master",
            f"master_replid:{self.replication_id}",
            f"master_replid2:{self.previous_id}",
            f"master_repl_offset:{self.offset}",
            f"second_repl_offset:{self.previous_end}",
        )
        return "\r\n".join(lines).encode()

    def _config(self, _get: str, _pattern: str) -> list[bytes]:
        return [b"appendonly", b"yes", b"appendfsync", b"always"]

    def _hmget(self, _key: str, *_fields: str) -> list[bytes | None]:
        return [*self.stored_history] or [None, None, None]

    def _load(self, _load: str, source: str) -> bytes:
        name = _hash(source)
        self.scripts.add(name)
        return name.encode()

    # --- scripts -----------------------------------------------------------------------------------------------------

    def _run_script(self, name: str, count: int, *rest: Any) -> Any:
        if name not in self.scripts:
            return NoScriptError("No matching script.")
        self.offset += 1
        return _SCRIPTS[name](self, rest[:count], rest[count:])

    def _commit(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        process = self.process(keys[0])
        if process.writes < int(args[0]):
            return ResponseError("LOST acknowledged writes are gone")
        self.writing(keys[0])
        steps = [*_steps(keys[1:], args[1:])]
        outcome = self.tables.commit(steps, self._now())
        messages, self.tables.outbox = self.tables.outbox, []
        prefix = keys[0].partition("}:")[0] + "}:"
        for channel, data in messages:
            self.publish(prefix + channel, data)
        if outcome.done:
            process.writes += 1
            return process.writes
        return [] if outcome.full is None else _position(steps, outcome.full)

    def _append(self, keys: Sequence[str], args: Sequence[Any]) -> Any:
        data, max_entries, max_bytes, ttl, number, acknowledged, before, channel = args
        process = self.process(keys[0])
        if process.last < acknowledged:
            return ResponseError("LOST acknowledged appends are gone")
        done, heard, id = process.outcomes.get(number % RING, (0, 0, ""))
        if done == number and not self.repeats_appends:
            return [id.encode(), heard]
        if process.last < before:
            return ResponseError("EARLY the append before it was refused")
        self.writing(keys[0])
        now = self._now()
        position = (int(now * 1000), 0)
        if position <= self._last_id:
            position = (self._last_id[0], self._last_id[1] + 1)
        self._last_id = position
        name, entry = _name(keys[1]), Entry(f"{position[0]}-{position[1]}", data)
        limits = {"max_entries": max_entries, "max_bytes": max_bytes}
        self.tables.append(name, entry, ttl=ttl / 1000, now=now, **limits)
        self.history.setdefault(name, []).append(entry)
        self.appended(name, entry)
        heard = self.publish(channel, b"%s %s" % (entry.id.encode(), data)) if channel else 0
        process.last = max(process.last, number)
        process.outcomes[number % RING] = (number, heard, entry.id)
        return [entry.id.encode(), heard]

    def _admit(self, keys: Sequence[str], args: Sequence[int]) -> int:
        interval, burst, cost = args
        wait = self.tables.admit(_name(keys[0]), rate=1e6 / interval, burst=burst, cost=cost, now=self._now())
        if wait == 0.0:
            self.admitted()
        return -int(-wait * 1e6 // 1)

    def _take(self, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
        holder, lease, limit = args
        queue = self.tables.queues.get(_group_name(keys[0]))
        if queue is None:
            return []
        taken = queue.take(holder, lease=lease / 1000, limit=limit, now=self._now())
        return [[delivery.id.encode(), delivery.data, delivery.attempt] for delivery in taken]

    def _leases(self, keys: Sequence[str], args: Sequence[str]) -> list[bytes]:
        holder, verb, *ids = args
        queue = self.tables.queues.get(_group_name(keys[0]))
        if queue is None:
            return []
        leased = queue.renew(holder, ids, self._now()) if verb == "renew" else queue.release(holder, ids)
        return [id.encode() for id in leased]

    def _members(self, keys: Sequence[str], args: Sequence[Any]) -> list[bytes]:
        after, limit = args
        members = self.tables.members(_group_name(keys[0]), after, limit, self._now())
        return [member.encode() for member in members]

    def _check(self, keys: Sequence[str], args: Sequence[Any]) -> list[Any]:
        new, acknowledged, writes, known, is_proven, run, replication, durable, *ended = args
        # As a script in Redis, it must not make the hash.
        process = self.processes.get(keys[0]) or TwinProcess()
        lost = process.last < acknowledged or process.writes < writes
        generation = (self.generation or b"").decode()
        if not generation or ((lost or not is_proven) and generation == known) or generation in ended:
            self.generation, generation = new.encode(), new
        self.stored_history = (run.encode(), replication.encode(), b"%d" % durable)
        return [generation.encode(), int(lost), process.last, process.writes]


def _is_from(id: str, start: str) -> bool:
    return (entry_position(id) or (0, 0)) >= (entry_position(start) or (0, 0))


def _steps(keys: Sequence[str], args: Sequence[Any]) -> Iterator[Step]:
    """Return the steps of a commit; the inverse of `commit_arguments`."""
    k = a = 0
    while a < len(args):
        kind = args[a]
        if kind == "p":
            condition, value, ttl, old = args[a + 1 : a + 5]
            has_old = condition == "old"
            yield Put(_name(keys[k]), value, ttl / 1000, old if has_old else None, condition == "absent")
            k, a = k + 1, a + 5
        elif kind == "d":
            yield Delete(_name(keys[k]))
            k, a = k + 4, a + 1
        elif kind == "i":
            member, weight, ttl, into, out_of = args[a + 1 : a + 6]
            names = [_group_name(keys[k + 3 * number]) for number in range(into + out_of)]
            limits = [IndexLimits(*args[a + 6 + 2 * number : a + 8 + 2 * number]) for number in range(into)]
            yield Index(member, dict(zip(names, limits, strict=False)), names[into:], weight, ttl / 1000)
            k, a = k + 3 * (into + out_of), a + 6 + 2 * into
        elif kind == "e":
            id, data, holder, _channel = args[a + 1 : a + 5]
            yield Enqueue(_group_name(keys[k]), id, data, holder)
            k, a = k + 4, a + 5
        elif kind == "f":
            holder, id = args[a + 1 : a + 3]
            yield Finish(_group_name(keys[k]), holder, id)
            k, a = k + 4, a + 3
        else:
            channel, data = args[a + 1 : a + 3]
            yield Publish(channel.partition("}:")[2], data)
            a += 3


def _position(steps: Sequence[Step], full: FullIndex) -> list[Any]:
    """Return the step and the index that has no room, as the script says it."""
    for number, step in enumerate(steps):
        if isinstance(step, Index) and full.name in step.into:
            return [number, list(step.into).index(full.name), full.limit.encode()]
    raise AssertionError("the index is of no step")


def _hash(source: str) -> str:
    return hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


_COMMANDS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "GET": RedisTwin._get,
        "XRANGE": RedisTwin._xrange,
        "PUBLISH": RedisTwin._publish,
        "INFO": RedisTwin._info,
        "CONFIG": RedisTwin._config,
        "HMGET": RedisTwin._hmget,
        "SCRIPT": RedisTwin._load,
    }
)
_SCRIPTS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        _hash(ADMIT): RedisTwin._admit,
        _hash(APPEND): RedisTwin._append,
        _hash(CHECK): RedisTwin._check,
        _hash(COMMIT): RedisTwin._commit,
        _hash(LEASES): RedisTwin._leases,
        _hash(MEMBERS): RedisTwin._members,
        _hash(TAKE): RedisTwin._take,
    }
)
