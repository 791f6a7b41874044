"""The channels of calls that are no tasks: live in the handshake era, and ``input_required`` in the stateless one.

``trunkline.protocol.channel`` draws how a question leaves and comes back.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.connection import Exchange, Timeouts
from trunkline.errors import ConnectionLost, InvalidParams, RequestFailed
from trunkline.protocol.channel import Channel, Question, RequestToClient
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import Feature
from trunkline.server.dispatch import runtime_of
from trunkline.server.journal import OpenJournal, default_key, make_question
from trunkline.server.request_state import RoundState, StateBinding, StateSeal, request_digest

if TYPE_CHECKING:
    from trunkline.telemetry.requests import RequestMetrics

__all__ = [
    "InputRequiredChannel",
    "JournalChannel",
    "LiveChannel",
    "call_function",
    "caller_identity",
    "channel_for",
    "decode_response",
    "resume_call",
]

T = TypeVar("T")
P = ParamSpec("P")


def channel_for(exchange: Exchange) -> Channel:
    """Return the channel to the caller of an exchange, in the way of its revision; created for its first use."""
    channel = exchange.channel
    if channel is None:
        # The server of the connection resumes the call, so it seals the state, also for a server mounted in it.
        runtime = runtime_of(exchange)
        if Feature.INPUT_REQUIRED in exchange.admitted.caller.revision.features:
            channel = InputRequiredChannel(exchange, runtime.seal, runtime.limits)
        else:
            channel = LiveChannel(exchange, runtime.limits)
        exchange.channel = channel
    return channel


async def resume_call(exchange: Exchange) -> None:
    """Resume a call that ended with requests to its caller in an earlier round.

    Raises:
        InvalidParams: the state is not from this server, not of this call, or too old.
        StoreUnavailable: the state is stored where it cannot be reached now.
    """
    if Feature.INPUT_REQUIRED not in exchange.admitted.caller.revision.features:
        return
    runtime, text = runtime_of(exchange), exchange.admitted.params.request_state
    binding = state = None
    if text is not None:
        binding = _state_binding(exchange)
        state = await runtime.seal.open(text, binding=binding)
    exchange.channel = InputRequiredChannel(exchange, runtime.seal, runtime.limits, state=state, binding=binding)


class JournalChannel(Channel):
    """A channel of a call with a journal."""

    __slots__ = ("exchange", "journal")

    def __init__(self, exchange: Exchange, journal: OpenJournal) -> None:
        """Use the exchange of a call, and its journal."""
        self.exchange = exchange
        #: Continued by the channel of the task, if the call becomes one.
        self.journal = journal

    def did(self, key: str) -> bool:
        """Return True if this run or an earlier one called a function under this key."""
        return key in self.journal.results

    def notify(self, method: str, params: Any) -> bool:
        """Send a notification in the form of the caller's revision."""
        exchange = self.exchange
        if not exchange.may_become_task:
            params = adapt_params(params, exchange.admitted.caller.revision)
        return exchange.notify(method, params)


class LiveChannel(JournalChannel):
    """Sends requests on the connection of the call, for revisions with a handshake; the handler runs once."""

    __slots__ = ("_asked", "_limits")

    def __init__(self, exchange: Exchange, limits: Limits) -> None:
        """Send requests on this exchange."""
        super().__init__(exchange, OpenJournal())
        self._limits = limits
        self._asked = 0

    async def ask(self, request: RequestToClient) -> Raw:
        """Send the request and return its response; the time that a user may take is bounded."""
        self._asked += 1
        if self._asked > self._limits.rounds and request.name is not None:
            message = getattr(request.params, "message", request.method)
            raise RequestFailed(f"No response to {message!r} had the requested form")
        request.name = request.key or str(self._asked)
        await self._wait_until_initialized()
        exchange = self.exchange
        params = adapt_params(request.params, exchange.admitted.caller.revision)
        timeouts = Timeouts(idle=None, total=self._limits.ask_seconds)
        metrics = _request_metrics(exchange)
        try:
            with nullcontext() if metrics is None else metrics.asking(request.method):
                return await exchange.request(request.method, params, timeouts=timeouts)
        except ConnectionLost:
            successor = exchange.channel
            if successor is None or successor is self:
                raise
            # The call has become a task; its questions are asked by the task.
            return await successor.ask(request)

    async def _wait_until_initialized(self) -> None:
        """Wait until the client is initialized: before that, a server SHOULD NOT send requests other than pings."""
        session = self.exchange.admitted.caller.session
        if session is None or session.initialized:
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        session.on_initialized(lambda: None if ready.done() else ready.set_result(None))
        async with asyncio.timeout(self._limits.ask_seconds):
            await ready

    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function, or return the result of an earlier call with the same key."""
        return await self.journal.do_once(key, lambda: call_function(function, args, kwargs))


class InputRequiredChannel(JournalChannel):
    """Sends requests inside results and replays the handler, for stateless revisions.

    A request without a recorded response is queued, and the handler's coroutine waits. One iteration of the event loop
    later, everything queued is sent as ``input_required``, and the handler's task is cancelled just as by a client's
    cancellation: ``finally`` blocks run, and several requests made at once are sent in one round.
    """

    __slots__ = ("_binding", "_limits", "_open_questions", "_seal", "_unused", "interrupted", "nonce", "round")

    def __init__(
        self,
        exchange: Exchange,
        seal: StateSeal,
        limits: Limits,
        *,
        state: RoundState | None = None,
        binding: StateBinding | None = None,
    ) -> None:
        """Create the channel, with the state of earlier rounds if there were any, and what that was bound to."""
        journal = None
        if state is not None:
            journal = state.journal.answer(exchange.admitted.params.input_responses or {})
        super().__init__(exchange, OpenJournal(journal))
        self._seal = seal
        self._limits = limits
        #: Made when it is needed: most calls ask nothing, and it digests all of their params.
        self._binding = binding
        self.round: int = 0 if state is None else state.round
        #: Identifies the state that this round was resumed from, for calls that may be resumed only once.
        self.nonce: str | None = None if state is None else state.nonce
        #: Whether the handler's task has been cancelled so that its requests can be sent.
        self.interrupted: bool = False
        self._open_questions: dict[str, Question] = {}
        #: The answers that the handler has not asked for again. Until it has, the client has seen every notification.
        self._unused = set(self.journal.answers)

    async def ask(self, request: RequestToClient) -> Raw:
        """Return the recorded response, or queue the request and wait to be interrupted."""
        journal, question = self.journal, make_question(request, self.exchange.admitted.caller.revision)
        if request.name is None:
            request.name = journal.name(request.key or default_key(request.method, question.digest))
            self._unused.discard(request.name)
            answer = journal.answer_to(request.name, question.digest)
            if answer is not None:
                return answer
        journal.answers.pop(request.name, None)
        if self.round >= self._limits.rounds:
            raise RequestFailed(f"The request {request.name!r} was not settled in {self.round} rounds")
        if not self._open_questions:
            asyncio.get_running_loop().call_soon(self._interrupt)
        # A function called by ``once`` may itself send a request; the round must not wait for its result then.
        journal.abandon_once()
        self._open_questions[request.name] = question
        if (metrics := _request_metrics(self.exchange)) is not None:
            metrics.asked(request.method)
        return await _wait_forever()

    def notify(self, method: str, params: Any) -> bool:
        """Send a notification, unless an earlier round of this call sent it."""
        return not self._unused and super().notify(method, params)

    async def input_required(self) -> t.InputRequiredResult:
        """Return the result that carries the queued requests."""
        questions = self._open_questions
        journal = self.journal.record({name: question.digest for name, question in questions.items()})
        binding = self._binding or _state_binding(self.exchange)
        return t.InputRequiredResult(
            result_type="input_required",
            input_requests={name: question.request for name, question in questions.items()},
            request_state=await self._seal.seal(
                RoundState(self.round + 1, journal), binding=binding, owner=self.exchange.admitted.caller.owner
            ),
        )

    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function unless an earlier round did; its result is part of the sealed state."""

        async def call() -> Any:
            value, _ = self.journal.encode_once(key, await call_function(function, args, kwargs))
            return value

        try:
            return await self.journal.do_once(key, call)
        finally:
            if self._open_questions:
                asyncio.get_running_loop().call_soon(self._interrupt)

    @property
    def asking(self) -> bool:
        """Whether requests are queued; the handler is then about to be interrupted."""
        return bool(self._open_questions)

    def _interrupt(self) -> None:
        # A running ``once`` call is finished and recorded first: interrupted, it would be repeated in the next round.
        if self.exchange.task is not None and not self.interrupted and not self.journal.busy:
            self.interrupted = True
            self.exchange.task.cancel()


def caller_identity(exchange: Exchange) -> str | None:
    """Return the identity of the caller's principal as text; None for callers without one."""
    principal = exchange.admitted.caller.principal
    # As JSON, so that the parts are delimited unambiguously.
    return None if principal is None else msgspec.json.encode(principal.identity).decode()


def decode_response(raw: Raw, kind: type[T], method: str) -> T:
    """Decode the caller's response to a request.

    Raises:
        InvalidParams: it is not a valid result of that method.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams(f"Invalid params: the response to {method} is not valid: {error}") from error


async def call_function(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    """Call a function, and await what it returns if that is awaitable."""
    value = function(*args, **kwargs)
    return await value if inspect.isawaitable(value) else value


def _request_metrics(exchange: Exchange) -> RequestMetrics | None:
    """Return the metrics of the server that serves a request; None if it has none."""
    metrics = runtime_of(exchange).metrics
    return None if metrics is None else metrics.requests


def _state_binding(exchange: Exchange) -> StateBinding:
    """Return what sealed state is bound to: the call and its principal."""
    return StateBinding(
        method=exchange.method,
        params_digest=request_digest(exchange.method, bytes(exchange.params or b"{}")),
        principal=caller_identity(exchange),
    )


async def _wait_forever() -> Raw:
    never: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
    return await never
