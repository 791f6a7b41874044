"""A call of several rounds: the server answers with questions until it knows enough, as a generator.

``rounds`` yields what to send and what to ask, and is sent what came of it; it knows no connection, no clock and no
callback. What the server wants carried from round to round (``requestState``) goes back exactly as it came and is never
looked into. Each round is a request of its own with an id of its own, which is the sender's business.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeAlias

from msgspec import Raw, Struct
from msgspec.structs import replace

from trunkline.errors import RemoteProtocolError
from trunkline.types import InputRequest, InputRequiredResult

__all__ = ["Ask", "Rounds", "Send", "check_kind", "rounds"]


class Send(Struct, frozen=True):
    """Send the request with these params; ``waits`` counts the rounds in a row that brought no question."""

    params: Any
    waits: int = 0


class Ask(Struct, frozen=True):
    """Find the answers to these questions, encoded, under the same keys."""

    questions: Mapping[str, InputRequest]


#: A ``Send`` is answered with the decoded result, an ``Ask`` with the answers by key.
Rounds: TypeAlias = Generator[Send | Ask, Any, Any]


def rounds(params: Any, *, limit: int, first: Any = None) -> Rounds:
    """Send a request, and send it again with what was asked for, until there is a result that is no question.

    ``params`` are a struct with ``input_responses`` and ``request_state``, or a dictionary as on the wire. ``first`` is
    the result of the first round for whoever has sent it already.

    Raises:
        RemoteProtocolError: a question that asks nothing, an unknown kind of result, or too many rounds.
    """
    result = (yield Send(params)) if first is None else first
    waits = 0
    for _ in range(limit):
        if not isinstance(result, InputRequiredResult):
            return check_kind(result)
        if result.input_requests is None and result.request_state is None:
            raise RemoteProtocolError("The server asks for input but says neither what it asks nor what to send back.")
        answers: dict[str, Raw] | None = None
        if result.input_requests:
            answers = yield Ask(result.input_requests)
            waits = 0
        else:
            waits += 1
        result = yield Send(_again(params, answers, result.request_state), waits)
    if isinstance(result, InputRequiredResult):
        raise RemoteProtocolError(f"The server asked for more input in {limit} rounds in a row, which is the limit.")
    return check_kind(result)


def check_kind(result: Any) -> Any:
    """Give back a result that says it is complete, or says nothing.

    Raises:
        RemoteProtocolError: it says that it is something else, which the specification says is invalid.
    """
    kind = result.get("resultType") if isinstance(result, dict) else getattr(result, "result_type", None)
    if kind is not None and kind != "complete":
        raise RemoteProtocolError(f"The server answered with a result of an unknown kind: {kind!r}.")
    return result


def _again(params: Any, answers: dict[str, Raw] | None, state: str | None) -> Any:
    """Give the params of the next round: nothing of an earlier round stays but what the caller gave."""
    if not isinstance(params, dict):
        return replace(params, input_responses=answers, request_state=state)
    again = {name: value for name, value in params.items() if name not in ("inputResponses", "requestState")}
    if answers is not None:
        again["inputResponses"] = answers
    if state is not None:
        again["requestState"] = state
    return again
