"""Newline framing: bytes in any portions in, whole lines out; no descriptor, no loop, no JSON.

A line that is still open is kept in portions and joined once, so a long line costs time in proportion to its length
however finely it is cut. A line over the cap is not kept: it is reported once, as soon as it is known to be too long,
and skipped to its end, so memory stays bounded and the lines after it are read as usual.
"""

from __future__ import annotations

from msgspec import Struct

__all__ = ["LineReader", "TooLong"]

# Smaller portions are gathered in one buffer: a list of single bytes would take forty times their size.
_SMALL = 4096


class TooLong(Struct, frozen=True):
    """Stands in the place of a line longer than the cap."""

    max_bytes: int


class LineReader:
    """Cuts a stream of bytes into lines; feed it, take what is complete."""

    __slots__ = ("_max_bytes", "_portions", "_size", "_skipping", "_small", "_too_long")

    def __init__(self, max_bytes: int) -> None:
        """Start at the beginning of a line; the cap counts all bytes before the newline."""
        self._max_bytes = max_bytes
        self._too_long = TooLong(max_bytes)
        self._portions: list[bytes | bytearray] = []
        self._small = bytearray()
        self._size = 0
        self._skipping = False

    @property
    def held(self) -> int:
        """How many bytes of an open line are kept."""
        return self._size

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """Take bytes; give the lines they complete, without newline or carriage return, empty ones left out."""
        pieces = data.split(b"\n")
        rest = pieces.pop()
        lines: list[bytes | TooLong] = []
        if pieces and (self._size or self._skipping):
            lines += self._close(pieces.pop(0))
        for piece in pieces:
            if len(piece) > self._max_bytes:
                lines.append(self._too_long)
                continue
            if piece.endswith(b"\r"):
                piece = piece[:-1]
            if piece:
                lines.append(piece)
        if rest and not self._skipping:
            lines += self._hold(rest)
        return lines

    def finish(self) -> list[bytes | TooLong]:
        """Give the last line if the stream ended without a newline."""
        return self._close(b"") if self._size or self._skipping else []

    def _hold(self, portion: bytes) -> list[bytes | TooLong]:
        """Keep a portion of a line that is not complete yet."""
        self._size += len(portion)
        if self._size > self._max_bytes:
            self._forget()
            self._skipping = True
            return [self._too_long]
        if len(portion) < _SMALL:
            self._small += portion
            return []
        if self._small:
            self._portions.append(self._small)
            self._small = bytearray()
        self._portions.append(portion)
        return []

    def _close(self, portion: bytes) -> list[bytes | TooLong]:
        """Join the kept portions with the last one."""
        if self._skipping:
            self._skipping = False
            return []
        if self._size + len(portion) > self._max_bytes:
            self._forget()
            return [self._too_long]
        line = b"".join((*self._portions, self._small, portion))
        self._forget()
        if line.endswith(b"\r"):
            line = line[:-1]
        return [line] if line else []

    def _forget(self) -> None:
        self._portions = []
        self._small = bytearray()
        self._size = 0
