"""Decompression of HTTP bodies: encodings, members, padding, cut input, bombs and input that never ends."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.net.decompression import ENCODINGS, MAX_IDLE_BYTES, PIECE_BYTES, DecompressionError, Decompressor

TEXT = b"words and more words, " * 50


def decompress(encoding: str, *parts: bytes) -> bytes:
    """Feed the parts to one decompressor and join the pieces."""
    decompressor = Decompressor(encoding)
    return b"".join(piece for part in parts for piece in decompressor.feed(part))


def raw_deflate(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-15)


def two_members(data: bytes) -> bytes:
    return gzip.compress(data[:9]) + gzip.compress(data[9:])


def padded(data: bytes) -> bytes:
    return gzip.compress(data) + bytes(512)


FORMS = pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        pytest.param("gzip", gzip.compress, id="gzip"),
        pytest.param("x-gzip", gzip.compress, id="old name of gzip"),
        pytest.param("gzip", two_members, id="two members"),
        pytest.param("gzip", padded, id="padded"),
        pytest.param("deflate", zlib.compress, id="zlib"),
        pytest.param("deflate", raw_deflate, id="deflate without a header"),
        pytest.param("deflate", gzip.compress, id="gzip under the name deflate"),
        pytest.param("gzip", zlib.compress, id="zlib under the name gzip"),
    ],
)


@FORMS
def test_a_body_is_decompressed(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    assert decompress(encoding, compress(TEXT)) == TEXT


@FORMS
def test_a_body_that_arrives_byte_by_byte_is_decompressed(encoding: str, compress: Callable[[bytes], bytes]) -> None:
    compressed = compress(TEXT)
    assert decompress(encoding, *(compressed[at : at + 1] for at in range(len(compressed)))) == TEXT


@given(st.binary(max_size=5000), st.integers(0, 9), st.sampled_from([-15, 15, 31]), st.integers(1, 300))
def test_whatever_is_compressed_comes_back_in_whatever_parts(data: bytes, level: int, window: int, size: int) -> None:
    compressed = zlib.compress(data, level, wbits=window)
    parts = [compressed[at : at + size] for at in range(0, len(compressed), size)]
    assert decompress("gzip" if window == 31 else "deflate", *parts) == data


def test_a_flushed_part_of_a_stream_is_available_at_once() -> None:
    compressor = zlib.compressobj(wbits=31)
    decompressor = Decompressor("gzip")
    first = compressor.compress(b"data: 1\n\n") + compressor.flush(zlib.Z_SYNC_FLUSH)
    assert b"".join(decompressor.feed(first)) == b"data: 1\n\n"


def test_a_bomb_is_decompressed_only_as_far_as_its_pieces_are_taken() -> None:
    pieces = Decompressor("gzip").feed(gzip.compress(bytes(5_000_000)))
    assert [len(next(pieces)), len(next(pieces))] == [PIECE_BYTES, PIECE_BYTES]


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_what_is_not_compressed_is_an_error(encoding: str) -> None:
    with pytest.raises(DecompressionError, match=f"is not valid {encoding}"):
        decompress(encoding, b"\xff not compressed at all")


@pytest.mark.parametrize("encoding", ["br", "zstd", "identity", "", "gzip, gzip", "GZIP"])
def test_an_encoding_that_is_not_supported_is_an_error(encoding: str) -> None:
    with pytest.raises(DecompressionError, match="is not supported"):
        Decompressor(encoding)


def test_empty_members_without_end_are_an_error() -> None:
    with pytest.raises(DecompressionError, match="more than 1000 gzip members"):
        decompress("gzip", gzip.compress(b"") * 1001)


def test_padding_without_end_is_an_error() -> None:
    with pytest.raises(DecompressionError, match="decompress to nothing"):
        decompress("gzip", gzip.compress(TEXT), *[bytes(1024)] * (MAX_IDLE_BYTES // 1024 + 1))


def test_empty_blocks_without_end_are_an_error() -> None:
    compressor = zlib.compressobj(wbits=-15)
    empty = compressor.flush(zlib.Z_SYNC_FLUSH)
    with pytest.raises(DecompressionError, match="decompress to nothing"):
        decompress("deflate", *[empty] * (MAX_IDLE_BYTES // len(empty) + 1))


def test_a_long_stream_of_small_parts_is_not_limited() -> None:
    compressor = zlib.compressobj(wbits=31)
    parts = [compressor.compress(b":\n\n") + compressor.flush(zlib.Z_SYNC_FLUSH) for _ in range(20_000)]
    assert sum(map(len, parts)) > 2 * MAX_IDLE_BYTES
    assert decompress("gzip", *parts) == b":\n\n" * 20_000
