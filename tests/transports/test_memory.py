"""Two connected links inside one process."""

from __future__ import annotations

import asyncio
import contextvars

import pytest
from msgspec import Raw

from tests.support import run_async
from trunkline.protocol.caller import MEMORY
from trunkline.protocol.jsonrpc import (
    ErrorResponse,
    Incoming,
    InvalidMessage,
    Notification,
    Outbound,
    Request,
    Response,
)
from trunkline.protocol.limits import Limits
from trunkline.testing.link_check import RecordingReceiver
from trunkline.transports.codec_errors import encode_each
from trunkline.transports.memory import memory_pair

SENDER = contextvars.ContextVar("SENDER", default="unset")


def note(number: int = 1) -> list[Outbound]:
    return [Outbound(Notification("note", {"number": number}))]


def received(*batches: list[Outbound], limits: Limits | None = None) -> list[Incoming]:
    """Send everything over a fresh pair before it is attached, and return what came before the end."""

    async def main() -> list[Incoming]:
        left, right = memory_pair(limits or Limits())
        for batch in batches:
            left.send(batch)
        seen = RecordingReceiver()
        right.attach(seen)
        await left.aclose()
        await seen.end()
        assert set(seen.origins) <= {MEMORY}
        return seen.incoming

    return run_async(main())


def test_nothing_is_shared_by_reference() -> None:
    (request,) = received([Outbound(Request(1, "x", {"list": [1]}))])
    assert isinstance(request, Request)
    assert isinstance(request.params, Raw)


async def test_an_end_attached_after_the_other_closed_gets_the_end() -> None:
    left, right = memory_pair()
    await left.aclose()
    seen = RecordingReceiver()
    right.attach(seen)
    await seen.end()
    assert seen.ends == [None]


def test_a_message_over_the_limit_is_refused_and_the_next_arrives() -> None:
    large = [Outbound(Request(1, "x", "y" * 200))]
    refused, following = received(large, note(), limits=Limits(message_bytes=100))
    assert refused == InvalidMessage(-32700, "Parse error: a line longer than 100 bytes", 1)
    assert isinstance(following, Notification)


def test_a_result_that_cannot_be_encoded_becomes_an_error(caplog: pytest.LogCaptureFixture) -> None:
    odd = [Outbound(Notification("x", object())), Outbound(Response(7, object()))]
    answer, following = received([*odd, *note()])
    assert isinstance(answer, ErrorResponse)
    assert (answer.id, answer.error.code) == (7, -32603)
    assert isinstance(following, Notification)
    assert "cannot be encoded" in caplog.text


async def test_a_receiver_runs_in_its_own_context() -> None:
    class Spy(RecordingReceiver):
        def message_received(self, incoming: Incoming, origin: object) -> None:
            self.sender = SENDER.get()
            super().message_received(incoming, MEMORY)

    left, right = memory_pair()
    seen = Spy()
    right.attach(seen)
    SENDER.set("the sender")
    left.send(note())
    await seen.messages(1)
    assert seen.sender == "unset"


async def test_drain_waits_while_the_other_end_delivers_nothing() -> None:
    left, right = memory_pair(Limits(write_bytes=10))
    left.send(note())
    draining = asyncio.create_task(left.drain())
    await asyncio.sleep(0)
    waited = not draining.done()
    right.attach(RecordingReceiver())
    await draining
    assert waited


def test_one_answer_that_cannot_be_encoded_does_not_affect_its_batch() -> None:
    batch = Outbound((Response(1, {"ok": True}), Response(2, object())))
    assert encode_each([batch]) == [
        b'[{"jsonrpc":"2.0","id":1,"result":{"ok":true}},{"jsonrpc":"2.0","id":2,"error":{"code":-32603,'
        b'"message":"Internal error: the result cannot be encoded"}}]'
    ]
