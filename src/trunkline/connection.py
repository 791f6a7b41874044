"""One Peer driven over one Link: the same class under server and client.

It feeds the peer what the link brings, starts a task for each request being served, wakes whoever waits for an answer,
keeps deadlines, and turns a failing handler into an answer at one place. It knows no method and no revision: what a
request means is the business of the ``Service`` it was given. Everything happens in the event loop's thread, and no
task owns another's cancel scope: requests cross by plain calls and futures.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct

from trunkline.errors import (
    ConnectionLost,
    InsufficientScope,
    MissingCapability,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
    request_failed,
)
from trunkline.pending_requests import PendingRequest, PendingRequests, Timeouts, copy_error
from trunkline.protocol import serving
from trunkline.protocol.caller import Origin, Session
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
    RequestReceived,
    ResponseReceived,
    ResponseUnreadable,
)
from trunkline.timers import Timers
from trunkline.transports.link import Link
from trunkline.types import ErrorObject, ProgressNotificationParams, RequestId

__all__ = ["Connection", "ErrorReply", "Exchange", "Service", "TaskFactory", "Timeouts", "task_factory"]

log = logging.getLogger("trunkline")

# So many messages may be queued in one go before a sender gives the loop a turn: the first leaves early, a cancel is
# seen, and memory stays flat.
_BURST = 64

#: Starts a task.
TaskFactory = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class ErrorReply(Struct, frozen=True):
    """Why a request is not served: the error to answer with."""

    code: int
    message: str
    data: Any = msgspec.UNSET
    #: The scopes that the caller's token lacks, if that is the reason.
    insufficient_scope: InsufficientScope | None = None


class Service(Protocol):
    """What a connection serves; called in the order messages arrive."""

    def request_received(self, exchange: Exchange, origin: Origin) -> Coroutine[Any, Any, Any] | ErrorReply:
        """Admit a request and give the work that ends with its result, or refuse it."""

    def notification_received(self, event: NotificationReceived, origin: Origin) -> None:
        """Take a one-way message."""

    def accepts_batches(self) -> bool:
        """Tell whether the other side may send arrays of messages."""

    def input_ended(self) -> None:
        """Learn that nothing more will come in; what streams for ever should end."""


class Exchange:
    """One request being served: who asked, what, and the way back to them."""

    __slots__ = ("_batch", "_work", "admitted", "connection", "id", "kept", "method", "params", "questions", "task")

    #: What the service's admission found out; set once, by the service that admits. Not there before.
    admitted: serving.ValidatedRequest

    def __init__(self, connection: Connection, event: RequestReceived, batch: BatchReply | None) -> None:
        """Make the exchange of a request that was just received."""
        self.connection: Connection = connection
        self.id: RequestId = event.id
        self.method: str = event.method
        self.params: Raw | None = event.params
        #: Questions asked of the caller while serving; set by the first that asks.
        self.questions: serving.Questions | None = None
        self.kept: serving.RequestStore | None = None
        self.task: asyncio.Task[None] | None = None
        self._batch = batch
        #: The work, until its task takes it up.
        self._work: Coroutine[Any, Any, Any] | None = None

    @property
    def open(self) -> bool:
        """Whether an answer is still wanted."""
        return self.connection.exchanges.get(self.id) is self

    def notify(self, method: str, params: Any) -> bool:
        """Send a one-way message that belongs to this request; dropped if the request is over."""
        return self.open and self.connection.notify(method, params, about=self.id)

    async def request(self, method: str, params: Any, *, timeouts: Timeouts) -> Raw:
        """Ask the caller something while serving its request."""
        return await self.connection.request(method, params, timeouts=timeouts, about=self.id)


class Connection:
    """One conversation: a Peer over a Link, with a Service for what the other side asks."""

    # Over HTTP each request has a connection of its own: it is made of as little as will do, the rest when wanted.
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
        "cleanup",
        "exchanges",
        "holder",
        "input_ended",
        "owner",
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
        """Make a connection that does nothing until ``start``.

        Ids of its own requests begin with the prefix, if any; what is served runs in tasks of the given maker's.
        """
        self._loop = asyncio.get_running_loop()
        self._create_task = task_factory(self._loop) if create_task is None else create_task
        self._link = link
        self.service: Service = service
        self._limits = limits
        self._timers = timers
        self.peer: Peer = Peer(max_in_flight=limits.in_flight, prefix=prefix)
        #: Requests being served, by id.
        self.exchanges: dict[RequestId, Exchange] = {}
        self._pending: PendingRequests | None = None
        self._flush_scheduled = False
        #: Nothing more comes from the other side.
        self.input_ended: bool = False
        self._error: Exception | None = None
        self._hung_up = False
        self._closed: asyncio.Future[None] | None = None
        #: Who started it, for those who see only an exchange; whoever started it writes it.
        self.owner: Any = None
        #: On whose behalf what outlives a request is held; whoever started it writes another if it lasts one request.
        self.holder: object = self
        #: What its owner does after the end, in a task of its own; whoever started it writes it.
        self.cleanup: Callable[[Connection], Coroutine[Any, Any, None]] | None = None
        self._ending: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Let messages flow."""
        self._link.attach(self)

    @property
    def closed(self) -> asyncio.Future[None]:
        """Done once nothing more is served or answered; whoever started it then closes the link."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            if self._hung_up:
                self._closed.set_result(None)
        return self._closed

    @property
    def session(self) -> Session | None:
        """What was agreed once for all requests of this conversation, if its service keeps such a thing."""
        return getattr(self.service, "session", None)

    # --- receiving ---------------------------------------------------------------------------------------------------

    def message_received(self, incoming: Incoming, origin: Origin, batch: BatchReply | None = None) -> None:
        """Take what the link brings: the entry of the whole machine."""
        if self.input_ended:
            # It is being closed: what a link still brings meanwhile would be served by nobody's task.
            return
        if type(incoming) is Batch:
            self._batch_received(incoming, origin)
            return
        event = self.peer.receive_message(incoming)  # type: ignore[arg-type]
        kind = type(event)
        if kind is RequestReceived:
            self._serve(event, origin, batch)  # type: ignore[arg-type]
        elif kind is ResponseReceived:
            self._response_received(event)  # type: ignore[arg-type]
        elif kind is ProgressReceived:
            self._progress_received(event)  # type: ignore[arg-type]
        elif kind is NotificationReceived:
            self._notification_received(event, origin)  # type: ignore[arg-type]
        elif isinstance(event, RequestCancelled):
            self._cancelled(event)
        elif isinstance(event, ResponseUnreadable):
            self._response_unreadable(event)
        elif batch is not None:
            # The peer refused a request of a batch; that is its answer.
            self._collect(incoming.id, batch)  # type: ignore[union-attr, arg-type]
        if self.peer.unsent:
            self._flush_soon()

    def _notification_received(self, event: NotificationReceived, origin: Origin) -> None:
        try:
            self.service.notification_received(event, origin)
        except Exception:
            log.exception("%s failed", event.method)

    def _batch_received(self, batch: Batch, origin: Origin) -> None:
        wrong = (
            batch_fault(batch)
            if self.service.accepts_batches()
            else "Invalid request: batches are not in this revision"
        )
        if wrong is not None:
            self.message_received(InvalidMessage(-32600, wrong), origin)
            return
        reply = BatchReply(batch)
        for item in batch.items:
            if not isinstance(item, InvalidMessage) or item.response:
                self.message_received(item, origin, reply if isinstance(item, Request) else None)
        self._send_batch(reply.complete())

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Learn from the link that nothing more comes: for one request of ours, or at all.

        Requests being served may still be answered for a short while when only the input ended cleanly: a program
        that pipes one request in must get its answer.
        """
        reason = error or ConnectionLost("the connection ended before the answer came")
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
        for exchange in [waits for waits in self.exchanges.values() if waits._work is not None]:
            self._task_cancelled(exchange)
        if error is not None or not self.exchanges:
            self._hang_up()
        else:
            self._timers.after(self._limits.eof_seconds, self._hang_up)

    def _hang_up(self) -> None:
        """End all that is being served; nobody can hear the answers."""
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

    def _serve(self, event: RequestReceived, origin: Origin, batch: BatchReply | None) -> None:
        exchange = Exchange(self, event, batch)
        try:
            work = self.service.request_received(exchange, origin)
        except Exception:
            log.exception("%s failed (request %r)", exchange.method, exchange.id)
            work = ErrorReply(-32603, "Internal error")
        self.exchanges[event.id] = exchange
        if type(work) is ErrorReply:
            self._answer_error(exchange, work)
            return
        exchange._work = work  # type: ignore[assignment]
        exchange.task = self._create_task(self._run(exchange))

    async def _run(self, exchange: Exchange) -> None:
        """Await the work and answer; the one place where a handler's failure becomes an answer."""
        work, exchange._work = exchange._work, None
        assert work is not None
        try:
            result = await work
        except RequestFailed as error:
            data = msgspec.UNSET if error.data is None else error.data
            scope = error if isinstance(error, InsufficientScope) else None
            self._answer_error(exchange, ErrorReply(error.code, error.message, data, scope))
        except MissingCapability as error:
            self._answer_error(exchange, ErrorReply(-32021, str(error), _required(error.capability)))
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
        """Write at once when nothing else is in flight, else once a turn of the loop."""
        if not self.exchanges:
            self.flush()
            if self._pending is not None and not self._pending.open:
                # Questions that were asked meanwhile are answered: no row need outlive this request.
                self._pending.close()
            if self.input_ended:
                self._finish()
        elif not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self.flush)

    def _task_cancelled(self, exchange: Exchange) -> None:
        """Settle a request whose work was cancelled; nothing is left to do if the other side cancelled it."""
        if not exchange.open:
            return
        assert exchange.task is not None
        if self.peer.serves(exchange.id) and not exchange.task.cancelling():
            if exchange._work is None:
                # The work awaited something else that was cancelled: a failure like any other.
                log.error("%s ended by a cancellation from inside (request %r)", exchange.method, exchange.id)
                self._answer_error(exchange, ErrorReply(-32603, "Internal error"))
            return
        for cancelled in self.peer.receive_hangup(exchange.id):
            self._cancelled(cancelled)
        # A service that wants no answer sent has told the peer already.
        self.exchanges.pop(exchange.id, None)
        if self.input_ended and not self.exchanges:
            self._finish()

    def _cancelled(self, event: RequestCancelled) -> None:
        exchange = self.exchanges.pop(event.id)
        assert exchange.task is not None
        exchange.task.cancel()
        if exchange._work is not None:
            # A task cancelled before its first step never runs, and would leave the work unawaited.
            exchange._work.close()
        if exchange._batch is not None:
            self._send_batch(exchange._batch.add(event.id, None))

    # --- batches -----------------------------------------------------------------------------------------------------

    def _collect(self, id: RequestId, batch: BatchReply) -> None:
        """Take the answer just queued out of the peer's queue and put it to the others of its batch."""
        unsent = self.peer.messages_to_send()
        answer = unsent.pop()
        if unsent:
            self._link.send(unsent)
        assert not isinstance(answer.message, tuple)
        self._send_batch(batch.add(id, answer.message))

    def _send_batch(self, messages: tuple[Message, ...] | None) -> None:
        if messages is not None:
            self.flush()
            self._link.send([Outbound(messages)])

    # --- sending -----------------------------------------------------------------------------------------------------

    def notify(self, method: str, params: Any = None, *, about: RequestId | None = None) -> bool:
        """Queue a one-way message; False if it is about a request that is over."""
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
        """Ask the other side and wait for the result, undecoded.

        Cancelling this call cancels the request on the wire. ``headers`` repeat its content over HTTP.

        Raises:
            RequestFailed: they answered with an error.
            LinkError: no answer can come, or none came in time.
            RemoteProtocolError: the answer was unreadable.
        """
        if self._hung_up or self.input_ended:
            raise copy_error(self._error or ConnectionLost("the connection is closed"))
        id = self.peer.new_id() if id is None else id
        self.peer.send_request(id, method, params=params, about=about, headers=headers)
        now = self._timers.clock.now()
        future: asyncio.Future[Raw] = self._loop.create_future()
        pending = self._pending or self._pending_requests()
        waiter = pending.open[id] = PendingRequest(
            future, timeouts, method=method, started=now, on_progress=on_progress
        )
        if waiter.expires_at < pending.next_at:
            pending.check_at(waiter.expires_at)
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
        """Hand everything queued to the link now."""
        self._flush_scheduled = False
        unsent = self.peer.messages_to_send()
        if unsent:
            self._link.send(unsent)

    def _flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self.flush)

    @property
    def streams(self) -> bool:
        """Whether something may be sent before the answer; a client over HTTP may take the answer alone."""
        return self._link.can_stream

    def release_stream(self) -> bool:
        """End the open response early; return whether the other side can request the rest later."""
        self.flush()
        return self._link.release_stream()

    async def drain(self) -> None:
        """Let the loop turn and the link catch up if much is queued; senders of many messages await it."""
        if len(self.peer.unsent) >= _BURST:
            self.flush()
            await asyncio.sleep(0)
        await self._link.drain()

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _pending_requests(self) -> PendingRequests:
        """Give the requests of ours that wait; many conversations never have one."""
        if self._pending is None:
            self._pending = PendingRequests(self._timers, self._expired)
        return self._pending

    def _response_received(self, event: ResponseReceived) -> None:
        waiter = self._pending_requests().open.pop(event.id, None)
        if waiter is None:
            self._pending_requests().answered_late(
                event.id, event.result if event.error is None else _failure(event.error)
            )
            return
        future = waiter.future
        if future.done():
            return
        if event.error is None:
            assert event.result is not None
            future.set_result(event.result)
        else:
            future.set_exception(_failure(event.error))

    def _response_unreadable(self, event: ResponseUnreadable) -> None:
        id = event.id
        if id is None:
            id = self._pending_requests().only_candidate()
            if id is None:
                log.warning("an answer is %s; which request it is for is unknown", event.reason)
                return
            self.peer.receive_eof(id)
        said = event.reason if event.too_long else f"no answer: {event.reason}"
        self._fail(id, RemoteProtocolError(f"the answer to request {id!r} is {said}"))

    def _progress_received(self, event: ProgressReceived) -> None:
        pending = self._pending_requests()
        waiter = pending.open[event.id]
        pending.restart_idle(waiter)
        if waiter.on_progress is not None:
            try:
                waiter.on_progress(event.params)
            except Exception:
                log.exception("a progress callback failed (request %r)", event.id)

    def _expired(self, id: RequestId, error: RequestTimeout) -> None:
        self._withdraw(id, f"timed out after {error.seconds:g} s", error=error)

    def _withdraw(self, id: RequestId, reason: str, *, error: Exception | None = None) -> None:
        waiter = self._pending_requests().withdraw(id)
        if waiter is None:
            # The answer came while the caller was giving up.
            return
        # Whoever ended the request otherwise (a subscription that the server closed) has told the peer already.
        if self.peer.waits(id):
            # The specification: a client MUST NOT attempt to cancel its initialize request.
            self.peer.send_cancel(id, reason=reason, tell=waiter.method != "initialize")
            self._flush_soon()
        if error is not None and not waiter.future.done():
            waiter.future.set_exception(error)

    def _fail(self, id: RequestId, error: Exception) -> None:
        waiter = self._pending_requests().open.pop(id, None)
        if waiter is not None and not waiter.future.done():
            waiter.future.set_exception(copy_error(error))

    # --- while a person is asked -------------------------------------------------------------------------------------

    def pause_clocks(self) -> None:
        """Stop the clocks of our waiting requests: a person is being asked on the other side's behalf."""
        self._pending_requests().pause()

    def resume_clocks(self) -> None:
        """Let the clocks run on; the time the person took does not count."""
        self._pending_requests().resume()

    # --- the end -----------------------------------------------------------------------------------------------------

    async def ended(self) -> None:
        """Wait until its owner has cleaned up too."""
        if self._ending is not None:
            await asyncio.wait([self._ending])

    async def aclose(self, error: Exception | None = None) -> None:
        """End the conversation: cancel what is served, fail what waits, close the link."""
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


def task_factory(loop: asyncio.AbstractEventLoop) -> TaskFactory:
    """Give what starts a task: past the loop's own wrapper, which costs as much as the task, unless customised."""
    if loop.get_task_factory() is not None or loop.get_debug():
        return loop.create_task
    return partial(asyncio.Task, loop=loop)


def _failure(error: ErrorObject) -> RequestFailed:
    return request_failed(error.code, error.message, None if error.data is msgspec.UNSET else error.data)


def _required(capability: str) -> dict[str, Any]:
    """Write a dotted capability as the object that declares it."""
    declared: dict[str, Any] = {}
    for name in reversed(capability.split(".")):
        declared = {name: declared}
    return {"requiredCapabilities": declared}
