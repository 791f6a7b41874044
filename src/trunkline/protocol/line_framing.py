"""Newline framing: bytes in arbitrary chunks in, whole lines out; no descriptor, no loop, no JSON.

An incomplete line is kept in chunks and joined once, so a long line costs time in proportion to its length however
finely it is chunked. A line over the limit is not kept: it is reported once and skipped to its end, so memory stays
bounded and the lines after it are read as usual. The report has the line's first bytes; if these are not enough for the
reader, the report waits for the end of the line and has its last bytes too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

__all__ = ["LineReader", "OversizedLine"]

# Smaller chunks are collected in one buffer: a list of single bytes would take forty times their size.
_SMALL = 4096
# The part of an oversized line that is reported: enough for an envelope, with other members beside its id.
_HEAD = 4096
_CARRIAGE_RETURN = 13  # A number: bytes are searched for a number without first failing to read it as one.
_TAIL = 1024  # Enough for the last members, among them an id that comes last.


class OversizedLine(Struct, frozen=True):
    """Takes the place of a line longer than the limit."""

    max_bytes: int
    #: Its first bytes, and its last ones if the report waited for them.
    head: bytes = b""
    tail: bytes = b""

    @classmethod
    def of(cls, line: bytes, max_bytes: int) -> OversizedLine:
        """Create the report for a complete line, as the reader would."""
        return cls(max_bytes, _first((line,), max_bytes), _last((line,)))


class LineReader:
    """Splits a stream of bytes into lines: feed it, use the lines it returns."""

    __slots__ = ("_enough", "_head", "_max_bytes", "_portions", "_size", "_skipping", "_small", "_tail")

    def __init__(self, max_bytes: int, *, enough: Callable[[bytes], bool] | None = None) -> None:
        """Start at the beginning of a line; the limit counts all bytes before the newline.

        ``enough`` returns True if the beginning of an oversized line is all that is needed; by default it is.
        """
        self._max_bytes = max_bytes
        self._enough = enough
        self._portions: list[bytes | bytearray] = []
        self._small = bytearray()
        self._size = 0
        self._skipping = False
        #: The beginning of the line being skipped, until that is reported, and its end so far.
        self._head: bytes | None = None
        self._tail = b""

    @property
    def held(self) -> int:
        """The number of bytes kept of an incomplete line."""
        return self._size

    def feed(self, data: bytes) -> list[bytes | OversizedLine]:
        """Feed bytes; return the lines they complete, without newline or carriage return, empty ones left out."""
        pieces = data.split(b"\n")
        rest = pieces.pop()
        if _CARRIAGE_RETURN not in data and not self._size and not self._skipping and len(data) <= self._max_bytes:
            # The usual read: whole lines, none of which can be too long, and perhaps the beginning of one more.
            if rest:
                self._hold(rest)
            return list(filter(None, pieces))
        lines: list[bytes | OversizedLine] = []
        if pieces and (self._size or self._skipping):
            lines += self._close(pieces.pop(0))
        for piece in pieces:
            if len(piece) > self._max_bytes:
                lines += self._skip((piece,)) or self._close(b"")
                self._skipping = False
                continue
            if piece.endswith(b"\r"):
                piece = piece[:-1]
            if piece:
                lines.append(piece)
        if rest:
            lines += self._hold(rest)
        return lines

    def finish(self) -> list[bytes | OversizedLine]:
        """Return the last line if the stream ended without a newline."""
        # The last bytes of a truncated line are not its end.
        self._tail = b""
        return self._close(b"") if self._size or self._skipping else []

    def _hold(self, portion: bytes) -> list[bytes | OversizedLine]:
        """Keep a chunk of an incomplete line."""
        if self._skipping:
            self._tail = _last((self._tail, portion))
            return []
        self._size += len(portion)
        if self._size > self._max_bytes:
            return self._skip((*self._portions, self._small, portion))
        if len(portion) < _SMALL:
            self._small += portion
            return []
        if self._small:
            self._portions.append(self._small)
            self._small = bytearray()
        self._portions.append(portion)
        return []

    def _close(self, portion: bytes) -> list[bytes | OversizedLine]:
        """Join the kept chunks with the last one, or report a skipped line that is not reported yet."""
        if not self._skipping and self._size + len(portion) > self._max_bytes:
            reported = self._skip((*self._portions, self._small, portion))
            portion = b""
            if reported:
                self._skipping = False
                return reported
        if self._skipping:
            head, self._head, self._skipping = self._head, None, False
            return [] if head is None else [OversizedLine(self._max_bytes, head, _last((self._tail, portion)))]
        line = b"".join((*self._portions, self._small, portion))
        self._forget()
        if line.endswith(b"\r"):
            line = line[:-1]
        return [line] if line else []

    def _skip(self, parts: Sequence[bytes | bytearray]) -> list[bytes | OversizedLine]:
        """Start skipping a line, of which these parts are available; report it if its beginning is enough."""
        head = _first(parts, self._max_bytes)
        self._skipping = True
        self._tail = _last(parts)
        self._forget()
        if self._enough is None or self._enough(head):
            self._head = None
            return [OversizedLine(self._max_bytes, head)]
        self._head = head
        return []

    def _forget(self) -> None:
        self._portions = []
        self._small = bytearray()
        self._size = 0


def _first(parts: Sequence[bytes | bytearray], max_bytes: int) -> bytes:
    """Return the first bytes of an oversized line, the same however it was chunked."""
    size, head = min(_HEAD, max_bytes), bytearray()
    for part in parts:
        head += part[: size - len(head)]
        if len(head) == size:
            break
    return bytes(head)


def _last(parts: Sequence[bytes | bytearray]) -> bytes:
    tail = b""
    for part in reversed(parts):
        tail = bytes(part[-(_TAIL - len(tail)) :]) + tail
        if len(tail) == _TAIL:
            break
    return tail
