"""Calls of several rounds, fed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from trunkline.errors import RemoteProtocolError
from trunkline.protocol.input_required import CollectInput, SendRequest, input_rounds
from trunkline.types import CallToolRequestParams, CallToolResult, InputRequest, InputRequiredResult

PARAMS = CallToolRequestParams(name="book")
QUESTION = {"who": InputRequest(method="elicitation/create", params=Raw(b'{"message":"Who?"}'))}
ANSWERS = {"who": Raw(b'{"action":"decline"}')}
DONE = CallToolResult(result_type="complete")


def asking(state: str | None = None, questions: Any = QUESTION) -> InputRequiredResult:
    return InputRequiredResult(input_requests=questions, request_state=state)


def finish(flow: Any, outcome: Any) -> Any:
    with pytest.raises(StopIteration) as end:
        flow.send(outcome)
    return end.value.value


def _started() -> Any:
    flow = input_rounds(PARAMS, limit=3)
    next(flow)
    return flow


def test_a_result_that_asks_nothing_ends_the_call() -> None:
    flow = input_rounds(PARAMS, limit=3)
    assert next(flow) == SendRequest(PARAMS)
    assert finish(flow, DONE) is DONE
    old = CallToolResult()
    assert finish(_started(), old) is old


def test_questions_are_asked_and_answered_in_the_next_round() -> None:
    flow = _started()
    assert flow.send(asking("opaque")) == CollectInput(QUESTION)
    again = flow.send(ANSWERS)
    assert isinstance(again, SendRequest)
    assert again.params.name == "book"
    assert again.params.input_responses == ANSWERS
    assert again.params.request_state == "opaque"
    assert finish(flow, DONE) is DONE


def test_rounds_can_start_with_the_result_of_the_first_request() -> None:
    flow = input_rounds(PARAMS, limit=3, first=asking())
    assert next(flow) == CollectInput(QUESTION)


def test_a_state_that_was_not_given_is_not_sent_back() -> None:
    flow = input_rounds(PARAMS, limit=5, first=asking("opaque"))
    next(flow)
    flow.send(ANSWERS)
    flow.send(asking(None))
    last = flow.send(ANSWERS)
    assert isinstance(last, SendRequest)
    assert last.params.request_state is None


def test_a_state_without_questions_is_sent_back_and_the_waits_are_counted() -> None:
    flow = input_rounds(PARAMS, limit=9, first=asking("a", None))
    first = next(flow)
    assert isinstance(first, SendRequest)
    assert (first.waits, first.params.request_state, first.params.input_responses) == (1, "a", None)
    second = flow.send(asking("b", {}))
    assert isinstance(second, SendRequest)
    assert (second.waits, second.params.request_state) == (2, "b")
    assert flow.send(asking("c")) == CollectInput(QUESTION)
    answered = flow.send(ANSWERS)
    assert isinstance(answered, SendRequest)
    assert answered.waits == 0


def test_a_question_that_asks_nothing_at_all_is_the_servers_fault() -> None:
    flow = _started()
    with pytest.raises(RemoteProtocolError, match="no input requests and no request state"):
        flow.send(InputRequiredResult())


def test_an_unknown_kind_of_result_is_the_servers_fault() -> None:
    flow = _started()
    with pytest.raises(RemoteProtocolError, match="'partial'"):
        flow.send(CallToolResult(result_type="partial"))


def test_too_many_rounds_name_the_limit() -> None:
    flow = input_rounds(PARAMS, limit=2, first=asking())
    next(flow)
    flow.send(ANSWERS)
    flow.send(asking())
    flow.send(ANSWERS)
    with pytest.raises(RemoteProtocolError, match="2 consecutive rounds"):
        flow.send(asking())


def test_the_last_round_allowed_may_bring_the_result() -> None:
    flow = input_rounds(PARAMS, limit=1, first=asking())
    next(flow)
    flow.send(ANSWERS)
    assert finish(flow, DONE) is DONE


def test_params_as_on_the_wire_work_too() -> None:
    flow = input_rounds({"name": "book", "requestState": "stale"}, limit=3, first=asking("new"))
    next(flow)
    again = flow.send(ANSWERS)
    assert again == SendRequest({"name": "book", "inputResponses": ANSWERS, "requestState": "new"})


def test_params_as_on_the_wire_lose_what_an_earlier_round_left() -> None:
    flow = input_rounds({"name": "book", "inputResponses": {}}, limit=3, first=asking("new", None))
    again = next(flow)
    assert again == SendRequest({"name": "book", "requestState": "new"}, 1)
    flow.send(asking(None))
    assert flow.send(ANSWERS) == SendRequest({"name": "book", "inputResponses": ANSWERS})


def test_a_plain_result_is_judged_by_its_wire_member() -> None:
    flow = input_rounds({}, limit=3)
    next(flow)
    with pytest.raises(RemoteProtocolError):
        flow.send({"resultType": "partial"})
