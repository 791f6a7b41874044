"""A proxy between HTTP clients and a server at a URL that forwards every request unchanged and records the messages.

It is an ASGI application that forwards one path, the target's own, with method, headers and body, and returns status,
headers and body as they arrive, streams chunk by chunk. Nothing is negotiated here, so every era and every client works
as it would without it. It drops hop-by-hop headers, asks for no compression, so that the messages can be read, and adds
the credentials that were given for the target. It serves this machine only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import aiohttp
from yarl import URL

from trunkline.devtools.recording.format import RecordingWriter
from trunkline.errors import RemoteProtocolError, TrunklineError
from trunkline.protocol.error_codes import INTERNAL_ERROR
from trunkline.protocol.jsonrpc import ErrorResponse, encode
from trunkline.protocol.limits import Limits
from trunkline.protocol.sse import EventReader, ServerSentEvent
from trunkline.transports.http.client.errors import NETWORK_ERRORS
from trunkline.transports.http.client.http_client import HttpClient
from trunkline.transports.http.client.response_body import media_type
from trunkline.transports.http.server.asgi import JSON, Headers, Receive, Send
from trunkline.transports.http.server.origin_policy import OriginPolicy
from trunkline.transports.http.server.request import send_response
from trunkline.types import ErrorObject

__all__ = ["RecordingProxy"]

#: Hop-by-hop headers (RFC 9110, 7.6.1), and those that the next hop sets itself.
_HOP_BY_HOP = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_VERBS = frozenset({"POST", "GET", "DELETE"})


class RecordingProxy:
    """Forwards HTTP requests to one URL and records the messages."""

    def __init__(self, web: HttpClient, file: RecordingWriter, *, limits: Limits, headers: Mapping[str, str]) -> None:
        """Forward to the URL of ``web`` with these additional headers; the caller closes ``web``."""
        self._web = web
        self._own = dict(headers)
        self._file = file
        self._limits = limits
        self._guard = OriginPolicy()
        #: The only path that is served, besides those that a stream of the HTTP+SSE transport named.
        self.path = self._web.url.raw_path
        self._posting: set[str] = set()
        self._count = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward one request, or handle the lifespan protocol."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        url, refusal = self._where(scope, headers)
        if refusal is not None:
            await send_response(send, refusal[0], [JSON], _error(refusal[1]))
            return
        body = await self._body(receive)
        if body is None:
            await send_response(send, 413, [JSON], _error("the request body is too long"))
            return
        self._count += 1
        exchange = _ExchangeRecorder(self._file, self._count, self._limits)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._forward(scope["method"], url, headers, body, exchange=exchange, receive=receive, send=send)
        finally:
            self._tasks.discard(task)

    async def drain(self, seconds: float) -> None:
        """Wait for requests in flight."""
        others = self._tasks - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=min(seconds, self._limits.eof_seconds))

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            else:
                await send({"type": "lifespan.shutdown.complete"})
                return

    # --- one request -------------------------------------------------------------------------------------------------

    def _where(self, scope: Mapping[str, Any], headers: Mapping[str, str]) -> tuple[URL | None, tuple[int, str] | None]:
        """Return where a request goes (None: the target itself), or why it is rejected, as status and message."""
        given = scope["headers"]
        hosts = tuple(value for name, value in given if name == b"host")
        origins = tuple(value for name, value in given if name == b"origin")
        refusal = self._guard.check(hosts, origins, server=scope.get("server"))
        if refusal is not None:
            return None, (refusal.status, refusal.message)
        path = scope.get("raw_path", b"").decode("latin-1") or scope["path"]
        if scope["method"] not in _VERBS:
            return None, (405, f"{scope['method'][:20]} is not forwarded")
        if path == self.path or path.rstrip("/") == self.path.rstrip("/"):
            return None, None
        if path in self._posting:
            query = scope.get("query_string", b"").decode("latin-1")
            return self._web.url.join(URL(f"{path}?{query}" if query else path, encoded=True)), None
        return None, (404, f"Only {self.path} is forwarded here")

    async def _body(self, receive: Receive) -> bytes | None:
        """Read the whole body; None if it is too long."""
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return b"".join(pieces)
            pieces.append(message.get("body", b""))
            size += len(pieces[-1])
            if size > self._limits.message_bytes:
                return None
            if not message.get("more_body"):
                return b"".join(pieces)

    async def _forward(
        self,
        verb: str,
        url: URL | None,
        headers: Mapping[str, str],
        body: bytes,
        *,
        exchange: _ExchangeRecorder,
        receive: Receive,
        send: Send,
    ) -> None:
        exchange.asked(verb, headers, body)
        passed = {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}
        said = {name.lower() for name in self._own}
        head = {name: value for name, value in passed.items() if name.lower() not in said}
        head |= {**self._own, "Accept-Encoding": "identity"}
        work = asyncio.ensure_future(self._answer(verb, url, head, body, exchange=exchange, send=send))
        watch = asyncio.ensure_future(_hung_up(receive))
        try:
            await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                exchange.note("client", f"{verb}: the client disconnected")
        finally:
            watch.cancel()
            work.cancel()
            # A client that has disconnected cannot be answered.
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await work

    async def _answer(
        self,
        verb: str,
        url: URL | None,
        head: Mapping[str, str],
        body: bytes,
        *,
        exchange: _ExchangeRecorder,
        send: Send,
    ) -> None:
        try:
            response = await self._web.open(verb, head, body=body if verb == "POST" else None, url=url, quietly=True)
        except TrunklineError as error:
            exchange.note("recorder", f"{verb}: {error}")
            await send_response(send, 502, [JSON], _error(str(error)))
            return
        try:
            await self._forward_response(response, exchange, send)
        finally:
            if not response.content.is_eof():
                response.close()

    async def _forward_response(
        self, response: aiohttp.ClientResponse, exchange: _ExchangeRecorder, send: Send
    ) -> None:
        exchange.answered(response)
        headers: Headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1", "replace"))
            for name, value in response.headers.items()
            if name.lower() not in _HOP_BY_HOP
        ]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        try:
            while data := await response.content.readany():
                for event in exchange.passed(data):
                    data = self._named(event, data)
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except NETWORK_ERRORS as error:
            exchange.note("recorder", f"the response ended early: {error}")
        exchange.over()
        await send({"type": "http.response.body", "body": b""})

    def _named(self, event: ServerSentEvent, data: bytes) -> bytes:
        """Rewrite the POST URL that an HTTP+SSE stream names, so that the client posts to this proxy."""
        origin = str(self._web.url.origin())
        place = self._web.url.join(URL(event.data.decode("latin-1"), encoded=True))
        if str(place.origin()) != origin:
            return data
        self._posting.add(place.raw_path)
        return data.replace(origin.encode(), b"")


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _error(text: str) -> bytes:
    return encode(ErrorResponse(None, ErrorObject(code=INTERNAL_ERROR, message=f"recorder: {text}")))


class _ExchangeRecorder:
    """Records one HTTP request and its response."""

    def __init__(self, file: RecordingWriter, number: int, limits: Limits) -> None:
        self._file = file
        self._number = number
        self._limits = limits
        self._reader: EventReader | None = None
        self._whole: list[bytes] | None = None
        self._status = 0
        #: The headers of the answer, until they are written.
        self._headers: dict[str, str] | None = None

    def note(self, sender: Any, text: str) -> None:
        """Record a note."""
        self._file.note(sender, text, exchange=self._number)

    def asked(self, verb: str, headers: Mapping[str, str], body: bytes) -> None:
        """Record the request."""
        kept = _mcp(headers)
        if body:
            self._file.message("client", body, exchange=self._number, headers=kept)
        else:
            self._file.note("client", verb, exchange=self._number, headers=kept)

    def answered(self, response: aiohttp.ClientResponse) -> None:
        """Called with the head of the response."""
        self._status = response.status
        self._headers = _mcp(response.headers)
        if "Content-Encoding" in response.headers:
            self.note("recorder", "the response is compressed although that was not requested: it is not recorded")
        elif media_type(response) == "text/event-stream":
            self._reader = EventReader(max_event=self._limits.message_bytes)
        else:
            self._whole = []

    def passed(self, data: bytes) -> list[ServerSentEvent]:
        """Record the messages in a chunk of the response; return the events that name a URL."""
        if self._whole is not None:
            self._whole.append(data)
        if self._reader is None:
            return []
        try:
            events = self._reader.feed(data)
        except RemoteProtocolError as error:
            self.note("recorder", f"the stream can no longer be parsed: {error}")
            self._reader = None
            return []
        for event in events:
            if event.event == "message" and event.data:
                self._message(event.data)
        return [event for event in events if event.event == "endpoint"]

    def over(self) -> None:
        """Record the rest of the response."""
        body = b"".join(self._whole or ())
        if body.strip():
            self._message(body)
        elif self._headers is not None and self._status != 202:
            self._file.note("server", "no message", exchange=self._number, headers=self._headers, status=self._status)

    def _message(self, data: bytes) -> None:
        self._file.message("server", data, exchange=self._number, headers=self._headers, status=self._status)
        self._headers = None


def _mcp(headers: Mapping[str, str]) -> dict[str, str] | None:
    """Return the headers that belong to MCP."""
    found = {
        name.lower(): value
        for name, value in headers.items()
        if name.lower().startswith("mcp-") or name.lower() == "last-event-id"
    }
    return found or None
