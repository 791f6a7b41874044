"""Server-Sent Events: any chunking of the bytes gives the same events, and what is written is what is read."""

from __future__ import annotations

import sys
import tracemalloc
from itertools import pairwise
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import RemoteProtocolError
from trunkline.protocol.sse import EventReader, ServerSentEvent, encode_comment, encode_event

CAP = 1 << 20


def read(portions: list[bytes], *, cap: int = CAP) -> list[ServerSentEvent]:
    reader = EventReader(max_event=cap)
    return [event for portion in portions for event in reader.feed(portion)]


def read_until_refused(portions: list[bytes], *, cap: int) -> tuple[list[ServerSentEvent], bool]:
    """Return all events and whether the stream was rejected at the end; one more chunk reveals a rejection."""
    reader = EventReader(max_event=cap)
    events: list[ServerSentEvent] = []
    try:
        for portion in [*portions, b""]:
            events += reader.feed(portion)
    except RemoteProtocolError:
        return events, True
    return events, False


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


def each_byte(data: bytes) -> list[bytes]:
    return [data[place : place + 1] for place in range(len(data))]


# --- what the bytes mean ---------------------------------------------------------------------------------------------

Event = ServerSentEvent

STREAMS = [
    pytest.param(b"data: one\n\n", [Event(b"one")], id="a data line and a blank line are an event"),
    pytest.param(b"data:one\n\n", [Event(b"one")], id="the space after the colon may be missing"),
    pytest.param(b"data:  one\n\n", [Event(b" one")], id="only one space is removed"),
    pytest.param(b"data:\tone\n\n", [Event(b"\tone")], id="a tab is not removed"),
    pytest.param(b"data: a:b: c\n\n", [Event(b"a:b: c")], id="only the first colon counts"),
    pytest.param(b"data: one\ndata: two\n\n", [Event(b"one\ntwo")], id="data lines are joined with newlines"),
    pytest.param(b"data: 1\ndata:\ndata\ndata: 4\n\n", [Event(b"1\n\n\n4")], id="empty data lines count when joined"),
    pytest.param(b"data: one\n", [], id="an event is not complete without the blank line"),
    pytest.param(b"data: one\n\ndata: two", [Event(b"one")], id="an event cut off by the end is dropped"),
    pytest.param(b"data: one\r\rdata: two\r\r", [Event(b"one"), Event(b"two")], id="carriage returns end lines"),
    pytest.param(b"data: one\r\n\r\ndata: two\r\n\r\n", [Event(b"one"), Event(b"two")], id="pairs end lines"),
    pytest.param(b"data: one\r\n\ndata: two\n\r", [Event(b"one"), Event(b"two")], id="line ends may be mixed"),
    pytest.param(b"\xef\xbb\xbfdata: one\n\n", [Event(b"one")], id="a byte order mark at the start is dropped"),
    pytest.param(b"\xef\xbb\xbf\xef\xbb\xbfdata: x\n\n", [], id="a second byte order mark is part of the name"),
    pytest.param(b"\xef\xbbdata: x\n\n", [], id="half a byte order mark is part of the name"),
    pytest.param(b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n", [Event(b"1")], id="a later byte order mark is no such mark"),
    pytest.param(b": hello\n\n:\n\ndata: one\n\n", [Event(b"one")], id="comments are skipped"),
    pytest.param(b"data: one\n: hello\ndata: two\n\n", [Event(b"one\ntwo")], id="a comment does not end an event"),
    pytest.param(b"colour: red\nDATA: x\n data: y\ndata : z\n\n", [], id="unknown fields are skipped"),
    pytest.param(b"data\n\n", [Event(b"")], id="a data line needs no colon"),
    pytest.param(b"data: \n\n", [Event(b"")], id="an event with an empty data line is given"),
    pytest.param(b"id: 7\ndata:\n\n", [Event(b"", id="7")], id="the event that opens a stream is given"),
    pytest.param(b"id: 7\nevent: ping\n\n", [], id="an event without a data line is not given"),
    pytest.param(b"event: endpoint\ndata: /m\n\n", [Event(b"/m", "endpoint")], id="an event has its name"),
    pytest.param(b"event:\ndata: x\n\n", [Event(b"x")], id="an empty name means message"),
    pytest.param(b"event: a\nevent: b\ndata: x\n\n", [Event(b"x", "b")], id="the last name counts"),
    pytest.param(b"event: a\nevent: message\ndata: x\n\n", [Event(b"x")], id="the last name counts when it is message"),
    pytest.param(b"event: a\n\ndata: x\n\n", [Event(b"x")], id="a name is forgotten with its event"),
    pytest.param(b"id: 1\ndata: x\n\ndata: y\n\n", [Event(b"x", id="1"), Event(b"y")], id="an id is its event's alone"),
    pytest.param(b"id\ndata: x\n\n", [Event(b"x", id="")], id="an id may be empty"),
    pytest.param(b"id: a\0b\ndata: x\n\n", [Event(b"x")], id="an id with NUL is ignored"),
    pytest.param(b"id: 1\nid:a\0b\ndata: x\n\n", [Event(b"x", id="1")], id="an id with NUL leaves the one before"),
    pytest.param("id: ö\nevent: ü\ndata: x\n\n".encode(), [Event(b"x", "ü", "ö")], id="names and ids are UTF-8"),
    pytest.param(b"id: \xff\ndata: \xff\n\n", [Event(b"\xff", id="\ufffd")], id="data stays as it came"),
    pytest.param(b"retry: 10\ndata: x\n\n", [Event(b"x", retry=10)], id="an event has its retry"),
    pytest.param(b"retry: 10\n\ndata: x\n\n", [Event(b"x")], id="a retry is its event's alone"),
    pytest.param("data: a\u2028b\x0bc\x0cd\x85e\n\n".encode(), [Event("a\u2028b\x0bc\x0cd\x85e".encode())],
                 id="no other character ends a line"),
    pytest.param(b"", [], id="nothing gives nothing"),
    pytest.param(b"\n\r\n\r\n\n", [], id="blank lines give nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "events"), STREAMS)
def test_a_stream_becomes_events(stream: bytes, events: list[ServerSentEvent]) -> None:
    assert read([stream]) == read(each_byte(stream)) == events


def test_an_event_is_given_at_its_carriage_return_without_waiting_for_more() -> None:
    assert read([b"data: one\r\n\r"]) == [Event(b"one")]


def test_an_empty_portion_between_return_and_newline_changes_nothing() -> None:
    assert read([b"data: one\r", b"", b"\ndata: two\n\n"]) == [Event(b"one\ntwo")]


# --- what outlives an event ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "last_id"),
    [
        pytest.param(b"data: x\n\n", "", id="none was sent"),
        pytest.param(b"id: 1\ndata: x\n\n", "1", id="of the last event"),
        pytest.param(b"id: 1\ndata: x\n\ndata: y\n\n", "1", id="kept by an event without one"),
        pytest.param(b"id: 1\n\n", "1", id="of an event without data"),
        pytest.param(b"id: 1\ndata: x\n\nid\ndata: y\n\n", "", id="taken back by an empty one"),
        pytest.param(b"id: 1\ndata: x\n\nid: 2\ndata: y\n", "1", id="not of an event that is not complete"),
        pytest.param(b"id: 1\ndata: x\n\nid: 2\0\ndata: y\n\n", "1", id="not one with NUL"),
    ],
)
def test_the_last_id_is(stream: bytes, last_id: str) -> None:
    reader = EventReader(max_event=CAP)
    reader.feed(stream)
    assert reader.last_id == last_id


@pytest.mark.parametrize(
    ("stream", "retry"),
    [
        pytest.param(b"data: x\n\n", None, id="none was sent"),
        pytest.param(b"retry: 2500\n\n", 2500, id="of an event without data"),
        pytest.param(b"retry: 1\ndata: x\n\nretry: 2\ndata: y\n\ndata: z\n\n", 2, id="the last one"),
        pytest.param(b"retry: 0\n\n", 0, id="zero"),
        pytest.param(
            b"retry: 5\n\nretry: soon\n\nretry: -1\n\nretry: 1.5\n\nretry:\n\n", 5, id="not what is no number"
        ),
        pytest.param("retry: 5\n\nretry: ٣\n\n".encode(), 5, id="not in digits of another script"),
        pytest.param(b"retry: 5\n\nretry: " + b"9" * 5000 + b"\n\n", 5, id="not of thousands of digits"),
    ],
)
def test_the_retry_is(stream: bytes, retry: int | None) -> None:
    reader = EventReader(max_event=CAP)
    reader.feed(stream)
    assert reader.retry == retry


# --- the cap ---------------------------------------------------------------------------------------------------------

TOO_LONG = [
    pytest.param(b"data: 12345\n\n", id="a data line"),
    pytest.param(b"data: 12345", id="a data line without end"),
    pytest.param(b"id: 1234567", id="an id without end"),
    pytest.param(b"event: 1234", id="a name without end"),
    pytest.param(b"colour: red", id="an unknown field without end"),
    pytest.param(b": 123456789", id="a comment without end"),
    pytest.param(b": 123456789\n\n", id="a comment"),
    pytest.param(b"data\ndata\ndata", id="lines together"),
    pytest.param(b"data\ndata\ndata\n\n", id="an event's lines together"),
    pytest.param(b"data: 1234\nx", id="a line and the start of one"),
    pytest.param(b"a\n" * 11, id="many unknown fields"),
]


@pytest.mark.parametrize("stream", TOO_LONG)
def test_an_event_over_the_cap_is_rejected(stream: bytes) -> None:
    reader = EventReader(max_event=10)
    with pytest.raises(RemoteProtocolError, match="longer than 10 bytes"):
        reader.feed(stream)
    assert read_until_refused(each_byte(stream), cap=10) == ([], True)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        pytest.param(b"data: 1234\n\n", [Event(b"1234")], id="an event of the cap's length"),
        pytest.param(b"data: 1234\n\n" * 5, [Event(b"1234")] * 5, id="events that are over it together"),
        pytest.param(b"data: 1\n" + b": keep\n" * 9 + b"\n", [Event(b"1")], id="an event with comments in between"),
        pytest.param(b": 12345678\n" * 5, [], id="comments of the cap's length"),
    ],
)
def test_the_cap_lets_pass(stream: bytes, events: list[ServerSentEvent]) -> None:
    assert read([stream], cap=10) == read(each_byte(stream), cap=10) == events


def test_events_before_one_over_the_cap_are_given_and_nothing_of_it_or_after_it() -> None:
    reader = EventReader(max_event=10)
    assert reader.feed(b"data: one\n\nid: 1\ndata: far too long\n\ndata: two\n\n") == [Event(b"one")]
    assert (reader.held, reader.last_id) == (0, "")
    with pytest.raises(RemoteProtocolError):
        reader.feed(b"data: two\n\n")


def test_a_long_comment_is_not_kept() -> None:
    reader = EventReader(max_event=CAP)
    reader.feed(b":" + b"x" * 1000)
    reader.feed(b"x" * 1000)
    assert reader.held == 1


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "wire"),
    [
        pytest.param(encode_event(b"{}"), b"event: message\ndata: {}\n\n", id="a message"),
        pytest.param(encode_event(b"{}", id="a-1"), b"event: message\nid: a-1\ndata: {}\n\n", id="a message with id"),
        pytest.param(encode_event(b"", id="a-0", event=None), b"id: a-0\ndata: \n\n", id="an opening event"),
        pytest.param(encode_event(b"{}", retry=500), b"event: message\nretry: 500\ndata: {}\n\n", id="with retry"),
        pytest.param(encode_event(b"/m", event="endpoint"), b"event: endpoint\ndata: /m\n\n", id="another name"),
        pytest.param(encode_event(b"1\n2", event=None), b"data: 1\ndata: 2\n\n", id="two lines"),
        pytest.param(encode_event(b"x", id="", event=None), b"id: \ndata: x\n\n", id="an id that resets"),
        pytest.param(encode_comment(), b": \n\n", id="an empty comment"),
        pytest.param(encode_comment("still\nhere"), b": still\n: here\n\n", id="a comment of two lines"),
    ],
)
def test_is_written_as(written: bytes, wire: bytes) -> None:
    assert written == wire


@pytest.mark.parametrize("character", ["\0", "\n", "\r"], ids=["NUL", "newline", "carriage return"])
@pytest.mark.parametrize("event", ["message", None], ids=["message", "no name"])
def test_an_id_that_would_break_the_stream_is_not_written(character: str, event: str | None) -> None:
    with pytest.raises(ValueError, match="the id of an event"):
        encode_event(b"{}", id=f"a{character}b", event=event)


def test_a_name_that_would_break_the_stream_is_not_written() -> None:
    with pytest.raises(ValueError, match="the event of an event"):
        encode_event(b"{}", event="a\ndata: b")


IDS = st.none() | st.text(st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"]))
NAMES = st.text(st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"]), min_size=1)
EVENTS = st.builds(
    ServerSentEvent,
    st.binary().map(lambda data: data.replace(b"\r", b"\n")),
    event=NAMES,
    id=IDS,
    retry=st.none() | st.integers(min_value=0, max_value=10**9),
)


@given(st.lists(EVENTS), st.lists(st.integers(min_value=0)))
def test_events_are_read_back_as_they_were_written(events: list[ServerSentEvent], places: list[int]) -> None:
    wire = b"".join(
        encode_event(event.data, event=event.event, id=event.id, retry=event.retry) + encode_comment("between")
        for event in events
    )
    assert read(cut(wire, places)) == events


@given(st.binary())
def test_line_ends_in_data_come_back_as_newlines(data: bytes) -> None:
    assert read([encode_event(data)]) == [Event(data.replace(b"\r\n", b"\n").replace(b"\r", b"\n"))]


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_comment_is_an_event(text: str) -> None:
    assert read([encode_comment(text), encode_event(b"{}")]) == [Event(b"{}")]


# --- whatever comes --------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [b"data", b"data: ", b"event: message", b"event:", b"id: ", b"retry: ", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n",
     b"a", b"12", b"\0", b"\xef", b"\xbb", b"\xbf", b"\xff", "ö".encode()]
)  # fmt: skip
STREAM = st.lists(PIECES, max_size=60).map(b"".join)


@given(STREAM, st.lists(st.integers(min_value=0)), st.integers(min_value=0, max_value=40))
def test_any_cutting_gives_the_same_events_and_the_same_refusal(stream: bytes, places: list[int], cap: int) -> None:
    assert read_until_refused(cut(stream, places), cap=cap) == read_until_refused([stream], cap=cap)


@given(STREAM, st.lists(st.integers(min_value=0)))
def test_any_cutting_gives_the_same_id_and_retry(stream: bytes, places: list[int]) -> None:
    whole, pieces = EventReader(max_event=CAP), EventReader(max_event=CAP)
    whole.feed(stream)
    read_all = [pieces.feed(portion) for portion in cut(stream, places)]
    assert (pieces.last_id, pieces.retry, len(read_all)) == (whole.last_id, whole.retry, len(places) + 1)


@given(st.lists(st.binary(max_size=200)), st.integers(min_value=0, max_value=100))
def test_arbitrary_bytes_raise_nothing_but_a_refusal(portions: list[bytes], cap: int) -> None:
    events, _ = read_until_refused(portions, cap=cap)
    assert max((len(event.data) for event in events), default=0) <= cap


# --- cost ------------------------------------------------------------------------------------------------------------


def calls_to_read(portions: list[bytes]) -> int:
    """Count the calls, including those into C, that reading these chunks takes."""
    reader = EventReader(max_event=1 << 30)
    count = 0

    def watch(_frame: FrameType, kind: str, _arg: object) -> None:
        nonlocal count
        count += kind in ("call", "c_call")

    sys.setprofile(watch)
    try:
        for portion in portions:
            reader.feed(portion)
    finally:
        sys.setprofile(None)
    return count


def test_a_long_line_takes_steps_in_proportion_to_its_portions() -> None:
    portion = b"x" * 100
    once = calls_to_read([b"data: ", *[portion] * 1000])
    assert calls_to_read([b"data: ", *[portion] * 4000]) <= 4 * once


def test_many_lines_take_steps_in_proportion_to_their_number() -> None:
    once = calls_to_read([b"data: x\n" * 10] * 100)
    assert calls_to_read([b"data: x\n" * 10] * 400) <= 4 * once + 40


def test_ten_thousand_events_in_one_portion_take_few_calls_each() -> None:
    assert calls_to_read([encode_event(b"{}", id="a-1") * 10_000]) < 80_000


@pytest.mark.parametrize(
    "portion",
    [pytest.param(b"data: xy\n" * 100, id="short lines"), pytest.param(b"x" * 900, id="one line")],
)
def test_an_event_in_small_portions_takes_little_more_memory_than_its_bytes(portion: bytes) -> None:
    reader = EventReader(max_event=1 << 30)
    reader.feed(b"data: ")
    tracemalloc.start()
    try:
        given_events = [reader.feed(portion) for _ in range(1000)]
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(given_events) == 1000
    assert held < 2 * 1000 * len(portion)
