"""The soak itself: what it plans follows from its seed, and what should not happen is a fault."""

from __future__ import annotations

import time

import pytest

from tests.soak.__main__ import schedule
from tests.soak.ledger import Ledger
from tests.soak.listeners import GetListener
from tests.soak.sessions import Answered, SoakSession
from trunkline.protocol.sse import ServerSentEvent


def test_a_seed_decides_what_is_killed_when() -> None:
    planned = schedule(120, 7)
    assert planned == schedule(120, 7) != schedule(120, 8)
    assert {kind for _, kind, _ in planned} == {"kill", "redis"}
    assert [at for at, _, _ in planned] == sorted(at for at, _, _ in planned)


@pytest.mark.parametrize("record", ["lost", "refused", "unknown"])
def test_an_error_without_a_cause_is_a_fault(record: str) -> None:
    ledger = Ledger()
    getattr(ledger, record)("a call", time.monotonic())
    assert len(ledger.faults) == 1
    assert "faults" in ledger.summary()


@pytest.mark.parametrize("record", ["lost", "unknown"])
def test_a_worker_that_was_killed_excuses_the_end_of_its_requests(record: str) -> None:
    ledger = Ledger()
    ledger.killed(1)
    getattr(ledger, record)("a call", time.monotonic())
    assert (ledger.faults, sum(ledger.counts.values())) == ([], 1)


def test_a_redis_that_is_gone_excuses_a_refusal_but_not_the_end_of_a_connection() -> None:
    ledger = Ledger()
    ledger.redis_gone()
    ledger.refused("a call", time.monotonic())
    assert ledger.faults == []
    ledger.lost("a call", time.monotonic())
    assert len(ledger.faults) == 1


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
