"""Answers of a client to the server's questions, over HTTP: an outage delays them, and a refusal ends the call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.transports.http.scripted_http import LISTENING, Got, HttpScript, Status, Writer, break_off, handshake_script
from trunkline.client.client import Client
from trunkline.errors import ConnectionLost, HttpError
from trunkline.transports.http.client.answers import post_answer

BUSY = Status(503, b"not now", {"Retry-After": "0"})
LIMITED = Status(429, b"too many", {"Retry-After": "0"})
ACCEPTED = Status(202)
NOTICES = {"notifications/initialized": ACCEPTED, "notifications/cancelled": ACCEPTED}
QUESTION = {
    "mode": "form",
    "message": "Your name?",
    "requestedSchema": {"type": "object", "properties": {"value": {"type": "string"}}},
}


def question(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": QUESTION}


def answers(script: HttpScript) -> list[Got]:
    return [got for got in script.requests if "result" in got.message]


def asking(*replies: Any) -> HttpScript:
    """Make a server whose tool asks, and that replies so to the answers in turn; the last is taken as received."""

    async def ask(got: Got, writer: Writer) -> None:
        writer.stream()
        writer.event(question(f"q-{got.id}"))
        await writer.flush()
        await script.until(lambda: len(answers(script)) >= len(replies))
        writer.event({"jsonrpc": "2.0", "id": got.id, "result": {"content": [{"type": "text", "text": "done"}]}})
        await writer.flush()

    script = handshake_script({**NOTICES, "tools/call": ask, "POST": list(replies)})
    return script


def hanging(reply: Any) -> HttpScript:
    """Make a server whose tool asks and never ends."""

    async def ask(got: Got, writer: Writer) -> None:
        writer.stream()
        if got.message["params"]["name"] == "ask":
            writer.event(question("q"))
        await writer.until_left()

    return handshake_script({**NOTICES, "tools/call": ask, "POST": reply, "GET": LISTENING})


def connected(script: HttpScript) -> Client:
    return Client(script.url, revision="legacy", elicitation=lambda _: {"value": "Ada"})


@pytest.mark.parametrize(
    "replies",
    [(BUSY, BUSY, ACCEPTED), (LIMITED, ACCEPTED), (break_off, ACCEPTED)],
    ids=["503", "429", "connection broken"],
)
async def test_an_answer_that_is_not_accepted_now_is_sent_again(replies: tuple[Any, ...]) -> None:
    async with asyncio.timeout(60), asking(*replies) as script, connected(script) as client:
        assert (await client.call_tool("ask")).text == "done"
    sent = answers(script)
    assert len(sent) == len(replies)
    assert len({got.body for got in sent}) == 1


@pytest.mark.parametrize("status", [404, 410])
async def test_an_answer_that_is_no_longer_expected_fails_its_call_at_once(status: int) -> None:
    async with asyncio.timeout(60), hanging(Status(status)) as script, connected(script) as client:
        other = asyncio.create_task(client.call_tool("wait"))
        await script.until(lambda: script.of("tools/call"))
        with pytest.raises(ConnectionLost, match=f"no longer waits for this answer: .*{status}.*; call again"):
            await client.call_tool("ask")
        # The call that asked nothing goes on.
        assert not other.done()
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    assert len(answers(script)) == 1


async def test_an_answer_that_may_have_arrived_does_not_fail_its_call() -> None:
    async with asyncio.timeout(60), asking(break_off, Status(410)) as script, connected(script) as client:
        assert (await client.call_tool("ask")).text == "done"


@pytest.mark.parametrize("reply", [Status(400), Status(503)], ids=["400", "503 without a time"])
async def test_other_refusals_are_final(reply: Status) -> None:
    async with asyncio.timeout(60), asking(reply) as script, connected(script) as client:
        assert (await client.call_tool("ask")).text == "done"
    assert len(answers(script)) == 1


async def test_an_answer_is_not_sent_again_after_its_call_has_ended() -> None:
    ended = asyncio.get_running_loop().create_future()
    attempts: list[None] = []

    async def refused() -> None:
        attempts.append(None)
        asyncio.get_running_loop().call_soon(ended.set_result, None)
        raise HttpError("not now", status=503, retry_after="10")

    async with asyncio.timeout(60):
        await post_answer(refused, [ended])
    assert len(attempts) == 1


async def test_closing_does_not_wait_for_answers_that_are_sent_again() -> None:
    late = Status(503, b"", {"Retry-After": "100000"})
    async with asyncio.timeout(60), hanging(late) as script:
        async with connected(script) as client:
            call = asyncio.create_task(client.call_tool("ask"))
            await script.until(lambda: answers(script))
        with pytest.raises(ConnectionLost):
            await call
    assert script.names[-1] == "DELETE"
