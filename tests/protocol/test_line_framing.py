"""Newline framing: any chunking of the bytes gives the same lines."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.protocol.line_framing import LineReader, OversizedLine

CAP = 10


def read(portions: list[bytes], *, cap: int = CAP) -> list[bytes | OversizedLine]:
    reader = LineReader(cap)
    return [line for portion in portions for line in reader.feed(portion)] + reader.finish()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


BYTES = st.text(alphabet="ab\r\n", max_size=80).map(str.encode)


@given(BYTES, st.lists(st.integers(min_value=0)))
def test_any_cutting_gives_the_same_lines(data: bytes, places: list[int]) -> None:
    assert read(cut(data, places)) == read([data])


@given(st.lists(st.binary(min_size=1, max_size=CAP).filter(lambda line: b"\n" not in line and line[-1:] != b"\r")))
def test_lines_come_out_as_they_were_joined(lines: list[bytes]) -> None:
    assert read([b"\n".join(lines)]) == lines


@given(st.lists(st.integers(min_value=0, max_value=3 * CAP)), st.lists(st.integers(min_value=0)))
def test_every_line_over_the_cap_is_reported_once_in_its_place(sizes: list[int], places: list[int]) -> None:
    data = b"".join(b"x" * size + b"\n" for size in sizes)
    expected = [OversizedLine(CAP, b"x" * CAP) if size > CAP else b"x" * size for size in sizes if size]
    assert read(cut(data, places)) == expected


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        pytest.param(b"one\r\ntwo\n", [b"one", b"two"], id="a carriage return is dropped"),
        pytest.param(b"one\r\r\n", [b"one\r"], id="only one carriage return is dropped"),
        pytest.param(b"\n\r\n\none\n", [b"one"], id="empty lines are skipped"),
        pytest.param(b"one\ntwo", [b"one", b"two"], id="the last line needs no newline"),
        pytest.param(b"one\ntwo\r", [b"one", b"two"], id="the last line may end in a carriage return"),
        pytest.param(b"", [], id="nothing gives nothing"),
        pytest.param(b"a" * CAP + b"\n", [b"a" * CAP], id="a line of the cap's length passes"),
    ],
)
def test_bytes_become_lines(data: bytes, lines: list[bytes]) -> None:
    assert read([data]) == lines


LONG = st.text(alphabet="ab\n", max_size=9000).map(str.encode)


@given(LONG, st.lists(st.integers(min_value=0), max_size=20), st.booleans())
def test_the_excerpt_of_an_oversized_line_does_not_depend_on_chunks(
    data: bytes, places: list[int], enough: bool
) -> None:
    def shown(portions: list[bytes]) -> list[bytes | OversizedLine]:
        reader = LineReader(CAP, enough=lambda head: enough)
        return [line for portion in portions for line in reader.feed(portion)] + reader.finish()

    assert shown(cut(data, places)) == shown([data])


def test_a_line_whose_beginning_is_not_enough_is_reported_with_its_end() -> None:
    reader = LineReader(CAP, enough=lambda head: False)
    assert reader.feed(b"abcdefghijk") == []
    assert reader.feed(b"lm") == []
    assert reader.feed(b"n\ngood\n") == [OversizedLine(CAP, b"abcdefghij", b"abcdefghijklmn"), b"good"]


def test_a_line_that_never_ends_is_reported_when_the_stream_does() -> None:
    reader = LineReader(CAP, enough=lambda head: False)
    reader.feed(b"abcdefghijk")
    assert reader.finish() == [OversizedLine(CAP, b"abcdefghij")]


@given(
    st.lists(
        st.sampled_from([b'{"id":1,"result":"', b'{"result":"', b"\xc3\xa4" * 9, b"x" * 30, b'","id":7}', b"\r", b"\n"])
    ),
    st.integers(1, 60),
)
def test_a_stream_split_at_every_byte_gives_the_same_lines(pieces: list[bytes], cap: int) -> None:
    def seen(portions: list[bytes]) -> list[bytes | OversizedLine]:
        reader = LineReader(cap, enough=lambda head: b"id" in head)
        lines = [line for portion in portions for line in reader.feed(portion)]
        return lines + reader.finish()

    data = b"".join(pieces)
    whole = seen([data])
    assert seen([data[at : at + 1] for at in range(len(data))]) == whole
    assert [seen([data[:at], data[at:]]) for at in range(len(data))] == [whole] * len(data)


def test_a_skipped_line_uses_bounded_memory() -> None:
    reader = LineReader(50_000, enough=lambda head: False)
    tracemalloc.start()
    try:
        assert [line for _ in range(500) for line in reader.feed(b"x" * 65_536)] == []
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 50_000
    assert reader.held == 0


def test_an_excerpt_of_a_long_line_has_a_few_kilobytes() -> None:
    line = b"a" * 4096 + b"b" * 100_000 + b"c" * 1024
    whole = LineReader(50_000, enough=lambda head: False)
    assert (
        whole.feed(line + b"\n")
        == [OversizedLine(50_000, b"a" * 4096, b"c" * 1024)]
        == [OversizedLine.of(line, 50_000)]
    )


def test_the_rest_of_a_line_too_long_is_not_kept() -> None:
    reader = LineReader(CAP)
    assert reader.feed(b"x" * (CAP + 1)) == [OversizedLine(CAP, b"x" * CAP)]
    reader.feed(b"x" * 1000)
    assert reader.held == 0
    assert reader.feed(b"xxx\ngood\n") == [b"good"]


def test_a_line_in_large_and_small_portions_is_joined_in_order() -> None:
    portions = [b"a" * 5000, b"b" * 10, b"c" * 10, b"d" * 5000, b"e", b"\n"]
    assert read(portions, cap=1 << 20) == [b"".join(portions)[:-1]]
