"""A client's link over the HTTP+SSE transport of the first revision: a GET stream with all messages, and POSTs.

The stream's first event names the URL to post to, which must be on the same server. When the stream ends the link ends,
since answers arrive nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
from yarl import URL

from trunkline.errors import ConnectionLost, LocalProtocolError, RemoteProtocolError, TrunklineError
from trunkline.protocol.jsonrpc import ErrorResponse, Outbound, Request, Response, decode, encode
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import Revision
from trunkline.protocol.sse import EventReader, ServerSentEvent
from trunkline.transports.http.client.answers import AnswerRefused, post_answer
from trunkline.transports.http.client.errors import NETWORK_ERRORS, printable_url, status_error
from trunkline.transports.http.client.exchange import HTTP
from trunkline.transports.http.client.headers import HeaderBuilder
from trunkline.transports.http.client.http_client import (
    SMALL,
    HttpClient,
    HttpClientOptions,
    post_oneway,
    timeouts_of,
)
from trunkline.transports.http.client.response_body import media_type, read_body, read_events
from trunkline.transports.link import Link, Receiver
from trunkline.types import RequestId

__all__ = ["LegacySseLink"]

log = logging.getLogger("trunkline.transports")


class LegacySseLink(Link):
    """A link of one GET stream and POSTs; ``open`` creates one."""

    def __init__(self, http: HttpClient, headers: HeaderBuilder, limits: Limits) -> None:
        """Prepare a link; ``open`` opens its stream."""
        self._http = http
        self._headers = headers
        self._limits = limits
        self._receiver: Receiver | None = None
        self._endpoint: asyncio.Future[URL] = asyncio.get_running_loop().create_future()
        self._early: list[bytes] = []
        self._stream: asyncio.Task[None] | None = None
        self._posts: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._ended: Exception | None = None

    @classmethod
    async def open(cls, options: HttpClientOptions, limits: Limits) -> LegacySseLink:
        """Open the stream and wait for the URL to post to.

        Raises:
            HttpError, ConnectionLost: the stream cannot be opened.
            RemoteProtocolError: it is not such a stream, or names a URL on another server.
        """
        link = cls(HttpClient(options, limits), HeaderBuilder(options.headers, user_agent=options.user_agent), limits)
        try:
            response = await link._http.open("GET", link._headers.for_get(""))
            link._stream = asyncio.get_running_loop().create_task(link._read(response))
            async with asyncio.timeout(limits.header_seconds):
                await link._endpoint
        except TimeoutError:
            await link.aclose()
            raise RemoteProtocolError(
                f"{printable_url(link._http.url)} did not name the URL to post to within {limits.header_seconds:g} s"
            ) from None
        except BaseException:
            await link.aclose()
            raise
        return link

    # --- the link ----------------------------------------------------------------------------------------------------

    def attach(self, receiver: Receiver) -> None:
        """Start to deliver, beginning with the messages that have already arrived."""
        self._receiver = receiver
        self._http.clocks = timeouts_of(receiver)
        early, self._early = self._early, []
        for data in early:
            receiver.message_received(decode(data, self._limits), HTTP)
        if self._ended is not None:
            receiver.eof_received(self._ended)

    def set_revision(self, revision: Revision) -> None:
        """Send the headers of this revision from now on."""
        self._headers.set_revision(revision)

    def send(self, batch: Sequence[Outbound]) -> None:
        """Start a POST for each message."""
        if self._closing is not None:
            return
        for outbound in batch:
            message = outbound.message
            id = message.id if isinstance(message, Request) else None
            try:
                head, body = self._headers.for_message(message, outbound.headers), encode(message)
            except Exception as error:  # noqa: BLE001 - sending never raises; an encoder runs code of the user's types
                self._failed(LocalProtocolError(f"a message cannot be sent: {error}"), id)
                continue
            task = asyncio.get_running_loop().create_task(
                self._post_answer(head, body)
                if isinstance(message, Response | ErrorResponse)
                else self._post(head, body, id)
            )
            self._posts.add(task)
            task.add_done_callback(self._posts.discard)

    async def drain(self) -> None:
        """Yield to the loop: each message is already being sent."""
        await asyncio.sleep(0)

    async def aclose(self) -> None:
        """End the stream."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        tasks: list[asyncio.Task[Any]] = [*self._posts, *([] if self._stream is None else [self._stream])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self._endpoint.done():
            self._endpoint.cancel()
        await self._http.aclose()

    # --- the stream --------------------------------------------------------------------------------------------------

    async def _read(self, response: aiohttp.ClientResponse) -> None:
        reader = EventReader(max_event=self._limits.message_bytes)
        error: Exception = ConnectionLost("the server ended its event stream")
        try:
            if response.status != 200:
                raise status_error(response, "GET", body=await read_body(response, SMALL))
            if media_type(response) != "text/event-stream":
                raise RemoteProtocolError(f"{printable_url(self._http.url)} did not answer GET with an event stream")
            await read_events(response, reader, self._event)
        except TrunklineError as reason:
            error = reason
        except NETWORK_ERRORS as reason:
            error = self._http.failure(reason)
        finally:
            if not response.content.is_eof():
                response.close()
        self._end(error)

    def _end(self, error: Exception) -> None:
        self._ended = error
        if not self._endpoint.done():
            self._endpoint.set_exception(error)
        elif self._receiver is not None:
            self._receiver.eof_received(error)

    def _event(self, event: ServerSentEvent) -> bool:
        if event.event == "endpoint":
            if not self._endpoint.done():
                self._endpoint.set_result(self._parse_endpoint(event.data))
        elif event.data and self._receiver is None:
            self._early.append(event.data)
        elif event.data and self._receiver is not None:
            self._receiver.message_received(decode(event.data, self._limits), HTTP)
        return False

    def _parse_endpoint(self, data: bytes) -> URL:
        """Parse the URL to post to.

        Raises:
            RemoteProtocolError: it is invalid, or on another server: our messages and credentials stay on this one.
        """
        text = data.decode(errors="replace").strip()
        stream_url = self._http.url
        try:
            endpoint = stream_url.join(URL(text, encoded=True))
            same = bool(text) and endpoint.origin() == stream_url.origin() and endpoint.user is None
        except ValueError:
            same = False
        if not same:
            raise RemoteProtocolError(
                f"{printable_url(stream_url)} names {text[:200]!r} as the URL to post to, which is not on this server"
            )
        return endpoint

    # --- posting -----------------------------------------------------------------------------------------------------

    async def _post(self, head: Mapping[str, str], body: bytes, id: RequestId | None) -> None:
        try:
            await post_oneway(self._http, head, body, url=self._endpoint.result())
        except TrunklineError as error:
            self._failed(error, id)
        except NETWORK_ERRORS as error:
            self._failed(self._http.failure(error), id)

    async def _post_answer(self, head: Mapping[str, str], body: bytes) -> None:
        """Post an answer to the server, again while it cannot accept it and its stream is open."""
        ended = () if self._stream is None else (self._stream,)
        try:
            await post_answer(lambda: post_oneway(self._http, head, body, url=self._endpoint.result()), ended)
        except (AnswerRefused, TrunklineError) as error:
            self._failed(error, None)
        except NETWORK_ERRORS as error:
            self._failed(self._http.failure(error), None)

    def _failed(self, error: Exception, id: RequestId | None) -> None:
        if id is None:
            log.warning("the server did not accept a message: %s", error)
        elif self._receiver is not None:
            self._receiver.eof_received(error, about=id)
