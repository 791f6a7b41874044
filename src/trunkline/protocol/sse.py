"""Server-Sent Events, both directions: events to bytes, and bytes in arbitrary chunks to events; no socket, no JSON.

Reading follows the WHATWG rules for event streams: a byte order mark at the start, three kinds of line ends, one space
after the colon, comments and unknown fields skipped, an event truncated by the end of the stream dropped. Two things
differ, because of what the protocol sends. Data stays bytes: text that is not UTF-8 is for the reader of the message to
reject, and is not repaired here. And an event with an empty ``data`` line is returned, since the events that open a
stream are of that kind; an event without any ``data`` line is not returned, but its id still counts.

An incomplete line is kept in one growing buffer and copied out once, so a long event costs time in proportion to its
length however finely it is chunked. The buffer never exceeds the limit by more than the chunk fed last.
"""

from __future__ import annotations

from msgspec import Struct

from trunkline.errors import RemoteProtocolError

__all__ = ["EventReader", "ServerSentEvent", "encode_comment", "encode_event"]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NEWLINE, _RETURN, _COLON = b"\n\r:"
# A longer number of milliseconds is thirty thousand years, and one of thousands of digits is rejected by `int`.
_RETRY_DIGITS = 15


class ServerSentEvent(Struct, frozen=True, gc=False):
    """One event of a stream; ``id`` is None when it had no id line, ``retry`` is in milliseconds."""

    data: bytes
    event: str = "message"
    id: str | None = None
    retry: int | None = None


def encode_event(
    data: bytes, *, event: str | None = "message", id: str | None = None, retry: int | None = None
) -> bytes:
    """Encode one event; data of several lines becomes several ``data`` fields, read back with newlines between.

    Raises:
        ValueError: the id contains a NUL or a line end, or the event's name a line end.
    """
    if _NEWLINE in data or _RETURN in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    if event == "message" and retry is None:
        if id is None:
            return b"event: message\ndata: %b\n\n" % data
        return b"event: message\nid: %b\ndata: %b\n\n" % (_field("id", id), data)
    head = b"" if event is None else b"event: %b\n" % _field("event", event)
    if id is not None:
        head += b"id: %b\n" % _field("id", id)
    if retry is not None:
        head += b"retry: %d\n" % retry
    return b"%bdata: %b\n\n" % (head, data)


def encode_comment(text: str = "") -> bytes:
    """Encode a comment, which readers skip: it is sent as a keep-alive."""
    return b"".join(b": %b\n" % line.encode() for line in text.splitlines() or [""]) + b"\n"


def _field(name: str, value: str) -> bytes:
    if not value.isprintable() and ("\n" in value or "\r" in value or "\0" in value):
        raise ValueError(f"the {name} of an event must not contain a NUL or a line end: {value!r}")
    return value.encode()


class EventReader:
    """Splits a stream of bytes into events: feed it, use the events it returns."""

    __slots__ = (
        "_after_return",
        "_data",
        "_event",
        "_head",
        "_id",
        "_max_event",
        "_open",
        "_open_size",
        "_retry",
        "_size",
        "_too_long",
        "last_id",
        "retry",
    )

    def __init__(self, *, max_event: int) -> None:
        """Start at the beginning of a stream; the limit counts the bytes of an event's lines, or of one comment."""
        self._max_event = max_event
        #: The id to resume the stream after: that of the last complete event that had one.
        self.last_id: str = ""
        #: The last delay in milliseconds that the server requested before the stream is resumed.
        self.retry: int | None = None
        self._head: bytes | None = b""
        self._after_return = False
        self._open = bytearray()
        self._open_size = 0
        self._data: bytes | bytearray | None = None
        self._event = ""
        self._id: str | None = None
        self._retry: int | None = None
        self._size = 0
        self._too_long = False

    @property
    def held(self) -> int:
        """The number of bytes kept of an incomplete event, field names of complete lines not counted."""
        return len(self._open) + len(self._data or b"") + len(self._id or "") + len(self._event)

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Feed bytes; return the events they complete.

        Raises:
            RemoteProtocolError: an event is longer than the limit. Events completed before it are returned first;
                nothing can be read after it.
        """
        events: list[ServerSentEvent] = []
        if not self._too_long:
            self._read(self._cut(data), events)
            if self._too_long and events:
                return events
        if self._too_long:
            raise RemoteProtocolError(f"an event of the stream is longer than {self._max_event} bytes")
        return events

    def _read(self, lines: list[bytes], events: list[ServerSentEvent]) -> None:
        """Process whole lines; stop at an event over the limit."""
        for line in lines:
            if not line:
                if self._size > self._max_event:
                    break
                if self._data is not None:
                    events.append(ServerSentEvent(bytes(self._data), self._event or "message", self._id, self._retry))
                if self._id is not None:
                    self.last_id = self._id
                self._data = self._id = self._retry = None
                self._event = ""
                self._size = 0
            # The three lines that nearly all events consist of; `_take` would do the same, in twice the time.
            elif line[:6] == b"data: " and self._data is None:
                self._data = line[6:]
                self._size += len(line)
            elif line == b"event: message":
                self._event = "message"
                self._size += len(line)
            elif line[:4] == b"id: " and 0 not in line:
                self._id = line[4:].decode(errors="replace")
                self._size += len(line)
            else:
                self._take(line)
        if self._size > self._max_event or self._open_line_is_too_long():
            self._end()

    def _take(self, line: bytes) -> None:
        """Process one line that is not empty."""
        if line[0] == _COLON:
            self._skip_comment(len(line))
            return
        self._size += len(line)
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._add_data(value)
            case b"event":
                self._event = value.decode(errors="replace")
            case b"id" if 0 not in value:
                self._id = value.decode(errors="replace")
            case b"retry" if value.isdigit() and len(value) <= _RETRY_DIGITS:
                self.retry = self._retry = int(value)

    def _skip_comment(self, size: int) -> None:
        """Leave a comment out of its event's size: comments that keep a slow event alive must not end it."""
        if size > self._max_event:
            self._size += size

    def _add_data(self, value: bytes) -> None:
        """Add a line of data; from the second on in one buffer, since a list of short lines takes many times more."""
        if self._data is None:
            self._data = value
            return
        if isinstance(self._data, bytes):
            self._data = bytearray(self._data)
        self._data += b"\n"
        self._data += value

    def _end(self) -> None:
        """Discard the event that is too long, and read nothing after it."""
        self._too_long = True
        self._open = bytearray()
        self._data = self._id = None
        self._event = ""

    # --- lines -------------------------------------------------------------------------------------------------------

    def _cut(self, data: bytes) -> list[bytes]:
        """Return the lines that these bytes complete, and keep the rest."""
        if self._head is not None:
            data = self._without_byte_order_mark(data)
        if not data:
            return []
        if self._after_return and data[0] == _NEWLINE:
            self._after_return = False
            data = data[1:]
            if not data:
                return []
        if _NEWLINE not in data and _RETURN not in data:
            self._after_return = False
            self._hold(data)
            return []
        lines = data.splitlines()
        last = data[-1]
        # A line is complete at its carriage return, whatever follows: an event must not wait for the next chunk.
        self._after_return = last == _RETURN
        rest = b"" if self._after_return or last == _NEWLINE else lines.pop()
        if self._open_size:
            self._close(lines.pop(0))
        if rest:
            self._hold(rest)
        return lines

    def _without_byte_order_mark(self, data: bytes) -> bytes:
        """Drop the mark at the start of the stream, which may come in chunks."""
        head = (self._head or b"") + data
        if len(head) < len(_BYTE_ORDER_MARK) and _BYTE_ORDER_MARK.startswith(head):
            self._head = head
            return b""
        self._head = None
        return head.removeprefix(_BYTE_ORDER_MARK)

    def _hold(self, portion: bytes) -> None:
        """Keep a chunk of an incomplete line; of a comment only the colon."""
        if not self._in_comment():
            self._open += portion if self._open or portion[0] != _COLON else b":"
        self._open_size += len(portion)

    def _close(self, portion: bytes) -> None:
        """Process the incomplete line, which ends with this chunk."""
        if portion:
            self._hold(portion)
        line, size = self._open, self._open_size
        self._open, self._open_size = bytearray(), 0
        if line.startswith(b"data: ") and self._data is None:
            # Moves the start of the buffer, where a slice of 32 MiB would be one more copy.
            del line[:6]
            self._data = line
            self._size += size
        elif line.startswith(b":"):
            self._skip_comment(size)
        else:
            self._take(bytes(line))

    def _in_comment(self) -> bool:
        return self._open.startswith(b":")

    def _open_line_is_too_long(self) -> bool:
        before = 0 if self._in_comment() else self._size
        return before + self._open_size > self._max_event
