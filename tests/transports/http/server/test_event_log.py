"""Event streams: numbering, resuming, and what is dropped to keep within the limits."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transports.http.serving_support import POLLING, Call, SessionClient, Workshop, tool
from trunkline.protocol.limits import Limits
from trunkline.protocol.sse import EventReader, ServerSentEvent
from trunkline.transports.http.server.event_log import EventLog, EventStream


class Reader:
    """A response that reads only when the test does."""

    dismissed = False

    def wake(self) -> None:
        """Do nothing: the test reads."""

    def dismiss(self) -> None:
        self.dismissed = True

    def finish(self) -> None:
        """Go on reading."""


def events(stream: EventStream) -> list[ServerSentEvent]:
    return EventReader(max_event=1 << 20).feed(stream.take())


def data(stream: EventStream) -> list[bytes]:
    return [event.data for event in events(stream)]


@given(
    steps=st.lists(st.sampled_from(["push", "take", "cut", "back"]), max_size=40),
    seen=st.lists(st.integers(0, 40), max_size=10),
)
def test_every_event_arrives_once_and_in_order_however_a_stream_is_cut_and_resumed(
    steps: list[str], seen: list[int]
) -> None:
    stream = EventLog(Limits()).open()
    got: list[int] = []
    pushed = 0
    for number, step in enumerate([*steps, "push", "cut"]):
        if step == "push":
            pushed += 1
            stream.push(str(pushed).encode())
        elif step == "take":
            got += [int(each) for each in data(stream)]
        elif step == "cut":
            # Some of what was written never arrived: the client names the last event that did.
            arrived = min(seen[number % len(seen)] if seen else 0, len(got))
            got = got[:arrived]
            assert stream.rewind(arrived)
        else:
            assert stream.rewind(len(got))
    got += [int(each) for each in data(stream)]
    assert got == list(range(1, pushed + 1))


def test_a_stream_cannot_be_resumed_before_dropped_events() -> None:
    stream = EventLog(Limits(log_events=2)).open()
    for number in range(5):
        stream.push(b"%d" % number)
        stream.take()
    assert [stream.rewind(after) for after in (0, 1, 2)] == [False, False, False]
    assert stream.rewind(3)
    assert data(stream) == [b"3", b"4"]


@pytest.mark.parametrize(
    "limits", [Limits(log_events=3), Limits(log_bytes=3)], ids=["too many events", "too many bytes"]
)
def test_unread_notifications_are_dropped_and_answers_and_requests_kept(limits: Limits) -> None:
    stream = EventLog(limits).open()
    stream.push(b"Q")
    for text in b"abcdef":
        stream.push(bytes([text]), droppable=True)
    stream.push(b"A", last=True)
    assert data(stream) == [b"Q", b"f", b"A"]


def test_written_events_are_dropped_first() -> None:
    stream = EventLog(Limits(log_events=4)).open()
    for text in b"ab":
        stream.push(bytes([text]), droppable=True)
    stream.take()
    for text in b"cdef":
        stream.push(bytes([text]), droppable=True)
    assert data(stream) == [b"c", b"d", b"e", b"f"]


@pytest.mark.parametrize("arrived", [True, False], ids=["reading", "under way"])
def test_nothing_is_dropped_from_a_stream_that_is_being_read(arrived: bool) -> None:
    stream = EventLog(Limits(log_events=2, log_bytes=2)).open()
    stream.has_pending_response = True
    if arrived:
        stream.attach(Reader())
    for text in b"abcdef":
        stream.push(bytes([text]), droppable=True)
    assert data(stream) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_finished_streams_are_dropped_before_open_ones() -> None:
    log = EventLog(Limits(log_bytes=4))
    first, done = log.open(), log.open()
    for stream in (first, done):
        stream.push(b"xx", droppable=True)
        stream.take()
    done.end()
    first.push(b"yy", droppable=True)
    assert (list(log.streams), data(first), first.rewind(0)) == ([first.name], [b"yy"], True)


def test_unread_answers_are_dropped_for_newer_ones() -> None:
    log = EventLog(Limits(log_bytes=10))
    streams = [log.open() for _ in range(5)]
    for stream in streams:
        stream.push(b"answer", last=True)
    assert (list(log.streams), data(streams[-1])) == ([streams[-1].name], [b"answer"])


def test_the_answer_of_a_stream_being_read_is_not_dropped() -> None:
    log = EventLog(Limits(log_bytes=10))
    first, second = log.open(), log.open()
    first.attach(Reader())
    first.push(b"answer", last=True)
    second.push(b"answer", last=True)
    assert (data(first), data(second)) == ([b"answer"], [b"answer"])


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["push", "keep", "take", "end"])), max_size=80))
def test_the_stored_bytes_of_a_session_are_counted_exactly(steps: list[tuple[int, str]]) -> None:
    log = EventLog(Limits(log_bytes=50, log_events=5))
    streams = [log.open() for _ in range(4)]
    for index, step in steps:
        stream = streams[index]
        match step:
            case "take":
                stream.take()
            case "end":
                stream.end()
            case _ if not stream.ended:
                stream.push(b"x" * (index + 7), droppable=step == "push")
    assert log._bytes == sum(stream.kept_bytes() for stream in log.streams.values())


async def test_drain_ends_when_the_reader_detaches() -> None:
    stream, reader = EventStream(), Reader()
    stream.push(b"x" * 100)
    stream.attach(reader)
    waiting = [asyncio.ensure_future(stream.drain(10)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    stream.detach(reader)
    await asyncio.wait(waiting)
    assert [task.cancelled() for task in waiting] == [True, False]


def kept(call: Call, until: int) -> tuple[list[Any], str | None]:
    """Return the events that a client has when it loses its connection after so many, and the id of the last."""
    got = call.taken()[:until]
    return [json.loads(event.data) for event in got if event.data], got[-1].id if got else None


STEPS = 4


@pytest.mark.parametrize("cut", range(1, STEPS + 3))
async def test_a_finished_stream_can_be_resumed_after_any_event(cut: int) -> None:
    client = await SessionClient.open(Workshop().asgi(), POLLING)
    call = await client.post(tool("steps", n=STEPS)).whole()
    got, last = kept(call, cut)
    rest = await client.get(last).whole()
    *told, answer = got + rest.messages
    assert [message["params"]["data"] for message in told] == [f"step {n}" for n in range(STEPS)]
    assert answer["id"] == 1


@pytest.mark.parametrize("cut", range(1, 7))
async def test_a_get_stream_can_be_resumed_after_any_event(cut: int) -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), POLLING)
    listening = await client.listening()
    for number in range(5):
        workshop.server.notify("acme/tick", {"number": number})
    await listening.until(lambda: listening.body.count(b"acme/tick") == 5)
    listening.hang_up()
    await listening.ended()
    got, last = kept(listening, cut)
    workshop.server.notify("acme/tick", {"number": 5})
    again = await client.listening(last)
    missing = 6 - len(got)
    rest = [await again.message() for _ in range(missing)]
    again.hang_up()
    await again.ended()
    assert [message["params"]["number"] for message in got + rest] == list(range(6))
    assert again.messages == []
