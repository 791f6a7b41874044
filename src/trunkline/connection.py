"""One Peer driven over one Link: the same class under server and client.

It passes incoming messages to the peer, starts a task for each request being served, resolves the futures of our own
requests, enforces deadlines, and turns a failing handler into an error response in one place. It knows no method and no
revision: its ``Service`` decides what a request means. Everything runs in the thread of the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from msgspec import Raw

from trunkline.errors import (
    ConnectionLost,
    MissingCapability,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
)
from trunkline.pending_requests import PendingRequest, PendingRequests, Timeouts, copy_error, response_error
from trunkline.protocol.caller import Origin, Session, required_capabilities
from trunkline.protocol.channel import Channel, RequestStore
from trunkline.protocol.jsonrpc import (
    Batch,
    BatchReply,
    Incoming,
    InvalidMessage,
    Message,
    Outbound,
    Request,
    batch_fault,
)
from trunkline.protocol.limits import Limits
from trunkline.protocol.peer import (
    NotificationReceived,
    Peer,
    ProgressReceived,
    RequestCancelled,
    ResponseReceived,
    ResponseUnreadable,
)
from trunkline.protocol.request_validation import ValidatedRequest
from trunkline.protocol.traffic import TrafficObserver
from trunkline.service import ErrorReply, Service, TaskFactory, error_reply, task_factory
from trunkline.timers import Timers
from trunkline.transports.link import Link
from trunkline.types import ProgressNotificationParams, RequestId

__all__ = ["Connection", "Exchange", "Timeouts"]

log = logging.getLogger("trunkline")

# A sender that has queued this many messages yields to the event loop: the first messages leave early, a cancellation
# is noticed, and memory use stays flat.
_BURST = 64


class Exchange:
    """One request being served, with the connection that it came from."""

    __slots__ = ("_batch", "_work", "admitted", "channel", "connection", "id", "method", "params", "store", "task")

    #: Whether the call may become a task, is one, and is continued by the next process.
    may_become_task = reports_status = suspended = False
    #: The validated request; set once by the service, and absent until then.
    admitted: ValidatedRequest

    def __init__(self, connection: Connection, request: Request, batch: BatchReply | None) -> None:
        """Create the exchange of a request that was just received."""
        self.connection: Connection = connection
        self.id: RequestId = request.id
        self.method: str = request.method
        self.params: Raw | None = request.params
        #: Asks and notifies the caller while its request is served; created on first use.
        self.channel: Channel | None = None
        self.store: RequestStore | None = None
        self.task: asyncio.Task[None] | None = None
        self._batch = batch
        self._work: Coroutine[Any, Any, Any] | None = None  # Produces the result; None once the task awaits it.

    @property
    def open(self) -> bool:
        """Whether a response is still expected."""
        return self.connection.exchanges.get(self.id) is self

    def notify(self, method: str, params: Any) -> bool:
        """Send a notification that belongs to this request; return False if the request is over."""
        return self.open and self.connection.notify(method, params, about=self.id)

    async def request(self, method: str, params: Any, *, timeouts: Timeouts) -> Raw:
        """Send the caller a request while its own is served; return the result, undecoded."""
        return await self.connection.request(method, params, timeouts=timeouts, about=self.id)


class Connection:
    """A Peer over a Link, with a Service for the requests of the other side."""

    # Over HTTP each request has its own connection, so creating one must be cheap: what most never need is made later.
    __slots__ = (
        "__weakref__",
        "_closed",
        "_create_task",
        "_ending",
        "_error",
        "_flush_scheduled",
        "_hung_up",
        "_limits",
        "_link",
        "_loop",
        "_pending",
        "_timers",
        "_unstarted",
        "cleanup",
        "exchanges",
        "holder",
        "input_ended",
        "observer",
        "peer",
        "service",
    )

    def __init__(
        self,
        link: Link,
        service: Service,
        *,
        limits: Limits,
        timers: Timers,
        prefix: str = "",
        create_task: TaskFactory | None = None,
    ) -> None:
        """Create a connection that does nothing until ``start``.

        The ids of our own requests begin with ``prefix``. Requests are served in tasks started by ``create_task``.
        """
        self._loop = asyncio.get_running_loop()
        #: The requests of the current read, if they are started together at its end; else each starts on arrival.
        self._unstarted: list[Exchange] | None = None
        if create_task is None:
            create_task = task_factory(self._loop)
            if sys.version_info >= (3, 12) and type(create_task) is partial:  # since Python 3.12
                self._unstarted = [] if link.deliver_in_bursts(self._start_received) else None
        self._create_task: TaskFactory = create_task
        self._link = link
        self.service: Service = service
        self._limits = limits
        self._timers = timers
        self.peer: Peer = Peer(max_in_flight=limits.in_flight, prefix=prefix)
        #: Requests being served, by id.
        self.exchanges: dict[RequestId, Exchange] = {}
        self._pending: PendingRequests | None = None
        self._flush_scheduled = False
        #: Whether the other side has stopped sending.
        self.input_ended: bool = False
        self._error: Exception | None = None
        self._hung_up = False
        self._closed: asyncio.Future[None] | None = None
        #: The key under which a server holds lifespans for this connection; the acceptor sets its own key on a
        #: connection that lasts for one request only.
        self.holder: object = self
        #: Called after the end, in a separate task; set by the creator of the connection.
        self.cleanup: Callable[[Connection], Coroutine[Any, Any, None]] | None = None
        self._ending: asyncio.Task[None] | None = None
        #: Called with each message in both directions; set by a ``TrafficTap``, at any time.
        self.observer: TrafficObserver | None = None

    def start(self) -> None:
        """Attach to the link, which starts delivering messages."""
        self._link.attach(self)

    @property
    def closed(self) -> asyncio.Future[None]:
        """Resolved once nothing more is served or answered; the creator of the connection then closes the link."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            if self._hung_up:
                self._closed.set_result(None)
        return self._closed

    @property
    def session(self) -> Session | None:
        """The session that the connection belongs to, according to its service."""
        return self.service.session

    # --- receiving ---------------------------------------------------------------------------------------------------

    def message_received(self, incoming: Incoming, origin: Origin, batch: BatchReply | None = None) -> None:
        """Handle an incoming message; called by the link."""
        if self.observer is not None:
            self.observer.message_received(incoming)
        if self.input_ended:
            # The connection is being closed: no task would be left to serve what the link still delivers.
            return
        if type(incoming) is Request:
            if self.peer.receive_request(incoming):
                self._serve(incoming, origin, batch)
            elif batch is not None:
                # The peer has rejected a request of a batch; its error is the response.
                self._collect(incoming.id, batch)
        elif type(incoming) is Batch:
            self._batch_received(incoming, origin)
        else:
            self._other_received(incoming, origin)
        if self.peer.unsent:
            self._flush_soon()

    def _other_received(self, incoming: Incoming, origin: Origin) -> None:
        event = self.peer.receive_message(incoming)  # type: ignore[arg-type]
        kind = type(event)
        if kind is ResponseReceived:
            self._response_received(event)  # type: ignore[arg-type]
        elif kind is ProgressReceived:
            self._progress_received(event)  # type: ignore[arg-type]
        elif kind is NotificationReceived:
            self._notification_received(event, origin)  # type: ignore[arg-type]
        elif isinstance(event, RequestCancelled):
            self._cancelled(event)
        elif isinstance(event, ResponseUnreadable):
            self._response_unreadable(event)

    def _notification_received(self, event: NotificationReceived, origin: Origin) -> None:
        try:
            self.service.notification_received(event, origin)
        except Exception:
            log.exception("%s failed", event.method)

    def _batch_received(self, batch: Batch, origin: Origin) -> None:
        supported = self.service.accepts_batches()
        fault = batch_fault(batch) if supported else "Invalid request: batches are not in this revision"
        if fault is not None:
            self.message_received(InvalidMessage(-32600, fault), origin)
            return
        reply = BatchReply(batch)
        for item in batch.items:
            if not isinstance(item, InvalidMessage) or item.response:
                self.message_received(item, origin, reply if isinstance(item, Request) else None)
        self._send_batch(reply.complete())

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Called by the link when no more messages will arrive: about one of our requests, or at all.

        If the input merely ended cleanly, requests being served may still be answered for a short while: a program that
        pipes in one request must get its response.
        """
        if about is not None and self.observer is not None:
            self.observer.request_failed(about, error)
        reason = error or ConnectionLost("the connection ended before the response arrived")
        for lost in self.peer.receive_eof(about):
            self._fail(lost.id, reason)
        if about is not None:
            return
        if self.input_ended:
            if error is not None:
                self._hang_up()
            return
        self.input_ended = True
        self._error = reason
        self.service.input_ended()
        for exchange in [each for each in self.exchanges.values() if each._work is not None and each.task is not None]:
            self._task_cancelled(exchange)
        if error is not None or not self.exchanges:
            self._hang_up()
        else:
            self._timers.after(self._limits.eof_seconds, self._hang_up)

    def _hang_up(self) -> None:
        """Cancel every request being served: their responses can no longer be delivered."""
        for cancelled in self.peer.receive_hangup():
            self._cancelled(cancelled)
        self._finish()

    def _finish(self) -> None:
        if self._pending is not None:
            self._pending.close()
        self.flush()
        if self._hung_up:
            return
        self._hung_up = True
        if self._closed is not None:
            self._closed.set_result(None)
        if self.cleanup is not None:
            self._ending = self._loop.create_task(self.cleanup(self))

    # --- serving -----------------------------------------------------------------------------------------------------

    def _serve(self, request: Request, origin: Origin, batch: BatchReply | None) -> None:
        exchange = Exchange(self, request, batch)
        try:
            work = self.service.request_received(exchange, origin)
        except Exception:
            log.exception("%s failed (request %r)", exchange.method, exchange.id)
            work = ErrorReply(-32603, "Internal error")
        self.exchanges[request.id] = exchange
        if type(work) is ErrorReply:
            self._answer_error(exchange, work)
            return
        exchange._work = work  # type: ignore[assignment]
        if self._unstarted is None:
            exchange.task = self._create_task(self._run(exchange))
        else:  # since Python 3.12
            self._unstarted.append(exchange)

    def _start_received(self) -> None:  # since Python 3.12
        """Start the requests of one read eagerly, in order; called by the link, outside of any task.

        They start only after the whole read: a request that is cancelled in the same read never starts, and all that do
        not suspend are answered in one write.
        """
        received, self._unstarted = self._unstarted or [], []
        # Prevents each answer from scheduling a flush: what is queued is sent below, or with the last open answer.
        scheduled, self._flush_scheduled = self._flush_scheduled, True
        for exchange in received:
            if exchange._work is not None:
                asyncio.Task(self._run(exchange), loop=self._loop, eager_start=True)  # type: ignore[call-arg]
        self._flush_scheduled = scheduled
        if self.peer.unsent:
            self.flush()

    async def _run(self, exchange: Exchange) -> None:
        """Await the result and send it; the one place where a handler's exception becomes an error response."""
        if exchange.task is None:  # since Python 3.12
            # Started eagerly: this runs before the constructor of the task has returned.
            exchange.task = asyncio.current_task()
        work, exchange._work = exchange._work, None
        assert work is not None
        try:
            result = await work
        except RequestFailed as error:
            self._answer_error(exchange, error_reply(error))
        except MissingCapability as error:
            self._answer_error(exchange, ErrorReply(-32021, str(error), required_capabilities(error.capability)))
        except asyncio.CancelledError:
            self._task_cancelled(exchange)
        except (Exception, SystemExit):
            log.exception("%s failed (request %r)", exchange.method, exchange.id)
            self._answer_error(exchange, ErrorReply(-32603, "Internal error"))
        else:
            self._answer(exchange, result)

    def _answer(self, exchange: Exchange, result: Any) -> None:
        id = exchange.id
        exchanges = self.exchanges
        if exchanges.get(id) is not exchange:
            return
        del exchanges[id]
        self.peer.send_result(id, result)
        if exchange._batch is not None:
            self._collect(id, exchange._batch)
        if not exchanges or not self._flush_scheduled:
            self._after_answer()

    def _answer_error(self, exchange: Exchange, error: ErrorReply) -> None:
        if not exchange.open:
            return
        del self.exchanges[exchange.id]
        self.peer.send_error(
            exchange.id, error.code, message=error.message, data=error.data, scope=error.insufficient_scope
        )
        if exchange._batch is not None:
            self._collect(exchange.id, exchange._batch)
        self._after_answer()

    def _after_answer(self) -> None:
        """Flush at once if nothing else is in flight, otherwise once per iteration of the event loop."""
        if not self.exchanges:
            self.flush()
            if self._pending is not None and not self._pending.open:
                # Requests made while serving have been answered: no deadline needs to outlive this request.
                self._pending.close()
            if self.input_ended:
                self._finish()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self.flush)

    def _task_cancelled(self, exchange: Exchange) -> None:
        """Settle a request whose coroutine was cancelled; if the other side cancelled it, nothing is left to do."""
        if not exchange.open:
            return
        assert exchange.task is not None
        if self.peer.serves(exchange.id) and not exchange.task.cancelling():
            if exchange._work is None:
                # The handler awaited something else that was cancelled: a failure like any other.
                log.error("%s was cancelled by its own handler (request %r)", exchange.method, exchange.id)
                self._answer_error(exchange, ErrorReply(-32603, "Internal error"))
            return
        for cancelled in self.peer.receive_hangup(exchange.id):
            self._cancelled(cancelled)
        # A service that wants no response sent has already notified the peer.
        self.exchanges.pop(exchange.id, None)
        if self.input_ended and not self.exchanges:
            self._finish()

    def _cancelled(self, event: RequestCancelled) -> None:
        exchange = self.exchanges.pop(event.id)
        if exchange.task is not None:
            exchange.task.cancel()
        if exchange._work is not None:
            # A task cancelled before its first step never runs, and would leave the coroutine unawaited.
            exchange._work.close()
            exchange._work = None
        if exchange._batch is not None:
            self._send_batch(exchange._batch.add(event.id, None))

    # --- batches -----------------------------------------------------------------------------------------------------

    def _collect(self, id: RequestId, batch: BatchReply) -> None:
        """Move the response just queued from the peer's queue to its batch."""
        response = self.peer.unsent.pop()
        self.flush()
        assert not isinstance(response.message, tuple)
        self._send_batch(batch.add(id, response.message))

    def _send_batch(self, messages: tuple[Message, ...] | None) -> None:
        if messages is not None:
            self.peer.unsent.append(Outbound(messages))
            self.flush()

    # --- sending -----------------------------------------------------------------------------------------------------

    def notify(self, method: str, params: Any = None, *, about: RequestId | None = None) -> bool:
        """Queue a notification; return False if it belongs to a request that is over."""
        if self._hung_up or not self.peer.send_notification(method, params=params, about=about):
            return False
        self._flush_soon()
        return True

    async def request(
        self,
        method: str,
        params: Any,
        *,
        timeouts: Timeouts,
        on_progress: Callable[[ProgressNotificationParams], None] | None = None,
        about: RequestId | None = None,
        id: RequestId | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Raw:
        """Send a request and return its result, undecoded.

        Cancelling this call cancels the request on the wire. ``headers`` repeat parts of the request over HTTP.

        Raises:
            RequestFailed: the other side responded with an error.
            LinkError: the connection was lost, or no response arrived in time.
            RemoteProtocolError: the response was unreadable.
        """
        if self._hung_up or self.input_ended:
            raise copy_error(self._error or ConnectionLost("the connection is closed"))
        id = self.peer.new_id() if id is None else id
        self.peer.send_request(id, method, params=params, about=about, headers=headers)
        future: asyncio.Future[Raw] = self._loop.create_future()
        pending = self._pending or self._pending_requests()
        request = pending.open[id] = PendingRequest(
            future, timeouts, method=method, started=self._timers.clock.now(), on_progress=on_progress
        )
        if request.expires_at < pending.next_at:
            pending.check_at(request.expires_at)
        if len(pending.open) == 1:
            self.flush()
        else:
            self._flush_soon()
        try:
            return await future
        except asyncio.CancelledError:
            self._withdraw(id, "the caller gave up")
            raise

    def flush(self) -> None:
        """Send everything that is queued now."""
        self._flush_scheduled = False
        if unsent := self.peer.messages_to_send():
            if self.observer is not None:
                self.observer.messages_sent(unsent)
            self._link.send(unsent)

    def _flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self.flush)

    @property
    def link(self) -> Link:
        """The link; for behavior that differs between transports."""
        return self._link

    def release_stream(self) -> bool:
        """End the open HTTP response early; return whether the other side can request the rest later."""
        self.flush()
        return self._link.release_stream()

    async def drain(self) -> None:
        """Wait until the link has caught up if much is queued; senders of many messages await this."""
        if len(self.peer.unsent) >= _BURST:
            self.flush()
            await asyncio.sleep(0)
        await self._link.drain()

    # --- pending requests --------------------------------------------------------------------------------------------

    def _pending_requests(self) -> PendingRequests:
        """Return our pending requests, created on first use: many connections never make one."""
        if self._pending is None:
            self._pending = PendingRequests(self._timers, self._expired)
        return self._pending

    def _response_received(self, event: ResponseReceived) -> None:
        request = self._pending_requests().open.pop(event.id, None)
        if request is None:
            self._pending_requests().answered_late(
                event.id, event.result if event.error is None else response_error(event.error)
            )
            return
        future = request.future
        if future.done():
            return
        if event.error is None:
            assert event.result is not None
            future.set_result(event.result)
        else:
            future.set_exception(response_error(event.error))

    def _response_unreadable(self, event: ResponseUnreadable) -> None:
        id = event.id
        if id is None:
            id = self._pending_requests().only_candidate()
            if id is None:
                log.warning("a response to an unknown request was dropped: it is %s", event.reason)
                return
            self.peer.receive_eof(id)
        fault = event.reason if event.too_long else f"not valid: {event.reason}"
        self._fail(id, RemoteProtocolError(f"the response to request {id!r} is {fault}"))

    def _progress_received(self, event: ProgressReceived) -> None:
        pending = self._pending_requests()
        request = pending.open[event.id]
        pending.restart_idle(request)
        if request.on_progress is not None:
            try:
                request.on_progress(event.params)
            except Exception:
                log.exception("a progress callback failed (request %r)", event.id)

    def _expired(self, id: RequestId, error: RequestTimeout) -> None:
        self._withdraw(id, f"timed out after {error.seconds:g} s", error=error)

    def _withdraw(self, id: RequestId, reason: str, *, error: Exception | None = None) -> None:
        request = self._pending_requests().withdraw(id)
        if request is None:
            # The response arrived while the caller was giving up.
            return
        # If the request ended in another way (a subscription that the server closed), the peer knows already.
        if self.peer.waits(id):
            # The specification: a client MUST NOT attempt to cancel its initialize request.
            self.peer.send_cancel(id, reason=reason, notify=request.method != "initialize")
            self._flush_soon()
        if error is not None and not request.future.done():
            request.future.set_exception(error)

    def _fail(self, id: RequestId, error: Exception) -> None:
        request = self._pending_requests().open.pop(id, None)
        if request is not None and not request.future.done():
            request.future.set_exception(copy_error(error))

    def pause_clocks(self) -> None:
        """Pause the timeouts of our requests while a user answers a request of the other side."""
        self._pending_requests().pause()

    def resume_clocks(self) -> None:
        """Resume the timeouts; the time that the user took does not count."""
        self._pending_requests().resume()

    # --- the end -----------------------------------------------------------------------------------------------------

    async def ended(self) -> None:
        """Wait until ``cleanup`` has finished."""
        if self._ending is not None:
            await asyncio.wait([self._ending])

    async def aclose(self, error: Exception | None = None) -> None:
        """Cancel the requests being served, fail our pending ones, and close the link."""
        self._error = self._error or error or ConnectionLost("the connection was closed")
        self.input_ended = True
        tasks = [exchange.task for exchange in self.exchanges.values() if exchange.task is not None]
        for lost in self.peer.receive_eof():
            self._fail(lost.id, self._error)
        self._hang_up()
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=self._limits.exit_seconds)
        finally:
            await self._link.aclose()
