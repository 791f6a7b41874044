"""How many calls a server works on at once: who waits, who is next, and what a rest does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.client.scripted import settle
from tests.host.gateway.support import in_loop
from trunkline.host.passing.places import Place, Places


def waiting(places: Places) -> asyncio.Task[Place]:
    return asyncio.ensure_future(places.take())


@in_loop
async def test_those_beyond_the_limit_wait_and_come_in_order() -> None:
    places = Places(1)
    held = await places.take()
    first, second = waiting(places), waiting(places)
    await settle()
    assert not first.done()
    held.free()
    following = await first
    assert not second.done()
    following.free()
    (await second).free()
    assert not places.full


@in_loop
async def test_a_place_is_given_back_once() -> None:
    places = Places(1)
    held = await places.take()
    held.free()
    held.free()
    held.rest()
    await places.take()
    assert places.full


@in_loop
async def test_a_call_that_rests_lets_another_in_and_goes_on_without_waiting() -> None:
    places = Places(1)
    rests = await places.take()
    rests.rest()
    other = await places.take()
    rests.resume()
    late = waiting(places)
    other.free()
    await settle()
    assert not late.done()
    rests.free()
    (await late).free()


@in_loop
async def test_a_call_that_is_over_does_not_come_back() -> None:
    places = Places(1)
    held = await places.take()
    held.rest()
    held.free()
    held.resume()
    assert not places.full


@in_loop
async def test_one_that_gives_up_leaves_its_turn_to_the_next() -> None:
    places = Places(1)
    held = await places.take()
    first, second = waiting(places), waiting(places)
    await settle()
    first.cancel()
    held.free()
    (await second).free()
    assert not places.full


@in_loop
async def test_one_that_gives_up_with_a_place_in_hand_passes_it_on() -> None:
    places = Places(1)
    held = await places.take()
    first, second = waiting(places), waiting(places)
    await settle()
    held.free()
    first.cancel()
    (await second).free()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not places.full


@in_loop
async def test_a_newcomer_is_let_in_behind_those_who_gave_up() -> None:
    places = Places(1)
    held = await places.take()
    first = waiting(places)
    await settle()
    held.rest()
    held.resume()
    first.cancel()
    newcomer = waiting(places)
    held.free()
    (await newcomer).free()
    assert not places.full


@in_loop
async def test_a_new_limit_counts_from_the_next_call_on() -> None:
    places = Places(1)
    await places.take()
    places.most = 2
    await places.take()
    assert places.full


@in_loop
async def test_a_limit_that_is_raised_lets_in_those_who_wait() -> None:
    places = Places(1)
    await places.take()
    first, second, third = waiting(places), waiting(places), waiting(places)
    await settle()
    places.most = 3
    await asyncio.gather(first, second)
    assert not third.done()
    third.cancel()


@in_loop
async def test_a_limit_that_is_lowered_keeps_newcomers_out_until_there_is_room() -> None:
    places = Places(3)
    held = [await places.take() for _ in range(3)]
    places.most = 1
    late = waiting(places)
    held[0].free()
    held[1].free()
    await settle()
    assert not late.done()
    held[2].free()
    (await late).free()
    assert not places.full


@in_loop
async def test_a_wait_that_is_thrown_away_lets_nobody_in_too_early_and_keeps_no_place() -> None:
    places = Places(1)
    held = await places.take()
    first = waiting(places)
    await settle()
    thrown_away = places.take()
    thrown_away.send(None)
    thrown_away.close()
    await settle()
    assert not first.done()
    held.free()
    (await first).free()
    assert not places.full


class Crowd(RuleBasedStateMachine):
    """Calls that come, rest, go on, end and give up, in any order, while the limit changes."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.tasks: list[asyncio.Task[Place]] = []
        self.held: list[Place] = []

    def turn(self, turns: int = 3) -> None:
        async def some() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)

        self.loop.run_until_complete(some())

    @initialize(most=st.integers(1, 3))
    def open(self, most: int) -> None:
        self.places = Places(most)

    @rule(turns=st.integers(0, 3))
    def let_time_pass(self, turns: int) -> None:
        self.turn(turns)
        self.held += [task.result() for task in self.tasks if task.done() and not task.cancelled()]
        self.tasks = [task for task in self.tasks if not task.done()]

    @rule()
    def come(self) -> None:
        self.tasks.append(self.loop.create_task(self.places.take()))

    @rule(most=st.integers(1, 4))
    def change_the_limit(self, most: int) -> None:
        self.places.most = most

    @precondition(lambda self: self.tasks)
    @rule(data=st.data())
    def give_up(self, data: Any) -> None:
        data.draw(st.sampled_from(self.tasks)).cancel()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), what=st.sampled_from([Place.rest, Place.resume, Place.free]))
    def act(self, data: Any, what: Any) -> None:
        what(data.draw(st.sampled_from(self.held)))

    def teardown(self) -> None:
        if hasattr(self, "places"):
            self.let_time_pass(3)
            for task in self.tasks:
                task.cancel()
            self.let_time_pass(3)
            for place in self.held:
                place.free()
            self.let_time_pass(3)
            for place in self.held:
                place.free()
            self.places.most = 1
            assert not self.places.full
            self.loop.run_until_complete(self.places.take())
            assert self.places.full
        self.loop.close()


Crowd.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestCrowd = Crowd.TestCase
