"""Handles in hostile hands: changed, guessed, borrowed, replayed, piled up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.interaction.wire import Peer
from tests.server.shop import INVALID, Cart, Order, Page, book, first_page, next_page, one, shop
from tests.server.talk import STATELESS, reach, text
from trunkline import Client, Context, Handle, Limits, Principal, Server
from trunkline.errors import ToolError
from trunkline.protocol.caller import MEMORY
from trunkline.protocol.jsonrpc import decode

ADA, BEA = Principal(subject="ada", issuer="https://a.example"), Principal(subject="bea", issuer="https://a.example")
REFUSED = [(True, f"cart: {INVALID}")]


class As:
    """Calls tools of one connection as one principal."""

    def __init__(self, peer: Peer, principal: Principal | None) -> None:
        self.peer = peer
        self.origin = structs.replace(MEMORY, principal=principal)
        self.calls = 0

    async def call(self, name: str, **arguments: Any) -> Any:
        self.calls += 1
        id = f"{self.origin.principal} {self.calls}"
        carrier: Any = self.peer.carrier
        request = self.peer.request_of("tools/call", {"name": name, "arguments": arguments}, id=id)
        carrier.connection.message_received(decode(json.dumps(request).encode()), self.origin)
        return (await self.peer.answer(id))["result"]


def outcome(result: Any) -> tuple[bool, str]:
    return result.get("isError", False), text(result)


async def place(ctx: Context) -> Handle[Order]:
    """Place an order."""
    return await ctx.handle(Order())


async def take(order: Handle[Order]) -> int:
    """Take an order."""
    return order.value.number


async def brief(ctx: Context) -> Handle[Cart]:
    """Create a cart that is gone at once."""
    return await ctx.handle(Cart(), ttl=1e-9)


async def brief_page(ctx: Context) -> Handle[Page]:
    """Create a page that is gone at once."""
    return await ctx.handle(Page(0), ttl=1e-9)


# --- whose it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "stranger",
    [
        BEA,
        None,
        structs.replace(ADA, issuer=None),
        structs.replace(ADA, client="another"),
        Principal(subject="https://a.example\0ada"),
    ],
    ids=["other", "anonymous", "other-issuer", "other-client", "joined"],
)
@pytest.mark.parametrize(("make", "use", "name"), [("create", "show", "cart"), ("first_page", "next_page", "page")])
async def test_a_handle_is_its_principals_own(stranger: Principal | None, make: str, use: str, name: str) -> None:
    server = shop(first_page, next_page)
    async with reach(server, STATELESS) as peer:
        ada, other = As(peer, ADA), As(peer, stranger)
        handle = text(await ada.call(make))
        refused = outcome(await other.call(use, **{name: handle}))
        for herself in (ada, As(peer, structs.replace(ADA, scopes=frozenset({"more"})))):
            assert "isError" not in await herself.call(use, **{name: handle})
    assert refused == (True, f"{name}: {INVALID}")


async def test_every_handle_that_is_not_valid_gets_the_same_answer() -> None:
    """Wrong, another type's, another principal's, expired, deleted: the caller learns nothing of which it was."""
    server = shop(place, take, brief)
    async with reach(server, STATELESS) as peer:
        ada, bea = As(peer, ADA), As(peer, BEA)
        deleted = text(await ada.call("create"))
        await ada.call("drop", cart=deleted)
        handles = [
            "",
            "cart.",
            "cart." + "x" * 32,
            text(await ada.call("place")),
            "cart" + text(await ada.call("place")).removeprefix("order"),
            text(await bea.call("create")),
            text(await ada.call("brief")),
            deleted,
            "\N{SNOWMAN}" * 100_000,
        ]
        answers = [outcome(await ada.call("show", cart=each)) for each in handles]
    assert answers == REFUSED * len(handles)


# --- sealed texts ----------------------------------------------------------------------------------------------------


async def test_a_sealed_value_of_another_type_or_time_or_length_is_refused() -> None:
    class Leaf(Page, frozen=True):
        pass

    async def leaf(ctx: Context) -> str:
        return (await ctx.handle(Leaf(1))).id

    async with Client(book(leaf, brief_page)) as client:
        text = await one(client, "leaf")
        renamed, expired = "page" + text.removeprefix("leaf"), await one(client, "brief_page")
        for page in (text, renamed, expired, "page~" + "A" * 100_000):
            with pytest.raises(ToolError, match=INVALID):
                await client.call_tool("next_page", {"page": page})


async def test_a_sealed_value_of_another_server_or_key_is_refused() -> None:
    servers = [
        book(state_keys=["11" * 32]),
        book(state_keys=["22" * 32]),
        Server("other", tools=[next_page], state_keys=["11" * 32]),
        book(state_keys=["33" * 32, "11" * 32]),
    ]
    async with Client(servers[0]) as client:
        page = await one(client, "first_page")
    refused = []
    for server in servers:
        async with Client(server) as client:
            refused.append((await client.call_tool("next_page", {"page": page}, raise_on_error=False)).is_error)
    assert refused == [False, True, True, False]


async def test_the_request_state_of_a_call_is_no_handle_and_a_handle_no_request_state() -> None:
    server = book()
    async with reach(server, STATELESS, {"elicitation": {}}) as peer:

        @server.tool
        async def ask(ctx: Context) -> str:
            return str((await ctx.elicit("?", str)).data)

        page = text(await peer.call("first_page"))
        asked = await peer.result("tools/call", {"name": "ask", "arguments": {}})
        as_handle = await peer.call("next_page", {"page": f"page~{asked['requestState']}"})
        sealed = page.removeprefix("page~")
        as_state = await peer.error("tools/call", {"name": "ask", "arguments": {}, "requestState": sealed})
    assert (as_handle["isError"], as_state["code"]) == (True, -32602)


ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~= \0\xe9"


@given(at=st.integers(0, 200), added=st.text(ALPHABET, max_size=3), removed=st.integers(0, 1))
async def test_a_text_that_was_changed_is_refused(at: int, added: str, removed: int) -> None:
    async with Client(shop(first_page, next_page)) as client:
        for tool, name, make in (("show", "cart", "create"), ("next_page", "page", "first_page")):
            good = await one(client, make)
            place = at % (len(good) + 1)
            bad = good[:place] + added + good[place + removed :]
            result = await client.call_tool(tool, {name: bad}, raise_on_error=False)
            assert result.is_error is (bad != good)


# --- too many --------------------------------------------------------------------------------------------------------


async def flood(ctx: Context, count: int, size: int = 0) -> int:
    """Create many carts."""
    for _ in range(count):
        await ctx.handle(Cart(["x" * size]))
    return count


@pytest.mark.parametrize("store", [None, "state.sqlite"], ids=["memory", "sqlite"])
@pytest.mark.parametrize(
    ("limits", "principal", "told"),
    [
        (Limits(store_bytes=4000), None, "the limit store_bytes=4000 is reached"),
        (Limits(owner_store_bytes=4000), None, "the limit owner_store_bytes=4000 is reached"),
        (Limits(owner_store_bytes=4000), ADA, "the limit owner_store_bytes=4000 is reached"),
    ],
    ids=["total", "share", "share-of-a-principal"],
)
async def test_a_full_store_names_its_limit(
    store: str | None,
    limits: Limits,
    principal: Principal | None,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    server = shop(flood, limits=limits, store=store)
    async with reach(server, STATELESS) as peer:
        caller = As(peer, principal)
        cart = text(await caller.call("create"))
        refused = outcome(await caller.call("flood", count=4, size=600))
        grown = outcome(await caller.call("add", cart=cart, item="y" * 3000))
        shown = outcome(await caller.call("show", cart=cart))
        await caller.call("drop", cart=cart)
        freed = outcome(await caller.call("create"))
    await server.aclose()
    assert refused[0] is True
    assert told in refused[1]
    assert grown[0] is True
    assert shown[0] is False
    assert freed[0] is False


# --- at once ---------------------------------------------------------------------------------------------------------


async def test_two_edits_that_wait_for_each_other_are_both_ended() -> None:
    ready = asyncio.Barrier(2)

    async def swap(first: Handle[Cart], second: Handle[Cart]) -> str:
        async with first.edit():
            await ready.wait()
            async with second.edit():
                return "both"

    async with Client(shop(swap, limits=Limits(handle_wait_seconds=0.05))) as client:
        one_cart, other = await one(client, "create"), await one(client, "create")
        results = await asyncio.gather(
            client.call_tool("swap", {"first": one_cart, "second": other}, raise_on_error=False),
            client.call_tool("swap", {"first": other, "second": one_cart}, raise_on_error=False),
        )
        assert any(each.is_error for each in results)
        assert await one(client, "add", cart=one_cart, item="x") == ["x"]
        assert await one(client, "add", cart=other, item="y") == ["y"]


async def test_a_delete_during_an_edit_is_not_undone_by_it() -> None:
    begun, deleted = asyncio.Event(), asyncio.Event()

    async def hold(cart: Handle[Cart]) -> None:
        async with cart.edit() as value:
            value.items.append("back")
            begun.set()
            await deleted.wait()

    async with Client(shop(hold)) as client:
        cart = await one(client, "create")
        holding = asyncio.ensure_future(client.call_tool("hold", {"cart": cart}, raise_on_error=False))
        await begun.wait()
        await client.call_tool("drop", {"cart": cart})
        deleted.set()
        assert (await holding).is_error
        with pytest.raises(ToolError, match=INVALID):
            await client.call_tool("show", {"cart": cart})
