"""Batches: what makes one invalid as a whole, and how its answers are collected."""

from __future__ import annotations

import pytest

from trunkline.protocol.jsonrpc import (
    Batch,
    BatchReply,
    ErrorResponse,
    InvalidMessage,
    Message,
    Notification,
    Request,
    Response,
    batch_fault,
)
from trunkline.types import ErrorObject

ERROR = ErrorObject(code=-1, message="no")
BAD = InvalidMessage(-32600, "bad", 9)
BAD_ANSWERED = ErrorResponse(9, ErrorObject(code=-32600, message="bad"))


@pytest.mark.parametrize(
    ("items", "words"),
    [
        pytest.param((Request(1, "m"), Response(2, {})), "requests or responses, not both", id="request and result"),
        pytest.param((Notification("m"), Response(2, {})), "requests or responses, not both", id="notice and result"),
        pytest.param((Request(1, "m"), ErrorResponse(2, ERROR)), "not both", id="request and error"),
        pytest.param((Request(1, "m"), Request(1, "n")), "the same id", id="an id twice"),
        pytest.param((Request(1, "initialize"),), "initialize cannot be part", id="initialize"),
    ],
)
def test_a_batch_that_breaks_a_rule_is_rejected_as_a_whole(
    items: tuple[Message | InvalidMessage, ...], words: str
) -> None:
    wrong = batch_fault(Batch(items))
    assert wrong is not None
    assert words in wrong


@pytest.mark.parametrize(
    "items",
    [
        pytest.param((Request(1, "m"), Request("1", "m"), Notification("n")), id="requests and notices"),
        pytest.param((Response(1, {}), ErrorResponse(2, ERROR)), id="answers"),
        pytest.param((Request(1, "m"), BAD), id="a request and what is none"),
        pytest.param((Response(1, {}), BAD), id="an answer and what is none"),
        pytest.param((Notification("initialize"),), id="a notice of that name"),
    ],
)
def test_other_batches_are_taken(items: tuple[Message | InvalidMessage, ...]) -> None:
    assert batch_fault(Batch(items)) is None


def test_the_answers_are_given_once_the_last_is_there() -> None:
    reply = BatchReply(Batch((Request(1, "m"), Request("1", "m"))))
    assert reply.add("1", Response("1", {})) is None
    assert reply.add(1, Response(1, {})) == (Response("1", {}), Response(1, {}))


def test_the_responses_of_a_batch_are_returned_once() -> None:
    reply = BatchReply(Batch((Request(1, "m"),)))
    reply.add(1, Response(1, {}))
    assert reply.complete() is None


def test_malformed_items_are_answered_with_the_rest() -> None:
    reply = BatchReply(Batch((BAD, Request(1, "m"))))
    assert reply.complete() is None
    assert reply.add(1, Response(1, {})) == (BAD_ANSWERED, Response(1, {}))


def test_a_batch_of_nothing_readable_is_answered_at_once() -> None:
    assert BatchReply(Batch((BAD,))).complete() == (BAD_ANSWERED,)


def test_a_cancelled_request_is_not_waited_for_and_not_answered() -> None:
    reply = BatchReply(Batch((Request(1, "m"), Request(2, "m"))))
    assert reply.add(1, None) is None
    assert reply.add(2, Response(2, {})) == (Response(2, {}),)


@pytest.mark.parametrize(
    "items",
    [
        pytest.param((Notification("m"),), id="notices"),
        pytest.param((Response(1, {}),), id="answers"),
        pytest.param((InvalidMessage(-32600, "bad", 1, response=True),), id="malformed answers"),
    ],
)
def test_a_batch_that_asks_nothing_is_not_answered(items: tuple[Message | InvalidMessage, ...]) -> None:
    assert BatchReply(Batch(items)).complete() is None


def test_a_batch_of_cancelled_requests_is_not_answered() -> None:
    assert BatchReply(Batch((Request(1, "m"),))).add(1, None) is None
