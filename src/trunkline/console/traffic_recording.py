"""Converts rows of the traffic into a recording of ``trunkline record``, and compares two messages.

A recording can only be replayed if it starts with the opening of a connection. If the selected rows do not, the last
opening before them is added, or one built from what the server declared.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

import trunkline.types as t
from trunkline.client.client import Client
from trunkline.console.traffic import StoredMessage, TrafficStore
from trunkline.devtools.recording.format import Recording, RecordingEntry, RecordingHeader, Sender
from trunkline.protocol.downgrade import adapt_result
from trunkline.protocol.revisions import find_revision

__all__ = ["DiffLine", "RecordedServer", "diff_messages", "make_recording"]

_OPENING = ("initialize", "notifications/initialized", "server/discover")
_MESSAGES = frozenset({"request", "response", "error", "notification"})
#: Lines of a message that are compared; the time grows quadratically.
_MOST_LINES = 4000


class RecordedServer(Struct, frozen=True, kw_only=True):
    """The server of a recording."""

    name: str
    transport: str
    #: The command or URL, with secrets masked.
    target: str
    #: The client of the shared connection, to build an opening that was not observed; None if it is not connected.
    client: Client | None = None


def make_recording(
    store: TrafficStore, server: RecordedServer, *, after: int | None = None, before: int | None = None
) -> Recording:
    """Return the messages of one server between two rows, masked."""
    own = [each for each in store.snapshot() if each.row.server == server.name]
    chosen = [each for each in own if (after or 0) < each.row.seq and (before is None or each.row.seq < before)]
    began = chosen[0].row.at if chosen else time.time()
    maker = _RecordingMaker(store, {each.row.connection for each in chosen}, began)
    entries: list[RecordingEntry] = []
    if not any(each.row.method in _OPENING[::2] for each in chosen):
        earlier = _last_opening([each for each in own if each.row.seq < (chosen[0].row.seq if chosen else 0)])
        if earlier:
            entries = [entry for each in earlier for entry in maker.entries(each)]
        elif server.client is not None:
            entries = list(_made_opening(server.client))
    entries += [entry for each in _one_opening(chosen) for entry in maker.entries(each)]
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began))
    head = RecordingHeader(target=server.target, transport=server.transport, started=started)
    return Recording(tuple(entries), head=head)


def _last_opening(rows: Sequence[StoredMessage]) -> list[StoredMessage]:
    """Return the rows of the last opening whose bodies are still stored."""
    openings = [each for each in rows if each.row.method in _OPENING and each.row.kind in _MESSAGES]
    if not openings:
        return []
    where = openings[-1].row.connection
    starts = [at for at, each in enumerate(openings) if each.row.kind == "request" and each.row.connection == where]
    found = [each for each in openings[starts[-1] :] if each.row.connection == where] if starts else []
    return found if all(each.whole for each in found) else []


def _one_opening(rows: Sequence[StoredMessage]) -> Iterator[StoredMessage]:
    """Yield the rows without the openings of further connections: a replay has only one."""
    first: str | None = None
    for each in rows:
        if each.row.method in _OPENING and each.row.kind in _MESSAGES:
            first = each.row.connection if first is None else first
            if each.row.connection != first:
                continue
        yield each


class _RecordingMaker:
    """Converts rows into entries of a recording."""

    def __init__(self, store: TrafficStore, connections: set[str], began: float) -> None:
        self._store = store
        self._began = began
        # Connections number their requests independently; the exchange number distinguishes them.
        names = sorted(connections)
        self._numbers = {name: number for number, name in enumerate(names, 1)} if len(names) > 1 else {}

    def entries(self, stored: StoredMessage) -> Iterator[RecordingEntry]:
        """Yield the entry of a row; an exchange that carried a request is part of the request's entry."""
        row = stored.row
        sender: Sender = "client" if row.direction == "out" else "server"
        at = max(0.0, round(row.at - self._began, 4))
        exchange = self._numbers.get(row.connection)
        if row.kind == "http":
            if row.pair is None:
                yield RecordingEntry(sender, note=f"{row.method} {row.summary}", at=at, status=row.status)
        elif row.kind not in _MESSAGES:
            yield RecordingEntry(sender, note=row.summary, at=at, exchange=exchange)
        elif not stored.whole:
            yield RecordingEntry("recorder", note=f"{row.method or row.kind} is no longer stored", at=at)
        else:
            body = Raw(msgspec.json.encode(self._store.masked(stored)))
            headers, status = self._http(stored)
            yield RecordingEntry(sender, body, at=at, exchange=exchange, headers=headers, status=status)

    def _http(self, stored: StoredMessage) -> tuple[dict[str, str] | None, int | None]:
        http = self._store.http(stored)
        if http is None:
            return None, None
        asked = stored.row.direction == "out"
        headers: Mapping[str, str] = http["request_headers" if asked else "response_headers"]
        kept = {name.lower(): value for name, value in headers.items() if name.lower().startswith("mcp-")}
        return kept or None, None if asked else http["status"]


def _made_opening(client: Client) -> Iterator[RecordingEntry]:
    """Yield an opening built from what the server declared when it was connected."""
    revision = find_revision(client.revision or "")
    if revision is None:
        return
    yield RecordingEntry("recorder", note="the opening was not observed; it was built from what the server declared")
    info = client.server_info or t.Implementation(name="", version="")
    own = client._settings.client_info
    if not revision.handshake:
        meta = t.RequestMeta(protocol_version=revision.name, client_info=own, client_capabilities={})
        result = t.DiscoverResult(
            supported_versions=[revision.name],
            capabilities=client.server_capabilities,
            instructions=client.instructions,
        )
        server_info = Raw(msgspec.json.encode(info))
        yield _entry("client", id="opening", method="server/discover", params={"_meta": meta})
        yield _entry("server", id="opening", result=adapt_result(result, revision, server_info))
        return
    params = t.InitializeRequestParams(protocol_version=revision.name, capabilities={}, client_info=own)
    answer = t.InitializeResult(
        protocol_version=revision.name,
        capabilities=client.server_capabilities,
        server_info=info,
        instructions=client.instructions,
    )
    yield _entry("client", id="opening", method="initialize", params=params)
    yield _entry("server", id="opening", result=answer)
    yield _entry("client", method="notifications/initialized")


def _entry(sender: Sender, **members: Any) -> RecordingEntry:
    return RecordingEntry(sender, Raw(msgspec.json.encode({"jsonrpc": "2.0", **members})), at=0.0)


class DiffLine(Struct, frozen=True):
    """A line of both messages (``same``), or of one of them."""

    kind: str
    text: str


def diff_messages(left: Any, right: Any) -> list[DiffLine]:
    """Compare two JSON values line by line, with their members sorted."""
    before, after = _lines(left), _lines(right)
    found: list[DiffLine] = []
    for kind, start, end, from_, to in difflib.SequenceMatcher(None, before, after).get_opcodes():
        if kind == "equal":
            found += [DiffLine("same", text) for text in before[start:end]]
        else:
            found += [DiffLine("left", text) for text in before[start:end]]
            found += [DiffLine("right", text) for text in after[from_:to]]
    return found


def _lines(value: Any) -> list[str]:
    text = value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
    lines = msgspec.json.format(text, indent=2).splitlines() if not isinstance(value, str) else text.splitlines()
    cut = len(lines) - _MOST_LINES
    return lines if cut <= 0 else [*lines[:_MOST_LINES], f"… {cut} more lines"]
