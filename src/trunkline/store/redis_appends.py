"""The appends of one process to Redis: sent in groups, in order, each done exactly once.

Appends are numbered. What was not answered, or refused for a reason that passes, is sent again, with the same numbers,
until it is done or the patience of its callers ends; the script on the other side does a number once. An answer that
acknowledged appends are gone means that Redis lost writes. Also after that an append keeps its number: it may have been
done without an answer, and be among what is not lost.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from redis.exceptions import (
    ClusterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from trunkline.errors import StoreUnavailable
from trunkline.store.interface import Appended
from trunkline.store.redis_connection import is_cancelled
from trunkline.store.redis_scripts import RING

__all__ = ["Appends", "Pipelines", "has_lost_writes", "refuses_all"]

log = logging.getLogger("trunkline.store")

#: The most appends of one group. At most two groups are unacknowledged, fewer than are remembered.
GROUP = RING // 4
#: The most appends that wait: a process that produces faster than Redis stores must get an error.
WAITING = 100_000
#: The same in bytes: several of the largest messages, and little of the memory of a server.
WAITING_BYTES = 256 * 1024 * 1024
#: A group that has so many bytes gets no further append: sending it takes a fraction of the timeout of a call.
GROUP_BYTES = 4 * 1024 * 1024
#: Seconds before what was not answered is sent again, and between two looks at the deadlines.
_PAUSE = 0.05
#: Replies that pass, of which redis-py makes no class, and those of scripts before Redis 7: memory, the disk, replicas.
_PASSING = re.compile(r"^(MISCONF|NOREPLICAS|BUSY|EARLY)\b|-(OOM|MISCONF|NOREPLICAS|BUSY)\b")


def refuses_all(error: object) -> bool:
    """Return whether an error reply means that no command can be served here: a replica, a cluster that is down."""
    return isinstance(error, ReadOnlyError | ClusterDownError)


def has_lost_writes(error: object) -> bool:
    """Return whether an error reply of a script means that acknowledged writes of this process are gone."""
    return isinstance(error, ResponseError) and "LOST" in str(error)


def _passes(error: object) -> bool:
    """Return whether the same append may be done later."""
    if isinstance(error, OutOfMemoryError | TryAgainError | NoScriptError):
        return True
    return isinstance(error, ResponseError) and _PASSING.search(str(error)) is not None


class Pipelines(Protocol):
    """The connection that sends a group of appends."""

    async def run_group(self, calls: list[tuple[list[str], list[Any]]]) -> list[Any]:
        """Run the append script for each, in order, in one round trip; return values and exceptions."""


class _Append:
    __slots__ = ("args", "deadline", "future", "is_patient", "keys", "number", "size")

    def __init__(
        self, keys: list[str], args: list[Any], deadline: float, future: asyncio.Future[Appended], is_patient: bool
    ) -> None:
        self.keys = keys
        self.args = args
        self.deadline = deadline
        self.is_patient = is_patient
        self.future = future
        self.number = 0
        self.size: int = len(args[0])


class Appends:
    """The appends of one process that are not acknowledged yet."""

    def __init__(self, pipelines: Pipelines, *, timeout: float, lost: Callable[[], None]) -> None:
        """Send groups through ``pipelines``; ``lost`` is called when acknowledged appends are gone.

        An append without patience fails when none was stored for ``timeout``, since a long queue is no failure.
        """
        self._pipelines = pipelines
        self._timeout = timeout
        self._lost = lost
        self._waiting: deque[_Append] = deque()
        self._waiting_bytes = 0
        #: When deadlines are looked at next: not after each group, since a long queue has many.
        self._next_look = 0.0
        #: When a group was stored last.
        self._stored_at = 0.0
        self._last = 0
        self._task: asyncio.Task[None] | None = None
        #: The number of the last acknowledged append.
        self.acknowledged: int = 0

    def add(self, keys: list[str], args: list[Any], *, patience: float | None) -> asyncio.Future[Appended]:
        """Add an append; the future has its outcome.

        Raises:
            StoreUnavailable: too many wait already.
        """
        if len(self._waiting) >= WAITING or self._waiting_bytes >= WAITING_BYTES:
            raise StoreUnavailable("Redis is too slow: too many appends wait for it")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Appended] = loop.create_future()
        deadline = loop.time() + (self._timeout if patience is None else patience)
        append = _Append(keys, args, deadline, future, patience is not None)
        self._waiting.append(append)
        self._waiting_bytes += append.size
        if self._task is None:
            self._task = loop.create_task(self._run(), name="trunkline-appends")
        return future

    async def aclose(self) -> None:
        """Stop; what is not acknowledged fails."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        for append in self._waiting:
            _fail(append, "the store was closed")
        self._waiting.clear()
        self._waiting_bytes = 0

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        answered = True
        try:
            while self._waiting and not is_cancelled():
                # After a failure one append is enough to find out whether it has passed.
                group = self._next_group(GROUP if answered else 1)
                try:
                    answered = await self._send(group)
                except Exception:
                    # Whatever it is: if this task ended, the callers of all that wait would wait for ever.
                    log.exception("appending to the store failed")
                    answered = False
                if answered:
                    self._stored_at = loop.time()
                self._drop_late(loop.time())
                if self._waiting and not answered:
                    await asyncio.sleep(_PAUSE)
        finally:
            self._task = None

    def _next_group(self, most: int) -> list[_Append]:
        group: list[_Append] = []
        size = 0
        for append in self._waiting:
            if len(group) == most or size >= GROUP_BYTES:
                break
            if not append.number:
                self._last += 1
                append.number = self._last
            group.append(append)
            size += append.size
        return group

    async def _send(self, group: list[_Append]) -> bool:
        """Send a group; return whether all of it was done, or refused for good."""
        calls = []
        before = 0
        for append in group:
            calls.append((append.keys, [*append.args[:4], append.number, self.acknowledged, before, *append.args[4:]]))
            before = append.number
        try:
            outcomes = await self._pipelines.run_group(calls)
        except (StoreUnavailable, RedisError, OSError, TimeoutError):
            return False
        for append, outcome in zip(group, outcomes, strict=True):
            if _passes(outcome):
                return False
            if has_lost_writes(outcome):
                self._lost()
                return False
            added = outcome if isinstance(outcome, Exception) else Appended(outcome[0].decode(), outcome[1])
            self._remove(append)
            if isinstance(added, Exception):
                _fail(append, str(added))
                continue
            self.acknowledged = append.number
            if not append.future.done():
                append.future.set_result(added)
        return True

    def _remove(self, append: _Append) -> None:
        self._waiting.remove(append) if self._waiting[0] is not append else self._waiting.popleft()
        self._waiting_bytes -= append.size

    def _drop_late(self, now: float) -> None:
        if now < self._next_look:
            return
        self._next_look = now + _PAUSE
        is_stuck = now - self._stored_at > self._timeout
        late = [append for append in self._waiting if append.deadline <= now and (append.is_patient or is_stuck)]
        if not late:
            return
        dropped = set(late)
        self._waiting = deque(append for append in self._waiting if append not in dropped)
        for append in late:
            self._waiting_bytes -= append.size
            _fail(append, "it did not answer in time")


def _fail(append: _Append, reason: str) -> None:
    if not append.future.done():
        append.future.set_exception(StoreUnavailable(f"Redis could not store an event: {reason}"))
        # Retrieved here, so that asyncio does not report it if nothing awaits it any more.
        append.future.exception()
