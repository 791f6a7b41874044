"""How many calls a server works on at once: who waits, who is next, and what a rest does."""

from __future__ import annotations

import asyncio

import pytest

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
