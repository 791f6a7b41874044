"""Rate limits: one count for all workers, per-worker counts while Redis is gone, never a delay worth the name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import aiohttp
import pytest

from tests.store.redis_server import RedisServer, needs_redis
from tests.transports.http.serving_support import (
    BOTH,
    META,
    STATELESS,
    Call,
    SessionClient,
    ask,
    authenticate,
    modern,
    modern_headers,
    request,
    tool,
)
from tests.transports.http.shared.machines import Machine, machine
from tests.transports.http.shared.workers import Fleets, Worker, back, connected_pair, fleet, gone, until
from trunkline import RateLimit
from trunkline.transports.http.server import rate_limits

#: One is added every hundred seconds: none during a test.
THREE = RateLimit(per_second=0.01, burst=3)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for Redis for as long as a busy machine may need, unless a test says otherwise."""
    monkeypatch.setattr(rate_limits, "_PATIENCE_SECONDS", 30.0)


async def statuses(calls: Iterable[Call]) -> list[int | None]:
    """Return how calls are answered; those of a generator are sent one after another."""
    return [(await call.whole()).status for call in calls]


async def test_a_caller_is_counted_once_for_all_workers(fleets: Fleets) -> None:
    async with fleets(2, rate_limit=THREE) as workers:
        one, other = workers
        assert await statuses(modern(each.app, tool("add")) for each in (one, other, one)) == [200] * 3
        refused = [await modern(each.app, tool("add")).whole() for each in (one, other)]
        assert [call.status for call in refused] == [429, 429]
        assert all(90 <= int(call.headers["retry-after"]) <= 100 for call in refused)
        assert refused[0].json["error"] == {
            "code": 429,
            "message": f"Too many requests; try again in {refused[0].headers['retry-after']} s",
        }
        assert one.workshop.count + other.workshop.count == 3


async def test_each_principal_has_its_own_count(fleets: Fleets) -> None:
    async with fleets(2, rate_limit="1/h", auth=authenticate) as workers:
        calls = (called(worker, who) for who in ("ada", "bob") for worker in workers)
        assert await statuses(calls) == [200, 429, 200, 429]


async def test_callers_without_a_principal_are_counted_by_address(fleets: Fleets) -> None:
    async with fleets(1, rate_limit="1/h") as workers:
        (worker,) = workers
        addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.1", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]
        calls = (from_address(worker, address) for address in addresses)
        # 405: it was admitted, and is not used in this revision.
        assert await statuses(calls) == [405, 405, 429, 405, 429, 405]


def from_address(worker: Worker, address: str) -> Call:
    call = ask(worker.app, "DELETE", headers={"mcp-protocol-version": STATELESS})
    call.scope["client"] = (address, 1)
    return call


async def test_a_session_is_counted_with_each_of_its_requests(fleets: Fleets) -> None:
    async with fleets(2, rate_limit=THREE) as workers:
        one, _ = workers
        client = await SessionClient.open(one.app)
        assert await statuses([client.post(tool("add"))]) == [200]
        assert await statuses([client.get()]) == [429]


async def test_each_request_of_a_batch_counts(fleets: Fleets) -> None:
    async with fleets(2, rate_limit=RateLimit(per_second=0.01, burst=5)) as workers:
        one, other = workers
        client = await SessionClient.open(one.app, "2025-03-26")
        pings = [request("ping", id=number) for number in range(3)]
        assert await statuses([client.post(pings)]) == [200]
        assert await statuses([modern(other.app, tool("add"))]) == [429]


async def test_a_batch_larger_than_the_burst_is_refused(fleets: Fleets) -> None:
    async with fleets(1, rate_limit=RateLimit(per_second=1000, burst=2)) as workers:
        (worker,) = workers
        client = await SessionClient.open(worker.app, "2025-03-26")
        call = client.post([request("ping", id=number) for number in range(4)])
        async with asyncio.timeout(120):
            while "Too many requests" in (await call.whole()).json["error"]["message"]:
                call = client.post([request("ping", id=number) for number in range(4)])
        assert (call.status, call.json["error"]["message"]) == (429, "A batch may have at most 2 requests here")


async def test_preflights_are_not_counted(fleets: Fleets) -> None:
    async with fleets(1, rate_limit="1/h") as workers:
        (worker,) = workers
        assert await statuses(ask(worker.app, "OPTIONS") for _ in range(3)) == [405] * 3
        assert await statuses([modern(worker.app, tool("add"))]) == [200]


@needs_redis
async def test_each_worker_counts_by_itself_while_redis_is_gone(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis, rate_limit=THREE, auth=authenticate) as (one, other):
        assert await statuses([called(one, "ada")]) == [200]
        await gone(own_redis, one, other)
        # What a worker has admitted before counts: two are left at one, three at the other.
        assert await statuses(called(one, "ada") for _ in range(3)) == [200, 200, 429]
        assert await statuses(called(other, "ada") for _ in range(4)) == [200, 200, 200, 429]
        await back(own_redis, one, other)
        await until_shared(one, other)


async def until_shared(one: Worker, other: Worker) -> None:
    """Wait until a new caller has three requests at both workers together."""
    async with asyncio.timeout(120):
        for number in range(10_000):
            calls = (called(worker, f"caller{number}") for worker in (one, other, one, other))
            if await statuses(calls) == [200, 200, 200, 429]:
                return
    raise AssertionError("the workers count by themselves")


def called(worker: Worker, who: str) -> Call:
    return modern(worker.app, tool("add"), authorization=f"Bearer {who}")


@needs_redis
async def test_a_redis_that_does_not_answer_is_asked_by_one_request_and_not_again_during_a_pause(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate_limits, "_PAUSE_SECONDS", 600.0)
    async with fleet(1, url=own_redis.url, name="slow", rate_limit=RateLimit(per_second=0.01, burst=200)) as workers:
        (worker,) = workers
        await until(lambda: worker.store.available)
        await statuses([modern(worker.app, tool("add"))])
        asked, admit = [], worker.store.admit

        async def counted(*arguments: Any, **options: Any) -> float:
            asked.append(arguments)
            wait: float = await admit(*arguments, **options)
            return wait

        worker.store.admit = counted
        monkeypatch.setattr(rate_limits, "_PATIENCE_SECONDS", 0.05)
        own_redis.pause()
        try:
            assert await statuses(modern(worker.app, tool("add")) for _ in range(20)) == [200] * 20
            # The others were counted here at once.
            assert len(asked) == 1
        finally:
            own_redis.resume()


async def plain(http: aiohttp.ClientSession, machine: Machine) -> tuple[int, str | None]:
    """Call a tool in the stateless revision."""
    message = tool("pid")
    message["params"]["_meta"] = META
    head = {"accept": BOTH, **modern_headers("tools/call", "pid")}
    async with http.post(machine.url, json=message, headers=head) as response:
        await response.read()
        return response.status, response.headers.get("retry-after")


async def counted_together(*machines: Machine) -> None:
    """Check that a caller may send eight requests to all machines together.

    A machine that is too busy to ask Redis in time counts by itself for a second; another caller tries then.
    """
    found: list[list[int]] = []
    for number in range(2, 12):
        connector = aiohttp.TCPConnector(force_close=True, local_addr=(f"127.0.0.{number}", 0))
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as http:
            answers = [await plain(http, each) for _ in range(10) for each in machines]
        assert all(int(wait or 0) > 300 for status, wait in answers if status == 429)
        found.append(sorted(status for status, _ in answers))
        if found[-1] == [200] * 8 + [429] * (10 * len(machines) - 8):
            return
    raise AssertionError(f"each of them counts by itself: {found}")


@needs_redis
async def test_two_processes_count_a_caller_together(own_redis: RedisServer) -> None:
    options: dict[str, Any] = {"store": own_redis.url, "rate_limit": "8/h"}
    with machine(**options) as one, machine(**options) as other:
        await counted_together(one, other)
