"""The event streams of a session: which messages each carries, which response writes, and resuming."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.transports.http.serving_support import (
    POLLING,
    Call,
    SessionClient,
    Workshop,
    notification,
    request,
    tool,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import HANDSHAKE_NAMES

STREAMING = HANDSHAKE_NAMES[1:]


def numbers(messages: list[Any]) -> list[int]:
    return [message["params"]["number"] for message in messages]


def tick(workshop: Workshop, *values: int) -> None:
    for number in values:
        workshop.server.notify("acme/tick", {"number": number})


async def over(*calls: Call) -> None:
    for call in calls:
        call.hang_up()
        await call.ended()


async def test_a_client_that_is_not_initialized_gets_no_notifications() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), ready=False)
    listening = await client.listening()
    tick(workshop, 1)
    await client.post(notification("notifications/initialized")).whole()
    tick(workshop, 2)
    assert numbers([await listening.message()]) == [2]
    await over(listening)


async def test_notifications_are_kept_for_a_get_stream_and_equal_ones_merged_within_bounds() -> None:
    workshop = Workshop(Limits(log_events=10))
    client = await SessionClient.open(workshop.asgi())
    tick(workshop, 1, 2, 1, 1, 3)
    await asyncio.sleep(0)
    listening = await client.listening()
    tick(workshop, 1)
    assert numbers([await listening.message() for _ in range(4)]) == [1, 2, 3, 1]
    await over(listening)
    tick(workshop, *range(100))
    again = await client.listening()
    # All are kept by the log of announcements; only so many at once wait for a client.
    assert numbers([await again.message() for _ in range(100)]) == list(range(100))
    await over(again)


@pytest.mark.parametrize("value", [object(), b"\xff"], ids=["no JSON", "bytes"])
async def test_a_notification_that_cannot_be_encoded_does_not_affect_others(value: Any) -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    listening = await client.listening()
    workshop.server.notify("acme/odd", {"value": value if isinstance(value, bytes) else [value]})
    tick(workshop, 1)
    await listening.until(lambda: b"acme/tick" in listening.body)
    assert numbers(listening.messages[-1:]) == [1]
    await over(listening)


async def test_the_headers_of_a_quiet_stream_are_sent_at_once() -> None:
    client = await SessionClient.open(Workshop().asgi(), STREAMING[0])
    listening = await client.listening()
    await listening.until(lambda: bool(listening.body))
    assert listening.body.startswith(b":")
    await over(listening)


async def test_a_waiting_get_response_takes_over_when_the_first_ends() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    first, second, third = [await client.listening() for _ in range(3)]
    await over(first)
    tick(workshop, 1)
    assert numbers([await second.message()]) == [1]
    await over(second)
    tick(workshop, 2)
    assert numbers([await third.message()]) == [2]
    await over(third)


async def test_a_waiting_get_response_that_disconnected_takes_nothing_over() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    first, second = [await client.listening() for _ in range(2)]
    await over(second)
    await over(first)
    tick(workshop, 1)
    third = await client.listening()
    assert numbers([await third.message()]) == [1]
    await over(third)


async def test_a_stream_resumed_twice_continues_on_the_second_response() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    call = client.post(tool("wait", say="hello"))
    last = (await call.event()).id
    await over(call)
    first = await client.listening(last)
    second = await client.listening(last)
    await first.whole()
    workshop.proceed.set()
    await second.whole()
    assert (first.messages, [message["id"] for message in second.messages]) == ([], [1])


async def test_a_stream_can_be_resumed_while_its_first_response_is_still_open() -> None:
    # A client may know that its connection is dead long before we do.
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    call = client.post(tool("wait", say="hello"))
    last = (await call.event()).id
    again = await client.listening(last)
    await call.whole()
    workshop.proceed.set()
    await again.whole()
    assert (call.messages, [message["id"] for message in again.messages]) == ([], [1])


async def test_an_unknown_event_id_is_refused() -> None:
    client = await SessionClient.open(Workshop().asgi())
    ids = ["", "x", "1", "1-", "-1", "9-9", "1-99", "1--1", "1-+1", "1-\u00b2", "\u00e9", "1-1-1", "1-" + "9" * 400]
    assert {id: (await client.get(id).whole()).error for id in ids} == dict.fromkeys(ids, (400, -32600))


async def test_an_event_of_another_session_is_refused() -> None:
    app = Workshop().asgi()
    client, other = await SessionClient.open(app), await SessionClient.open(app)
    call = await client.post(tool("steps")).whole()
    last = call.taken()[2].id
    assert (await other.get(last).whole()).status == 400


async def test_a_removed_stream_cannot_be_resumed() -> None:
    app = Workshop().asgi()
    client = await SessionClient.open(app)
    call = await client.post(tool("steps")).whole()
    last = call.taken()[0].id
    kept = app.sessions.by_id[client.id].log
    contents: Any = app.worker.store._contents  # type: ignore[attr-defined]  # the memory of this process
    contents.now = lambda: time.time() + kept.limits.log_seconds + 1
    assert (await client.get(last).whole()).status == 400


async def test_a_get_stream_whose_events_have_all_expired_goes_on() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    client = await SessionClient.open(app)
    listening = await client.listening()
    (subscriber,) = workshop.server.subscribers()
    subscriber.log("error", "old")
    last = (await listening.event()).id
    await over(listening)
    kept = app.sessions.by_id[client.id].log
    contents: Any = app.worker.store._contents  # type: ignore[attr-defined]  # the memory of this process
    contents.now = lambda: time.time() + kept.limits.log_seconds + 1
    again = await client.listening(last)
    subscriber.log("error", "new")
    assert (await again.message())["params"]["data"] == "new"
    await over(again)


@pytest.mark.parametrize(
    ("revision", "accepts"), [(HANDSHAKE_NAMES[1], None), (HANDSHAKE_NAMES[2], None), (POLLING, "application/json")]
)
async def test_a_response_is_not_released_without_polling_or_a_stream(revision: str, accepts: str | None) -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), revision)
    call = client.post(tool("poll"), accept=accepts or "*/*")
    await workshop.started.wait()
    workshop.proceed.set()
    await call.whole()
    answer = call.json if accepts else call.messages[-1]
    assert answer["result"]["content"][0]["text"] == "left False"


async def test_a_get_stream_that_ended_before_its_first_event_leaves_the_position_of_its_client() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), POLLING)
    first = await client.listening()
    (subscriber,) = workshop.server.subscribers()
    subscriber.log("error", "one")
    assert (await first.message())["params"]["data"] == "one"
    await over(first)
    hasty = client.get()
    hasty.hang_up()
    await hasty.ended()
    third = await client.listening()
    subscriber.log("error", "two")
    assert (await third.message())["params"]["data"] == "two"
    await over(third)


async def test_a_subscription_outlives_the_state_that_was_stored_before_it() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    client = await SessionClient.open(app)
    await client.post(request("resources/subscribe", {"uri": "note://one"})).whole()
    (session,) = app.sessions.by_id.values()
    await app.worker.store.delete(f"state:{session.facts.key}")
    for level in ("error", "info"):
        await client.post(request("logging/setLevel", {"level": level})).whole()
    listening = await client.listening()
    workshop.server.changed("note://one")
    assert (await listening.message())["params"]["uri"] == "note://one"
    await over(listening)
