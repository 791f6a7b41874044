"""How a handler sends requests to its caller, in both eras.

Where the server may send requests, they are sent on the exchange they belong to (``RequestElicitor``). Where it may
not, they are sent inside results (``ReplayElicitor``): a request without a recorded response is queued, and the
handler's coroutine waits. One iteration of the event loop later, everything queued is sent as ``input_required``, and
the handler's task is cancelled just as by a client's cancellation: ``finally`` blocks run, and several requests made at
once are sent in one round. The retry brings the responses, and the handler runs again from its start: this time its
requests are answered.

A response is used only for the very request that the user saw: both are compared by digest.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from contextvars import ContextVar
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, TypeVar, cast

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.connection import Exchange, Timeouts
from trunkline.errors import ConnectionLost, InvalidParams, RequestFailed
from trunkline.protocol.downgrade import adapt_params
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import Revision
from trunkline.protocol.serving import ElicitorState
from trunkline.server.request_state import RoundState, StateBinding, StateSeal, request_digest

if TYPE_CHECKING:
    from trunkline.telemetry.requests import RequestMetrics

__all__ = [
    "Elicitor",
    "OnceResults",
    "ReplayElicitor",
    "RequestElicitor",
    "RequestToClient",
    "call_function",
    "caller_identity",
    "decode_response",
    "default_key",
    "embed_request",
    "request_metrics",
    "state_binding",
]

T = TypeVar("T")
P = ParamSpec("P")

#: The ``once`` calls that the current code runs inside of, outermost first.
_running_once: ContextVar[tuple[tuple[OnceResults, str], ...]] = ContextVar("trunkline_once", default=())


class RequestToClient:
    """One request of a handler to its caller; sent again if the response did not fit."""

    __slots__ = ("key", "method", "name", "params")

    def __init__(self, method: str, params: t.RequestParams, key: str | None) -> None:
        """Create the request; ``key`` is the handler's own name for it."""
        self.method: str = method
        self.params: t.RequestParams = params
        self.key: str | None = key
        #: The unique name of the request in this call; set by the elicitor when it is sent.
        self.name: str | None = None


class Elicitor(ElicitorState, Protocol):
    """Sends the requests of one exchange to its caller."""

    async def ask(self, request: RequestToClient) -> Raw:
        """Return the caller's response; sending the same request object again rejects its last response."""

    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call a function once in all rounds of this call and return its result."""


class RequestElicitor:
    """Sends requests directly, for revisions with a handshake."""

    __slots__ = ("_asked", "_exchange", "_limits", "_once")

    #: The handler runs once, and is never interrupted to send its requests.
    round: ClassVar[int] = 0
    nonce: ClassVar[str | None] = None
    interrupted: ClassVar[bool] = False

    def __init__(self, exchange: Exchange, limits: Limits) -> None:
        """Send requests on this exchange."""
        self._exchange = exchange
        self._limits = limits
        self._asked = 0
        self._once = OnceResults({})

    @property
    def replaying(self) -> bool:
        """Always False: the handler runs once."""
        return False

    async def input_required(self) -> t.InputRequiredResult:
        """Never called: requests are not sent inside results here."""
        raise RuntimeError("handshake revisions have no input_required results")

    async def ask(self, request: RequestToClient) -> Raw:
        """Send the request and return its response; the time that a user may take is bounded."""
        self._asked += 1
        if self._asked > self._limits.rounds and request.name is not None:
            asked = getattr(request.params, "message", request.method)
            raise RequestFailed(f"No response to {asked!r} had the requested form")
        request.name = request.key or str(self._asked)
        await self._wait_until_initialized()
        params = adapt_params(request.params, self._exchange.admitted.caller.revision)
        timeouts = Timeouts(idle=None, total=self._limits.ask_seconds)
        metrics = request_metrics(self._exchange)
        try:
            with nullcontext() if metrics is None else metrics.asking(request.method):
                return await self._exchange.request(request.method, params, timeouts=timeouts)
        except ConnectionLost:
            successor = self._exchange.elicitor
            if successor is None or successor is self:
                raise
            # The call has become a task; its questions are asked by the task.
            return await cast("Elicitor", successor).ask(request)

    async def _wait_until_initialized(self) -> None:
        """Wait until the client is initialized: before that, a server SHOULD NOT send requests other than pings."""
        session = self._exchange.admitted.caller.session
        if session is None or session.initialized:
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        session.on_initialized(lambda: None if ready.done() else ready.set_result(None))
        async with asyncio.timeout(self._limits.ask_seconds):
            await ready

    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function, or return the result of an earlier call with the same key."""
        return await self._once.do(key, lambda: call_function(function, args, kwargs))

    def did(self, key: str) -> bool:
        """Return whether a function was called under this key."""
        return key in self._once.results

    def hand_over(self) -> tuple[dict[str, tuple[str, Raw]], OnceResults, dict[str, int]]:
        """Return the results of ``once`` for another elicitor to continue with; answers are not recorded here."""
        return {}, self._once, {}


class ReplayElicitor:
    """Sends requests inside results and replays the handler, for stateless revisions."""

    __slots__ = (
        "_answers",
        "_binding",
        "_exchange",
        "_limits",
        "_once",
        "_open_requests",
        "_seal",
        "_seen",
        "_unused",
        "interrupted",
        "nonce",
        "round",
    )

    def __init__(
        self,
        exchange: Exchange,
        seal: StateSeal,
        limits: Limits,
        *,
        state: RoundState | None = None,
        binding: StateBinding | None = None,
    ) -> None:
        """Create the elicitor, with the state of earlier rounds if there were any, and what that was bound to."""
        self._exchange = exchange
        self._seal = seal
        self._limits = limits
        #: Made when it is needed: most calls ask nothing, and it digests all of their params.
        self._binding = binding
        self.round: int = 0 if state is None else state.round
        #: Identifies the state that this round was resumed from, for calls that may be resumed only once.
        self.nonce: str | None = None if state is None else state.nonce
        self._answers: dict[str, tuple[str, Raw]] = {}
        self._once = OnceResults({} if state is None else dict(state.once))
        #: Whether the handler's task has been cancelled so that its requests can be sent.
        self.interrupted: bool = False
        self._open_requests: dict[str, tuple[t.InputRequest, str]] = {}
        self._seen: dict[str, int] = {}
        if state is not None:
            self._answers = {
                key: (digest, Raw(msgspec.json.encode(value))) for key, (digest, value) in state.answers.items()
            }
            for key, digest in state.asked.items():
                response = (exchange.admitted.params.input_responses or {}).get(key)
                if response is not None:
                    self._answers[key] = (digest, response)
        self._unused = set(self._answers)

    @classmethod
    async def resume(cls, exchange: Exchange, seal: StateSeal, limits: Limits) -> ReplayElicitor:
        """Resume a call from the state of its last round.

        Raises:
            InvalidParams: the state is not from this server, not of this call, or too old.
            StoreUnavailable: the state is stored where it cannot be reached now.
        """
        text = exchange.admitted.params.request_state
        if text is None:
            return cls(exchange, seal, limits)
        binding = state_binding(exchange)
        return cls(exchange, seal, limits, state=await seal.open(text, binding=binding), binding=binding)

    @property
    def replaying(self) -> bool:
        """Whether responses of earlier rounds are still unused: until then, the client has seen every notification."""
        return bool(self._unused)

    async def ask(self, request: RequestToClient) -> Raw:
        """Return the recorded response, or queue the request and wait to be interrupted."""
        question, digest = embed_request(request, self._exchange.admitted.caller.revision)
        if request.name is None:
            request.name = self._name(request.key or default_key(request, digest))
            recorded = self._answers.get(request.name)
            self._unused.discard(request.name)
            if recorded is not None and recorded[0] == digest:
                return recorded[1]
        self._answers.pop(request.name, None)
        if self.round >= self._limits.rounds:
            raise RequestFailed(f"The request {request.name!r} was not settled in {self.round} rounds")
        if not self._open_requests:
            asyncio.get_running_loop().call_soon(self._interrupt)
        # A function called by ``once`` may itself send a request; the round must not wait for its result then.
        self._once.abandon()
        self._open_requests[request.name] = (question, digest)
        if (metrics := request_metrics(self._exchange)) is not None:
            metrics.asked(request.method)
        return await _wait_forever()

    async def input_required(self) -> t.InputRequiredResult:
        """Return the result that carries the queued requests."""
        state = RoundState(
            round=self.round + 1,
            asked={name: digest for name, (_, digest) in self._open_requests.items()},
            answers={name: (digest, msgspec.json.decode(raw)) for name, (digest, raw) in self._answers.items()},
            once=self._once.results,
            nonce="",
        )
        return t.InputRequiredResult(
            result_type="input_required",
            input_requests={name: request for name, (request, _) in self._open_requests.items()},
            request_state=await self._seal.seal(
                state,
                binding=self._binding or state_binding(self._exchange),
                owner=self._exchange.admitted.caller.owner,
            ),
        )

    async def once(self, key: str, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function unless an earlier round did; its result is part of the sealed state."""

        async def call() -> Any:
            return msgspec.to_builtins(await call_function(function, args, kwargs))

        try:
            return await self._once.do(key, call)
        finally:
            if self._open_requests:
                asyncio.get_running_loop().call_soon(self._interrupt)

    def did(self, key: str) -> bool:
        """Return whether this round or an earlier one called a function under this key."""
        return key in self._once.results

    @property
    def asking(self) -> bool:
        """Whether requests are queued; the handler is then about to be interrupted."""
        return bool(self._open_requests)

    def hand_over(self) -> tuple[dict[str, tuple[str, Raw]], OnceResults, dict[str, int]]:
        """Return the answers, the results of ``once`` and the used keys, for another elicitor to continue with."""
        return self._answers, self._once, self._seen

    def _name(self, key: str) -> str:
        count = self._seen[key] = self._seen.get(key, 0) + 1
        return key if count == 1 else f"{key}-{count}"

    def _interrupt(self) -> None:
        # A running ``once`` call is finished and recorded first: interrupted, it would be repeated in the next round.
        if self._exchange.task is not None and not self.interrupted and not self._once.busy:
            self.interrupted = True
            self._exchange.task.cancel()


class OnceResults:
    """The results of ``once`` by key, and the calls that are still running."""

    __slots__ = ("_running", "results")

    def __init__(self, results: dict[str, Any]) -> None:
        """Start with the results of earlier rounds."""
        self.results: dict[str, Any] = results
        self._running: dict[str, asyncio.Future[None]] = {}

    @property
    def busy(self) -> bool:
        """Whether a call is running that should not be interrupted."""
        return bool(self._running)

    async def do(self, key: str, call: Callable[[], Awaitable[object]]) -> Any:
        """Return the result under a key; the first caller computes it, and others wait for it."""
        while key in self._running:
            await asyncio.shield(self._running[key])
        if key not in self.results:
            done = self._running[key] = asyncio.get_running_loop().create_future()
            within = _running_once.set((*_running_once.get(), (self, key)))
            try:
                self.results[key] = await call()
            finally:
                _running_once.reset(within)
                if self._running.get(key) is done:
                    del self._running[key]
                done.set_result(None)
        return self.results[key]

    def abandon(self) -> None:
        """Stop counting the calls that the current code runs inside of: they wait for the caller's response."""
        for results, key in _running_once.get():
            if results is self:
                self._running.pop(key, None)


def request_metrics(exchange: Exchange) -> RequestMetrics | None:
    """Return the metrics of the server that serves a request; None if it has none."""
    server = getattr(exchange.connection.service, "server", None)
    return None if server is None or server.metrics is None else server.metrics.requests


def caller_identity(exchange: Exchange) -> str | None:
    """Return the identity of the caller's principal as text; None for callers without one."""
    principal = exchange.admitted.caller.principal
    # As JSON, so that the parts are delimited unambiguously.
    return None if principal is None else msgspec.json.encode(principal.identity).decode()


def embed_request(request: RequestToClient, revision: Revision) -> tuple[t.InputRequest, str]:
    """Return a request in the form used inside results, and the digest that identifies it."""
    encoded = msgspec.json.encode(adapt_params(request.params, revision))
    digest = blake2b(request.method.encode() + b"\0" + encoded, digest_size=16).hexdigest()
    return t.InputRequest(method=request.method, params=Raw(encoded)), digest


def default_key(request: RequestToClient, digest: str) -> str:
    """Return the key of a request for which the handler gave none."""
    return f"{request.method.partition('/')[0]}-{digest[:8]}"


def state_binding(exchange: Exchange) -> StateBinding:
    """Return what sealed state is bound to: the call and its principal."""
    return StateBinding(
        method=exchange.method,
        params_digest=request_digest(exchange.method, bytes(exchange.params or b"{}")),
        principal=caller_identity(exchange),
    )


def decode_response(raw: Raw, kind: type[T], method: str) -> T:
    """Decode the caller's response to a request.

    Raises:
        InvalidParams: it is not a valid result of that method.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidParams(f"Invalid params: the response to {method} is not valid: {error}") from error


async def _wait_forever() -> Raw:
    never: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
    return await never


async def call_function(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
    """Call a function, and await what it returns if that is awaitable."""
    value = function(*args, **kwargs)
    return await value if inspect.isawaitable(value) else value
