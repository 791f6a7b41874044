"""What callers can make a server store: each has a share, and what one stores takes nothing from another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import trunkline.types as t
from tests.server.talk import accept
from tests.server.tasks.conftest import own_redis, stored
from tests.transports.http.serving_support import App, Call, SessionClient, authenticate, modern, request, tool
from trunkline import Context, Limits, Server
from trunkline.errors import StoreUnavailable
from trunkline.extensions import TASKS, TaskLimits
from trunkline.server.store_budget import StoreBudget, weight_of

__all__ = ["own_redis", "stored"]

CAPABILITIES: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {"form": {}}}
SHARE = 200_000
LARGE = 50_000
#: More than fits into a share.
MANY = 12


class Shop:
    """A server whose tools store something for their callers."""

    def __init__(self, **options: Any) -> None:
        sizes = {"owner_store_bytes": SHARE, "store_bytes": 10 * SHARE, "state_bytes": 1000, **options.pop("sizes", {})}
        self.proceed = asyncio.Event()
        self.server = Server("shop", limits=Limits(**sizes), **options)
        self.server.tool(self.keep)
        self.server.tool(self.ask)
        self.server.tool(task=True)(self.write)
        self.server.tool(task=True)(self.wait)

    async def keep(self, ctx: Context, size: int = LARGE) -> str:
        return (await ctx.handle(["x" * size])).id

    async def ask(self, ctx: Context) -> str:
        await ctx.once("page", lambda: "x" * LARGE)
        return str((await ctx.elicit("Your name?", str, key="name")).data)

    async def write(self, size: int = LARGE) -> str:
        # The text is in the result twice, as content and as structured content.
        return "x" * (size // 2)

    async def wait(self, text: str = "") -> int:
        await self.proceed.wait()
        return len(text)


class Caller:
    """One of the callers of an endpoint: a user, or an address."""

    def __init__(self, app: App, *, token: str | None = None, address: str = "127.0.0.1") -> None:
        self.app = app
        self.token = token
        self.address = address

    def post(self, message: dict[str, Any], **headers: Any) -> Call:
        bearer = None if self.token is None else f"Bearer {self.token}"
        meta = {t.META_CLIENT_CAPABILITIES: CAPABILITIES}
        call = modern(self.app, message, meta=meta, authorization=bearer, **headers)
        call.scope["client"] = (self.address, 1)
        return call

    async def call(self, name: str, **arguments: Any) -> Any:
        return (await self.post(tool(name, **arguments)).whole()).json["result"]

    async def start(self) -> Call:
        """Start a task that is large and does not end."""
        return await self.post(tool("wait", text="x" * LARGE)).whole()

    async def fill(self) -> Call:
        """Start tasks until one is refused."""
        for _ in range(MANY):
            call = await self.start()
            if call.status != 200:
                return call
        raise AssertionError("there is room for all of them")

    # --- one of each kind: whether it is still there ---

    async def keep(self) -> str | None:
        result = await self.call("keep")
        return None if result.get("isError") else str(result["content"][0]["text"])

    async def ask(self) -> str:
        return str((await self.call("ask"))["requestState"])

    async def has_state(self, state: str) -> bool:
        params = {"name": "ask", "arguments": {}, "inputResponses": {"name": accept("Ada")}, "requestState": state}
        answer = (await self.post(request("tools/call", params)).whole()).json
        return "result" in answer and answer["result"]["content"][0]["text"] == "Ada"

    async def write(self) -> str:
        """Run a task to its end."""
        id = str((await self.call("write"))["taskId"])
        async with asyncio.timeout(60):
            while (await self.task(id))["result"]["status"] != "completed":
                pass
        return id

    async def task(self, id: str) -> Any:
        return (await self.post(request("tasks/get", {"taskId": id}), mcp_name=id).whole()).json

    async def has_task(self, id: str) -> bool:
        return "result" in await self.task(id)


@asynccontextmanager
async def opened(users: bool = True, **options: Any) -> AsyncIterator[tuple[Shop, Caller, Caller]]:
    """Return a server and two of its callers: users, or addresses."""
    shop = Shop(**options)
    app = shop.server.asgi(auth=authenticate) if users else shop.server.asgi()
    names = [{"token": name} for name in ("ada", "bob")] if users else [{"address": f"192.0.2.{n}"} for n in (1, 2)]
    try:
        ada, bob = (Caller(app, **name) for name in names)
        yield shop, ada, bob
    finally:
        shop.proceed.set()
        await shop.server.aclose()


OWNERS = pytest.mark.parametrize("users", [True, False], ids=["users", "addresses"])


# --- one owner and another --------------------------------------------------------------------------------------------


@OWNERS
async def test_the_handles_of_one_owner_take_no_room_of_another(users: bool, stored: dict[str, Any]) -> None:
    async with opened(users, **stored) as (_, ada, bob):
        before = await bob.keep()
        handles = [await ada.keep() for _ in range(MANY)]
        refusal = (await ada.call("keep"))["content"][0]["text"]
        after = await bob.keep()
    # Handles are never dropped: as many are there as fit, sealed or not.
    count = handles.index(None)
    assert count in (2, 3)
    assert handles[count:] == [None] * (MANY - count)
    assert refusal == (
        f"No more can be stored for this caller: the limit owner_store_bytes={SHARE} is reached. Delete values and "
        "cancel tasks that are no longer needed, or wait until they expire."
    )
    assert None not in (before, after)


@OWNERS
async def test_the_states_of_one_owner_take_no_room_of_another(users: bool, stored: dict[str, Any]) -> None:
    async with opened(users, **stored) as (_, ada, bob):
        other = await bob.ask()
        states = [await ada.ask() for _ in range(MANY)]
        there = [await ada.has_state(state) for state in states]
        assert await bob.has_state(other)
        assert await bob.has_state(await bob.ask())
    # The oldest make room for new ones.
    kept = there.count(True)
    assert 1 <= kept <= 3
    assert there == [False] * (MANY - kept) + [True] * kept


@OWNERS
async def test_the_finished_tasks_of_one_owner_take_no_room_of_another(users: bool, stored: dict[str, Any]) -> None:
    async with opened(users, **stored) as (_, ada, bob):
        other = await bob.write()
        tasks = [await ada.write() for _ in range(MANY)]
        there = [await ada.has_task(task) for task in tasks]
        assert await bob.has_task(other)
        assert await bob.has_task(await bob.write())
    kept = there.count(True)
    assert 1 <= kept <= 3
    assert there == [False] * (MANY - kept) + [True] * kept


async def test_states_go_before_finished_tasks(stored: dict[str, Any]) -> None:
    # Room for two of the three, sealed or not.
    async with opened(sizes={"owner_store_bytes": 140_000}, **stored) as (_, ada, _):
        task, state = await ada.write(), await ada.ask()
        first = await ada.keep()
        there = await ada.has_task(task), await ada.has_state(state)
        second = await ada.keep()
        gone = await ada.has_task(task)
    assert None not in (first, second)
    assert (*there, gone) == (True, False, False)


# --- what is answered -------------------------------------------------------------------------------------------------


@OWNERS
async def test_an_owner_whose_share_is_full_gets_429(users: bool, stored: dict[str, Any]) -> None:
    async with opened(users, **stored) as (_, ada, bob):
        task, other = await ada.fill(), await bob.start()
        state = await ada.post(tool("ask")).whole()
    assert [(call.status, call.headers.get("retry-after")) for call in (task, state)] == [(429, "30")] * 2
    error = task.json["error"]
    assert (error["code"], error["data"]) == (
        429,
        {"limit": "owner_store_bytes", "allowed": SHARE, "retryAfter": 30},
    )
    assert state.json["error"] == error
    assert other.status == 200


async def test_a_full_store_is_answered_with_503(stored: dict[str, Any]) -> None:
    async with opened(sizes={"store_bytes": SHARE}, **stored) as (_, ada, bob):
        assert (await ada.fill()).status == 429
        refused = await bob.start()
        handle = (await bob.call("keep"))["content"][0]["text"]
    assert (refused.status, refused.headers["retry-after"]) == (503, "30")
    error = refused.json["error"]
    assert (error["code"], error["data"]["limit"]) == (503, "store_bytes")
    assert handle == error["message"]
    assert handle == f"No more can be stored on this server: the limit store_bytes={SHARE} is reached. Try again later."


async def test_within_a_session_a_full_share_is_an_error_with_status_200() -> None:
    async with opened() as (_, ada, _):
        client = await SessionClient.open(ada.app, "2025-11-25", token="ada")
        params = {"name": "wait", "arguments": {"text": "x" * LARGE}, "task": {}}
        calls = [await client.post(request("tools/call", params)).whole() for _ in range(4)]
    assert [call.status for call in calls] == [200] * 4
    assert calls[3].json["error"]["code"] == 429


async def test_a_session_counts_for_the_address_of_each_request() -> None:
    async with opened(users=False) as (_, ada, bob):
        client = await SessionClient.open(ada.app, "2025-11-25")
        params = {"name": "wait", "arguments": {"text": "x" * LARGE}, "task": {}}
        for _ in range(3):
            call = client.post(request("tools/call", params))
            call.scope["client"] = (bob.address, 1)
            assert "result" in (await call.whole()).json
        statuses = [(await caller.start()).status for caller in (ada, bob)]
    assert statuses == [200, 429]


async def test_a_result_without_room_fails_its_task(stored: dict[str, Any]) -> None:
    async with opened(**stored) as (_, ada, _):
        id = (await ada.call("write", size=2 * SHARE))["taskId"]
        async with asyncio.timeout(60):
            while (state := (await ada.task(id))["result"])["status"] == "working":
                pass
    assert state["status"] == "failed"
    assert (state["error"]["code"], state["error"]["data"]["limit"]) == (429, "owner_store_bytes")


# --- weights, and what waits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "weight"), [(0, 512), (1, 1024), (512, 1024), (513, 1536), (10_000, 10_752)])
def test_a_record_weighs_more_than_its_bytes(size: int, weight: int) -> None:
    assert weight_of(size) == weight


def test_what_waits_for_the_store_is_bounded_for_each_owner_and_in_all() -> None:
    budget = StoreBudget(Limits(owner_store_bytes=10, store_bytes=25))
    with budget.waiting("ada", 10), budget.waiting("bob", 10):
        for owner, size in (("ada", 1), ("cid", 6)):
            with pytest.raises(StoreUnavailable), budget.waiting(owner, size):
                pass
        with budget.waiting("cid", 5):
            pass
    with budget.waiting("ada", 10):
        pass


@pytest.mark.parametrize("name", ["handles", "handle_bytes", "principal_handles", "principal_handle_bytes"])
def test_limits_that_are_no_more_are_unknown(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        Limits(**{name: 1})


@pytest.mark.parametrize("name", ["total", "memory_bytes"])
def test_limits_of_tasks_that_are_no_more_are_unknown(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        TaskLimits(**{name: 1})
