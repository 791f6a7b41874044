"""The memory needed to read a large message: a small multiple of its size, whatever it contains."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from trunkline.protocol.jsonrpc import ErrorResponse, InvalidMessage, Response, decode


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        pytest.param(b'"result":{"content":["', b'\\"[', id="brackets after escaped quotes"),
        pytest.param(b'"result":{"content":["', b"\\u005b\\u0061", id="escapes of brackets and letters"),
        pytest.param(b'"error":{"code":1,"message":"', b"\\u0069\\u0064", id="escapes in an error"),
        pytest.param(b'"error":{"code":1,"message":"', b'\\"id\\"', id="names in an error"),
    ],
)
def test_a_message_of_escapes_is_read_in_a_small_multiple_of_its_size(head: bytes, piece: bytes) -> None:
    end = b'"]}}' if b"[" in head else b'"}}'
    data = b'{"jsonrpc":"2.0","id":1,' + head + piece * (2_000_000 // len(piece)) + end
    tracemalloc.start()
    try:
        assert isinstance(decode(data), Response | ErrorResponse)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(data)


def test_strings_between_brackets_are_cut_out_in_a_small_multiple_of_the_size() -> None:
    data = b'{"jsonrpc":"2.0","id":1,"result":[1' + b',"[",{}' * 400_000 + b"]}"
    tracemalloc.start()
    try:
        assert isinstance(decode(data), Response)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10 * len(data)


def test_names_in_a_large_error_are_no_reason_to_read_it_twice() -> None:
    data = b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":[{"id":1,"method":2}' + b",[]" * 100_000
    data += b"]}}"
    tracemalloc.start()
    try:
        assert isinstance(decode(data), ErrorResponse)
        once = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        kept = msgspec.json.decode(data)
        assert kept
        usual = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert once < 1.5 * usual
    twice = data[:-1] + b',"id":2}'
    assert isinstance(decode(twice), InvalidMessage)
