"""Stores the traffic of a host as rows: requests with their responses, HTTP exchanges, rounds of one call.

The store is a ring buffer in memory: the newest 20,000 rows, with at most 64 MiB of message bodies; the oldest bodies
are dropped first. Bodies are stored unmasked, because a request can be sent again, and masked in every response: known
secrets, members named like credentials, and text that looks like a credential. Values of ``Authorization`` and similar
headers are removed before they get here (``transports/http/client/http_client.py``).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from trunkline.console.traffic_summaries import MessageParts, read_parts, summarize
from trunkline.devtools.recording.format import MessageRedaction
from trunkline.errors import RequestFailed
from trunkline.host.secrets.registry import SecretRegistry
from trunkline.host.traffic import TrafficSource
from trunkline.protocol.jsonrpc import (
    Batch,
    ErrorResponse,
    Incoming,
    InvalidMessage,
    Message,
    Notification,
    Outbound,
    Request,
    Response,
    encode,
)
from trunkline.protocol.traffic import HttpTraffic
from trunkline.types import ErrorObject, RequestId

__all__ = ["MAX_BODY", "MAX_BYTES", "MAX_ROWS", "StoredMessage", "TrafficFilter", "TrafficRow", "TrafficStore"]

#: Stored rows: an hour of a busy host, and as many as a page can scroll through.
MAX_ROWS = 20_000
#: Bytes of all bodies together.
MAX_BYTES = 64 * 1024 * 1024
#: Bytes of one body: enough to read, without a few large results displacing all others.
MAX_BODY = 1024 * 1024

_MOST_PENDING = 4096  # Pending requests of one connection; some never get a response.
_MOST_ROUNDS = 1024  # Calls between two rounds, on all connections.

Direction: TypeAlias = Literal["out", "in"]
Kind: TypeAlias = Literal["request", "response", "error", "notification", "http", "unreadable"]


class TrafficRow(Struct, kw_only=True):
    """One message or HTTP exchange, as shown in lists."""

    seq: int
    #: Seconds since the epoch.
    at: float
    server: str
    connection: str
    direction: Direction
    kind: Kind
    #: For a response the method of its request; for an HTTP exchange the HTTP method.
    method: str | None = None
    id: RequestId | None = None
    #: The row of the request that this row answers or carries.
    pair: int | None = None
    #: For a response the time since its request; for an HTTP exchange the time until the response headers.
    ms: float | None = None
    bytes: int = 0
    summary: str = ""
    #: The status of an HTTP exchange.
    status: int | None = None
    #: The row of the first request of a call that took several rounds.
    round: int | None = None


class TrafficFilter(Struct, frozen=True, kw_only=True):
    """A filter of rows; empty members match everything."""

    server: str = ""
    kinds: Collection[str] = ()
    #: Found in method, summary, id or body, regardless of case.
    text: str = ""

    def matches_row(self, row: TrafficRow) -> bool:
        """Return True if server and kind match."""
        return (not self.server or row.server == self.server) and (not self.kinds or row.kind in self.kinds)


class StoredMessage(Struct):
    """A row with the stored part of its body."""

    row: TrafficRow
    body: bytes | None = None
    #: The row of the HTTP exchange that carried it.
    http: int | None = None

    @property
    def whole(self) -> bool:
        """Whether the whole body is stored."""
        return self.body is not None and (self.row.kind == "http" or len(self.body) == self.row.bytes)


class _Pending(Struct):
    """A request without a response yet."""

    seq: int
    began: float
    method: str
    label: str
    round: int | None = None


class TrafficStore:
    """The newest rows of the traffic."""

    def __init__(
        self,
        secrets: SecretRegistry,
        *,
        on_row: Callable[[TrafficRow], None] | None = None,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
        max_body: int = MAX_BODY,
    ) -> None:
        """Start empty; ``on_row`` is called with each row that is new or has changed."""
        self._secrets = secrets
        self._on_row = on_row
        self._max_rows, self._max_bytes, self._max_body = max_rows, max_bytes, max_body
        self._kept: OrderedDict[int, StoredMessage] = OrderedDict()
        self._seq = 0
        self._size = 0
        #: The first row that may still have a body.
        self._first_body = 1
        self._rounds: OrderedDict[str, int] = OrderedDict()
        #: The number of rows that were dropped because the store was full.
        self.dropped = 0

    def __call__(self, source: TrafficSource) -> _ConnectionObserver:
        """Return the observer of one connection; this makes the store a ``TrafficHandler``."""
        return _ConnectionObserver(self, source)

    # --- reading -----------------------------------------------------------------------------------------------------

    @property
    def first(self) -> int | None:
        """The number of the oldest row; None if there are no rows."""
        return next(iter(self._kept), None)

    @property
    def last(self) -> int:
        """The number of the newest row; 0 before the first."""
        return self._seq

    def get(self, seq: int) -> StoredMessage | None:
        """Return a row by its number."""
        return self._kept.get(seq)

    def clear(self) -> None:
        """Drop all rows; numbering continues."""
        self._kept.clear()
        self._size, self._first_body, self.dropped = 0, self._seq + 1, 0

    def snapshot(self) -> list[StoredMessage]:
        """Return all rows, oldest first; the list may be searched in another thread."""
        return list(self._kept.values())

    def rows(
        self,
        where: TrafficFilter,
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int,
        among: Sequence[StoredMessage] | None = None,
    ) -> list[TrafficRow]:
        """Return matching rows, oldest first: the next ones ``after`` a row, else the newest ones ``before`` one."""
        stored = self.snapshot() if among is None else among
        found: list[TrafficRow] = []
        for each in stored if after is not None else reversed(stored):
            row = each.row
            if (after is not None and row.seq <= after) or (before is not None and row.seq >= before):
                continue
            if where.matches_row(row) and (not where.text or self._contains(each, where.text)):
                row.summary = self._secrets.hide(row.summary)
                found.append(row)
                if len(found) >= limit:
                    break
        return found if after is not None else found[::-1]

    def _contains(self, stored: StoredMessage, text: str) -> bool:
        row, wanted = stored.row, text.casefold()
        if wanted in f"{row.method} {row.summary} {row.id} {row.status or ''}".casefold():
            return True
        if stored.body is None:
            return False
        plain = wanted.isascii()
        if plain and wanted.encode() not in stored.body.lower():
            return False
        # Search the masked text: a search must not reveal a secret.
        return wanted in self.masked_text(stored).casefold()

    def masked(self, stored: StoredMessage) -> Any:
        """Return the body as JSON with secrets masked; as text if only its beginning is stored, None if nothing is."""
        if stored.body is None:
            return None
        redaction = MessageRedaction(registry=self._secrets)
        if not stored.whole:
            return redaction.text(stored.body.decode("utf-8", "replace"))
        return redaction.apply(msgspec.json.decode(stored.body))

    def masked_text(self, stored: StoredMessage) -> str:
        """Return the body as compact JSON with secrets masked."""
        value = self.masked(stored)
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    def http(self, stored: StoredMessage) -> dict[str, Any] | None:
        """Return the HTTP exchange of a row, or of the exchange that carried it, with secrets masked."""
        if stored.row.kind != "http":
            carried = None if stored.http is None else self._kept.get(stored.http)
            return None if carried is None else self.http(carried)
        if stored.body is None:
            return None
        redaction = MessageRedaction(registry=self._secrets)
        exchange = msgspec.json.decode(stored.body, type=HttpTraffic)
        return {
            "method": exchange.method,
            "url": redaction.text(exchange.url),
            "status": exchange.status,
            "request_headers": redaction.headers(exchange.request_headers),
            "response_headers": redaction.headers(exchange.response_headers),
            "error": None if exchange.error is None else redaction.text(exchange.error),
        }

    # --- writing, for the observers ----------------------------------------------------------------------------------

    def add(self, row: TrafficRow, body: bytes | None) -> StoredMessage:
        """Add a row and set its number."""
        self._seq += 1
        row.seq = self._seq
        kept = None if body is None else body[: self._max_body]
        stored = self._kept[row.seq] = StoredMessage(row, kept)
        self._size += 0 if kept is None else len(kept)
        if len(self._kept) > self._max_rows:
            _, oldest = self._kept.popitem(last=False)
            self._size -= 0 if oldest.body is None else len(oldest.body)
            self.dropped += 1
        while self._size > self._max_bytes:
            self._drop_body()
        return stored

    def _drop_body(self) -> None:
        oldest = self._kept.get(self._first_body)
        if oldest is not None and oldest.body is not None:
            self._size -= len(oldest.body)
            oldest.body = None
        self._first_body += 1

    def changed(self, row: TrafficRow) -> None:
        """Call the listener with a row that is complete or has changed."""
        if self._on_row is not None:
            self._on_row(row)

    def summary(self, parts: MessageParts) -> str:
        """Return a short masked summary of a message."""
        return summarize(parts, MessageRedaction(registry=self._secrets))

    def text(self, text: str) -> str:
        """Mask a text and cut it to the length of a summary."""
        return MessageRedaction(registry=self._secrets).text(text)[:_LONGEST_REASON]

    def await_round(self, key: str, first: int) -> None:
        """Record that a call waits for its next round."""
        self._rounds[key] = first
        if len(self._rounds) > _MOST_ROUNDS:
            self._rounds.popitem(last=False)

    def next_round(self, key: str) -> int | None:
        """Return the first row of the call that this request continues, and forget it."""
        return self._rounds.pop(key, None)


_LONGEST_REASON = 300  # Characters of an error message with a URL in it.


class _ConnectionObserver:
    """Turns the traffic of one connection into rows."""

    def __init__(self, store: TrafficStore, source: TrafficSource) -> None:
        self._store = store
        self._source = source
        #: By direction and id.
        self._pending: OrderedDict[tuple[Direction, RequestId], _Pending] = OrderedDict()

    def connected(self) -> None:
        """Forget the pending requests of the previous connection: ids start again."""
        self._pending.clear()

    def messages_sent(self, batch: Sequence[Outbound]) -> None:
        """Add sent messages."""
        for outbound in batch:
            message = outbound.message
            for each in message if isinstance(message, tuple) else (message,):
                self._message(each, "out")

    def message_received(self, incoming: Incoming) -> None:
        """Add a received message; the messages of a batch follow one by one."""
        if isinstance(incoming, Batch):
            for item in incoming.items:
                if isinstance(item, InvalidMessage) and not item.response:
                    self._unreadable(item.message, item.id)
        elif isinstance(incoming, InvalidMessage):
            self._unreadable(incoming.message, incoming.id)
        else:
            self._message(incoming, "in")

    def request_failed(self, id: RequestId, error: Exception | None) -> None:
        """Add an error row for a request that gets no response."""
        if isinstance(error, RequestFailed) and error.status is not None:
            data = msgspec.UNSET if error.data is None else error.data
            self._message(ErrorResponse(id, ErrorObject(code=error.code, message=error.message, data=data)), "in")
        elif ("out", id) in self._pending:
            self._unreadable(str(error or "no response: the connection was closed"), id)

    def http_exchanged(self, exchange: HttpTraffic) -> None:
        """Add an HTTP exchange, and link it to the request that it carried."""
        pending = None if exchange.about is None else self._pending.get(("out", exchange.about))
        row = self._row("out", "http", method=exchange.method, id=exchange.about)
        row.ms = round(exchange.seconds * 1000, 3)
        row.status = exchange.status
        length = exchange.response_headers.get("Content-Length", "")
        row.bytes = int(length) if length.isdecimal() and len(length) < 16 else 0
        row.summary = self._store.text(exchange.url if exchange.error is None else exchange.error)
        if pending is not None:
            row.pair, row.round = pending.seq, pending.round
        self._store.add(row, msgspec.json.encode(exchange))
        if row.pair is not None and (request := self._store.get(row.pair)) is not None:
            request.http = row.seq
        self._store.changed(row)

    # --- messages ----------------------------------------------------------------------------------------------------

    def _row(self, direction: Direction, kind: Kind, **members: Any) -> TrafficRow:
        source = self._source
        return TrafficRow(
            seq=0,
            at=time.time(),
            server=source.server,
            connection=source.connection,
            direction=direction,
            kind=kind,
            **members,
        )

    def _message(self, message: Message, direction: Direction) -> None:
        body = encode(message)
        parts = read_parts(body)
        if isinstance(message, Request):
            self._request(message, direction, parts, body)
        elif isinstance(message, Notification):
            row = self._row(direction, "notification", method=message.method)
            self._add(row, parts, body)
        else:
            self._response(message, direction, parts, body)

    def _add(self, row: TrafficRow, parts: MessageParts, body: bytes) -> StoredMessage:
        row.bytes = len(body)
        row.summary = self._store.summary(parts)
        stored = self._store.add(row, body)
        self._store.changed(row)
        return stored

    def _request(self, message: Request, direction: Direction, parts: MessageParts, body: bytes) -> None:
        row = self._row(direction, "request", method=message.method, id=message.id)
        if parts.continues:
            row.round = self._store.next_round(self._round_key(message.method, parts))
        self._add(row, parts, body)
        self._pending[direction, message.id] = _Pending(
            row.seq, time.perf_counter(), message.method, parts.label, row.round
        )
        if len(self._pending) > _MOST_PENDING:
            self._pending.popitem(last=False)

    def _response(
        self, message: Response | ErrorResponse, direction: Direction, parts: MessageParts, body: bytes
    ) -> None:
        kind: Kind = "response" if isinstance(message, Response) else "error"
        row = self._row(direction, kind, id=message.id)
        pending = self._answer(row, direction)
        if pending is not None and direction == "in" and parts.input_required:
            self._asked_for_input(row, pending, parts)
        stored = self._add(row, parts, body)
        request = None if pending is None else self._store.get(pending.seq)
        if request is not None:
            stored.http = request.http

    def _answer(self, row: TrafficRow, direction: Direction) -> _Pending | None:
        """Complete the row of a response with data of its request."""
        if row.id is None:
            return None
        pending = self._pending.pop(("in" if direction == "out" else "out", row.id), None)
        if pending is not None:
            row.method, row.pair, row.round = pending.method, pending.seq, pending.round
            row.ms = round((time.perf_counter() - pending.began) * 1000, 3)
        return pending

    def _asked_for_input(self, row: TrafficRow, pending: _Pending, parts: MessageParts) -> None:
        """Record that the next request with this state belongs to the same call."""
        row.round = pending.round or pending.seq
        label = MessageParts(label=pending.label, state=parts.state)
        self._store.await_round(self._round_key(pending.method, label), row.round)
        for seq in (pending.seq, None if (request := self._store.get(pending.seq)) is None else request.http):
            stored = None if seq is None else self._store.get(seq)
            if stored is not None and stored.row.round is None:
                stored.row.round = row.round
                self._store.changed(stored.row)

    def _round_key(self, method: str, parts: MessageParts) -> str:
        """Return the key that links the rounds of a call: the request state, or else the name of the item."""
        said = parts.label if parts.state is None else parts.state
        return f"{self._source.server} {method} {sha256(said.encode()).hexdigest()}"

    def _unreadable(self, reason: str, id: RequestId | None) -> None:
        row = self._row("in", "unreadable", id=id, summary=self._store.text(reason))
        self._answer(row, "in")
        self._store.add(row, None)
        self._store.changed(row)
