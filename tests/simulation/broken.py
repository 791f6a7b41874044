"""Deliberately broken variants of the code under test: each breaks one promise, and the simulation must notice it.

Some are the bugs that the simulation has found, put back; others are what the design is there to prevent.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import msgspec

from tests.simulation.redis_twin import RedisTwin
from trunkline.server.request_state import StateKeeper
from trunkline.server.shared_sessions import SharedServerAcceptor
from trunkline.server.tasks import leases, record
from trunkline.server.tasks.leases import Leases
from trunkline.store.interface import Commit, Put, Step
from trunkline.store.redis import RedisEngine
from trunkline.store.redis_channels import RedisChannels
from trunkline.transports.http.server.shared import endpoint, sessions
from trunkline.transports.http.server.shared.endpoint import SharedSessionEndpoint
from trunkline.transports.http.server.shared.facts import LIFETIME
from trunkline.transports.http.server.shared.streams import LogStream, ProducedStream
from trunkline.transports.http.server.shared.worker import SharedWorker

__all__ = ["BROKEN", "SEEDS", "broken"]

Replace = Callable[[Any, str, Any], None]
Patch = Callable[[Replace], None]


async def _nothing(*_: Any, **__: Any) -> None:
    """Do nothing."""


def _appends_repeated(replace: Replace) -> None:
    """An append whose answer was lost is done again."""
    replace(RedisTwin, "repeats_appends", True)


def _lost_writes_not_checked(replace: Replace) -> None:
    """A worker does not ask whether Redis still has what it acknowledged, and trusts any history."""

    def trust(self: Any, history: Any, *, is_proven: bool, generation: str) -> tuple[Any, ...]:
        self._writes = self._appends.acknowledged = 0
        return check_command(self, history, is_proven=True, generation=generation)  # type: ignore[no-any-return]

    check_command: Any = RedisEngine._check_command
    replace(RedisEngine, "_check_command", trust)


def _silent_channels_trusted(replace: Replace) -> None:
    """A connection for channels that delivers nothing is kept for as long as it seems to be open."""
    replace(RedisChannels, "is_connected_by", lambda *_: False)


def _channels_dropped_early(replace: Replace) -> None:
    """A connection for channels is dropped since it did not deliver a message from before its subscriptions."""
    replace(RedisChannels, "is_connected_by", lambda self, _: self.connected)


def _log_cleared_early(replace: Replace) -> None:
    """The log of a session is cleared when an answer is stored, before its last frame is written."""
    stored = ProducedStream._stored

    def clear(self: Any, id: str, event: Any) -> None:
        if event.last:
            worker = self._shared_log._worker
            worker.spawn(worker.store.delete(f"events:{self._shared_log._key}"))
        stored(self, id, event)

    replace(ProducedStream, "_stored", clear)


def _terminations_ignored(replace: Replace) -> None:
    """A worker does not hear which sessions were terminated by others."""
    replace(SharedWorker, "_terminated_received", lambda *_: None)
    replace(SharedWorker, "_load_terminated", _nothing)


def _terminations_missed(replace: Replace) -> None:
    """A worker does not read the terminated sessions again after a lost connection."""
    load = SharedWorker._load_terminated

    async def load_once(self: Any) -> None:
        if not self._joined:
            await load(self)

    replace(SharedWorker, "_load_terminated", load_once)


def _catch_up_given_up(replace: Replace) -> None:
    """A worker that cannot read what it missed does not try again."""
    catch_up = SharedWorker._catch_up

    async def once(self: Any) -> None:
        self._behind = False
        try:
            await catch_up(self)
        finally:
            self._deliver_early()

    replace(SharedWorker, "_catch_up_again", once)


def _stream_not_read_again(replace: Replace) -> None:
    """A stream is not read again after a lost connection."""
    replace(LogStream, "_missed", lambda _: None)


def _stream_read_twice(replace: Replace) -> None:
    """What is in the log, and arrives while it is read, is read twice."""
    entry = LogStream._entry

    def twice(self: Any, id: str, body: bytes) -> None:
        self._position = ""
        entry(self, id, body)

    replace(LogStream, "_entry", twice)


def _generation_ignored(replace: Replace) -> None:
    """A worker goes on with its sessions after writes were lost."""
    replace(SharedSessionEndpoint, "generation_changed", lambda _: None)


def _announcements_missed(replace: Replace) -> None:
    """A worker does not read the announcements that it missed."""
    catch_up = SharedWorker._catch_up_announcements

    async def catch_up_once(self: Any) -> None:
        if not self._joined:
            await catch_up(self)

    replace(SharedWorker, "_catch_up_announcements", catch_up_once)


def _notices_not_numbered(replace: Replace) -> None:
    """Notices are stored without the announcement that they are of."""
    replace(ProducedStream, "announce", lambda self, id, notify: notify())


def _notices_merged(replace: Replace) -> None:
    """A notice is merged into an equal one of an earlier announcement, which its client may have already."""

    def has_equal(self: Any, data: bytes) -> bool:
        return any(each.data == data for each in self._unstored)

    replace(ProducedStream, "_has_unstored", has_equal)


def _dead_workers_trusted(replace: Replace) -> None:
    """A request whose worker died is not answered by any other."""
    replace(SharedSessionEndpoint, "_answer_for", _nothing)


def _answers_by_channel(replace: Replace) -> None:
    """An answer goes only to a worker that is listening in this moment."""
    replace(SharedWorker, "send_answer", SharedWorker.send)


def _turns_not_released(replace: Replace) -> None:
    """A turn that was acquired, although the answer was lost, is kept for ever."""
    replace(endpoint, "release_turn", lambda *_: None)


def _state_overwritten(replace: Replace) -> None:
    """A change of a session's state overwrites one that was made at the same time."""

    async def put(store: Any, key: str, old: bytes | None, new: bytes) -> bool:
        return await store.put(key, new, ttl=LIFETIME)  # type: ignore[no-any-return]

    replace(sessions, "_swap", put)


def _limits_per_worker(replace: Replace) -> None:
    """Each worker counts for itself."""

    async def admit_here(self: Any, key: str, *, rate: float, burst: int, cost: int = 1) -> float:
        return await admit(self, f"{key} of {self._process_key}", rate=rate, burst=burst, cost=cost)

    admit = RedisEngine.admit
    replace(RedisEngine, "admit", admit_here)


def _tasks_without_fencing(replace: Replace) -> None:
    """A task is changed without a look whether another worker has changed it meanwhile."""
    commit = RedisEngine.commit

    async def commit_unseen(self: Any, *steps: Step) -> Commit:
        changed = (
            step._replace(old=None) if isinstance(step, Put) and step.key.startswith("task:") else step
            for step in steps
        )
        return await commit(self, *changed)

    replace(RedisEngine, "commit", commit_unseen)


def _leases_ignored(replace: Replace) -> None:
    """A worker takes over the tasks of workers that are alive."""
    take = RedisEngine.take

    async def take_any(self: Any, queue: str, holder: str, *, lease: float, limit: int = 1) -> Any:
        return await take(self, queue, holder, lease=0.0, limit=limit)

    replace(RedisEngine, "take", take_any)


def _tasks_run_again(replace: Replace) -> None:
    """A task whose worker died runs again, although it did not declare that it may."""
    again = record.start_again

    def start(task: Any, runner: str, now: float) -> Any:
        return again(msgspec.structs.replace(task, retry=9), runner, now)

    replace(leases, "start_again", start)


def _tasks_forgotten(replace: Replace) -> None:
    """The tasks of a worker that died are taken over by no other."""

    async def claim(self: Any) -> list[Any]:
        return []

    replace(Leases, "claim", claim)


def _listeners_not_told(replace: Replace) -> None:
    """A change is not passed on to the listen streams of other workers."""
    replace(SharedServerAcceptor, "announced", lambda *_: None)


def _listeners_told_twice(replace: Replace) -> None:
    """The listen streams of a worker hear of its own changes once more when they are announced."""
    announced = SharedSessionEndpoint.announced

    def as_another(self: Any, id: str, body: bytes | None, *, own: bool) -> None:
        announced(self, id, body, own=False)

    replace(SharedSessionEndpoint, "announced", as_another)


def _states_per_worker(replace: Replace) -> None:
    """A state that is too large to travel is kept by the worker that made it."""
    kept: WeakKeyDictionary[Any, dict[str, bytes]] = WeakKeyDictionary()

    async def put(self: Any, contents: bytes, *, owner: str) -> str:
        own = kept.setdefault(self, {})
        own[str(len(own))] = contents
        return str(len(own) - 1)

    async def get(self: Any, name: str) -> bytes | None:
        return kept.get(self, {}).get(name)

    replace(StateKeeper, "put", put)
    replace(StateKeeper, "get", get)


def _single_use_per_worker(replace: Replace) -> None:
    """Each worker remembers for itself which states were used."""
    used: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()

    async def spend(self: Any, nonce: str, *, owner: str) -> bool:
        own = used.setdefault(self, set())
        known = nonce in own
        own.add(nonce)
        return not known

    replace(StateKeeper, "spend", spend)


def _joined_silently(replace: Replace) -> None:
    """Listen streams that a worker served before it joined the others do not hear that anything may have changed."""
    announced, joined = SharedSessionEndpoint.announced, WeakSet[Any]()

    def after_the_first(self: Any, id: str, body: bytes | None, *, own: bool) -> None:
        if body is None and self not in joined:
            joined.add(self)
        else:
            announced(self, id, body, own=own)

    replace(SharedSessionEndpoint, "announced", after_the_first)


#: The variants, and the first seed that notices each now. Other code shifts the seeds: `SEEDS` from there on are tried.
SEEDS = 600
BROKEN: Mapping[str, tuple[Patch, int]] = MappingProxyType(
    {
        "appends-repeated": (_appends_repeated, 35),
        "lost-writes-not-checked": (_lost_writes_not_checked, 14),
        "silent-channels-trusted": (_silent_channels_trusted, 0),
        "channels-dropped-early": (_channels_dropped_early, 188),
        "log-cleared-early": (_log_cleared_early, 0),
        "terminations-ignored": (_terminations_ignored, 2),
        "terminations-missed": (_terminations_missed, 23),
        "catch-up-given-up": (_catch_up_given_up, 1333),
        "stream-not-read-again": (_stream_not_read_again, 26),
        "stream-read-twice": (_stream_read_twice, 41),
        "generation-ignored": (_generation_ignored, 24),
        "announcements-missed": (_announcements_missed, 9),
        "notices-not-numbered": (_notices_not_numbered, 5),
        "notices-merged": (_notices_merged, 779),
        "dead-workers-trusted": (_dead_workers_trusted, 6),
        "answers-by-channel": (_answers_by_channel, 161),
        "turns-not-released": (_turns_not_released, 69),
        "state-overwritten": (_state_overwritten, 25),
        "limits-per-worker": (_limits_per_worker, 1),
        "tasks-without-fencing": (_tasks_without_fencing, 64),
        "leases-ignored": (_leases_ignored, 1),
        "tasks-run-again": (_tasks_run_again, 6),
        "tasks-forgotten": (_tasks_forgotten, 2),
        "listeners-not-told": (_listeners_not_told, 3),
        "listeners-told-twice": (_listeners_told_twice, 0),
        "states-per-worker": (_states_per_worker, 0),
        "single-use-per-worker": (_single_use_per_worker, 1),
        "joined-silently": (_joined_silently, 11),
    }
)


@contextlib.contextmanager
def broken(name: str | None) -> Iterator[None]:
    """Break the code under test in one way; None leaves it as it is."""
    with contextlib.ExitStack() as restore:

        def replace(owner: Any, attribute: str, value: Any) -> None:
            restore.callback(setattr, owner, attribute, vars(owner)[attribute])
            setattr(owner, attribute, value)

        if name is not None:
            BROKEN[name][0](replace)
        yield
