"""Streams of shared sessions at their bounds: events that cannot be stored, clients that do not read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.transports.http.serving_support import POLLING, SessionClient, tool
from tests.transports.http.shared.workers import Fleets, Worker, at, fleet, over, until
from trunkline import Context
from trunkline.errors import StoreUnavailable
from trunkline.protocol.limits import Limits
from trunkline.store.interface import Appended
from trunkline.store.memory import MemoryEngine


def refuse(monkeypatch: pytest.MonkeyPatch, worker: Worker, refused: Callable[[bytes], bool]) -> list[bytes]:
    """Let the store of a worker give up the entries of logs of events that a function chooses."""
    given_up: list[bytes] = []
    plain = MemoryEngine.append_now

    def append_now(self: MemoryEngine, log: str, data: bytes, **options: Any) -> Appended:
        if self is worker.store and log.startswith("events:") and refused(data):
            given_up.append(data)
            raise StoreUnavailable("Redis could not store an event")
        return plain(self, log, data, **options)

    monkeypatch.setattr(MemoryEngine, "append_now", append_now)
    return given_up


async def test_a_call_goes_on_after_an_event_that_could_not_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(2, limits=Limits(write_bytes=100)) as (one, other):

        async def talk(ctx: Context) -> str:
            await ctx.info("first")
            await ctx.info("lost" * 100)
            await ctx.info("third")
            return "talked"

        one.workshop.server.tool(talk)
        refuse(monkeypatch, one, lambda data: b"lostlost" in data)
        client = await SessionClient.open(one.app, POLLING)
        call = client.post(tool("talk"))
        async with asyncio.timeout(120):
            await call.ended()
        seen = call.taken()
        resumed = at(client, other).get(last=seen[-1].id)
        async with asyncio.timeout(120):
            await resumed.ended()
        data = b"".join(event.data for event in [*seen, *resumed.taken()])
        assert [word in data for word in (b"first", b"lostlost", b"third", b"talked")] == [True, False, True, True]


async def test_a_call_whose_answer_cannot_be_stored_is_answered_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fleet(1) as (one,):
        refuse(monkeypatch, one, lambda data: b"done hello" in data)
        client = await SessionClient.open(one.app, POLLING)
        call = client.post(tool("wait", say="hello", id=5))
        hello = [await call.opening(), await call.event()][1]
        one.workshop.proceed.set()
        async with asyncio.timeout(120):
            await call.ended()
            error = await client.get(last=hello.id).message()
        assert (error["id"], "error" in error) == (5, True)


async def test_a_call_that_cannot_begin_its_stream_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(1) as (one,):
        refuse(monkeypatch, one, lambda _: True)
        client = await SessionClient.open(one.app, POLLING)
        call = await client.post(tool("wait", say="hello")).whole()
        assert (call.status, call.headers.get("retry-after")) == (503, "1")


async def test_the_get_stream_goes_on_after_an_event_that_could_not_be_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fleet(1) as (one,):
        refused = [True]
        given_up = refuse(monkeypatch, one, lambda data: b"tick" in data and refused[0])
        client = await SessionClient.open(one.app)
        listening = await client.listening()
        (subscriber,) = one.workshop.server.subscribers()
        subscriber.log("error", "tick 1")
        await until(lambda: bool(given_up))
        refused[0] = False
        subscriber.log("error", "tick 2")
        assert (await listening.message())["params"]["data"] == "tick 2"
        listening.hang_up()
        await listening.ended()


def pending(worker: Worker) -> int:
    """Return the bytes that the streams of the only session hold, with those that are read for a response alone."""
    return sum(len(each.data) for stream in _streams(worker) for each in stream._pending)


def _streams(worker: Worker) -> set[Any]:
    (session,) = worker.app.sessions.by_id.values()
    written = {response.stream for response in worker.app.open_responses.streams}
    return {*session.log.streams.values(), *written}


async def until_read(worker: Worker, events: int) -> None:
    """Wait until a stream that is not written has read so many events, or reads no more."""
    await until(
        lambda: any(getattr(each, "_paused", False) or len(each._pending) >= events for each in _streams(worker))
    )


async def test_a_get_stream_that_is_not_read_is_bounded_and_reads_on_later(fleets: Fleets) -> None:
    limits = Limits(write_bytes=10_000, log_bytes=10_000_000)
    async with fleets(limits=limits) as (one, other):
        client = await SessionClient.open(one.app)
        listening = await client.listening()
        listening.stall()
        for number in range(100):
            other.workshop.server.notify("acme/tick", {"number": number, "text": "x" * 1000})
        async with asyncio.timeout(120):
            while len(await one.store.read("announcements") or ()) < 100:  # noqa: ASYNC110  the log has no event
                await asyncio.sleep(0.005)
        await until_read(one, 50)
        assert 10_000 < pending(one) < 15_000
        listening.flow()
        async with asyncio.timeout(120):
            heard = [(await listening.message())["params"]["number"] for _ in range(100)]
        assert heard == list(range(100))
        await over(listening)


async def test_a_resumed_stream_that_is_not_read_is_bounded_and_reads_on_later(fleets: Fleets) -> None:
    limits = Limits(write_bytes=10_000, log_bytes=10_000_000)
    async with fleets(limits=limits) as (one, other):
        client = await SessionClient.open(one.app, POLLING)
        call = client.post(tool("flood", n=100))
        opening = await call.opening()
        call.hang_up()
        resumed = at(client, other).get(last=opening.id)
        assert await resumed.head() == 200
        resumed.stall()
        await until(lambda: one.workshop.sent == 100)
        await until(lambda: not any(stream.unstored for stream in _produced(one)))
        await until_read(other, 50)
        assert 10_000 < pending(other) < 15_000
        resumed.flow()
        async with asyncio.timeout(120):
            await resumed.ended()
        assert [("result" in each) for each in resumed.messages] == [False] * 100 + [True]


def _produced(worker: Worker) -> list[Any]:
    (session,) = worker.app.sessions.by_id.values()
    return [each for each in session.log.streams.values() if hasattr(each, "unstored")]
