"""The exchange of a call that may become a task, the channel of a task, and what keeps a call alive that is none.

While the caller waits, a ``TaskExchange`` is the exchange of its request: notifications and requests to the caller are
sent as in any call. Once the call is a task, there is soon no request to answer: progress and log messages become the
task's status message (in stateless revisions they are sent, too, until the answer is), and requests to the caller
become questions of the task; the handler waits for their answers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec

from msgspec import Raw

import trunkline.types as t
from trunkline.connection import Connection, Exchange, Timeouts
from trunkline.errors import ConnectionLost
from trunkline.protocol.channel import Channel, RequestStore, RequestToClient
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.jsonrpc import Outbound
from trunkline.protocol.request_validation import ValidatedRequest
from trunkline.server.channels import JournalChannel, call_function
from trunkline.server.journal import OpenJournal, default_key, make_question
from trunkline.transports.link import Link, Receiver

if TYPE_CHECKING:
    from trunkline.server.tasks.run import Run
    from trunkline.timers import TimerHandle, Timers

__all__ = ["KeepAlive", "TaskChannel", "TaskExchange", "UnconnectedLink"]

P = ParamSpec("P")
_SILENCE_SECONDS = 10.0  # Shorter than the shortest timeouts of known clients.
_STEP = 1e-6  # Progress must increase with each notification; this step is too small to look like real progress.


class UnconnectedLink(Link):
    """A link without a peer: messages that a task sends outside of a request are dropped."""

    __slots__ = ()

    def attach(self, receiver: Receiver) -> None:
        """Do nothing: no message will arrive."""

    def send(self, batch: Any) -> None:
        """Drop messages."""
        _: list[Outbound] = batch

    async def drain(self) -> None:
        """Return at once."""

    async def aclose(self) -> None:
        """Do nothing."""


class TaskExchange(Exchange):
    """The exchange of a call that may become a task."""

    __slots__ = ("_channel", "_origin", "_run", "_sent", "_store", "detached", "reports_status")

    may_become_task = True

    def __init__(self, run: Run, admitted: ValidatedRequest, params: Raw | None, connection: Connection) -> None:
        """Create the exchange of a task that runs again, so that no caller waits."""
        self._run = run
        self._origin: Exchange | None = None
        self._channel: Channel | None = None
        #: Unanswered requests to the caller; created on first use.
        self._sent: set[asyncio.Future[Raw]] | None = None
        self.connection = connection
        self.id = ""
        self.method = "tools/call"
        self.params = params
        self.admitted = admitted
        self._store: RequestStore | None = None
        self.task = None
        #: Whether the call is a task; its caller then no longer waits for the response.
        self.detached: bool = True
        self.reports_status = True

    @classmethod
    def of(cls, run: Run, origin: Exchange) -> TaskExchange:
        """Create the exchange of a call whose caller waits."""
        made = cls(run, origin.admitted, origin.params, origin.connection)
        made.id, made._origin = origin.id, origin
        made.detached = made.reports_status = False
        return made

    def detach(self, connection: Connection, channel: TaskChannel | None) -> None:
        """Continue as a task; the service sends the response to the caller."""
        self.detached = self.reports_status = True
        if self._sent and self.connection.link.ends_with_response:
            # Their answers would not arrive: cancel the requests; they become questions of the task.
            for sent in self._sent:
                sent.cancel()
        self.connection = connection
        self._channel = channel

    @property
    def channel(self) -> Channel | None:
        """The channel of the request while its caller waits, then that of the task, created on first use."""
        if self._origin is not None and not self.detached:
            return self._origin.channel
        if self._channel is None:
            self._channel = TaskChannel(self._run, OpenJournal())
        return self._channel

    @channel.setter
    def channel(self, channel: Channel | None) -> None:
        if self._origin is None or self.detached:
            self._channel = channel
        else:
            # The service that waits for the call takes the requests to send from there.
            self._origin.channel = channel

    @property
    def store(self) -> RequestStore | None:
        """The values of the request, which have the last progress: those of the caller's request, if there is one."""
        return self._store if self._origin is None else self._origin.store

    @store.setter
    def store(self, store: RequestStore | None) -> None:
        if self._origin is None:
            self._store = store
        else:
            self._origin.store = store

    @property
    def open(self) -> bool:
        """Whether the result is still wanted."""
        return self._run.running if self._origin is None or self.detached else self._origin.open

    @property
    def suspended(self) -> bool:  # type: ignore[override]  # it changes while the call runs
        """Whether the process is stopping and the next one continues the task."""
        return self.detached and self._run.suspended

    def notify(self, method: str, params: Any) -> bool:
        """Send a notification, or turn it into the status of the task."""
        if self.detached:
            assert self.channel is not None
            return self.channel.notify(method, params)
        self._run.note(method, params)
        return self.send(method, params)

    def send(self, method: str, params: Any) -> bool:
        """Send a notification with the request; return False if there is none, or it is answered."""
        # A caller without a progress token gets no progress while it waits.
        if self._origin is None or getattr(params, "progress_token", None) == "":
            return False
        return self._origin.notify(method, adapt_params(params, self.admitted.caller.revision))

    def set_status(self, message: str) -> None:
        """Set the status message of the task, or its first one if the call becomes a task later."""
        self._run.set_status(message)

    async def request(self, method: str, params: Any, *, timeouts: Timeouts) -> Raw:
        """Send the caller a request, unless the call is a task: questions of tasks go through the channel.

        Raises:
            ConnectionLost: the call is a task, or became one and the answer cannot arrive.
        """
        if self._origin is None or self.detached:
            raise ConnectionLost("the call became a task, so no request can be sent on its exchange")
        sent = asyncio.ensure_future(self._origin.request(method, params, timeouts=timeouts))
        self._sent = self._sent or set()
        self._sent.add(sent)
        try:
            await asyncio.wait([sent])
        finally:
            self._sent.discard(sent)
            sent.cancel()
        if sent.cancelled():
            raise ConnectionLost("the call became a task before its request was answered")
        return sent.result()

    async def continue_as_task(self) -> bool:
        """Answer the caller with a task, and continue in the background."""
        return self.detached or await self._run.become_task()


class TaskChannel(JournalChannel):
    """Asks the caller of a task: questions are stored with the task, and the handler waits for each answer."""

    __slots__ = ("_run",)

    exchange: TaskExchange

    def __init__(self, run: Run, journal: OpenJournal) -> None:
        """Start with the journal of the rounds before the call became a task, or of earlier runs."""
        super().__init__(run.exchange, journal)
        self._run = run

    async def ask(self, request: RequestToClient) -> Raw:
        """Return the answer of an earlier run, or ask and wait."""
        question = make_question(request, self.exchange.admitted.caller.revision)
        # A question whose answer was invalid is asked again under another name.
        name = request.name = self.journal.name(request.key or default_key(request.method, question.digest))
        # Asked in an earlier run, or before the call was a task.
        for attempt in range(1, self._run.attempts + 1):
            answer = self.journal.answer_to(_attempt_key(name, attempt), question.digest)
            if answer is not None:
                return answer
        return await self._run.ask(self._key(name), question)

    def notify(self, method: str, params: Any) -> bool:
        """Turn a notification into the status of the task; while its caller waits, send it, too."""
        is_status = self._run.report(method, params)
        # In a handshake revision the session has it already.
        is_stateless = not self.exchange.admitted.caller.revision.handshake
        return (is_stateless and self.exchange.send(method, params)) or is_status

    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function unless an earlier run did; its result is stored with the task."""

        async def call() -> Any:
            value, encoded = self.journal.encode_once(key, await call_function(function, args, kwargs))
            await self._run.keep_once(key, encoded)
            return value

        return await self.journal.do_once(key, call)

    def _key(self, name: str) -> str:
        """Return the key of a question; the specification: a key is unique over the lifetime of a task."""
        used = self._run.used_keys | self.journal.answers.keys()
        key = _attempt_key(name, self._run.attempts)
        while key in used:
            # A handler may choose any key, also one that we would generate for a later run.
            key += "+"
        return key


def _attempt_key(name: str, attempt: int) -> str:
    """Return the key of a question of one run: those of a task that ran before are used up."""
    return name if attempt == 1 else f"{name}.{attempt}"


class KeepAlive:
    """Context manager that sends progress on an exchange that is held open, while its handler is silent.

    Many clients cancel a call after a minute without a response, but progress resets that timeout. A tool that may run
    as a task declares that it is slow; if its caller does not support tasks, the call is held open.
    """

    def __init__(self, timers: Timers, exchange: Exchange) -> None:
        """Create it for an exchange; it does nothing if the caller did not request progress."""
        meta = exchange.admitted.params.meta
        self._token: t.ProgressToken | None = None if meta is None else meta.progress_token
        self._timers = timers
        self._exchange = exchange
        self._timer: TimerHandle | None = None
        self._seconds = 0.0
        self._seen: float | None = None

    def __enter__(self) -> None:
        """Start the timer."""
        if self._token is not None:
            if self._exchange.store is None:
                # The handler's contexts store the last progress there.
                self._exchange.store = RequestStore()
            self._wait()

    def __exit__(self, *exc: object) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._timer = self._timers.after(_SILENCE_SECONDS, self._tick)

    def _tick(self) -> None:
        self._seconds += _SILENCE_SECONDS
        store, exchange = self._exchange.store, self._exchange
        if self._token is None or store is None or exchange.reports_status or not exchange.open:
            return
        if store.progress == self._seen:
            last = store.progress or 0.0
            store.progress = max(last + _STEP, math.nextafter(last, math.inf))
            message = f"still running ({self._seconds:g} s)"
            params = t.ProgressNotificationParams(progress_token=self._token, progress=store.progress, message=message)
            exchange.notify("notifications/progress", adapt_params(params, exchange.admitted.caller.revision))
        self._seen = store.progress
        self._wait()
