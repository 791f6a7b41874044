"""Newline framing: bytes in any portions in, whole lines out; no descriptor, no loop, no JSON.

A line that is still open is kept in portions and joined once, so a long line costs time in proportion to its length
however finely it is cut. A line over the cap is not kept: it is reported once and skipped to its end, so memory stays
bounded and the lines after it are read as usual. With the report come the line's first bytes; where these are not
enough for whoever reads, the report waits for the end of the line and brings its last bytes too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

__all__ = ["LineReader", "TooLong"]

# Smaller portions are gathered in one buffer: a list of single bytes would take forty times their size.
_SMALL = 4096
# What is shown of a line that is too long: enough for an envelope, whatever stands beside its id.
_HEAD = 4096
_TAIL = 1024


class TooLong(Struct, frozen=True):
    """Stands in the place of a line longer than the cap."""

    max_bytes: int
    #: How it begins, and how it ends where that was waited for.
    head: bytes = b""
    tail: bytes = b""

    @classmethod
    def of(cls, line: bytes, max_bytes: int) -> TooLong:
        """Show of a line what a reader would."""
        return cls(max_bytes, _first((line,), max_bytes), _last((line,)))


class LineReader:
    """Cuts a stream of bytes into lines; feed it, take what is complete."""

    __slots__ = ("_enough", "_head", "_max_bytes", "_portions", "_size", "_skipping", "_small", "_tail")

    def __init__(self, max_bytes: int, *, enough: Callable[[bytes], bool] | None = None) -> None:
        """Start at the beginning of a line; the cap counts all bytes before the newline.

        ``enough`` tells whether the beginning of a line too long says all there is to know; without it, it does.
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

    def finish(self) -> list[bytes | TooLong]:
        """Give the last line if the stream ended without a newline."""
        # What a line that was broken off ends with is not its end.
        self._tail = b""
        return self._close(b"") if self._size or self._skipping else []

    def _hold(self, portion: bytes) -> list[bytes | TooLong]:
        """Keep a portion of a line that is not complete yet."""
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

    def _close(self, portion: bytes) -> list[bytes | TooLong]:
        """Join the kept portions with the last one, or report what was skipped and is not reported yet."""
        if not self._skipping and self._size + len(portion) > self._max_bytes:
            reported = self._skip((*self._portions, self._small, portion))
            portion = b""
            if reported:
                self._skipping = False
                return reported
        if self._skipping:
            head, self._head, self._skipping = self._head, None, False
            return [] if head is None else [TooLong(self._max_bytes, head, _last((self._tail, portion)))]
        line = b"".join((*self._portions, self._small, portion))
        self._forget()
        if line.endswith(b"\r"):
            line = line[:-1]
        return [line] if line else []

    def _skip(self, parts: Sequence[bytes | bytearray]) -> list[bytes | TooLong]:
        """Begin to skip a line of which so much is there; report it if its beginning is enough."""
        head = _first(parts, self._max_bytes)
        self._skipping = True
        self._tail = _last(parts)
        self._forget()
        if self._enough is None or self._enough(head):
            self._head = None
            return [TooLong(self._max_bytes, head)]
        self._head = head
        return []

    def _forget(self) -> None:
        self._portions = []
        self._small = bytearray()
        self._size = 0


def _first(parts: Sequence[bytes | bytearray], max_bytes: int) -> bytes:
    """Give the first bytes of a line over the cap, the same however it was cut."""
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
