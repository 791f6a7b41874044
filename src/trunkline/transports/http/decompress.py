"""Undoes the compression of an HTTP body piece by piece, so that whoever counts the pieces can stop a bomb.

Only what we ask for is undone: gzip and deflate. A small body that would become gigabytes is never held whole: each
piece is at most 64 KiB, and the reader of the pieces has the cap.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from trunkline.errors import RemoteProtocolError

__all__ = ["ACCEPTED", "Inflater"]

#: What to ask for.
ACCEPTED = "gzip, deflate"

_PIECE = 64 * 1024
_GZIP = 16 + zlib.MAX_WBITS


class Inflater:
    """Undoes one body's compression."""

    __slots__ = ("_encoding", "_inflate")

    def __init__(self, encoding: str) -> None:
        """Take the value of ``Content-Encoding``.

        Raises:
            RemoteProtocolError: it is an encoding that we did not ask for.
        """
        self._encoding = encoding.strip().lower()
        if self._encoding not in ("gzip", "x-gzip", "deflate", "identity", ""):
            raise RemoteProtocolError(
                f"the answer is compressed with {encoding[:40]!r}, but only {ACCEPTED} were asked for"
            )
        self._inflate: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take compressed bytes; give what they become, in pieces.

        Raises:
            RemoteProtocolError: they are not what the header says.
        """
        if self._encoding in ("identity", ""):
            yield data
            return
        while data:
            if self._inflate is None or self._inflate.eof:
                # Several compressed parts may follow one another.
                self._inflate = zlib.decompressobj(self._window(data))
            try:
                piece = self._inflate.decompress(data, _PIECE)
            except zlib.error as error:
                raise RemoteProtocolError(f"the answer says it is {self._encoding} but is not: {error}") from error
            data = self._inflate.unconsumed_tail or self._inflate.unused_data
            if piece:
                yield piece

    def _window(self, data: bytes) -> int:
        if self._encoding != "deflate":
            return _GZIP
        # The name means a zlib stream; some servers send it without the zlib header, whose low bits are always 8.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS
