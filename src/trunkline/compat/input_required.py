"""Handlers that return ``InputRequiredResult`` themselves: requests to the caller, and state of their own.

Ours ask with ``await`` and are replayed; a handler of the official SDK returns its questions, and reads the answers
from the context when the call comes again. Its state is sealed by the server's own seal, under the mark ``v1.`` that
the SDK puts before it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.compat.types import REQUEST_MODELS, model_class, to_plain
from trunkline.errors import InvalidParams, RequestFailed
from trunkline.protocol.revisions import Feature
from trunkline.server.dispatch import root_server
from trunkline.server.elicitors import state_binding
from trunkline.server.request_state import RoundState, StateBinding, StateSeal
from trunkline.server.sealing import read_keys

__all__ = [
    "MarkedSeal",
    "is_input_required",
    "marked_seal",
    "read_responses",
    "read_state",
    "to_input_required",
    "with_input",
    "with_requests",
]

_MARK = "v1."
#: The answers and the state that a handler reads in place of those of the request, or None.
_GIVEN: ContextVar[tuple[dict[str, Any] | None, str | None] | None] = ContextVar(
    "trunkline.compat.given_input", default=None
)
#: Where the handler's own text is in the state of a round.
_KEY = "compat.state"


class MarkedSeal(StateSeal):
    """A seal whose texts begin with the SDK's mark."""

    __slots__ = ()

    async def seal(self, state: RoundState, *, binding: StateBinding) -> str:
        """Return the sealed text of a state."""
        return _MARK + await super().seal(state, binding=binding)

    async def open(self, text: str, *, binding: StateBinding) -> RoundState:
        """Return the state of a sealed text.

        Raises:
            InvalidParams: it was not sealed here for this binding, or has expired.
        """
        try:
            return await super().open(text.removeprefix(_MARK), binding=binding)
        except InvalidParams as error:
            raise InvalidParams("Invalid or expired requestState", data={"reason": "invalid_request_state"}) from error


def marked_seal(server: Any) -> MarkedSeal:
    """Return the seal of a server, made when it is first used."""
    if not isinstance(server._seal, MarkedSeal):
        keys = read_keys(server._state_keys, os.environ.get("TRUNKLINE_STATE_KEY"), os.urandom)
        server._seal = MarkedSeal(keys, server=server.name, limits=server.limits, now=time.time, random=os.urandom)
    return server._seal


def is_input_required(value: Any) -> bool:
    """Return whether a handler returned questions instead of a result."""
    return isinstance(value, model_class("InputRequiredResult"))


def _of_request(server: Any, exchange: Any) -> tuple[Any, Any]:
    """Return the exchange of the caller's request, and its server: what a handler calls belongs to that request."""
    inner = exchange
    while getattr(inner, "_outer", None) is not None:
        inner = inner._outer
    from_code = not hasattr(inner.connection, "service")
    return (server if inner is exchange or from_code else root_server(inner)), inner


async def to_input_required(server: Any, exchange: Any, result: Any) -> t.InputRequiredResult:
    """Return what a handler returned as ours, with its state sealed.

    Raises:
        RequestFailed: the revision of the caller has no such results.
    """
    server, exchange = _of_request(server, exchange)
    if Feature.INPUT_REQUIRED not in exchange.admitted.caller.revision.features:
        raise RequestFailed("Handler returned an invalid result")
    requests = {}
    for name, request in (result.input_requests or {}).items():
        plain = to_plain(request)
        params = plain.get("params")
        requests[name] = t.InputRequest(
            method=plain["method"], params=None if params is None else Raw(msgspec.json.encode(params))
        )
    state = None
    if result.request_state is not None:
        kept = RoundState(once={_KEY: result.request_state})
        state = await server.seal.seal(kept, binding=state_binding(exchange))
    return t.InputRequiredResult(result_type="input_required", input_requests=requests or None, request_state=state)


@contextmanager
def with_input(responses: dict[str, Any] | None, state: str | None) -> Iterator[None]:
    """Let handlers read these answers and this state in place of those of the request."""
    token = _GIVEN.set((responses, state))
    try:
        yield
    finally:
        _GIVEN.reset(token)


def read_state(server: Any, exchange: Any) -> str | None:
    """Return the text that the handler gave to the last round, or None."""
    given = _GIVEN.get()
    if given is not None:
        return given[1]
    if exchange is None:
        return None
    server, exchange = _of_request(server, exchange)
    text = getattr(exchange.admitted.params, "request_state", None)
    if text is None or Feature.INPUT_REQUIRED not in exchange.admitted.caller.revision.features:
        return None
    # The state was opened when the call was resumed.
    kept = None if exchange.elicitor is None else exchange.elicitor.hand_over()[1].results.get(_KEY)
    return None if kept is None else str(kept)


def read_responses(exchange: Any) -> dict[str, Any] | None:
    """Return the caller's answers to the last round as models, or None."""
    replaced = _GIVEN.get()
    if replaced is not None:
        return replaced[0]
    if exchange is None:
        return None
    _, exchange = _of_request(None, exchange)
    given = getattr(exchange.admitted.params, "input_responses", None)
    if not given:
        return None
    return {name: _response(msgspec.json.decode(raw)) for name, raw in given.items()}


def _response(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "action" in value:
        return model_class("ElicitResult").model_validate(value)
    if "roots" in value:
        return model_class("ListRootsResult").model_validate(value)
    return model_class("CreateMessageResult").model_validate(value) if "role" in value else value


def with_requests(value: dict[str, Any]) -> Any:
    """Return a result that asks for more, as it came, as a model with models of the requests in it."""
    requests = {
        name: model_class(REQUEST_MODELS[each["method"]]).model_validate(each)
        if each.get("method") in REQUEST_MODELS
        else each
        for name, each in (value.get("inputRequests") or {}).items()
    }
    result = model_class("InputRequiredResult").model_validate({**value, "inputRequests": None})
    result.input_requests = requests or None
    return result
