"""Workers that another one cannot reach for a moment, or at all, while a stream of theirs is resumed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.transports.http.serving_support import POLLING, Call, SessionClient, modern, request, tool
from tests.transports.http.shared.workers import ASKED, Worker, accepted, at, fleet, joined, until
from trunkline.errors import StoreUnavailable
from trunkline.store.interface import Appended
from trunkline.store.memory import MemoryEngine
from trunkline.transports.http.server.sessions import worker as worker_module
from trunkline.transports.http.server.sessions.worker import SessionWorker

pytestmark = pytest.mark.usefixtures("hurried")


def shared(worker: Worker) -> Any:
    """Return the part of a worker's endpoint that shares sessions."""
    return worker.app._session_endpoint


async def begun(worker: Worker, id: int = 5) -> tuple[SessionClient, Call, str]:
    """Start a call that waits, and return the id of its first message."""
    client = await SessionClient.open(worker.app, POLLING)
    call = client.post(tool("wait", say="hello", id=id))
    hello = [await call.opening(), await call.event()][1]
    assert hello.id is not None
    return client, call, hello.id


def deaf(store: Any, worker: Worker) -> Any:
    """Remove a worker's subscriptions, as a broken connection does; return a function that restores them."""
    name = f"worker:{shared(worker)._worker.id}"
    kept = store.subscriptions.pop(name)
    return lambda: store.subscriptions.__setitem__(name, kept)


async def test_an_answer_to_a_worker_that_may_be_there_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(2) as (one, other):
        client = await SessionClient.open(one.app, POLLING, capabilities=ASKED)
        call = client.post(tool("ask_name"))
        await call.opening()
        question = await call.message()

        async def uncertain(self: SessionWorker, worker: str, message: Any) -> None:
            return None

        monkeypatch.setattr(SessionWorker, "send_answer", uncertain)
        posted = await at(client, other).post(accepted(question, "Ada")).whole()
        assert posted.status == 202
        call.hang_up()


async def test_an_answer_waits_for_a_store_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(2) as workers:
        one, other = workers
        client = await SessionClient.open(one.app, POLLING, capabilities=ASKED)
        call = client.post(tool("ask_name"))
        await call.opening()
        question = await call.message()
        send, attempts, contents = SessionWorker._send_answer, list[bool](), workers.contents
        assert contents is not None

        async def attempt(self: SessionWorker, worker: str, message: Any) -> bool | None:
            attempts.append(contents.available)
            return await send(self, worker, message)

        monkeypatch.setattr(SessionWorker, "_send_answer", attempt)
        contents.set_available(False)
        posted = asyncio.create_task(at(client, other).post(accepted(question, "Ada")).whole())
        await until(lambda: attempts == [False])
        contents.set_available(True)
        async with asyncio.timeout(120):
            assert (await posted).status == 202
            assert "Ada" in json.dumps(await call.message())


async def test_an_answer_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "ANSWER_SECONDS", 0.0)
    async with fleet(2) as workers:
        one, other = workers
        client = await SessionClient.open(one.app, POLLING, capabilities=ASKED)
        call = client.post(tool("ask_name"))
        await call.opening()
        question, contents = await call.message(), workers.contents
        assert contents is not None
        contents.set_available(False)
        assert (await at(client, other).post(accepted(question, "Ada")).whole()).status == 503
        contents.set_available(True)
        call.hang_up()


async def test_a_call_of_a_worker_that_connects_again_is_not_answered_in_its_place() -> None:
    async with fleet(2) as workers:
        one, other = workers
        client, call, hello = await begun(one)
        hear = deaf(workers.contents, one)
        resumed = at(client, other).get(last=hello)
        assert await resumed.head() == 200
        hear()
        one.workshop.proceed.set()
        async with asyncio.timeout(120):
            message = await resumed.message()
        assert message["result"]["content"][0]["text"] == "done hello"
        call.hang_up()


async def test_streams_that_could_not_be_answered_are_answered_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(2) as workers:
        one, other = workers
        client, call, hello = await begun(one, id=5)
        second = client.post(tool("wait", say="hello", id=6))
        hello2 = [await second.opening(), await second.event()][1].id
        plain = MemoryEngine.append
        failures = [2]

        async def append(self: MemoryEngine, log: str, data: bytes, **options: Any) -> Appended:
            if b"has ended" in data and failures[0]:
                failures[0] -= 1
                raise StoreUnavailable("Redis did not answer")
            return await plain(self, log, data, **options)

        monkeypatch.setattr(MemoryEngine, "append", append)
        resumed = [at(client, other).get(last=hello), at(client, other).get(last=hello2)]
        for each in resumed:
            assert await each.head() == 200
        hear = deaf(workers.contents, one)
        async with asyncio.timeout(120):
            errors = [await each.message() for each in resumed]
        assert [(each["id"], "error" in each) for each in errors] == [(5, True), (6, True)]
        hear()
        assert failures == [0]
        assert not any(shared(other)._reading.values())
        for each in (call, second):
            each.hang_up()


async def test_a_session_that_is_terminated_while_it_is_looked_up_is_not_revived(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with fleet(2) as (one, other):
        client = await SessionClient.open(one.app, capabilities={"experimental": {"x" * 5000: {}}})
        plain = MemoryEngine.get
        reading, go_on = asyncio.Event(), asyncio.Event()

        async def get(self: MemoryEngine, key: str) -> bytes | None:
            found = await plain(self, key)
            if key.startswith("facts:"):
                reading.set()
                await go_on.wait()
            return found

        monkeypatch.setattr(MemoryEngine, "get", get)
        late = at(client, other).post(tool("add"))
        await reading.wait()
        assert (await client.delete().whole()).status == 204
        go_on.set()
        assert (await late.whole()).status == 404
        assert client.id not in other.app.sessions.by_id


async def test_a_listen_stream_of_a_worker_that_joins_later_hears_that_anything_may_have_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect, reachable = MemoryEngine.connect, asyncio.Event()
    async with fleet(1) as workers:
        (one,) = workers
        store = workers.contents
        assert store is not None
        await until(lambda: joined(one))

        async def connect_later(self: MemoryEngine) -> None:
            if not reachable.is_set():
                raise StoreUnavailable("it cannot be reached")
            await connect(self)

        monkeypatch.setattr(MemoryEngine, "connect", connect_later)
        late = Worker(MemoryEngine(store))
        late.app.start()
        wanted = {"notifications": {"resourceSubscriptions": ["note://one"]}}
        stream = modern(late.app, request("subscriptions/listen", wanted))
        assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
        one.workshop.server.changed("note://one")
        await until(lambda: "announcements" in store.tables.logs)
        reachable.set()
        async with asyncio.timeout(120):
            assert (await stream.message())["params"]["uri"] == "note://one"
        stream.hang_up()
        await stream.ended()
        await late.app.aclose()
