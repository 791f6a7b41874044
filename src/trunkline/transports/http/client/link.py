"""A client's link over Streamable HTTP in both eras: each message is a POST of its own.

In a session, a GET stream carries the server's messages that belong to no request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from trunkline.errors import (
    AuthError,
    ConnectionLost,
    HttpError,
    LinkError,
    LocalProtocolError,
    RemoteProtocolError,
    SessionExpired,
    TrunklineError,
)
from trunkline.protocol.jsonrpc import (
    ErrorResponse,
    InvalidMessage,
    Message,
    Notification,
    Outbound,
    Request,
    Response,
    decode,
    encode,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import Feature, Revision
from trunkline.protocol.sse import EventReader, ServerSentEvent
from trunkline.transports.http.client.answers import AnswerRefused, post_answer
from trunkline.transports.http.client.errors import NETWORK_ERRORS, status_error
from trunkline.transports.http.client.exchange import HTTP, ClientExchange
from trunkline.transports.http.client.headers import HeaderBuilder, validate_session_id
from trunkline.transports.http.client.http_client import HttpClient, HttpClientOptions, post_oneway, timeouts_of
from trunkline.transports.http.client.response_body import media_type, read_events, retry_delay
from trunkline.transports.link import Link, Receiver
from trunkline.types import RequestId

__all__ = ["GetStream", "HttpLink"]

log = logging.getLogger("trunkline.transports")


class _GetStreamOwner(Protocol):
    http: HttpClient
    headers: HeaderBuilder
    limits: Limits

    @property
    def receiver(self) -> Receiver: ...

    async def wait_idle(self) -> None: ...


class GetStream:
    """The GET stream of a session: the server's messages that belong to no request."""

    def __init__(self, link: _GetStreamOwner) -> None:
        """Prepare the stream; ``run`` opens it."""
        self._link = link
        self._event_received = False
        #: Set once the stream is open, or the server turned out to have none.
        self.settled = asyncio.Event()

    async def run(self) -> None:
        """Keep the stream open as long as the server has one."""
        try:
            await self._keep_open()
        except (AuthError, HttpError, RemoteProtocolError) as error:
            log.debug("the server has no GET stream: %s", error)
        except LinkError as error:
            # No request fails by this alone, and listeners would wait for ever; but calls may still get their answers.
            await self._link.wait_idle()
            self._link.receiver.eof_received(error)
        except Exception:
            log.exception("reading the GET stream failed")
        finally:
            self.settled.set()

    async def _keep_open(self) -> None:
        limits = self._link.limits
        clock = asyncio.get_running_loop().time
        last_id, retry, failures = "", None, 0
        while True:
            reader = EventReader(max_event=limits.message_bytes)
            reader.last_id = last_id
            self._event_received = False
            began = clock()
            lost = await self._read_once(reader)
            # One that was open for a while was only closed by a proxy in between.
            lasted = lost is None and clock() - began >= limits.comment_seconds
            failures = 1 if self._event_received or lasted else failures + 1
            if failures > limits.resumptions:
                break
            last_id, retry = reader.last_id, retry if reader.retry is None else reader.retry
            await asyncio.sleep(retry_delay(retry, failures))
        if lost is not None:
            raise lost
        log.warning("the server keeps closing its GET stream; its messages there are no longer received")

    async def _read_once(self, reader: EventReader) -> ConnectionLost | None:
        """Open the stream and read it to its end; return the reason if it could not be opened this time.

        Raises:
            SessionExpired: the server does not know the session any more.
            HttpError: it has no such stream.
        """
        link = self._link
        try:
            response = await link.http.open("GET", link.headers.for_get(reader.last_id))
        except ConnectionLost as error:
            self.settled.set()
            return error
        try:
            if response.status >= 500:
                self.settled.set()
                return ConnectionLost(str(status_error(response, "GET")))
            if response.status == 404 and link.headers.session is not None:
                raise SessionExpired("the server no longer knows this session")
            if response.status != 200 or media_type(response) != "text/event-stream":
                raise status_error(response, "GET")
            self.settled.set()
            await read_events(response, reader, self._event)
            return None
        finally:
            if not response.content.is_eof():
                response.close()

    def _event(self, event: ServerSentEvent) -> bool:
        self._event_received = True
        if not event.data:
            return False
        incoming = decode(event.data, self._link.limits)
        if isinstance(incoming, Response | ErrorResponse | InvalidMessage):
            # The specification: a server must not answer here, except on the resumed stream of a request.
            log.debug("dropped from the GET stream: a %s", type(incoming).__name__)
        else:
            self._link.receiver.message_received(incoming, HTTP)
        return False


# How long sending the last messages and ending the session may take.
_CLOSE_SECONDS = 1.0


class HttpLink(Link):
    """A link that POSTs to one URL."""

    independent_requests = True

    def __init__(self, options: HttpClientOptions, limits: Limits) -> None:
        """Connect to nothing yet; called inside a running event loop.

        Raises:
            ConfigError: an option is invalid.
        """
        self.http = HttpClient(options, limits)
        self.headers = HeaderBuilder(options.headers, user_agent=options.user_agent)
        self.limits = limits
        #: Whether streams can be resumed; not in stateless revisions.
        self.resumable = False
        #: Whether several messages may arrive as one array.
        self.batches = False
        self._loop = asyncio.get_running_loop()
        # Bypasses the loop's own wrapper, which costs as much as the task, unless it is customised.
        plain = self._loop.get_task_factory() is None and not self._loop.get_debug()
        self._create_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = (
            partial(asyncio.Task, loop=self._loop) if plain else self._loop.create_task
        )
        self._receiver: Receiver | None = None
        self._exchanges: dict[RequestId, ClientExchange] = {}
        #: The server's requests that are not answered yet, and the exchange each arrived on.
        self._asked: dict[RequestId, ClientExchange] = {}
        #: Done when the link closes: no answer is sent again.
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._idle = asyncio.Event()
        self._idle.set()
        #: The POSTs of messages that have no answer.
        self._posts: set[asyncio.Task[object]] = set()
        self._get_stream: GetStream | None = None
        self._get_stream_task: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    # --- the link ----------------------------------------------------------------------------------------------------

    def attach(self, receiver: Receiver) -> None:
        """Deliver to this receiver."""
        self._receiver = receiver
        self.http.clocks = timeouts_of(receiver)

    def set_revision(self, revision: Revision) -> None:
        """Use a revision from now on: it determines the headers, and how a request is cancelled."""
        self.headers.set_revision(revision)
        self.resumable = revision.handshake
        self.batches = Feature.BATCHES in revision.features

    def send(self, batch: Sequence[Outbound]) -> None:
        """Start a POST for each message."""
        if self._closing is not None:
            return
        for outbound in batch:
            message = outbound.message
            if type(message) is Request:
                self._post_request(message, outbound.headers)
            elif type(message) is Notification and message.method == "notifications/cancelled":
                self._cancel(message, outbound.cancels)
            else:
                self._post_message(message)

    @property
    def can_receive_requests(self) -> bool:
        """Whether there is a session: without one a server could not match our answer to its request."""
        return self.headers.session is not None

    async def drain(self) -> None:
        """Yield to the loop: each message is already being sent."""
        await asyncio.sleep(0)

    async def wait_ready(self) -> None:
        """Wait until the server has accepted ``notifications/initialized`` and opened its GET stream, if it has one."""
        if self._get_stream is not None:
            await self._get_stream.settled.wait()

    async def wait_idle(self) -> None:
        """Wait until no request is in flight."""
        await self._idle.wait()

    async def aclose(self) -> None:
        """End the exchanges and the session."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    # --- for the exchanges -------------------------------------------------------------------------------------------

    @property
    def receiver(self) -> Receiver:
        """The receiver of the messages."""
        assert self._receiver is not None
        return self._receiver

    def done(self, exchange: ClientExchange) -> None:
        """Remove an exchange that has ended."""
        if self._exchanges.get(exchange.id) is exchange:
            del self._exchanges[exchange.id]
        if self._asked:
            self._asked = {id: each for id, each in self._asked.items() if each is not exchange}
        if not self._exchanges:
            self._idle.set()

    def asked(self, id: RequestId, exchange: ClientExchange) -> None:
        """Store which exchange a request of the server arrived on; its answer is for that one."""
        if len(self._asked) >= self.limits.in_flight:
            # So many are not served at once: the oldest was cancelled by the server.
            del self._asked[next(iter(self._asked))]
        self._asked[id] = exchange

    def begin_session(self, id: str | None) -> None:
        """Store the session id of the response to ``initialize``, if it has one."""
        self.headers.session = None if id is None else validate_session_id(id)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _post_request(self, request: Request, headers: Mapping[str, str] | None) -> None:
        try:
            head = self.headers.for_message(request, headers)
            body = encode(request)
        except Exception as error:  # noqa: BLE001 - sending never raises; an encoder runs code of the user's types
            self.receiver.eof_received(
                LocalProtocolError(f"{request.method} cannot be sent: {error}"), about=request.id
            )
            return
        exchange = ClientExchange(self, request.id, request.method)
        self._exchanges[request.id] = exchange
        self._idle.clear()
        exchange.task = self._create_task(exchange.run(head, body))

    def _cancel(self, message: Notification, id: RequestId | None) -> None:
        """Cancel a request: close its exchange, and send the notification where that alone cancels nothing."""
        exchange = None if id is None else self._exchanges.pop(id, None)
        if exchange is not None and exchange.task is not None:
            exchange.task.cancel()
            self.done(exchange)
        if self.resumable:
            self._post_message(message)

    def _post_message(self, message: Message | tuple[Message, ...]) -> None:
        try:
            head = self.headers.for_message(message)
            body = encode(message)
        except Exception:
            log.exception("a %s cannot be sent", type(message).__name__)
            return
        work: Coroutine[Any, Any, object]
        if isinstance(message, Notification) and message.method == "notifications/initialized":
            self._get_stream = GetStream(self)
            work = self._post_initialized(self._get_stream, head, body)
        elif answered := _answered_ids(message):
            work = self._post_answer(answered, head, body)
        else:
            work = self._post(head, body)
        task = self._loop.create_task(work)
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)

    async def _post_initialized(self, stream: GetStream, head: Mapping[str, str], body: bytes) -> None:
        """Post ``notifications/initialized``, and then open the GET stream."""
        if await self._post(head, body) and self._closing is None:
            self._get_stream_task = self._loop.create_task(stream.run())
        else:
            stream.settled.set()

    async def _post(self, head: Mapping[str, str], body: bytes) -> bool:
        """Post a message that has no answer; return whether the server accepted it."""
        try:
            await self._post_once(head, body)
        except (TrunklineError, *NETWORK_ERRORS) as error:
            log.warning("the server did not accept a message: %s", error)
            return False
        return True

    async def _post_once(self, head: Mapping[str, str], body: bytes) -> None:
        async with asyncio.timeout(self.limits.idle_seconds):
            await post_oneway(self.http, head, body)

    async def _post_answer(self, ids: Sequence[RequestId], head: Mapping[str, str], body: bytes) -> None:
        """Post an answer to the server, again while it cannot accept it; if it never will, fail the call that waits."""
        exchange = next((found for id in ids if (found := self._asked.pop(id, None)) is not None), None)
        ended: list[asyncio.Future[Any]] = [self._closed]
        if exchange is not None and exchange.task is not None:
            ended.append(exchange.task)
        try:
            await post_answer(lambda: self._post_once(head, body), ended)
        except AnswerRefused as refused:
            log.warning("the server did not accept a message: %s", refused)
            self._answer_refused(exchange, refused.error)
        except (TrunklineError, *NETWORK_ERRORS) as error:
            log.warning("the server did not accept a message: %s", error)

    def _answer_refused(self, exchange: ClientExchange | None, error: HttpError) -> None:
        """Fail the request that waits for an answer, if it is known which one that is: it would never end."""
        if exchange is None and len(self._exchanges) == 1:
            exchange = next(iter(self._exchanges.values()))
        if exchange is None or self._exchanges.get(exchange.id) is not exchange or exchange.task is None:
            return
        said = f"{error.status} {error.reason}".rstrip()
        failure = ConnectionLost(f"The server no longer waits for this answer: it responded with {said}; call again")
        failure.__cause__ = error
        exchange.task.cancel()
        self.done(exchange)
        self.receiver.eof_received(failure, about=exchange.id)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        self._closed.set_result(None)
        tasks = [exchange.task for exchange in self._exchanges.values() if exchange.task is not None]
        tasks += [] if self._get_stream_task is None else [self._get_stream_task]
        for task in tasks:
            task.cancel()
        self._exchanges.clear()
        self._idle.set()
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.gather(*tasks, *self._posts, return_exceptions=True)
                await self._end_session()
        except TimeoutError:
            log.debug("ending the session took too long")
        finally:
            await self.http.aclose()

    async def _end_session(self) -> None:
        if self.headers.session is None:
            return
        with contextlib.suppress(TrunklineError):
            response = await self.http.open("DELETE", self.headers.for_get(""), quietly=True)
            response.close()


def _answered_ids(message: Message | tuple[Message, ...]) -> list[RequestId]:
    """Return the ids of the requests that a message answers, or those of a batch."""
    messages = message if isinstance(message, tuple) else (message,)
    return [each.id for each in messages if isinstance(each, Response | ErrorResponse) and each.id is not None]
