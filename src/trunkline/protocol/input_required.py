"""A call of several rounds: the server asks for input until it knows enough; as a generator.

``input_rounds`` yields what to send and which input to collect, and receives the outcome; it knows no connection, no
clock and no callback. The server's ``requestState`` is returned exactly as it came and never inspected. Each round is
its own request with its own id, which the sender chooses.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from trunkline.errors import RemoteProtocolError
from trunkline.types import InputRequest, InputRequiredResult

__all__ = ["CollectInput", "InputRounds", "SendRequest", "check_result_type", "input_rounds"]


class SendRequest(Struct, frozen=True):
    """Send the request with these params; ``waits`` counts the consecutive rounds without an input request."""

    params: Any
    waits: int = 0


class CollectInput(Struct, frozen=True):
    """Collect the answers to these input requests, encoded, under the same keys."""

    requests: Mapping[str, InputRequest]


#: A ``SendRequest`` is answered with the decoded result, a ``CollectInput`` with the answers by key.
InputRounds: TypeAlias = Generator[SendRequest | CollectInput, Any, Any]


def input_rounds(params: Any, *, limit: int, first: Any = None) -> InputRounds:
    """Send a request, and send it again with the requested input, until the result is a final one.

    ``params`` are a struct with ``input_responses`` and ``request_state``, or a dictionary as on the wire. ``first`` is
    the result of the first round if that was sent already.

    Raises:
        RemoteProtocolError: an input request without content, an unknown kind of result, or too many rounds.
    """
    result = (yield SendRequest(params)) if first is None else first
    waits = 0
    for _ in range(limit):
        if not isinstance(result, InputRequiredResult):
            return check_result_type(result)
        if result.input_requests is None and result.request_state is None:
            raise RemoteProtocolError("The server asked for input, but sent no input requests and no request state.")
        answers: dict[str, Raw] | None = None
        if result.input_requests:
            answers = yield CollectInput(result.input_requests)
            waits = 0
        else:
            waits += 1
        result = yield SendRequest(_next_params(params, answers, result.request_state), waits)
    if isinstance(result, InputRequiredResult):
        raise RemoteProtocolError(f"The server asked for more input in {limit} consecutive rounds, which is the limit.")
    return check_result_type(result)


def check_result_type(result: Any) -> Any:
    """Return a result whose kind is ``complete`` or not given.

    Raises:
        RemoteProtocolError: it has another kind, which the specification declares invalid.
    """
    kind = result.get("resultType") if isinstance(result, dict) else getattr(result, "result_type", None)
    if kind is not None and kind != "complete":
        raise RemoteProtocolError(f"The server returned a result of an unknown kind: {kind!r}.")
    return result


def _next_params(params: Any, answers: dict[str, Raw] | None, state: str | None) -> Any:
    """Return the params of the next round: of earlier rounds only the caller's own params are kept."""
    if not isinstance(params, dict):
        return replace(params, input_responses=answers, request_state=state)
    again = {name: value for name, value in params.items() if name not in ("inputResponses", "requestState")}
    if answers is not None:
        again["inputResponses"] = answers
    if state is not None:
        again["requestState"] = state
    return again
