"""The event streams of a session: which messages each carries, which response writes, and resuming."""

from __future__ import annotations

import asyncio
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


# --- messages on the GET stream --------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", STREAMING)
async def test_a_change_of_the_tools_is_notified_on_the_get_stream(revision: str) -> None:
    client = await SessionClient.open(Workshop().asgi(), revision)
    listening = await client.listening()
    await client.post(tool("grow")).whole()
    assert (await listening.message())["method"] == "notifications/tools/list_changed"
    await over(listening)


async def test_a_changed_resource_is_notified_to_its_subscribers() -> None:
    workshop = Workshop()
    app = workshop.asgi()
    client, other = await SessionClient.open(app), await SessionClient.open(app)
    streams = [await client.listening(), await other.listening()]
    await client.post(request("resources/subscribe", {"uri": "note://one"})).whole()
    workshop.server.changed("note://one")
    await asyncio.sleep(0)
    tick(workshop, 1)
    first = await streams[0].message()
    assert (first["method"], first["params"]["uri"]) == ("notifications/resources/updated", "note://one")
    assert (await streams[1].message())["method"] == "acme/tick"
    await over(*streams)


async def test_a_client_that_is_not_initialized_gets_no_notifications() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), ready=False)
    listening = await client.listening()
    tick(workshop, 1)
    await client.post(notification("notifications/initialized")).whole()
    tick(workshop, 2)
    assert numbers([await listening.message()]) == [2]
    await over(listening)


async def test_notifications_are_kept_for_a_get_stream_and_equal_ones_merged() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    tick(workshop, 1, 2, 1, 1, 3)
    await asyncio.sleep(0)
    listening = await client.listening()
    tick(workshop, 1)
    assert numbers([await listening.message() for _ in range(4)]) == [1, 2, 3, 1]
    await over(listening)


async def test_notifications_kept_for_a_get_stream_are_bounded() -> None:
    workshop = Workshop(Limits(log_events=10))
    client = await SessionClient.open(workshop.asgi())
    tick(workshop, *range(100))
    await asyncio.sleep(0)
    listening = await client.listening()
    assert numbers([await listening.message() for _ in range(9)])[-1] == 99
    await over(listening)


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


async def test_no_message_about_a_request_is_sent_on_the_get_stream() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    listening = await client.listening()
    await client.post(tool("steps")).whole()
    tick(workshop, 1)
    assert (await listening.message())["method"] == "acme/tick"
    await over(listening)


@pytest.mark.parametrize("revision", STREAMING)
async def test_only_a_get_stream_with_polling_begins_with_an_event_id(revision: str) -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), revision)
    listening = await client.listening()
    tick(workshop, 1)
    first = await listening.opening()
    assert (first.data == b"", first.retry) == ((True, 1000) if revision == POLLING else (False, None))
    await over(listening)


async def test_the_headers_of_a_quiet_stream_are_sent_at_once() -> None:
    client = await SessionClient.open(Workshop().asgi(), STREAMING[0])
    listening = await client.listening()
    await listening.until(lambda: bool(listening.body))
    assert listening.body.startswith(b":")
    await over(listening)


# --- several streams -------------------------------------------------------------------------------------------------


async def test_a_message_is_sent_on_only_one_of_several_streams() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    streams = [await client.listening() for _ in range(3)]
    tick(workshop, 1, 2)
    assert numbers([await streams[0].message() for _ in range(2)]) == [1, 2]
    await asyncio.sleep(0.01)
    assert [stream.messages for stream in streams] == [[], [], []]
    await over(*streams)


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


async def test_each_post_has_a_stream_of_its_own() -> None:
    client = await SessionClient.open(Workshop().asgi())
    calls = [client.post(tool("steps", id=id, n=20)) for id in range(5)]
    found = [(await call.whole()).taken() for call in calls]
    streams = [{(event.id or "").partition("-")[0] for event in events} for events in found]
    ids = [event.id for events in found for event in events]
    assert [len(names) for names in streams] == [1] * 5
    assert len(set(ids)) == len(ids) == 5 * 22


# --- resuming --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", STREAMING)
async def test_an_answer_arrives_on_the_resumed_stream(revision: str) -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), revision)
    call = client.post(tool("wait", say="hello"))
    last = (await call.event()).id
    await over(call)
    again = await client.listening(last)
    workshop.proceed.set()
    await again.whole()
    assert [message["result"]["content"][0]["text"] for message in again.messages] == ["done hello"]
    assert call.late == []


async def test_an_answer_made_after_the_disconnect_is_kept() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    call = client.post(tool("wait", say="hello"))
    last = (await call.event()).id
    await over(call)
    workshop.proceed.set()
    await client.post(tool("add", id=2)).whole()
    again = await client.get(last).whole()
    assert [message["id"] for message in again.messages] == [1]


async def test_a_resumed_stream_has_no_events_of_others() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi())
    call = await client.post(tool("steps", n=2)).whole()
    other = await client.post(tool("steps", id=2, n=2)).whole()
    tick(workshop, 1)
    first = call.taken()[0]
    again = await client.get(first.id).whole()
    assert [message.get("id") for message in again.messages] == [None, None, 1]
    assert other.messages[-1]["id"] == 2


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


@pytest.mark.parametrize("last", ["", "x", "9-9", "1-99", "1--1", "\u00e9", "1-" + "9" * 400])
async def test_an_unknown_event_id_is_refused(last: str) -> None:
    client = await SessionClient.open(Workshop().asgi())
    assert (await client.get(last).whole()).error == (400, -32600)


async def test_an_event_of_another_session_is_refused() -> None:
    app = Workshop().asgi()
    client, other = await SessionClient.open(app), await SessionClient.open(app)
    call = await client.post(tool("steps")).whole()
    last = call.taken()[2].id
    assert (await other.get(last).whole()).status == 400


async def test_a_removed_stream_cannot_be_resumed() -> None:
    workshop = Workshop(Limits(log_seconds=5))
    app = workshop.asgi()
    client = await SessionClient.open(app)
    call = await client.post(tool("steps")).whole()
    last = call.taken()[0].id
    log = app.sessions.by_id[client.id].log
    log.sweep(0)
    log.sweep(6)
    assert (await client.get(last).whole()).status == 400


# --- releasing a response --------------------------------------------------------------------------------------------


async def test_a_handler_can_end_its_response_and_continue() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), POLLING)
    call = await client.post(tool("poll")).whole()
    events = call.taken()
    again = await client.listening(events[-1].id)
    workshop.proceed.set()
    await again.whole()
    assert [event.retry for event in events] == [1000, None]
    told, answer = again.messages
    assert (told["params"]["data"], answer["result"]["content"][0]["text"]) == ("after", "left True")


async def test_events_are_kept_while_no_response_reads() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), POLLING)
    call = await client.post(tool("poll")).whole()
    workshop.proceed.set()
    await client.post(tool("add", id=2)).whole()
    again = await client.get(call.taken()[0].id).whole()
    assert [message.get("id", message.get("method")) for message in again.messages] == [
        *["notifications/message"] * 2,
        1,
    ]


@pytest.mark.parametrize("revision", [*HANDSHAKE_NAMES[1:3]])
async def test_a_response_is_not_released_without_polling(revision: str) -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), revision)
    call = client.post(tool("poll"))
    await workshop.started.wait()
    workshop.proceed.set()
    await call.whole()
    assert call.messages[-1]["result"]["content"][0]["text"] == "left False"


async def test_a_client_that_accepts_no_stream_keeps_its_response() -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), POLLING)
    call = client.post(tool("poll"), accept="application/json")
    await workshop.started.wait()
    workshop.proceed.set()
    assert (await call.whole()).json["result"]["content"][0]["text"] == "left False"
