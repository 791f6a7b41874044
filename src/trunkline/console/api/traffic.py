"""The traffic part of the API: rows, messages, replay, recordings, differences."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from trunkline.console.console import Console, ConsolePart
from trunkline.console.plain_requests import PLAIN_REQUESTS
from trunkline.console.routing import ApiError, ApiRequest, Download, Route
from trunkline.console.traffic import StoredMessage, TrafficFilter, TrafficRow, TrafficStore
from trunkline.console.traffic_recording import RecordedServer, diff_messages, make_recording
from trunkline.host.upstreams.catalog.names import item_id

__all__ = ["TrafficPart"]

_PAGE = 500  # Default number of rows in a response.
_MOST = 5000  # Maximum: some 2 MB of JSON, a quarter of the store.
_SHOWN = 256 * 1024  # Bytes of a message in a response; longer ones are cut.
_PERIOD = 0.1  # Seconds between two events with rows.
_BURST = 500  # Rows in an event; a page that sees a gap requests the rest.


class TrafficPart(ConsolePart):
    """Observes the host while the console is open."""

    def __init__(self, console: Console) -> None:
        """Start with an empty store."""
        super().__init__(console)
        self.store: TrafficStore = TrafficStore(console.core.secrets, on_row=self._row_changed)
        self._unpublished: dict[int, TrafficRow] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._published_at = float("-inf")
        self._last_published = 0
        self._end: Any = None

    def routes(self) -> Sequence[Route]:
        """Return the routes of the API."""
        return (
            Route("GET", "/traffic", self._list),
            Route("DELETE", "/traffic", self._clear),
            Route("POST", "/traffic/recording", self._record),
            Route("POST", "/traffic/diff", self._diff),
            Route("GET", "/traffic/{seq}", self._show),
            Route("POST", "/traffic/{seq}/replay", self._replay),
        )

    async def start(self) -> None:
        """Observe every connection of the host."""
        self._end = self.console.core.traffic.observe(self.store)

    async def aclose(self) -> None:
        """Stop observing."""
        if self._end is not None:
            self._end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- events ------------------------------------------------------------------------------------------------------

    def _row_changed(self, row: TrafficRow) -> None:
        if not self.console.events.watched:
            return
        self._unpublished[row.seq] = row
        if len(self._unpublished) > _BURST:
            del self._unpublished[next(iter(self._unpublished))]
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._published_at + _PERIOD), self._publish)

    def _publish(self) -> None:
        self._timer = None
        self._published_at = asyncio.get_running_loop().time()
        last = self._last_published
        # New rows first: from the first one a page sees whether it missed some.
        rows = sorted(self._unpublished.values(), key=lambda row: (row.seq <= last, row.seq))
        self._unpublished, self._last_published = {}, max(last, *(row.seq for row in rows))
        # A copy: a row may change before the event is sent.
        self.console.events.publish("traffic", rows=[msgspec.to_builtins(row) for row in rows])

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _list(self, request: ApiRequest) -> dict[str, Any]:
        query = request.query
        where = TrafficFilter(
            server=query.get("server", ""),
            kinds=frozenset(each for each in query.get("kind", "").split(",") if each),
            text=query.get("text", ""),
        )
        limit = min(_number(query, "limit") or _PAGE, _MOST)
        after, before, store = _number(query, "after"), _number(query, "before"), self.store
        stored = store.snapshot()
        # In a thread: a search reads up to 64 MiB.
        rows = await asyncio.to_thread(store.rows, where, after=after, before=before, limit=limit, among=stored)
        return {"rows": rows, "first": store.first, "last": store.last, "dropped": store.dropped}

    async def _clear(self, request: ApiRequest) -> dict[str, Any]:
        self.store.clear()
        return {}

    async def _show(self, request: ApiRequest) -> dict[str, Any]:
        stored = self._stored(request.params["seq"])
        shown: dict[str, Any] = msgspec.to_builtins(stored.row)
        shown["message"], shown["cut"] = await asyncio.to_thread(self._message, stored)
        shown["http"] = self.store.http(stored)
        return shown

    def _message(self, stored: StoredMessage) -> tuple[Any, dict[str, int] | None]:
        """Return a message; of a long one the beginning of its text, with its size and the number of bytes shown."""
        if stored.row.kind == "http":
            return None, None
        value = self.store.masked(stored)
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if isinstance(value, str) or len(text) > _SHOWN:
            return text[:_SHOWN], {"bytes": stored.row.bytes, "shown": min(len(text), _SHOWN)}
        return value, None

    def _stored(self, seq: object) -> StoredMessage:
        stored = self.store.get(int(seq)) if isinstance(seq, int | str) and str(seq).isdecimal() else None
        if stored is None:
            raise ApiError(404, "not_found", f"Row {seq} is no longer stored; the oldest rows are dropped first.")
        return stored

    # --- recordings and differences ----------------------------------------------------------------------------------

    async def _record(self, request: ApiRequest) -> Download:
        name = request.member("server")
        upstream = self.console.core.supervisor.upstreams.get(name)
        entry = None if upstream is None else upstream.entry
        transport = "memory" if entry is None or entry.target is not None else "http" if entry.url else "stdio"
        server = RecordedServer(
            name=name,
            transport=transport,
            target=name if upstream is None else upstream.shown,
            client=None if upstream is None else upstream.client,
        )
        limits = {key: request.member(key, int, required=False) for key in ("after", "before")}
        recording = await asyncio.to_thread(make_recording, self.store, server, **limits)
        if not recording.entries:
            raise ApiError(404, "not_found", f"No traffic of {name} is stored.")
        file = f"{''.join(char if char.isalnum() or char in '-_' else '-' for char in name)}.jsonl"
        return Download(content=recording.dump().encode(), media_type="application/jsonl", name=file)

    async def _diff(self, request: ApiRequest) -> dict[str, Any]:
        pair = [self._stored(request.member(side, int)) for side in ("left", "right")]
        values = [self.store.http(each) if each.row.kind == "http" else self.store.masked(each) for each in pair]
        return {"lines": await asyncio.to_thread(diff_messages, *values)}

    # --- replay ------------------------------------------------------------------------------------------------------

    async def _replay(self, request: ApiRequest) -> dict[str, Any]:
        """Send a request again as the user's own call, with the same params, outside the round that it was part of."""
        stored = self._stored(request.params["seq"])
        row = stored.row
        if row.kind != "request" or row.direction != "out" or row.method is None:
            raise ApiError(409, "not_a_request", "Only requests that the host sent to a server can be sent again.")
        if not stored.whole or stored.body is None:
            raise ApiError(409, "not_kept", "The whole request is no longer stored, so it cannot be sent again.")
        kind, name, arguments = _repeated(row.method, msgspec.json.decode(stored.body).get("params"))
        call = await self.console.calls.start(kind, item_id(row.server, name), arguments, by="replay")
        return {"call": call.view()}


#: By method: the kind of call, and the member of its params with the name or URI.
_CALLS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"tools/call": ("tool", "name"), "prompts/get": ("prompt", "name"), "resources/read": ("resource", "uri")}
)


def _repeated(method: str, params: Any) -> tuple[str, str, dict[str, Any]]:
    """Return the kind, the name and the arguments of the call that repeats a request."""
    params = params if isinstance(params, dict) else {}
    if method not in _CALLS:
        if method not in PLAIN_REQUESTS:
            message = f"{method} cannot be sent again; calls, reads, prompts, lists and pings can."
            raise ApiError(409, "not_repeatable", message)
        return "request", method, params
    kind, member = _CALLS[method]
    return kind, str(params.get(member, "")), params.get("arguments") or {}


def _number(query: Any, name: str) -> int | None:
    given = query.get(name, "")
    if not given:
        return None
    if not given.isdecimal():
        raise ApiError(400, "invalid_request", f"{name} must be a number.")
    return int(given)
