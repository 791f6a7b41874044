"""Starts are bounded: so many processes at a time, the needed ones first, each with its whole time to start.

Waits between starts grow, a breaker trips, and a stream is opened again only so often.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.scripted_server import settle
from tests.host.supervised import Stage, program, supervising
from tests.support import run_async
from trunkline.errors import ConfigError, ServerUnavailable
from trunkline.host.config.model import ServerEntry
from trunkline.host.host import Host
from trunkline.host.upstreams.supervision.start_queue import (
    Backoff,
    Breaker,
    IdleProcessors,
    Reopening,
    StartQueue,
    default_starts,
)
from trunkline.testing.clock import FakeClock
from trunkline.timers import Timers

# --- the queue


class Line:
    """A queue, and the names that were let in, in order."""

    def __init__(self, most: int, spare: float | None = None) -> None:
        self.clock = FakeClock()
        self.queue = StartQueue(most, Timers(self.clock), lambda: lambda: spare)
        self.entered: list[str] = []

    async def come(self, *names: str, urgency: Callable[[], int] = lambda: 0) -> list[asyncio.Task[None]]:
        """Have names queue, one after the other."""
        tasks = [asyncio.ensure_future(self._enter(name, urgency)) for name in names]
        await settle()
        return tasks

    async def _enter(self, name: str, urgency: Callable[[], int]) -> None:
        await self.queue.enter(urgency)
        self.entered.append(name)


async def test_only_so_many_are_let_in_and_the_next_when_one_leaves() -> None:
    line = Line(2)
    tasks = await line.come("a", "b", "c", "d")
    assert line.entered == ["a", "b"]
    line.queue.leave()
    await settle()
    assert line.entered == ["a", "b", "c"]
    line.queue.leave()
    await asyncio.gather(*tasks)


async def test_held_starts_begin_when_they_are_released() -> None:
    line = Line(2, spare=2.0)
    line.queue.held = True
    tasks = await line.come("a", "b", "c")
    line.clock.advance(1.0)
    assert line.entered == []
    line.queue.release()
    await settle()
    assert line.entered == ["a", "b"]
    line.queue.leave()
    await asyncio.gather(*tasks)


async def test_who_becomes_urgent_while_waiting_is_let_in_first() -> None:
    line, needed = Line(1), {"c": 0, "d": 0}
    await line.come("a", "b")
    await line.come("c", urgency=lambda: needed["c"])
    await line.come("d", urgency=lambda: needed["d"])
    needed |= {"c": 1, "d": 2}
    for _ in range(3):
        line.queue.leave()
        await settle()
    assert line.entered == ["a", "d", "c", "b"]


async def test_who_gives_up_waiting_takes_no_slot() -> None:
    line = Line(1)
    await line.come("a")
    (leaving,) = await line.come("b")
    await line.come("c")
    leaving.cancel()
    await settle()
    line.queue.leave()
    await settle()
    assert line.entered == ["a", "c"]


async def test_who_gives_up_in_the_moment_of_being_let_in_gives_the_slot_back() -> None:
    line = Line(1)
    await line.come("a")
    (leaving,) = await line.come("b")
    await line.come("c")
    line.queue.leave()
    leaving.cancel()
    await settle()
    assert line.entered == ["a", "c"]


@pytest.mark.parametrize(("spare", "expected"), [(2.0, 3), (0.6, 2), (0.4, 1), (0.0, 1), (None, 1)], ids=str)
def test_idle_processors_let_more_in(spare: float | None, expected: int) -> None:
    async def main() -> int:
        line = Line(1, spare)
        tasks = await line.come(*"abcdef")
        line.clock.advance(0.25)
        await settle()
        count = len(line.entered)
        for task in tasks:
            task.cancel()
        return count

    assert run_async(main()) == expected


def _stat(idle: int, busy: int) -> str:
    return "".join(f"cpu{number} {busy} 0 0 {idle} 0 0 0 0 0 0\n" for number in range(default_starts() // 4 + 64))


def test_spare_time_is_read_from_the_kernel(tmp_path: Path) -> None:
    stat, cgroup = tmp_path / "stat", tmp_path / "cpu.stat"
    stat.write_text(_stat(0, 0))
    spare = IdleProcessors(stat, cgroup)
    stat.write_text(_stat(100, 0))
    all_idle = spare()
    stat.write_text(_stat(150, 50))
    half = spare()
    assert all_idle is not None
    assert half == all_idle / 2
    cgroup.write_text("usage_usec 5\nnr_throttled 3\n")
    stat.write_text(_stat(350, 50))
    assert spare() == 0.0
    stat.unlink()
    assert spare() is None


# --- servers


def _is_queued(stage: Stage, name: str) -> bool:
    return stage.upstream(name).status.reason == "queued: 1 servers start at a time"


def _ready(stage: Stage) -> list[str]:
    return [event.server for event in stage.events.kept if event.state == "ready"]


async def test_servers_that_a_call_waits_for_come_first_then_those_that_are_required(tmp_path: Path) -> None:
    go = tmp_path / "go"
    entries = {
        "first": program("first", "slow_start", str(go)),
        "other": program("other", "plain"),
        "required": program("required", "plain", required=True),
        "wanted": program("wanted", "plain"),
    }
    async with supervising(entries, starts_at_once=1) as stage:
        await stage.until(lambda: sum(_is_queued(stage, name) for name in entries) == 3)
        call = asyncio.ensure_future(stage.upstream("wanted").connected_client())
        await settle()
        go.touch()
        await call
        assert await stage.supervisor.settled(everything=True) is True
        assert _ready(stage) == ["first", "wanted", "required", "other"]


async def test_trust_is_asked_again_when_the_turn_of_a_queued_server_comes(tmp_path: Path) -> None:
    go, revoked = tmp_path / "go", set[str]()

    async def trust(entry: ServerEntry) -> tuple[bool, str | None]:
        return entry.name not in revoked, "it was revoked"

    entries = {"first": program("first", "slow_start", str(go)), "a": program("a", "plain")}
    async with supervising(entries, starts_at_once=1, trust=trust) as stage:
        await stage.until(lambda: _is_queued(stage, "a"))
        revoked.add("a")
        go.touch()
        await stage.until_state("unapproved")
        await stage.until_state("ready", "first")


async def test_the_clock_of_a_start_runs_from_its_slot() -> None:
    entries = {
        "stuck": program("stuck", "misbehaving", "hang_at_initialize", start_timeout=20.0),
        "a": program("a", "plain", start_timeout=3.0),
    }
    async with supervising(entries, starts_at_once=1) as stage:
        await stage.until(lambda: stage.upstream().status.reason is not None)
        call = asyncio.ensure_future(stage.upstream().connected_client())
        # Both wait for far longer than this server may take to start.
        await stage.pass_time(19.0, steps=19)
        assert not call.done()
        await stage.pass_time(2.0)
        await call
        assert stage.upstream().status.restarts == 0


async def test_starts_that_take_too_long_back_off_and_end_in_broken() -> None:
    said = asyncio.Event()
    options = {"client_options": lambda entry: {"on_stderr": lambda data: said.set()}}
    async with supervising(
        {"a": program("a", "misbehaving", "hang_at_initialize", start_timeout=5.0)}, **options
    ) as stage:
        for count in (1, 2, 3):
            await said.wait()
            said.clear()
            await stage.pass_time(5.0)
            if count < 3:
                await stage.until_count("waiting", count)
                await stage.pass_time(30.0)
        await stage.until_state("broken")
        reason = stage.upstream().status.reason or ""
        assert "3 starts in a row took too long" in reason
        assert "not connected after 5 s" in reason
        assert "waiting for a lock" in reason
        with pytest.raises(ServerUnavailable, match="3 starts in a row"):
            await stage.upstream().connected_client()


@pytest.mark.parametrize("given", [0, -1, True, 2.5, "4"], ids=repr)
async def test_a_number_of_starts_that_makes_no_sense_is_refused(given: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="starts_at_once is"):
        await Host.open({}, folder=tmp_path, starts_at_once=given).__aenter__()  # type: ignore[arg-type]


# --- waits, the breaker, and streams that are opened again

HOURS = 3600.0


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff()
    waits = [backoff.next(1.0) for _ in range(9)]
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_reset_begins_with_the_first_wait() -> None:
    backoff = Backoff()
    backoff.next(1.0)
    backoff.reset()
    assert backoff.next(1.0) == 0.25


def test_crashes_within_the_time_trip_the_breaker() -> None:
    breaker = Breaker(3, 60.0)
    assert [breaker.failed(at) for at in (0.0, 30.0, 60.0)] == [False, False, True]


def test_crashes_that_lie_further_apart_do_not() -> None:
    breaker = Breaker(3, 60.0)
    assert [breaker.failed(at) for at in (0.0, 40.0, 80.0, 120.0)] == [False, False, False, False]


def test_a_reset_forgets_the_crashes() -> None:
    breaker = Breaker(2, 60.0)
    breaker.failed(0.0)
    breaker.reset()
    assert breaker.failed(1.0) is False


def test_the_one_start_after_it_tripped_has_to_work() -> None:
    breaker = Breaker(3, 60.0)
    breaker.try_once()
    assert breaker.failed(1000.0) is True


def test_a_trial_that_worked_is_no_trial_any_more() -> None:
    breaker = Breaker(3, 60.0)
    breaker.try_once()
    breaker.reset()
    assert breaker.failed(1000.0) is False


def test_at_least_one_crash_is_needed() -> None:
    assert Breaker(0, 60.0).failed(0.0) is True


def test_a_stream_that_closes_at_once_is_opened_again_three_times() -> None:
    reopening = Reopening()
    assert [reopening.closed(lived=1.0, now=0.0) for _ in range(5)] == [1.0, 2.0, 4.0, 6 * HOURS, 6 * HOURS]


def test_a_stream_that_lived_for_a_while_is_opened_again_five_times_an_hour() -> None:
    reopening = Reopening()
    assert [reopening.closed(lived=60.0, now=at * 60.0) for at in range(6)] == [1.0] * 5 + [6 * HOURS]


def test_a_stream_that_closes_every_quarter_of_an_hour_is_always_opened_again() -> None:
    reopening = Reopening()
    assert {reopening.closed(lived=900.0, now=at * 900.0) for at in range(50)} == {1.0}


@pytest.mark.parametrize("quick", [1, 2, 3], ids=str)
def test_one_that_lived_forgives_those_that_closed_at_once(quick: int) -> None:
    reopening = Reopening()
    assert all(reopening.closed(lived=0.0, now=0.0) < HOURS for _ in range(quick))
    assert reopening.closed(lived=20.0, now=30.0) == 1.0
    assert reopening.closed(lived=0.0, now=31.0) == 1.0
