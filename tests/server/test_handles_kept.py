"""Where the values behind handles are kept: sealed or stored, over rounds, mounts, restarts and reloads."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.server.shop import (
    INVALID,
    Cart,
    Choice,
    FixedNote,
    Note,
    Order,
    Page,
    book,
    first_page,
    next_page,
    one,
    shop,
    show,
    spoil,
)
from tests.server.talk import ERAS, FORMS, STATELESS, accept, again, asked, reach, text
from trunkline import BlockingContext, Client, Context, Handle, Limits, Server
from trunkline.errors import ConfigError, ToolError
from trunkline.server import BlockingHandle
from trunkline.server.replacement import Reloader
from trunkline.server.runtime import server_store

ELICIT = "elicitation/create"


async def stored_handles(server: Server) -> int:
    """Return how many handles are in the store of a server."""
    return len([name for name in await server_store(server).store.members("kept") if name.startswith("h:")])


# --- values that never change ----------------------------------------------------------------------------------------


async def test_a_small_immutable_value_is_in_the_text_and_stores_nothing() -> None:
    server = book()
    async with Client(server) as client:
        page = await one(client, "first_page")
        read = await one(client, "next_page", page=page)
        assert [page[:5], read["offset"]] == ["page~", 0]
        assert (await one(client, "next_page", page=read["next"]))["offset"] == 1
        # The value is what it was: an old page can be read again.
        assert (await one(client, "next_page", page=page))["offset"] == 0
    assert await stored_handles(server) == 0


async def test_a_large_immutable_value_is_stored() -> None:
    async with Client(book(limits=Limits(sealed_handle_bytes=100))) as client:
        page = await one(client, "first_page", query="x" * 100)
        assert page.startswith("page.")
        assert (await one(client, "next_page", page=page))["offset"] == 0


@pytest.mark.parametrize(
    ("value", "sealed"),
    [
        (Page(1), True),
        (Choice(("a", "b")), True),
        (FixedNote(text="a"), True),
        ("text", True),
        ((1, "a"), True),
        (frozenset({1}), True),
        (Cart(), False),
        (Order(), False),
        (Note(text="a"), False),
        ((1, []), False),
        ({}, False),
    ],
    ids=str,
)
async def test_what_is_immutable_all_through_is_sealed(value: Any, sealed: bool) -> None:
    async def make(ctx: Context) -> list[str]:
        return [(await ctx.handle(value)).id, (await ctx.handle(value, stored=True)).id]

    async with Client(Server("s", tools=[make])) as client:
        automatic, stored = await one(client, "make")
    assert ("~" in automatic, "~" in stored) == (sealed, False)


@pytest.mark.parametrize("query", ["", "x" * 1000], ids=["sealed", "stored"])
async def test_an_immutable_value_cannot_be_changed_or_deleted(query: str) -> None:
    told: list[str] = []

    async def change(page: Handle[Page]) -> None:
        with pytest.raises(TypeError) as setting:
            await page.set(Page(9))
        with pytest.raises(TypeError) as editing:
            async with page.edit():
                pass
        with pytest.raises(TypeError) as deleting:
            await page.delete()
        told.extend(str(each.value) for each in (setting, editing, deleting))

    async with Client(book(change)) as client:
        await client.call_tool("change", {"page": await one(client, "first_page", query=query)})
    assert len(told) == 3
    assert all("stored=True" in each for each in told)


async def test_an_immutable_value_that_is_stored_on_request_can_be_replaced() -> None:
    async def begin(ctx: Context) -> Handle[int]:
        return await ctx.handle(0, stored=True)

    async def count(counter: Handle[int]) -> int:
        with pytest.raises(TypeError, match=r"use set\(\)"):
            async with counter.edit():
                pass
        await counter.set(counter.value + 1)
        return counter.value

    async with Client(Server("s", tools=[begin, count])) as client:
        counter = await one(client, "begin")
        assert [await one(client, "count", counter=counter) for _ in range(3)] == [1, 2, 3]


# --- sync functions --------------------------------------------------------------------------------------------------


async def test_sync_functions_have_blocking_handles() -> None:
    def begin(ctx: BlockingContext) -> BlockingHandle[Cart]:
        return ctx.handle(Cart())

    def work(cart: BlockingHandle[Cart]) -> list[str]:
        cart.set(Cart(["set"]))
        with cart.edit() as value:
            value.items.append("edited")
        with pytest.raises(ZeroDivisionError), cart.edit() as value:
            spoil(value)
        with cart.edit() as value:
            value.items.append("edited again")
        return cart.value.items

    def end(cart: BlockingHandle[Cart]) -> None:
        cart.delete()

    def in_loop(cart: Handle[Cart]) -> str:
        return type(cart).__name__

    server = shop(begin, work, end)
    server.add_tool(in_loop, thread=False)
    async with Client(server) as client:
        cart = await one(client, "begin")
        assert await one(client, "work", cart=cart) == ["set", "edited", "edited again"]
        assert await one(client, "in_loop", cart=cart) == "Handle"
        await client.call_tool("end", {"cart": cart})
        with pytest.raises(ToolError, match=INVALID):
            await client.call_tool("show", {"cart": cart})


async def test_a_thread_whose_request_is_over_saves_nothing_and_blocks_nobody() -> None:
    loop = asyncio.get_running_loop()
    begun, cancelled, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def hold(cart: BlockingHandle[Cart], ctx: BlockingContext) -> None:
        try:
            with cart.edit() as value:
                value.items.append("lost")
                loop.call_soon_threadsafe(begun.set)
                asyncio.run_coroutine_threadsafe(cancelled.wait(), loop).result(30)
        finally:
            loop.call_soon_threadsafe(over.set)

    async def watch(ctx: Context) -> None:
        cancelled.set()

    async with Client(shop(hold, watch)) as client:
        cart = await one(client, "create")
        holding = asyncio.ensure_future(client.call_tool("hold", {"cart": cart}))
        await begun.wait()
        holding.cancel()
        # Answered after the cancellation, which was sent before it.
        await client.call_tool("watch")
        await over.wait()
        assert await one(client, "add", cart=cart, item="kept") == ["kept"]


# --- rounds ----------------------------------------------------------------------------------------------------------


async def _create_and_ask(ctx: Context) -> str:
    first = await ctx.handle(Cart())
    page = await ctx.handle(Page(1))
    await ctx.elicit(f"Really {first} {page}?", str)
    second = await ctx.handle(Order())
    await ctx.elicit(f"And {second}?", str)
    return " ".join((first.id, page.id, second.id))


async def use_order(order: Handle[Order], page: Handle[Page]) -> int:
    """Use both."""
    return order.value.number


@ERAS
async def test_a_call_with_several_rounds_creates_each_handle_once(revision: str) -> None:
    server = shop(_create_and_ask, use_order)
    async with reach(server, revision, FORMS) as peer:
        talk = await peer.converse_tool("_create_and_ask", {ELICIT: lambda params: accept("yes")})
        cart, page, order = talk.text.split()
        assert (await peer.call("use_order", {"order": order, "page": page}))["structuredContent"] == {"result": 1}
        assert text(await peer.call("show", {"cart": cart})) == "[]"
    assert [each["params"]["message"] for each in talk.questions] == [f"Really {cart} {page}?", f"And {order}?"]
    assert await stored_handles(server) == 2


async def test_a_later_round_sees_what_an_earlier_one_changed() -> None:
    async def begin(ctx: Context) -> list[str]:
        cart = await ctx.handle(Cart())
        if not ctx.round:
            await cart.set(Cart(["soup"]))
        await ctx.elicit("More?", str)
        return cart.value.items

    async with reach(shop(begin), STATELESS, FORMS) as peer:
        assert (await peer.converse_tool("begin", {ELICIT: lambda params: accept("no")})).text == '["soup"]'


async def test_a_handle_that_expired_between_two_rounds_is_not_created_again() -> None:
    async def begin(ctx: Context) -> str:
        cart = await ctx.handle(Cart(), ttl=1e-9)
        await ctx.elicit("More?", str)
        return cart.id

    async with reach(shop(begin), STATELESS, FORMS) as peer:
        talk = await peer.converse_tool("begin", {ELICIT: lambda params: accept("no")})
    assert (talk.result["isError"], talk.text) == (True, INVALID)


async def test_keys_name_handles_whose_order_differs_between_rounds() -> None:
    async def begin(ctx: Context) -> str:
        for name in ("a", "b") if not ctx.round else ("b", "a"):
            await ctx.handle(Cart([name]), key=name)
        await ctx.elicit("More?", str)
        again = await ctx.handle(Cart(["another"]), key="a")
        return again.value.items[0]

    server = shop(begin)
    async with reach(server, STATELESS, FORMS) as peer:
        assert (await peer.converse_tool("begin", {ELICIT: lambda params: accept("no")})).text == "a"
    assert await stored_handles(server) == 2


async def test_an_edit_that_asks_is_discarded_and_made_again_with_the_answer() -> None:
    async def ask(cart: Handle[Cart], ctx: Context) -> list[str]:
        async with cart.edit() as value:
            value.items.append("before")
            answer = await ctx.elicit("What?", str)
            value.items.append(str(answer.data))
        return cart.value.items

    async with reach(shop(ask), STATELESS, FORMS) as peer:
        cart = text(await peer.call("create"))
        params = {"name": "ask", "arguments": {"cart": cart}}
        first = await peer.result("tools/call", params)
        between = text(await peer.call("add", {"cart": cart, "item": "between"}))
        last = text(await peer.result("tools/call", again(params, first, accept("soup"))))
    assert (asked(first), between, last) == (["What?"], '["between"]', '["between","before","soup"]')


@ERAS
async def test_tools_that_run_as_tasks_have_handles_too(revision: str) -> None:
    async def begin(ctx: Context) -> Handle[Cart]:
        answer = await ctx.elicit("First?", str)
        return await ctx.handle(Cart([str(answer.data)]))

    def more(cart: BlockingHandle[Cart]) -> list[str]:
        with cart.edit() as value:
            value.items.append("bread")
        return cart.value.items

    server = shop()
    server.add_tool(begin, task=True)
    server.add_tool(more, task=True)
    async with Client(server, revision=revision, elicitation=lambda question: "soup") as client:
        assert await one(client, "more", cart=await one(client, "begin")) == ["soup", "bread"]


# --- where values are kept -------------------------------------------------------------------------------------------


@ERAS
async def test_a_mounted_server_uses_the_store_and_seal_of_the_root(revision: str) -> None:
    root = Server("root", tools=[show, next_page])
    root.mount(shop(first_page), "shop")
    async with Client(root, revision=revision) as client:
        cart = await one(client, "shop_create")
        assert await one(client, "shop_add", cart=cart, item="soup") == ["soup"]
        assert await one(client, "show", cart=cart) == ["soup"]
        assert (await one(client, "next_page", page=await one(client, "shop_first_page")))["offset"] == 0
    assert await stored_handles(root) == 1


async def test_values_in_a_file_survive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "state.sqlite"
    before = shop(first_page, store=file)
    async with Client(before) as client:
        cart = await one(client, "create")
        await client.call_tool("add", {"cart": cart, "item": "soup"})
        page = await one(client, "first_page")
    await before.aclose()
    after = shop(next_page, store=str(file))
    async with Client(after) as client:
        assert await one(client, "add", cart=cart, item="bread") == ["soup", "bread"]
        # Its key is in the file, so what was sealed by the first process is opened by the second.
        assert (await one(client, "next_page", page=page))["offset"] == 0
    await after.aclose()
    assert file.stat().st_mode & 0o077 == 0


async def test_two_processes_may_share_a_file_and_overwrite_nothing(tmp_path: Path) -> None:
    begun, changed = asyncio.Event(), asyncio.Event()

    async def slowly(cart: Handle[Cart]) -> None:
        async with cart.edit() as value:
            begun.set()
            await changed.wait()
            value.items.append("too late")

    one_server, other = shop(slowly, store=tmp_path / "s"), shop(store=tmp_path / "s")
    async with Client(one_server) as first, Client(other) as second:
        cart = await one(first, "create")
        editing = asyncio.ensure_future(first.call_tool("slowly", {"cart": cart}))
        await begun.wait()
        assert await one(second, "add", cart=cart, item="soup") == ["soup"]
        changed.set()
        with pytest.raises(ToolError, match="Another call changed this value"):
            await editing
        assert await one(first, "show", cart=cart) == ["soup"]
    await one_server.aclose()
    await other.aclose()


async def test_with_keys_of_their_own_processes_share_sealed_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRUNKLINE_STATE_KEY", "11" * 32)
    first, second = book(store=tmp_path / "a"), book(store=tmp_path / "b")
    async with Client(first) as before, Client(second) as after:
        page = await one(before, "first_page")
        assert (await one(after, "next_page", page=page))["offset"] == 0
    await first.aclose()
    await second.aclose()
    assert page.startswith("page~")


async def test_a_value_that_no_longer_matches_its_type_is_not_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def version(kind: Any) -> Server:
        async def make(ctx: Context) -> str:
            return (await ctx.handle(kind())).id

        async def read(thing) -> str:  # type: ignore[no-untyped-def]
            return "read"

        read.__annotations__["thing"] = Handle[kind]
        return Server("s", tools=[make, read], store=tmp_path / "s")

    old = version(msgspec.defstruct("Thing", [("a", int, 1)], module="shop"))
    async with Client(old) as client:
        thing = await one(client, "make")
    await old.aclose()
    new = version(msgspec.defstruct("Thing", [("a", list[int], msgspec.field(default_factory=list))], module="shop"))
    async with Client(new) as client:
        with caplog.at_level(logging.INFO, "trunkline"), pytest.raises(ToolError, match=INVALID):
            await client.call_tool("read", {"thing": thing})
    await new.aclose()
    assert "does not match the type" in caplog.text


async def test_values_stay_when_a_server_is_reloaded() -> None:
    running = Reloader(shop(first_page))
    async with Client(running.server) as client:
        cart, page = await one(client, "create"), await one(client, "first_page")
        await running.replace(shop(next_page))
        assert await one(client, "add", cart=cart, item="soup") == ["soup"]
        assert (await one(client, "next_page", page=page))["offset"] == 0
        await running.aclose()


@pytest.mark.parametrize("given", [7, ["state.sqlite"], object()], ids=["number", "list", "object"])
def test_what_is_neither_a_path_nor_a_store_is_rejected(given: Any) -> None:
    with pytest.raises(ConfigError, match="store= must be the path of an SQLite file, or a URL"):
        Server("s", store=given)


@pytest.mark.parametrize("option", ["handles", "backplane"])
def test_an_earlier_option_says_what_to_write_instead(option: str) -> None:
    with pytest.raises(TypeError, match=f"option '{option}': .* write store="):
        Server("s", **{option: "state.sqlite"})  # type: ignore[arg-type]
