"""A client's link over Streamable HTTP, in both eras: each message is a POST of its own.

Sending starts a task for each POST and never waits. In stateless revisions a request is its exchange: to withdraw it is
to close it. In handshake revisions the server may give a session id, which is sent from then on and given back at the
end, and may speak out of turn on a stream that is opened once it was told that we are ready. A failure of one exchange
concerns its request alone: the link itself ends only when it is closed or its session does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from trunkline.errors import LocalProtocolError, TrunklineError
from trunkline.protocol.jsonrpc import Message, Notification, Outbound, Request, encode
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import Feature, Revision
from trunkline.transports.http.client_auth import clocks_of
from trunkline.transports.http.client_exchange import Exchange
from trunkline.transports.http.client_failures import NETWORK_ERRORS
from trunkline.transports.http.client_heads import Heads, checked_session
from trunkline.transports.http.client_listening import Listening
from trunkline.transports.http.client_web import Web, WebOptions, post_unanswered
from trunkline.transports.link import Link, Receiver
from trunkline.types import RequestId

__all__ = ["HttpLink"]

log = logging.getLogger("trunkline.transports")

# How long the last messages and the end of the session may take.
_FAREWELL = 1.0


class HttpLink(Link):
    """A link of POSTs to one URL."""

    independent_requests = True

    def __init__(self, options: WebOptions, limits: Limits) -> None:
        """Connect to nothing yet; called inside a running event loop.

        Raises:
            ConfigError: an option makes no sense.
        """
        self.web = Web(options, limits)
        self.heads = Heads(options.headers, user_agent=options.user_agent)
        self.limits = limits
        #: Whether streams can be taken up again; not in stateless revisions.
        self.resumes = False
        #: Whether several messages may come as one array.
        self.batches = False
        self._loop = asyncio.get_running_loop()
        # Past the loop's own wrapper, which costs as much as the task, unless it is customised.
        plain = self._loop.get_task_factory() is None and not self._loop.get_debug()
        self._create_task: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]] = (
            partial(asyncio.Task, loop=self._loop) if plain else self._loop.create_task
        )
        self._receiver: Receiver | None = None
        self._exchanges: dict[RequestId, Exchange] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        #: The POSTs that nobody waits for, and the stream.
        self._others: set[asyncio.Task[object]] = set()
        self._listening: Listening | None = None
        self._listener: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None

    # --- the link ----------------------------------------------------------------------------------------------------

    def attach(self, receiver: Receiver) -> None:
        """Deliver to this receiver."""
        self._receiver = receiver
        self.web.clocks = clocks_of(receiver)

    def set_revision(self, revision: Revision) -> None:
        """Use a revision from now on: it decides what the headers say and what a cancellation is."""
        self.heads.set_revision(revision)
        self.resumes = revision.handshake
        self.batches = Feature.BATCHES in revision.features

    def send(self, batch: Sequence[Outbound]) -> None:
        """Start a POST for each message."""
        if self._closing is not None:
            return
        for outbound in batch:
            message = outbound.message
            if type(message) is Request:
                self._ask(message, outbound.headers)
            elif type(message) is Notification and message.method == "notifications/cancelled":
                self._cancel(message, outbound.cancels)
            else:
                self._tell(message)

    @property
    def can_receive_requests(self) -> bool:
        """Whether there is a session: without one a server could not match an answer of ours to its request."""
        return self.heads.session is not None

    async def drain(self) -> None:
        """Give the loop a turn: each message is on its way already, and whoever asks waits for the answer."""
        await asyncio.sleep(0)

    async def wait_ready(self) -> None:
        """Wait until the server has taken ``notifications/initialized`` and its stream is open, if it has one."""
        if self._listening is not None:
            await self._listening.settled.wait()

    async def wait_idle(self) -> None:
        """Wait until no request waits for its response."""
        await self._idle.wait()

    async def aclose(self) -> None:
        """End the exchanges and the session."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    # --- for the exchanges -------------------------------------------------------------------------------------------

    @property
    def receiver(self) -> Receiver:
        """Who is told."""
        assert self._receiver is not None
        return self._receiver

    def done(self, exchange: Exchange) -> None:
        """Forget an exchange that is over."""
        if self._exchanges.get(exchange.id) is exchange:
            del self._exchanges[exchange.id]
        if not self._exchanges:
            self._idle.set()

    def begin_session(self, id: str | None) -> None:
        """Take the session id of an ``initialize`` answer, if it has one."""
        self.heads.session = None if id is None else checked_session(id)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _ask(self, request: Request, headers: Mapping[str, str] | None) -> None:
        try:
            head = self.heads.of(request, headers)
            body = encode(request)
        except Exception as error:  # noqa: BLE001 - sending never raises; an encoder runs code of the user's types
            self.receiver.eof_received(
                LocalProtocolError(f"{request.method} cannot be sent: {error}"), about=request.id
            )
            return
        exchange = Exchange(self, request.id, request.method)
        self._exchanges[request.id] = exchange
        self._idle.clear()
        exchange.task = self._create_task(exchange.run(head, body))

    def _cancel(self, message: Notification, id: RequestId | None) -> None:
        """Withdraw a request: its exchange is closed, and where that alone says nothing the server is told."""
        exchange = None if id is None else self._exchanges.pop(id, None)
        if exchange is not None and exchange.task is not None:
            exchange.task.cancel()
            self.done(exchange)
        if self.resumes:
            self._tell(message)

    def _tell(self, message: Message | tuple[Message, ...]) -> None:
        try:
            head = self.heads.of(message)
            body = encode(message)
        except Exception:
            log.exception("a %s cannot be sent", type(message).__name__)
            return
        work: Coroutine[Any, Any, object]
        if isinstance(message, Notification) and message.method == "notifications/initialized":
            self._listening = Listening(self)
            work = self._announce(self._listening, head, body)
        else:
            work = self._post(head, body)
        task = self._loop.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _announce(self, listening: Listening, head: Mapping[str, str], body: bytes) -> None:
        """Say that we are ready, and then open the stream."""
        if await self._post(head, body) and self._closing is None:
            self._listener = self._loop.create_task(listening.run())
        else:
            listening.settled.set()

    async def _post(self, head: Mapping[str, str], body: bytes) -> bool:
        """Post what is not answered; tell whether the server took it."""
        try:
            async with asyncio.timeout(self.limits.idle_seconds):
                await post_unanswered(self.web, head, body)
        except (TrunklineError, *NETWORK_ERRORS) as error:
            log.warning("a message was not taken: %s", error)
            return False
        return True

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        tasks = [exchange.task for exchange in self._exchanges.values() if exchange.task is not None]
        tasks += [] if self._listener is None else [self._listener]
        for task in tasks:
            task.cancel()
        self._exchanges.clear()
        self._idle.set()
        try:
            async with asyncio.timeout(_FAREWELL):
                await asyncio.gather(*tasks, *self._others, return_exceptions=True)
                await self._end_session()
        except TimeoutError:
            log.debug("the server took too long to hear that we leave")
        finally:
            await self.web.aclose()

    async def _end_session(self) -> None:
        if self.heads.session is None:
            return
        with contextlib.suppress(TrunklineError):
            response = await self.web.open("DELETE", self.heads.listening(""), quietly=True)
            response.close()
