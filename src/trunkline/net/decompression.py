"""Decompresses HTTP bodies piece by piece, so that a caller's size limit stops a decompression bomb.

No I/O: compressed bytes in, decompressed pieces out. How many bytes are too many is up to the caller; what is limited
here is input that decompresses to nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

__all__ = ["ENCODINGS", "DecompressionError", "Decompressor"]

#: The values of ``Content-Encoding`` that can be decompressed, in lower case.
ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})

#: The most bytes of one decompressed piece.
PIECE_BYTES = 64 * 1024
# Compressed data may be padded and may have empty members, but what decompresses to nothing must not go on for ever.
MAX_MEMBERS = 1000
#: Padding after the last member is a few kilobytes at most.
MAX_IDLE_BYTES = 64 * 1024

_GZIP_MAGIC = b"\x1f\x8b"
# The headers of both gzip and zlib are recognized: some servers mix the two names up.
_ANY_HEADER = zlib.MAX_WBITS | 32
_NO_HEADER = -zlib.MAX_WBITS


class DecompressionError(ValueError):
    """A body that cannot be decompressed."""


class Decompressor:
    """Decompresses one body: gzip, of one or several concatenated members, zlib, or raw deflate."""

    __slots__ = ("_encoding", "_held", "_idle", "_members", "_stream")

    def __init__(self, encoding: str) -> None:
        """Prepare for a ``Content-Encoding``, which must be one of ``ENCODINGS``."""
        if encoding not in ENCODINGS:
            raise DecompressionError(f"{encoding!r} is not supported")
        self._encoding = encoding
        self._stream: zlib._Decompress | None = None
        self._members = 0
        #: Bytes after the end of a member that are too few to tell whether another one begins.
        self._held = b""
        #: How many bytes were fed since the last one that was decompressed.
        self._idle = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the decompressed data in pieces of at most ``PIECE_BYTES``; a caller that has enough stops early.

        Bytes after the last member are ignored: they are padding.

        Raises:
            DecompressionError: the data is not what the encoding says, or goes on without decompressing to anything.
        """
        self._idle += len(data)
        data, self._held = self._held + data, b""
        while data:
            if (self._stream is None or self._stream.eof) and not self._begin_member(data):
                break
            assert self._stream is not None
            try:
                piece = self._stream.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise DecompressionError(f"is not valid {self._encoding}: {error}") from error
            data = self._stream.unconsumed_tail or self._stream.unused_data
            if piece:
                self._idle = 0
                yield piece
        if self._idle > MAX_IDLE_BYTES:
            raise DecompressionError(f"has more than {MAX_IDLE_BYTES} bytes that decompress to nothing")

    def _begin_member(self, data: bytes) -> bool:
        """Start the stream of the first or of another member; return False if none begins with this data."""
        window = _ANY_HEADER
        if self._stream is None:
            # "deflate" means a zlib stream; some servers send it without the zlib header, whose low bits are always 8.
            # No raw stream begins with such a byte, nor with the first one of gzip.
            if self._encoding == "deflate" and data[0] & 0x0F != 8 and data[0] != _GZIP_MAGIC[0]:
                window = _NO_HEADER
        elif not data.startswith(_GZIP_MAGIC):
            self._held = data if _GZIP_MAGIC.startswith(data) else b""
            return False
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise DecompressionError(f"has more than {MAX_MEMBERS} gzip members")
        self._stream = zlib.decompressobj(window)
        return True
