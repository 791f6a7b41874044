"""The exchange of a call that may become a task, the elicitor of a task, and what keeps a call alive that is none.

While the caller waits, a ``TaskExchange`` is the exchange of its request: notifications and requests to the caller are
sent as in any call. Once the call is a task, there is soon no request to answer: progress and log messages become the
task's status message (in stateless revisions they are sent, too, until the answer is), and requests to the caller
become questions of the task; the handler waits for their answers.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.connection import Connection, Exchange, Timeouts
from trunkline.errors import ConnectionLost
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.jsonrpc import Outbound
from trunkline.protocol.request_validation import ValidatedRequest
from trunkline.protocol.serving import ElicitorState, RequestStore
from trunkline.server.elicitors import (
    Elicitor,
    OnceResults,
    ReplayElicitor,
    RequestElicitor,
    RequestToClient,
    call_function,
    default_key,
    embed_request,
)
from trunkline.server.tasks.record import Question
from trunkline.transports.link import Link, Receiver

if TYPE_CHECKING:
    from trunkline.server.server import Server
    from trunkline.server.tasks.run import Run
    from trunkline.timers import TimerHandle

__all__ = ["KeepAlive", "TaskElicitor", "TaskExchange", "UnconnectedLink"]

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

    __slots__ = ("_elicitor", "_origin", "_run", "_sent", "detached", "reports_status")

    may_become_task = True

    def __init__(self, run: Run, admitted: ValidatedRequest, params: Raw | None, connection: Connection) -> None:
        """Create the exchange of a task that runs again, so that no caller waits."""
        self._run = run
        self._origin: Exchange | None = None
        self._elicitor: ElicitorState | None = None
        #: Unanswered requests to the caller; created on first use.
        self._sent: set[asyncio.Future[Raw]] | None = None
        self.connection = connection
        self.id = ""
        self.method = "tools/call"
        self.params = params
        self.admitted = admitted
        self.store = None
        self.task = None
        #: Whether the call is a task; its caller then no longer waits for the response.
        self.detached: bool = True
        self.reports_status = True

    @classmethod
    def of(cls, run: Run, origin: Exchange) -> TaskExchange:
        """Create the exchange of a call whose caller waits."""
        made = cls(run, origin.admitted, origin.params, origin.connection)
        made.id, made.store, made._origin = origin.id, origin.store, origin
        made.detached = made.reports_status = False
        return made

    def detach(self, connection: Connection, elicitor: TaskElicitor | None) -> None:
        """Continue as a task; the service sends the response to the caller."""
        self.detached = self.reports_status = True
        if self._sent and self.connection.link.ends_with_response:
            # Their answers would not arrive: cancel the requests; they become questions of the task.
            for sent in self._sent:
                sent.cancel()
        self.connection = connection
        self._elicitor = elicitor

    @property
    def elicitor(self) -> ElicitorState | None:
        """Sends requests to the caller; created on first use, since most tasks send none."""
        if self._origin is not None and not self.detached:
            return self._origin.elicitor
        if self._elicitor is None:
            self._elicitor = TaskElicitor(self._run, self, answers={}, once=OnceResults({}))
        return self._elicitor

    @elicitor.setter
    def elicitor(self, elicitor: ElicitorState | None) -> None:
        if self._origin is None or self.detached:
            self._elicitor = elicitor
        else:
            # The service that waits for the call takes the requests to send from there.
            self._origin.elicitor = elicitor

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
        if self._origin is None or self.detached:
            is_status = self._run.report(method, params)
            # In a handshake revision the session has it already.
            return (not self.admitted.caller.revision.handshake and self._send(method, params)) or is_status
        self._run.note(method, params)
        return self._send(method, params)

    def _send(self, method: str, params: Any) -> bool:
        """Send a notification with the request; return False if there is none, or it is answered."""
        # A caller without a progress token gets no progress while it waits.
        if self._origin is None or getattr(params, "progress_token", None) == "":
            return False
        return self._origin.notify(method, adapt_params(params, self.admitted.caller.revision))

    def set_status(self, message: str) -> None:
        """Set the status message of the task, or its first one if the call becomes a task later."""
        self._run.set_status(message)

    async def request(self, method: str, params: Any, *, timeouts: Timeouts) -> Raw:
        """Send the caller a request, unless the call is a task: questions of tasks go through the elicitor.

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


class TaskElicitor(Elicitor):
    """Asks the caller of a task: the handler waits for each answer, and runs once."""

    round: ClassVar[int] = 0
    nonce: ClassVar[str | None] = None
    interrupted: ClassVar[bool] = False
    #: Notifications become the status of the task; sending one twice does no harm.
    replaying: ClassVar[bool] = False

    def __init__(
        self,
        run: Run,
        exchange: TaskExchange,
        *,
        answers: dict[str, tuple[str, Raw]],
        once: OnceResults,
        seen: dict[str, int] | None = None,
    ) -> None:
        """Start with the answers and results of rounds before the call became a task, or of earlier runs."""
        self._run = run
        self._exchange = exchange
        self._answers = dict(answers)
        self._once = once
        #: The names of the requests of this run; their keys are different in later runs.
        self._names = {_numbered(key, number) for key, last in (seen or {}).items() for number in range(1, last + 1)}

    @classmethod
    def after(cls, run: Run, exchange: TaskExchange) -> TaskElicitor:
        """Continue with the answers and results of the request's elicitor."""
        before = exchange.elicitor
        if isinstance(before, RequestElicitor | ReplayElicitor):
            answers, once, seen = before.hand_over()
            return cls(run, exchange, answers=answers, once=once, seen=seen)
        return cls(run, exchange, answers={}, once=OnceResults({}))

    @property
    def once_results(self) -> dict[str, Any]:
        """The results of ``once`` by key, as plain data; other results are not stored for another process."""
        found = {}
        for key, value in self._once.results.items():
            with suppress(TypeError):
                found[key] = msgspec.to_builtins(value)
        return found

    @property
    def answers(self) -> dict[str, tuple[str, Raw]]:
        """The digest and the answer of each answered question, by key."""
        return dict(self._answers)

    async def input_required(self) -> t.InputRequiredResult:
        """Never called: a task is not interrupted to send its questions."""
        raise RuntimeError("the questions of a task are not sent in its result")

    async def ask(self, request: RequestToClient) -> Raw:
        """Return the answer of an earlier run, or ask and wait."""
        question, digest = embed_request(request, self._exchange.admitted.caller.revision)
        # A question whose answer was invalid is asked again under another name.
        name = request.name = self._name(request.key or default_key(request, digest))
        recorded = self._recorded(name, digest)
        if recorded is not None:
            return recorded
        return await self._run.ask(self._key(name), Question(question, digest))

    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function unless an earlier run did; its result is stored with the task."""

        async def call() -> Any:
            value = msgspec.to_builtins(await call_function(function, args, kwargs))
            await self._run.keep_once(key, value)
            return value

        return await self._once.do(key, call)

    def did(self, key: str) -> bool:
        """Return True if a function was called under this key."""
        return key in self._once.results

    def _recorded(self, name: str, digest: str) -> Raw | None:
        """Return the answer to the same question in an earlier run, or before the call was a task."""
        for number in range(1, self._run.attempts + 1):
            key = name if number == 1 else f"{name}.{number}"
            if key in self._answers and self._answers[key][0] == digest:
                return self._answers[key][1]
        return None

    def _name(self, key: str) -> str:
        """Return a name that is unique in this run, and the same in every run of the handler."""
        number = 1
        while (name := _numbered(key, number)) in self._names:
            number += 1
        self._names.add(name)
        return name

    def _key(self, name: str) -> str:
        """Return the key of a question; the specification: a key is unique over the lifetime of a task."""
        attempts, used = self._run.attempts, self._run.used_keys | set(self._answers)
        key = name if attempts == 1 else f"{name}.{attempts}"
        while key in used:
            # A handler may choose any key, also one that we would generate for a later run.
            key += "+"
        return key


def _numbered(key: str, number: int) -> str:
    return key if number == 1 else f"{key}-{number}"


class KeepAlive:
    """Context manager that sends progress on an exchange that is held open, while its handler is silent.

    Many clients cancel a call after a minute without a response, but progress resets that timeout. A tool that may run
    as a task declares that it is slow; if its caller does not support tasks, the call is held open.
    """

    def __init__(self, server: Server, exchange: Exchange) -> None:
        """Create it for an exchange; it does nothing if the caller did not request progress."""
        meta = exchange.admitted.params.meta
        self._token: t.ProgressToken | None = None if meta is None else meta.progress_token
        self._server = server
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
        self._timer = self._server.call_later(_SILENCE_SECONDS, self._tick)

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
