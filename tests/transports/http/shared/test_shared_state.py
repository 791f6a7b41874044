"""Large request states, single use and handles at several workers: made at one, opened at another, used once."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.store.redis_server import RedisServer, needs_redis
from tests.transports.http.serving_support import Call, modern, tool
from tests.transports.http.shared.workers import Fleet, Fleets, Worker, back, connected_pair, gone, refusal
from trunkline import Context, Handle
from trunkline.protocol.limits import Limits

ELICITS: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}


def furnish(worker: Worker) -> None:
    """Add the tools of these tests to a worker's server."""
    server = worker.workshop.server

    @server.tool(single_use=True)
    async def buy(ctx: Context) -> str:
        return f"bought {(await ctx.elicit('What?', str)).data}"

    @server.tool
    async def order(ctx: Context, size: int) -> str:
        """Keep ``size`` bytes between the rounds."""
        kept = await ctx.once("kept", lambda: "x" * size)
        return f"{len(kept)} {(await ctx.elicit('What?', str)).data}"

    @server.tool
    async def open_cart(ctx: Context) -> str:
        return (await ctx.handle(["first"])).id

    @server.tool
    async def fill(cart: Handle[list[str]], item: str) -> str:
        async with cart.edit() as items:
            items.append(item)
        return " ".join(items)


async def ask(worker: Worker, name: str, **arguments: Any) -> Any:
    """Call a tool and return its first result."""
    call = await modern(worker.app, tool(name, **arguments), meta=ELICITS).whole()
    assert call.status == 200, call.body
    return call.json["result"]


def answered(result: Any, name: str, value: str, **arguments: Any) -> dict[str, Any]:
    """Return the next round of a call."""
    answers = {key: {"action": "accept", "content": {"value": value}} for key in result["inputRequests"]}
    message = tool(name, **arguments)
    message["params"] |= {"inputResponses": answers, "requestState": result["requestState"]}
    return message


def resume(worker: Worker, message: dict[str, Any]) -> Call:
    return modern(worker.app, message, meta=ELICITS)


def text(call: Call) -> str:
    return str(call.json["result"]["content"][0]["text"])


def pair(fleet: Fleet) -> tuple[Worker, Worker]:
    one, other = fleet.workers
    for worker in (one, other):
        furnish(worker)
    return one, other


async def test_a_state_too_large_to_send_is_opened_at_another_worker(fleets: Fleets) -> None:
    async with fleets(2) as workers:
        one, other = pair(workers)
        result = await ask(one, "order", size=100_000)
        assert len(result["requestState"]) < 1000
        call = await resume(other, answered(result, "order", "tea", size=100_000)).whole()
        assert text(call) == "100000 tea"


async def test_stored_states_have_a_bound_over_all_workers(fleets: Fleets) -> None:
    async with fleets(2, limits=Limits(state_bytes=1000, message_bytes=10_000, owner_store_bytes=12_000)) as workers:
        one, other = pair(workers)
        first = await ask(one, "order", size=5000)
        second = await ask(other, "order", size=5000)
        # The oldest makes room.
        call = await resume(other, answered(first, "order", "tea", size=5000)).whole()
        assert "start the call again" in call.json["error"]["message"]
        assert text(await resume(one, answered(second, "order", "tea", size=5000)).whole()) == "5000 tea"
        call = await modern(one.app, tool("order", size=10_000), meta=ELICITS).whole()
        assert "too large to keep" in call.json["error"]["message"]


async def test_a_single_use_state_is_used_once_whatever_the_worker(fleets: Fleets) -> None:
    async with fleets(2) as workers:
        one, other = pair(workers)
        message = answered(await ask(one, "buy"), "buy", "tea")
        calls = [resume(worker, message) for worker in (one, other) for _ in range(4)]
        ended = await asyncio.gather(*(call.whole() for call in calls))
        bought = [call for call in ended if "result" in call.json]
        assert [text(call) for call in bought] == ["bought tea"]
        errors = {call.json["error"]["message"] for call in ended if call not in bought}
        assert errors == {"The request state was used already; start the call again."}


async def test_a_handle_of_one_worker_is_changed_at_another(fleets: Fleets) -> None:
    async with fleets(2) as workers:
        one, other = pair(workers)
        cart = text(await modern(one.app, tool("open_cart")).whole())
        filled = [
            text(await modern(worker.app, tool("fill", cart=cart, item=item)).whole())
            for worker, item in ((other, "second"), (one, "third"))
        ]
        assert filled == ["first second", "first second third"]


async def test_concurrent_changes_of_a_handle_at_two_workers_lose_none(fleets: Fleets) -> None:
    async with fleets(2) as workers:
        one, other = pair(workers)
        cart = text(await modern(one.app, tool("open_cart")).whole())

        async def fill(worker: Worker, item: str) -> None:
            async with asyncio.timeout(120):
                failed = True
                while failed:
                    call = await modern(worker.app, tool("fill", cart=cart, item=item)).whole()
                    failed = call.json["result"].get("isError", False)
                    assert not failed or "Try again" in text(call)

        await asyncio.gather(*(fill(worker, f"{n}") for n in range(8) for worker in (one, other)))
        items = text(await modern(one.app, tool("fill", cart=cart, item="end")).whole()).split()
        assert sorted(items) == sorted(["first", "end", *(f"{n}" for n in range(8)), *(f"{n}" for n in range(8))])


@needs_redis
async def test_what_was_used_cannot_be_used_while_redis_is_gone(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis) as (one, other):
        furnish(one)
        furnish(other)
        message = answered(await ask(one, "buy"), "buy", "tea")
        large = await ask(one, "order", size=100_000)
        cart = text(await modern(one.app, tool("open_cart")).whole())
        await gone(own_redis, one, other)
        refused = [
            resume(other, message),
            resume(one, answered(large, "order", "tea", size=100_000)),
            modern(one.app, tool("order", size=100_000), meta=ELICITS),
            modern(other.app, tool("fill", cart=cart, item="more")),
            modern(other.app, tool("open_cart")),
        ]
        assert [refusal(await call.whole()) for call in refused] == [(503, "1")] * len(refused)
        assert (await modern(one.app, tool("add")).whole()).status == 200
        await back(own_redis, one, other)
        assert text(await resume(other, message).whole()) == "bought tea"
        assert "used already" in (await resume(one, message).whole()).json["error"]["message"]
        assert text(await modern(other.app, tool("fill", cart=cart, item="more")).whole()) == "first more"


@needs_redis
async def test_after_lost_writes_no_state_of_before_is_used_and_no_handle_is_opened(own_redis: RedisServer) -> None:
    async with connected_pair(own_redis) as (one, other):
        furnish(one)
        furnish(other)
        message = answered(await ask(one, "buy"), "buy", "tea")
        before = one.store.generation
        await gone(own_redis, one, other)
        own_redis.forget()
        await back(own_redis, one, other)
        async with asyncio.timeout(120):
            while before in (one.store.generation, other.store.generation):  # noqa: ASYNC110  no event
                await asyncio.sleep(0.01)
        assert "used already" in (await resume(other, message).whole()).json["error"]["message"]
