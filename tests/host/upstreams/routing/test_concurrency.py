"""How many calls a server works on at once: who waits, who is next, and what a rest does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.client.scripted_server import settle
from trunkline.host.upstreams.routing.active_calls import ConcurrencyLimiter, ConcurrencySlot


def waiting(limiter: ConcurrencyLimiter) -> asyncio.Task[ConcurrencySlot]:
    return asyncio.ensure_future(limiter.acquire())


async def test_those_beyond_the_limit_wait_and_come_in_order() -> None:
    limiter = ConcurrencyLimiter(1)
    held = await limiter.acquire()
    first, second = waiting(limiter), waiting(limiter)
    await settle()
    assert not first.done()
    held.release()
    following = await first
    assert not second.done()
    following.release()
    (await second).release()
    assert not limiter.full


async def test_a_place_is_given_back_once() -> None:
    limiter = ConcurrencyLimiter(1)
    held = await limiter.acquire()
    held.release()
    held.release()
    held.suspend()
    await limiter.acquire()
    assert limiter.full


async def test_a_call_that_rests_lets_another_in_and_goes_on_without_waiting() -> None:
    limiter = ConcurrencyLimiter(1)
    rests = await limiter.acquire()
    rests.suspend()
    other = await limiter.acquire()
    rests.resume()
    late = waiting(limiter)
    other.release()
    await settle()
    assert not late.done()
    rests.release()
    (await late).release()


async def test_a_call_that_is_over_does_not_come_back() -> None:
    limiter = ConcurrencyLimiter(1)
    held = await limiter.acquire()
    held.suspend()
    held.release()
    held.resume()
    assert not limiter.full


async def test_one_that_gives_up_leaves_its_turn_to_the_next() -> None:
    limiter = ConcurrencyLimiter(1)
    held = await limiter.acquire()
    first, second = waiting(limiter), waiting(limiter)
    await settle()
    first.cancel()
    held.release()
    (await second).release()
    assert not limiter.full


async def test_one_that_gives_up_with_a_place_in_hand_passes_it_on() -> None:
    limiter = ConcurrencyLimiter(1)
    held = await limiter.acquire()
    first, second = waiting(limiter), waiting(limiter)
    await settle()
    held.release()
    first.cancel()
    (await second).release()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not limiter.full


async def test_a_newcomer_is_let_in_behind_those_who_gave_up() -> None:
    limiter = ConcurrencyLimiter(1)
    held = await limiter.acquire()
    first = waiting(limiter)
    await settle()
    held.suspend()
    held.resume()
    first.cancel()
    newcomer = waiting(limiter)
    held.release()
    (await newcomer).release()
    assert not limiter.full


async def test_a_limit_that_is_raised_lets_in_those_who_wait() -> None:
    limiter = ConcurrencyLimiter(1)
    await limiter.acquire()
    first, second, third = waiting(limiter), waiting(limiter), waiting(limiter)
    await settle()
    limiter.most = 3
    await asyncio.gather(first, second)
    assert not third.done()
    third.cancel()


async def test_a_limit_that_is_lowered_keeps_newcomers_out_until_there_is_room() -> None:
    limiter = ConcurrencyLimiter(3)
    held = [await limiter.acquire() for _ in range(3)]
    limiter.most = 1
    late = waiting(limiter)
    held[0].release()
    held[1].release()
    await settle()
    assert not late.done()
    held[2].release()
    (await late).release()
    assert not limiter.full


async def test_a_cancelled_wait_keeps_no_slot_and_admits_no_call_early() -> None:
    limiter = ConcurrencyLimiter(1)
    held = await limiter.acquire()
    first = waiting(limiter)
    await settle()
    thrown_away = limiter.acquire()
    thrown_away.send(None)
    thrown_away.close()
    await settle()
    assert not first.done()
    held.release()
    (await first).release()
    assert not limiter.full


class Crowd(RuleBasedStateMachine):
    """Calls that come, rest, go on, end and give up, in any order, while the limit changes."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.tasks: list[asyncio.Task[ConcurrencySlot]] = []
        self.held: list[ConcurrencySlot] = []

    def turn(self, turns: int = 3) -> None:
        async def some() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.loop.run_until_complete(some())

    @initialize(most=st.integers(1, 3))
    def open(self, most: int) -> None:
        self.places = ConcurrencyLimiter(most)

    @rule(turns=st.integers(0, 3))
    def let_time_pass(self, turns: int) -> None:
        self.turn(turns)
        self.held += [task.result() for task in self.tasks if task.done() and not task.cancelled()]
        self.tasks = [task for task in self.tasks if not task.done()]

    @rule()
    def come(self) -> None:
        self.tasks.append(self.loop.create_task(self.places.acquire()))

    @rule(most=st.integers(1, 4))
    def change_the_limit(self, most: int) -> None:
        self.places.most = most

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def give_up(self, data: Any) -> None:
        data.draw(st.sampled_from(self.tasks)).cancel()

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(), what=st.sampled_from([ConcurrencySlot.suspend, ConcurrencySlot.resume, ConcurrencySlot.release])
    )
    def act(self, data: Any, what: Any) -> None:
        what(data.draw(st.sampled_from(self.held)))

    def teardown(self) -> None:
        if hasattr(self, "places"):
            self.let_time_pass(3)
            for task in self.tasks:
                task.cancel()
            self.let_time_pass(3)
            for place in self.held:
                place.release()
            self.let_time_pass(3)
            for place in self.held:
                place.release()
            self.places.most = 1
            assert not self.places.full
            self.loop.run_until_complete(self.places.acquire())
            assert self.places.full
        self.loop.close()


Crowd.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestCrowd = Crowd.TestCase
