"""The soak itself: what it plans follows from its seed, and what should not happen is a fault."""

from __future__ import annotations

import time

import pytest

from tests.soak.__main__ import schedule
from tests.soak.ledger import Ledger
from tests.soak.listeners import GetListener
from tests.soak.sessions import Answered, SoakSession
from tests.soak.tasks import TaskBook
from trunkline.protocol.sse import ServerSentEvent


def test_a_seed_decides_what_is_killed_when() -> None:
    planned = schedule(120, 7)
    assert planned == schedule(120, 7) != schedule(120, 8)
    assert {kind for _, kind, _ in planned} == {"kill", "restart", "pause"}
    assert [at for at, _, _ in planned] == sorted(at for at, _, _ in planned)


def _record(ledger: Ledger, record: str, heard: float) -> None:
    arguments = ("a call", {7}, heard) if record == "unknown" else ("a call", heard)
    getattr(ledger, record)(*arguments)
    ledger.judge()


@pytest.mark.parametrize("record", ["lost", "ended", "refused", "unknown"])
def test_an_error_without_a_cause_is_a_fault(record: str) -> None:
    ledger = Ledger()
    _record(ledger, record, time.monotonic())
    assert len(ledger.faults) == 1
    assert "faults" in ledger.summary()


@pytest.mark.parametrize("record", ["lost", "ended", "unknown"])
def test_a_worker_that_was_killed_excuses_the_end_of_its_requests(record: str) -> None:
    ledger, heard = Ledger(), time.monotonic()
    ledger.killed(7).ended = heard + 1
    _record(ledger, record, heard)
    assert (ledger.faults, sum(ledger.counts.values())) == ([], 1)


@pytest.mark.parametrize("record", ["lost", "ended"])
def test_a_connection_that_was_heard_after_a_worker_died_has_no_excuse(record: str) -> None:
    ledger, heard = Ledger(), time.monotonic()
    ledger.killed(7).ended = heard
    _record(ledger, record, heard + 1)
    assert len(ledger.faults) == 1


def test_the_death_of_another_worker_excuses_no_answer_in_place_of_one() -> None:
    ledger = Ledger()
    ledger.killed(8)
    ledger.unknown("a call", {7}, 0.0)
    assert len(ledger.faults) == 1


def test_a_redis_that_is_gone_excuses_a_refusal_but_not_the_end_of_a_connection() -> None:
    ledger = Ledger()
    ledger.redis_gone()
    ledger.refused("a call", time.monotonic())
    ledger.judge()
    assert ledger.faults == []
    ledger.lost("a call", time.monotonic())
    assert len(ledger.faults) == 1


def test_a_refusal_after_every_worker_was_seen_to_serve_is_a_fault() -> None:
    ledger, now = Ledger(), time.monotonic()
    ledger.redis_gone().until = now
    ledger.refused("a call", now + 1)
    ledger.judge()
    assert len(ledger.faults) == 1


def test_what_needs_nothing_of_redis_is_refused_only_by_a_worker_that_starts_without_it() -> None:
    ledger, now = Ledger(), time.monotonic()
    ledger.redis_gone()
    ledger.refused("add", now, needs_redis=False)
    ledger.judge()
    assert len(ledger.faults) == 1
    ledger.killed(7)
    ledger.refused("add", now, needs_redis=False)
    ledger.judge()
    assert len(ledger.faults) == 1


def test_a_redis_that_a_worker_found_slow_excuses_a_refusal_of_that_time_alone() -> None:
    ledger, now = Ledger(), time.monotonic()
    ledger.refused("a call", now)
    ledger.was_slow(now - 3.0, time.monotonic() + 1.0)
    ledger.judge()
    assert ledger.faults == []
    ledger.slow[0].until = now - 1.0
    ledger.refused("another", now)
    ledger.judge()
    assert len(ledger.faults) == 1


@pytest.mark.parametrize(
    ("tool", "state", "done"),
    [
        pytest.param("work_once", "completed", [("run", 1), ("run", 2), ("end", 2)], id="twice"),
        pytest.param("work_again", "completed", [("run", 2), ("run", 1), ("end", 1)], id="again without a death"),
        pytest.param("work_again", "failed", [("run", 1)], id="failed although it may run again"),
        pytest.param("work_once", "failed", [("run", 2)], id="failed without a death"),
        pytest.param("work_once", "completed", [("run", 2)], id="completed without an end"),
        pytest.param("work_once", "working", [("run", 2)], id="without an outcome"),
    ],
)
def test_a_task_whose_outcome_is_not_what_was_done_is_a_fault(
    tool: str, state: str, done: list[tuple[str, int]]
) -> None:
    ledger = Ledger()
    ledger.killed(1)
    TaskBook(ledger).compare("one", tool, 0.0, state, done)
    assert len(ledger.faults) == 1


@pytest.mark.parametrize(
    ("tool", "state", "done"),
    [
        pytest.param("work_once", "completed", [("run", 2), ("end", 2)], id="once"),
        pytest.param("work_once", "failed", [("run", 1)], id="its worker died"),
        pytest.param("work_again", "completed", [("run", 1), ("end", 1), ("run", 2), ("end", 2)], id="again"),
    ],
)
def test_what_a_dead_worker_may_leave_of_a_task_is_no_fault(tool: str, state: str, done: list[tuple[str, int]]) -> None:
    ledger = Ledger()
    ledger.killed(1)
    TaskBook(ledger).compare("one", tool, 0.0, state, done)
    assert ledger.faults == []


class _Events:
    def __init__(self, *events: ServerSentEvent) -> None:
        self._events = list(events)

    async def next(self) -> ServerSentEvent | None:
        return self._events.pop(0) if self._events else None


async def test_an_event_that_comes_twice_is_a_fault() -> None:
    ledger = Ledger()
    listener = GetListener(SoakSession(None, "", "", ledger))  # type: ignore[arg-type]
    tick = b'{"method":"soak/tick","params":{"number":1}}'
    event = ServerSentEvent(data=tick, id="1-1")
    await listener._listen(_Events(event, event))  # type: ignore[arg-type]
    assert (len(ledger.faults), listener.ticks[1]) == (1, 2)


def test_a_second_answer_is_noticed() -> None:
    found = Answered(1)
    for _ in range(2):
        found.add({"id": 1, "result": {"content": [{"text": "x"}]}})
    assert (found.doubled, found.text) == (True, "x")
