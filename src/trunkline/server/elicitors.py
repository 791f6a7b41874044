"""How a question leaves a handler, in both eras.

Where the server may send requests, a question is a request on the exchange it belongs to (``Direct``). Where it may
not, questions travel inside results (``Rounds``): a question without a recorded answer is noted and the handler's
coroutine waits; one turn of the loop later all that was noted leaves as ``input_required``, and the handler's task is
cancelled just as a client's cancel would do it, so ``finally`` runs and several questions asked at once leave in one
round. The retry brings the answers, and the handler runs again from its start: this time its questions are answered.

An answer is given only to the very question the user saw: both are compared by digest.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.connection import Exchange, Timeouts
from trunkline.errors import InvalidParams, RequestFailed
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.limits import Limits
from trunkline.protocol.serving import Questions
from trunkline.server.request_state import RoundState, StateBinding, StateSeal, request_digest

__all__ = [
    "ClientQuestion",
    "Elicitor",
    "OnceResults",
    "ReplayElicitor",
    "RequestElicitor",
    "decode_answer",
    "state_binding",
]

T = TypeVar("T")
P = ParamSpec("P")

#: What is being done once by the code that looks, outermost first.
_running_once: ContextVar[tuple[tuple[OnceResults, str], ...]] = ContextVar("trunkline_once", default=())


class ClientQuestion:
    """One question of a handler; asked again when the answer did not fit."""

    __slots__ = ("key", "method", "name", "params")

    def __init__(self, method: str, params: t.RequestParams, key: str | None) -> None:
        """Say what is asked; ``key`` is the handler's own name for it."""
        self.method: str = method
        self.params: t.RequestParams = params
        self.key: str | None = key
        #: The name it has in this call; whoever asks gives it.
        self.name: str | None = None


class Elicitor(Questions, Protocol):
    """The way questions of one exchange are asked."""

    async def ask(self, question: ClientQuestion) -> Raw:
        """Get the answer of the caller; asking the same question object again rejects its last answer."""

    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call a function once in all rounds of this call and give its result."""


class RequestElicitor:
    """Questions as requests to the client."""

    __slots__ = ("_asked", "_exchange", "_limits", "_once")

    #: The handler runs once, and is never left for its questions.
    round: ClassVar[int] = 0
    nonce: ClassVar[str | None] = None
    left: ClassVar[bool] = False

    def __init__(self, exchange: Exchange, limits: Limits) -> None:
        """Ask on this exchange."""
        self._exchange = exchange
        self._limits = limits
        self._asked = 0
        self._once = OnceResults({})

    @property
    def replaying(self) -> bool:
        """Never: the handler runs once."""
        return False

    def input_required(self) -> t.InputRequiredResult:
        """Never called: questions do not travel inside results here."""
        raise RuntimeError("questions of a handshake revision are requests, not results")

    async def ask(self, question: ClientQuestion) -> Raw:
        """Send the request and wait for its answer; the time a person may take is bounded."""
        self._asked += 1
        if self._asked > self._limits.rounds and question.name is not None:
            asked = getattr(question.params, "message", question.method)
            raise RequestFailed(f"The question {asked!r} was never answered as it asks")
        question.name = question.key or str(self._asked)
        await self._wait_until_initialized()
        params = adapt_params(question.params, self._exchange.admitted.caller.revision)
        timeouts = Timeouts(idle=None, total=self._limits.ask_seconds)
        return await self._exchange.request(question.method, params, timeouts=timeouts)

    async def _wait_until_initialized(self) -> None:
        """Wait until the client has said that it is ready: before that a server SHOULD NOT send requests but pings."""
        session = self._exchange.admitted.caller.session
        if session is None or session.initialized:
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        session.on_initialized(lambda: None if ready.done() else ready.set_result(None))
        async with asyncio.timeout(self._limits.ask_seconds):
            await ready

    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function; the same key again gives the same result."""
        return await self._once.do(key, lambda: _call(function, args, kwargs))

    def did(self, key: str) -> bool:
        """Tell whether the function was called."""
        return key in self._once.results


class ReplayElicitor:
    """Questions that travel inside results."""

    __slots__ = (
        "_answers",
        "_binding",
        "_exchange",
        "_limits",
        "_once",
        "_open_questions",
        "_seal",
        "_seen",
        "_unused",
        "left",
        "nonce",
        "round",
    )

    def __init__(self, exchange: Exchange, seal: StateSeal, limits: Limits, *, state: RoundState | None = None) -> None:
        """Start with what earlier rounds brought, if any."""
        self._exchange = exchange
        self._seal = seal
        self._limits = limits
        self._binding = state_binding(exchange)
        self.round: int = 0 if state is None else state.round
        #: Names the state this round was resumed from, for calls that may be resumed once only.
        self.nonce: str | None = None if state is None else state.nonce
        self._answers: dict[str, tuple[str, Raw]] = {}
        self._once = OnceResults({} if state is None else dict(state.once))
        #: Whether the handler's task has been cancelled so that questions can leave.
        self.left: bool = False
        self._open_questions: dict[str, tuple[t.InputRequest, str]] = {}
        self._seen: dict[str, int] = {}
        if state is not None:
            self._answers = {key: (seen, Raw(msgspec.json.encode(said))) for key, (seen, said) in state.answers.items()}
            for key, seen in state.asked.items():
                answer = (exchange.admitted.params.input_responses or {}).get(key)
                if answer is not None:
                    self._answers[key] = (seen, answer)
        self._unused = set(self._answers)

    @classmethod
    def resume(cls, exchange: Exchange, seal: StateSeal, limits: Limits) -> ReplayElicitor:
        """Take up a call that was asked something in an earlier round.

        Raises:
            InvalidParams: the state is not ours, not of this call, or too old.
        """
        text = exchange.admitted.params.request_state
        state = None if text is None else seal.open(text, binding=state_binding(exchange))
        return cls(exchange, seal, limits, state=state)

    @property
    def replaying(self) -> bool:
        """Whether answers of earlier rounds are still unused: until then the client has seen all we could tell."""
        return bool(self._unused)

    async def ask(self, question: ClientQuestion) -> Raw:
        """Give the recorded answer, or note the question and wait to be left."""
        encoded = msgspec.json.encode(adapt_params(question.params, self._exchange.admitted.caller.revision))
        seen = blake2b(question.method.encode() + b"\0" + encoded, digest_size=16).hexdigest()
        if question.name is None:
            question.name = self._name(question.key or f"{question.method.partition('/')[0]}-{seen[:8]}")
            recorded = self._answers.get(question.name)
            self._unused.discard(question.name)
            if recorded is not None and recorded[0] == seen:
                return recorded[1]
        self._answers.pop(question.name, None)
        if self.round >= self._limits.rounds:
            raise RequestFailed(f"The question {question.name!r} was not settled in {self.round} rounds")
        if not self._open_questions:
            asyncio.get_running_loop().call_soon(self._interrupt)
        # What is done once may itself ask; it cannot be waited for then.
        self._once.abandon()
        self._open_questions[question.name] = (t.InputRequest(method=question.method, params=Raw(encoded)), seen)
        return await _wait_forever()

    def input_required(self) -> t.InputRequiredResult:
        """Make the result that asks all that was noted."""
        state = RoundState(
            round=self.round + 1,
            asked={name: seen for name, (_, seen) in self._open_questions.items()},
            answers={name: (seen, msgspec.json.decode(said)) for name, (seen, said) in self._answers.items()},
            once=self._once.results,
            nonce="",
        )
        return t.InputRequiredResult(
            result_type="input_required",
            input_requests={name: request for name, (request, _) in self._open_questions.items()},
            request_state=self._seal.seal(state, binding=self._binding),
        )

    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function unless an earlier round did; the result travels in the sealed state."""

        async def call() -> Any:
            return msgspec.to_builtins(await _call(function, args, kwargs))

        try:
            return await self._once.do(key, call)
        finally:
            if self._open_questions:
                asyncio.get_running_loop().call_soon(self._interrupt)

    def did(self, key: str) -> bool:
        """Tell whether this round or an earlier one called the function."""
        return key in self._once.results

    def _name(self, key: str) -> str:
        count = self._seen[key] = self._seen.get(key, 0) + 1
        return key if count == 1 else f"{key}-{count}"

    def _interrupt(self) -> None:
        # What was begun once is finished and recorded first: cut short, it would be done again in the next round.
        if self._exchange.task is not None and not self.left and not self._once.busy:
            self.left = True
            self._exchange.task.cancel()


class OnceResults:
    """What is done once in a call: the results by key, and what is being done."""

    __slots__ = ("_doing", "results")

    def __init__(self, results: dict[str, Any]) -> None:
        """Start with what earlier rounds did."""
        self.results: dict[str, Any] = results
        self._doing: dict[str, asyncio.Future[None]] = {}

    @property
    def busy(self) -> bool:
        """Whether something is being done that should not be cut short."""
        return bool(self._doing)

    async def do(self, key: str, call: Callable[[], Awaitable[object]]) -> Any:
        """Give the result under a key; whoever comes first makes it, others wait for that one."""
        while key in self._doing:
            await asyncio.shield(self._doing[key])
        if key not in self.results:
            done = self._doing[key] = asyncio.get_running_loop().create_future()
            within = _running_once.set((*_running_once.get(), (self, key)))
            try:
                self.results[key] = await call()
            finally:
                _running_once.reset(within)
                if self._doing.get(key) is done:
                    del self._doing[key]
                done.set_result(None)
        return self.results[key]

    def abandon(self) -> None:
        """Let go of what is being done by whoever calls this, if anything: it waits for the caller itself."""
        for deeds, key in _running_once.get():
            if deeds is self:
                self._doing.pop(key, None)


def state_binding(exchange: Exchange) -> StateBinding:
    """Say what sealed state belongs to: the call, and who made it."""
    principal = exchange.admitted.caller.principal
    who = None if principal is None else "\0".join(part or "" for part in principal.identity)
    return StateBinding(
        method=exchange.method,
        params_digest=request_digest(exchange.method, bytes(exchange.params or b"{}")),
        principal=who,
    )


def decode_answer(raw: Raw, kind: type[T], what: str) -> T:
    """Read an answer as the kind that was asked for.

    Raises:
        InvalidParams: it is something else.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams(f"Invalid params: the answer to {what} is not one: {error}") from error


async def _wait_forever() -> Raw:
    never: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
    return await never


async def _call(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    value = function(*args, **kwargs)
    return await value if inspect.isawaitable(value) else value
