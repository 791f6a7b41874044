"""Event streams: reading, resuming, and what is kept of them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.transports.http.serving_support import POLLING, Call, SessionClient, Workshop, tool
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.event_stream import EventStream


class Reader:
    """A response that reads only when the test does."""

    dismissed = False

    def wake(self) -> None:
        """Do nothing: the test reads."""

    def dismiss(self) -> None:
        self.dismissed = True

    def finish(self) -> None:
        """Go on reading."""


async def test_drain_ends_when_the_reader_detaches() -> None:
    stream, reader = EventStream(), Reader()
    stream.push(b"x" * 100)
    stream.attach(reader)
    waiting = [asyncio.ensure_future(stream.drain(10)) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    stream.detach(reader)
    await asyncio.wait(waiting)
    assert [task.cancelled() for task in waiting] == [True, False]


def kept(call: Call, until: int) -> tuple[list[Any], str | None]:
    """Return the events that a client has when it loses its connection after so many, and the id of the last."""
    got = call.taken()[:until]
    return [json.loads(event.data) for event in got if event.data], got[-1].id if got else None


STEPS = 4


@pytest.mark.parametrize("cut", range(1, STEPS + 3))
async def test_a_finished_stream_can_be_resumed_after_any_event(cut: int) -> None:
    client = await SessionClient.open(Workshop().asgi(), POLLING)
    call = await client.post(tool("steps", n=STEPS)).whole()
    got, last = kept(call, cut)
    rest = await client.get(last).whole()
    *told, answer = got + rest.messages
    assert [message["params"]["data"] for message in told] == [f"step {n}" for n in range(STEPS)]
    assert answer["id"] == 1


@pytest.mark.parametrize("cut", range(1, 7))
async def test_a_get_stream_can_be_resumed_after_any_event(cut: int) -> None:
    workshop = Workshop()
    client = await SessionClient.open(workshop.asgi(), POLLING)
    listening = await client.listening()
    for number in range(5):
        workshop.server.notify("acme/tick", {"number": number})
    await listening.until(lambda: listening.body.count(b"acme/tick") == 5)
    listening.hang_up()
    await listening.ended()
    got, last = kept(listening, cut)
    workshop.server.notify("acme/tick", {"number": 5})
    again = await client.listening(last)
    missing = 6 - len(got)
    rest = [await again.message() for _ in range(missing)]
    again.hang_up()
    await again.ended()
    assert [message["params"]["number"] for message in got + rest] == list(range(6))
    assert again.messages == []


# --- what is larger than the log -------------------------------------------------------------------------------------


async def test_a_result_that_is_larger_than_the_log_reaches_a_client_that_stays() -> None:
    workshop = Workshop(Limits(log_bytes=1000))
    client = await SessionClient.open(workshop.asgi(), POLLING)
    workshop.proceed.set()
    call = await client.post(tool("wait", say="x" * 2000)).whole()
    assert call.messages[-1]["result"]["content"][0]["text"].endswith("x" * 2000)


async def test_a_client_that_lost_a_result_larger_than_the_log_gets_an_error() -> None:
    workshop = Workshop(Limits(log_bytes=1000))
    app = workshop.asgi()
    client = await SessionClient.open(app, POLLING)
    call = client.post(tool("wait", say="x" * 2000))
    opening = await call.opening()
    call.hang_up()
    await call.ended()
    workshop.proceed.set()
    answer = (await client.get(opening.id).whole()).messages[-1]
    assert (answer["id"], answer["error"]["code"]) == (1, -32603)
    assert "at most 1000 are kept" in answer["error"]["message"]
    assert stored_bytes(app) < 2000


def stored_bytes(app: Any) -> int:
    """Return the bytes of the events that are kept of all sessions."""
    logs = app.worker.store._contents.tables.logs
    return sum(record[2].size for name, record in logs.items() if name.startswith("events:"))


async def test_the_events_of_a_client_that_is_gone_are_bounded() -> None:
    workshop = Workshop(Limits(write_bytes=10_000, log_bytes=20_000, log_events=50))
    app = workshop.asgi()
    client = await SessionClient.open(app)
    for number in range(5):
        call = client.post(tool("flood", n=100, size=1000, id=number))
        await call.head()
        call.hang_up()
        await call.ended()
    await client.post(tool("add", id=9)).whole()
    assert workshop.sent == 500
    assert stored_bytes(app) <= 20_000


async def test_what_is_kept_of_a_session_goes_with_it() -> None:
    app = Workshop().asgi()
    client = await SessionClient.open(app, POLLING)
    await client.post(tool("steps")).whole()
    assert stored_bytes(app) > 0
    await client.delete().whole()
    assert stored_bytes(app) == 0


# --- several streams at once -----------------------------------------------------------------------------------------


async def test_a_stream_that_is_not_read_to_its_end_here_ends_no_other_one() -> None:
    workshop = Workshop(Limits(write_bytes=2000))
    app = workshop.asgi()
    one, other = [await SessionClient.open(app, POLLING) for _ in range(2)]
    waiting = one.post(tool("wait", say="hello"))
    last = [await waiting.opening(), await waiting.event()][-1].id
    waiting.hang_up()
    await waiting.ended()
    resumed = one.get(last)
    await resumed.head()
    flood = await other.post(tool("flood", n=20, size=1000)).whole()
    for session in app.sessions.by_id.values():
        session.log.sweep(0.0)
    rest = await other.get(flood.taken()[0].id).whole()
    assert ["result" in message for message in rest.messages] == [False] * 20 + [True]
    workshop.proceed.set()
    answers = [message for message in (await resumed.whole()).messages if "id" in message]
    assert [answer["result"]["content"][0]["text"] for answer in answers] == ["done hello"]


async def test_a_question_that_is_larger_than_the_log_fails_at_once(caplog: pytest.LogCaptureFixture) -> None:
    workshop = Workshop(Limits(log_bytes=50))
    client = await SessionClient.open(workshop.asgi(), capabilities={"elicitation": {}})
    listening = await client.listening()
    call = await client.post(tool("ask_name"), accept="application/json").whole()
    listening.hang_up()
    assert call.json["result"]["isError"]
    assert "log_bytes=50" in caplog.text
