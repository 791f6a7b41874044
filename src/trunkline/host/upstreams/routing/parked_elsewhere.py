"""Parked calls of other workers: a client may come back with its answer to a worker that does not hold its call.

The name of a parked call begins with its worker. The worker that gets the retry does not forward the request: it sends
the answers to the worker that holds the call, and gets progress, further questions and the outcome in return, all on
one channel for each worker. ``RemoteCall`` is the call as the router sees it there. If the worker that holds the call
is gone, so is the call at its server, and the client is told at once.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

import trunkline.types as t
from trunkline.errors import (
    ConnectionLost,
    InvalidParams,
    PolicyDenied,
    RequestFailed,
    StoreUnavailable,
    TrunklineError,
)
from trunkline.host.upstreams.routing.active_calls import ActiveCall, Parking, PendingQuestion
from trunkline.host.upstreams.routing.channels import CallerChannel
from trunkline.store.interface import Store

__all__ = ["ParkedElsewhere"]

log = logging.getLogger("trunkline.host")

_CHECK_SECONDS = 2.0  # How often it is checked that the worker with the call is still there.
_MOST_MISSES = 2  # After a lost connection to Redis a worker may not have subscribed again at once.
_LISTEN_PAUSE = 0.5  # Between two attempts to listen while the store is away.
_GONE = "The worker that held this call has ended, and with it the call; call again"
_RESULTS: Mapping[str, Any] = MappingProxyType(
    {"prompts/get": t.GetPromptResult, "resources/read": t.ReadResourceResult, "tools/call": t.CallToolResult}
)


class _Failure(Struct, frozen=True, array_like=True):
    """An exception between workers."""

    kind: str
    message: str
    code: int = -32603
    data: Any = None

    @classmethod
    def of(cls, error: BaseException) -> _Failure:
        failed = isinstance(error, RequestFailed)
        text = getattr(error, "message", None) or str(error)
        data = error.data if isinstance(error, RequestFailed) and error.data is not msgspec.UNSET else None
        kind = "denied" if isinstance(error, PolicyDenied) else "failed" if failed else "lost"
        return cls(kind, text, error.code if isinstance(error, RequestFailed) else -32603, data)

    def error(self) -> TrunklineError:
        if self.kind == "denied":
            return PolicyDenied(self.message)
        return (
            RequestFailed(self.message, code=self.code, data=self.data)
            if self.kind == "failed"
            else ConnectionLost(self.message)
        )


class _Message(Struct, frozen=True, array_like=True):
    """A message to a worker about a parked call."""

    kind: str
    #: The call, by its name at the worker that holds it; or by its number at the worker that resumed it.
    call: str
    sender: str = ""
    #: The number at the sender, to answer to.
    number: str = ""
    key: str = ""
    method: str = ""
    body: bytes = b""
    failure: _Failure | None = None


class ParkedElsewhere:
    """Resumes parked calls of other workers, and lets them resume those of this one."""

    def __init__(self, store: Store, parking: Parking, *, random: Callable[[int], bytes]) -> None:
        """Use a store; ``parking`` has the calls of this worker."""
        self._store = store
        self._parking = parking
        self._id = random(8).hex()
        self._numbers = itertools.count(1)
        #: The calls of other workers that were resumed here, and our own that were resumed elsewhere.
        self._remote: dict[str, RemoteCall] = {}
        self._relays: dict[str, _Relay] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Listen for other workers; if the store cannot be reached now, once it can be."""
        self._parking.place = self._id
        self._parking.elsewhere = self
        try:
            await self._listen()
        except StoreUnavailable:
            # The engine has logged it.
            self.spawn(self._listen_later())

    async def _listen(self) -> None:
        await self._store.connect()
        await self._store.subscribe(f"worker:{self._id}", self._received)

    async def _listen_later(self) -> None:
        while True:
            await asyncio.sleep(_LISTEN_PAUSE)
            try:
                await self._listen()
            except StoreUnavailable:
                continue
            return

    async def aclose(self) -> None:
        """Stop listening."""
        self._parking.elsewhere = None
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._store.aclose()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as a task of this object."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def resume(self, name: str, channel: CallerChannel, method: str) -> ActiveCall:
        """Resume a call that another worker holds.

        Raises:
            InvalidParams: that worker is gone.
        """
        worker, _, own = name.partition("-")
        number = str(next(self._numbers))
        call = self._remote[number] = RemoteCall(self, channel, worker=worker, name=own, number=number, method=method)
        call.task.add_done_callback(lambda _: self._remote.pop(number, None))
        if not await self.send(worker, _Message("resume", own, self._id, number)):
            call.fail(InvalidParams(_GONE))
        return call

    async def send(self, worker: str, message: _Message) -> bool:
        """Send a message to a worker; return False if it is gone."""
        try:
            return bool(await self._store.publish(f"worker:{worker}", msgspec.msgpack.encode(message)))
        except StoreUnavailable as error:
            log.debug("a message about a parked call was not sent: %s", error.message)
            return False

    def _received(self, data: bytes) -> None:
        message = msgspec.msgpack.decode(data, type=_Message)
        if message.kind == "resume":
            self._resumed(message)
        elif (relay := self._relays.get(message.call)) is not None and message.sender == relay.worker:
            relay.received(message)
        elif (call := self._remote.get(message.call)) is not None and message.sender == call.worker:
            call.received(message)

    def _resumed(self, message: _Message) -> None:
        """Called when another worker continues a call of this one."""
        relay = _Relay(self, self._parking, self._id, message)
        try:
            relay.call = self._parking.resume(message.call, cast("CallerChannel", relay))
        except InvalidParams as error:
            self.spawn(self.send(message.sender, relay.reply("failed", failure=_Failure.of(error))))
            return
        self._relays[message.call] = relay
        self.spawn(relay.run()).add_done_callback(lambda _: self._relays.pop(message.call, None))


class RemoteCall(ActiveCall):
    """A parked call of another worker, resumed for a client at this one."""

    __slots__ = ("_channel", "_elsewhere", "_held_as", "_left", "_method", "_number", "_result", "worker")

    def __init__(
        self, elsewhere: ParkedElsewhere, channel: CallerChannel, *, worker: str, name: str, number: str, method: str
    ) -> None:
        """Follow the call that ``worker`` holds under a name."""
        self._elsewhere = elsewhere
        self._channel = channel
        #: The worker that holds the call.
        self.worker: str = worker
        self._held_as = name
        self._number = number
        self._method = method
        self._left = False
        self._result: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        super().__init__(lambda call: self._follow(), channel)

    async def _follow(self) -> tuple[Any, Raw]:
        checking = self._elsewhere.spawn(self._check())
        try:
            raw = await self._result
            return msgspec.json.decode(raw, type=_RESULTS[self._method]), raw
        except asyncio.CancelledError:
            self._send("left" if self._left else "cancel")
            raise
        finally:
            checking.cancel()

    async def _check(self) -> None:
        misses = 0
        while misses < _MOST_MISSES:
            await asyncio.sleep(_CHECK_SECONDS)
            heard = await self._elsewhere.send(self.worker, self._message("check"))
            misses = 0 if heard else misses + 1
        self.fail(InvalidParams(_GONE))

    def fail(self, error: TrunklineError) -> None:
        """End the call with an error."""
        if not self._result.done():
            self._result.set_exception(error)

    def detach(self) -> None:
        """Called when the client has left with a question; the other worker parks the call again."""
        super().detach()
        self._left = True
        self.task.cancel()

    def received(self, message: _Message) -> None:
        """Called with each message about this call."""
        if message.kind == "question":
            self._ask_client(message)
        elif message.kind == "withdrawn":
            for pending in [each for each in self.pending if each.key == message.key]:
                pending.answer.cancel()
                self.pending.remove(pending)
        elif message.kind == "progress" and self._channel.open:
            self._channel.progress(msgspec.json.decode(message.body, type=t.ProgressNotificationParams))
        elif message.kind == "outcome" and not self._result.done():
            self._result.set_result(Raw(message.body))
        elif message.kind == "failed" and message.failure is not None:
            self.fail(message.failure.error())

    def _ask_client(self, message: _Message) -> None:
        pending = PendingQuestion(message.method, _decoded(message), message.key)
        pending.answer.add_done_callback(lambda answer: self._answered(message.key, answer))
        self.pending.append(pending)
        self._rouse()

    def _answered(self, key: str, answer: asyncio.Future[Raw]) -> None:
        if answer.cancelled():
            return
        if (error := answer.exception()) is not None:
            self._send("refused", key=key, failure=_Failure.of(error))
        else:
            self._send("answer", key=key, body=bytes(answer.result()))

    def _message(self, kind: str, **members: Any) -> _Message:
        return _Message(kind, self._held_as, self._elsewhere._id, self._number, **members)

    def _send(self, kind: str, **members: Any) -> None:
        self._elsewhere.spawn(self._elsewhere.send(self.worker, self._message(kind, **members)))


def _decoded(message: _Message) -> Any:
    kinds: dict[str, Any] = {
        "elicitation/create": t.ElicitRequestParams,
        "roots/list": t.RequestParams,
        "sampling/createMessage": t.CreateMessageRequestParams,
    }
    return msgspec.json.decode(message.body, type=kinds[message.method])


class _Relay:
    """A call of this worker that another worker continues; it is also the call's channel to its caller."""

    log_level = None
    receives_logs = False
    parks = True
    left = False

    def __init__(self, elsewhere: ParkedElsewhere, parking: Parking, own: str, message: _Message) -> None:
        self._elsewhere = elsewhere
        self._parking = parking
        self._own = own
        self.worker = message.sender
        self._number = message.number
        self.call: ActiveCall | None = None
        self._answers: dict[str, asyncio.Future[Raw]] = {}
        self._outbox: asyncio.Queue[_Message] = asyncio.Queue()
        self._task: asyncio.Task[Any] | None = None
        self._left = False

    @property
    def open(self) -> bool:
        """Whether the caller still waits."""
        return not self._left

    def reply(self, kind: str, **members: Any) -> _Message:
        """Return a message to the worker that continues the call."""
        return _Message(kind, self._number, self._own, **members)

    def progress(self, news: t.ProgressNotificationParams) -> None:
        """Send progress."""
        self._outbox.put_nowait(self.reply("progress", body=msgspec.json.encode(news)))

    def log(self, message: t.LoggingMessageNotificationParams) -> None:
        """Drop a log message: a stateless client gets those of the request that it repeats."""

    def elicitation_completed(self, name: str) -> None:
        """Drop the notice: the request in which the page was shown has ended."""

    async def run(self) -> None:
        """Relay questions and answers until the call is over, or its client leaves again."""
        call = self.call
        assert call is not None
        self._task = asyncio.current_task()
        sending = self._elsewhere.spawn(self._send_all(call))
        try:
            while (pending := await call.next_question()) is not None:
                await call.settle(pending, self._ask(pending))
            _, raw = await call.task
            last = self.reply("outcome", body=bytes(raw))
        except asyncio.CancelledError:
            sending.cancel()
            if not self._left:
                raise
            self._parking.park(call)
            return
        except Exception as error:  # noqa: BLE001 - it is the outcome, whatever it is
            last = self.reply("failed", failure=_Failure.of(error))
        self._parking.leave(call)
        call.close()
        self._outbox.put_nowait(last)
        await asyncio.wait([sending])

    async def _ask(self, pending: PendingQuestion) -> Raw:
        answer: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._answers[pending.key] = answer
        body = msgspec.json.encode(pending.params)
        self._outbox.put_nowait(self.reply("question", key=pending.key, method=pending.method, body=body))
        try:
            return await answer
        finally:
            if not answer.done() or answer.cancelled():
                self._outbox.put_nowait(self.reply("withdrawn", key=pending.key))

    async def _send_all(self, call: ActiveCall) -> None:
        """Send the messages in order; a worker that is gone had the client, which is gone too."""
        while True:
            message = await self._outbox.get()
            heard = await self._elsewhere.send(self.worker, message)
            if message.kind in ("outcome", "failed"):
                return
            if not heard and not self._left:
                self._parking.leave(call)
                call.cancel()
                return

    def received(self, message: _Message) -> None:
        """Called with each message of the worker that continues the call."""
        answer = self._answers.get(message.key)
        if message.kind == "answer" and answer is not None and not answer.done():
            answer.set_result(Raw(message.body))
        elif message.kind == "refused" and answer is not None and not answer.done() and message.failure is not None:
            answer.set_exception(message.failure.error())
        elif message.kind == "left" and self._task is not None:
            self._left = True
            self._task.cancel()
        elif message.kind == "cancel" and self.call is not None:
            self._parking.leave(self.call)
            self.call.cancel()
