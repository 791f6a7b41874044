"""Values between calls: how a handle is created, passed back, changed and deleted, in every revision and transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import msgspec
import pydantic
import pytest

from tests.server.shop import INVALID, Cart, Draft, Note, Order, Page, Ticket, one, said, shop
from tests.server.talk import STATELESS, call, reach, text
from trunkline import Client, Context, Handle, Limits, Server
from trunkline.errors import HandleConflict, InvalidHandle, InvalidParams, ToolError
from trunkline.protocol.revisions import REVISION_NAMES
from trunkline.server import BlockingHandle

# --- from one call to the next ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISION_NAMES)
async def test_a_value_is_kept_from_one_call_to_the_next_in_every_revision(revision: str) -> None:
    async with Client(shop(), revision=revision) as client:
        cart = said(await client.call_tool("create"))
        await client.call_tool("add", {"cart": cart, "item": "soup"})
        await client.call_tool("add", {"cart": cart, "item": "bread"})
        assert said(await client.call_tool("show", {"cart": cart})) == '["soup","bread"]'


class Basket(TypedDict, total=False):
    """A dictionary at run time."""

    items: list[str]


@pytest.mark.parametrize("kind", [Cart, Basket, dict], ids=lambda each: each.__name__)
async def test_a_class_stands_for_a_new_object_of_it(kind: Any) -> None:
    server = Server("s")

    async def create(ctx: Context) -> str:
        return (await ctx.handle(kind)).id

    async def show(value: Any) -> Any:
        return value.value

    show.__annotations__["value"] = Handle[kind]
    server.tool(create)
    server.tool(show)
    async with Client(server) as client:
        handle = (await client.call_tool("create")).data
        shown = await client.call_tool("show", {"value": handle})
    assert shown.data == msgspec.to_builtins(kind())


@pytest.mark.parametrize(
    ("value", "changed", "kind"),
    [
        (Cart(["a"]), Cart(["a", "b"], open=False), Cart),
        (Order(1), Order(2), Order),
        (Note(text="a"), Note(text="b", tags=["c"]), Note),
        ({"a": 1}, {"a": 1, "b": 2}, dict[str, int]),
        (["a"], ["b"], list[str]),
        ({"lines": ["a"]}, {"lines": []}, Draft),
        (Page(1), Page(2), Page),
        (1, 2, int),
        (Ticket(1), Ticket(2), Ticket),
        (Order(1), Order(2), Order | None),
        (("a", 1), ("b", 2), tuple[str, int]),
    ],
    ids=str,
)
async def test_values_of_every_kind_are_kept(value: Any, changed: Any, kind: Any) -> None:
    seen: list[Any] = []

    async def make(ctx: Context) -> str:
        return (await ctx.handle(value, type=kind, stored=True)).id

    async def change(thing) -> None:  # type: ignore[no-untyped-def]
        seen.append(thing.value)
        await thing.set(changed)

    change.__annotations__["thing"] = Handle[kind]
    async with Client(Server("s", tools=[make, change])) as client:
        id = await one(client, "make")
        await client.call_tool("change", {"thing": id})
        await client.call_tool("change", {"thing": id})
    assert seen == [value, changed]


async def test_the_class_of_a_value_is_its_type_unless_another_is_given() -> None:
    async def make(ctx: Context) -> list[str]:
        return [(await ctx.handle({"lines": []})).id, (await ctx.handle({"lines": []}, type=Draft)).id]

    async def read(draft: Handle[Draft]) -> str:
        return "read"

    async with Client(Server("s", tools=[make, read])) as client:
        plain, typed = await one(client, "make")
        assert await one(client, "read", draft=typed) == "read"
        with pytest.raises(ToolError, match=INVALID):
            await client.call_tool("read", {"draft": plain})


async def test_a_type_that_nothing_takes_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def make(ctx: Context) -> None:
        await ctx.handle({"lines": []})
        await ctx.handle({"lines": []})

    async with Client(shop(make)) as client:
        await client.call_tool("make")
    (record,) = [each for each in caplog.records if "no parameter accepts one" in each.getMessage()]
    assert "builtins.dict" in record.getMessage()
    assert "shop.Cart" in record.getMessage()


async def test_a_handle_can_be_left_out_where_it_is_optional() -> None:
    async def read(cart: Handle[Cart] | None = None) -> bool:
        return cart is None

    async with Client(shop(read)) as client:
        cart = await one(client, "create")
        assert [await one(client, "read"), await one(client, "read", cart=cart)] == [True, False]
        assert await one(client, "read", cart=None) is True


async def test_a_handle_goes_with_parameters_of_pydantic() -> None:
    async def write(note: Note, draft: Annotated[Handle[Note], pydantic.Field(description="Where to")]) -> str:
        await draft.set(note)
        return draft.value.text

    async def begin(ctx: Context) -> Handle[Note]:
        return await ctx.handle(Note(text=""))

    server = Server("s", tools=[begin, write])
    async with Client(server) as client:
        note = await one(client, "begin")
        assert await one(client, "write", draft=note, note={"text": "hello"}) == "hello"
        tools = {tool.name: tool.input_schema for tool in await client.list_tools()}
    assert tools["write"]["properties"]["draft"] == {"type": "string", "description": "Where to"}


async def test_a_tool_with_a_schema_of_its_own_gets_handles_too() -> None:
    async def read(cart: Handle[Cart], ctx: Context) -> int:
        return len(cart.value.items)

    server = shop()
    server.add_tool(
        read, input_schema={"type": "object", "properties": {"cart": {"type": "string"}}, "required": ["cart"]}
    )
    async with Client(server) as client:
        assert said(await client.call_tool("read", {"cart": await one(client, "create")})) == "0"


async def test_prompts_resources_and_custom_methods_take_handles() -> None:
    server = shop()

    @server.prompt
    async def order(cart: Handle[Cart]) -> str:
        return f"Order {cart.value.items}."

    @server.resource("cart://{cart}")
    async def contents(cart: Handle[Cart]) -> list[str]:
        return cart.value.items

    @server.method("acme/peek")
    async def peek(cart: Handle[Cart], ctx: Context) -> dict[str, Any]:
        return {"items": cart.value.items, "same": cart}

    async with reach(server, STATELESS) as peer:
        cart = text(await peer.call("create"))
        await peer.call("add", {"cart": cart, "item": "soup"})
        prompt = await peer.result("prompts/get", {"name": "order", "arguments": {"cart": cart}})
        resource = await peer.result("resources/read", {"uri": f"cart://{cart}"})
        custom = await peer.result("acme/peek", {"cart": cart})
        wrong = [
            await peer.error("prompts/get", {"name": "order", "arguments": {"cart": "cart.x"}}),
            await peer.error("resources/read", {"uri": "cart://cart.x"}),
            await peer.error("acme/peek", {"cart": "cart.x"}),
        ]
    assert prompt["messages"][0]["content"]["text"] == "Order ['soup']."
    assert resource["contents"][0]["text"] == '["soup"]'
    assert (custom["items"], custom["same"]) == (["soup"], cart)
    assert [(each["code"], each["message"]) for each in wrong] == [
        (InvalidParams.default_code, f"Invalid params: cart: {INVALID}")
    ] * 3


# --- what the model sees ---------------------------------------------------------------------------------------------


class Receipt(msgspec.Struct):
    cart: Handle[Cart]
    others: list[Handle[Cart]] = []


@dataclass
class PlainReceipt:
    cart: Handle[Cart]


class PydanticReceipt(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    cart: Handle[Cart]
    note: str = ""


async def _as_struct(ctx: Context) -> Receipt:
    cart = await ctx.handle(Cart())
    return Receipt(cart, [cart])


async def _as_dataclass(ctx: Context) -> PlainReceipt:
    return PlainReceipt(await ctx.handle(Cart()))


async def _as_model(ctx: Context) -> PydanticReceipt:
    return PydanticReceipt(cart=await ctx.handle(Cart()))


async def _as_mapping(ctx: Context) -> dict[str, Handle[Cart]]:
    return {"cart": await ctx.handle(Cart())}


async def _untyped(ctx: Context) -> Any:
    return {"cart": await ctx.handle(Cart())}


@pytest.mark.parametrize(
    "function",
    [_as_struct, _as_dataclass, _as_model, _as_mapping, _untyped],
    ids=lambda each: each.__name__,
)
async def test_a_handle_inside_a_result_is_its_text(function: Callable[..., Any]) -> None:
    async with Client(shop(function)) as client:
        result = await client.call_tool(function.__name__)
        cart = result.structured_content["cart"]
        assert await one(client, "add", cart=cart, item="soup") == ["soup"]


@pytest.mark.parametrize("function", [_as_struct, _as_dataclass, _as_model], ids=lambda each: each.__name__)
def test_a_handle_inside_a_result_is_described_as_text(function: Callable[..., Any]) -> None:
    server = shop(function)
    schema = server.registry.tools[function.__name__].listed().output_schema
    assert schema is not None
    assert schema["properties"]["cart"]["type"] == "string"
    assert schema["properties"]["cart"]["description"].startswith("A handle")


async def test_a_returned_handle_is_plain_text_for_the_model() -> None:
    async def either(ctx: Context, really: bool) -> Handle[Cart] | None:
        return await ctx.handle(Cart()) if really else None

    async def several(ctx: Context) -> list[Handle[Cart]]:
        return [await ctx.handle(Cart()), await ctx.handle(Cart())]

    async def sentence(ctx: Context) -> str:
        return f"Your cart is {await ctx.handle(Cart())}"

    async with Client(shop(either, several, sentence)) as client:
        created = await client.call_tool("create")
        assert said(created) == created.data
        assert (await one(client, "either", really=True)).startswith("cart.")
        assert await one(client, "either", really=False) is None
        first, second = await one(client, "several")
        words = (await one(client, "sentence")).split()
        assert await one(client, "show", cart=words[-1]) == await one(client, "show", cart=first) == []
        assert first != second


async def test_a_result_that_should_have_a_handle_is_checked() -> None:
    async def wrong() -> Receipt:
        return Receipt(7)  # type: ignore[arg-type]

    async with Client(shop(wrong)) as client:
        with pytest.raises(ToolError, match="does not match its output schema"):
            await client.call_tool("wrong")


def test_a_parameter_is_described_as_text() -> None:
    async def tell(  # noqa: D417 - the others are described elsewhere
        first: Handle[Cart], second: Annotated[Handle[Cart], "The second."], third: Handle[str | int] | None = None
    ) -> None:
        """Tell.

        Args:
            first: The first.
        """

    tools = shop(tell).registry.tools
    told = tools["tell"].listed().input_schema["properties"]
    assert told == {
        "first": {"type": "string", "description": "The first."},
        "second": {"type": "string", "description": "The second."},
        "third": {
            "type": ["string", "null"],
            "description": "A handle of type int or str: the text from an earlier result, unchanged.",
        },
    }
    assert tools["show"].listed().input_schema["properties"] == {
        "cart": {"type": "string", "description": "A handle of type Cart: the text from an earlier result, unchanged."}
    }


def test_a_handle_is_not_shown_in_logs() -> None:
    shown: list[str] = []

    async def see(ctx: Context) -> None:
        cart = await ctx.handle(Cart())
        shown.extend((repr(cart), str(cart), cart.id))

    call(shop(see), "see")
    assert (shown[0], shown[1]) == ("Handle[Cart]", shown[2])


class Opaque:
    pass


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        (Handle[Opaque], "parameter 'given': Opaque cannot be stored as JSON; use a dataclass"),
        (list[Handle[Cart]], "use Handle"),
        (Receipt, "use Handle"),
        (Handle, "a handle needs the type of its value"),
    ],
    ids=["opaque", "list", "struct", "bare"],
)
def test_a_parameter_that_cannot_be_a_handle_is_rejected(annotation: Any, message: str) -> None:
    async def tool(given) -> None:  # type: ignore[no-untyped-def]
        pass

    tool.__annotations__["given"] = annotation
    with pytest.raises(TypeError, match=message):
        Server("s", tools=[tool])


# --- changing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [None, "state.sqlite"], ids=["memory", "sqlite"])
async def test_concurrent_edits_lose_nothing(
    store: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def slowly(cart: Handle[Cart], item: str) -> None:
        async with cart.edit() as value:
            before = list(value.items)
            await asyncio.sleep(0)
            value.items = [*before, item]

    def in_a_thread(cart: BlockingHandle[Cart], item: str) -> None:
        with cart.edit() as value:
            value.items = [*value.items, item]

    server = shop(slowly, in_a_thread, store=store)
    async with Client(server) as client:
        cart = await one(client, "create")
        calls = [
            (tool, {"cart": cart, "item": f"{tool} {each}"}) for tool in ("slowly", "in_a_thread") for each in range(40)
        ]
        await asyncio.gather(*(client.call_tool(*each) for each in calls))
        kept = await one(client, "show", cart=cart)
    await server.aclose()
    assert sorted(kept) == sorted(arguments["item"] for _, arguments in calls)


async def test_what_another_call_changed_is_not_overwritten() -> None:
    seen, changed = asyncio.Event(), asyncio.Event()

    async def replace(cart: Handle[Cart]) -> list[str]:
        seen.set()
        await changed.wait()
        try:
            await cart.set(Cart(["mine"]))
        except HandleConflict as conflict:
            return [str(conflict)]
        return []

    async with Client(shop(replace)) as client:
        cart = await one(client, "create")
        replacing = asyncio.ensure_future(one(client, "replace", cart=cart))
        await seen.wait()
        await client.call_tool("add", {"cart": cart, "item": "theirs"})
        changed.set()
        (conflict,) = await replacing
        assert conflict.startswith("Another call changed this value at the same time")
        assert await one(client, "show", cart=cart) == ["theirs"]


async def test_a_value_can_be_set_again_by_the_call_that_set_it() -> None:
    async def twice(cart: Handle[Cart]) -> list[str]:
        await cart.set(Cart(["first"]))
        async with cart.edit() as value:
            value.items.append("second")
        await cart.set(Cart([*cart.value.items, "third"]))
        return cart.value.items

    async with Client(shop(twice)) as client:
        assert await one(client, "twice", cart=await one(client, "create")) == ["first", "second", "third"]


async def test_a_deleted_handle_is_not_valid_any_more() -> None:
    errors: list[str] = []

    async def after(cart: Handle[Cart]) -> None:
        await cart.delete()
        await cart.delete()
        with pytest.raises(InvalidHandle) as changing:
            await cart.set(Cart())
        with pytest.raises(InvalidHandle) as editing:
            async with cart.edit():
                pass
        errors.extend((str(changing.value), str(editing.value)))

    async with Client(shop(after)) as client:
        cart = await one(client, "create")
        await client.call_tool("drop", {"cart": cart})
        with pytest.raises(ToolError, match=f"^cart: {INVALID}"):
            await client.call_tool("show", {"cart": cart})
        await client.call_tool("after", {"cart": await one(client, "create")})
    assert errors == [INVALID, INVALID]


async def test_an_edit_that_other_calls_never_finish_is_given_up() -> None:
    begun, done = asyncio.Event(), asyncio.Event()

    async def hold(cart: Handle[Cart]) -> None:
        async with cart.edit():
            begun.set()
            await done.wait()

    async with Client(shop(hold, limits=Limits(handle_wait_seconds=0.01))) as client:
        cart = await one(client, "create")
        holding = asyncio.ensure_future(client.call_tool("hold", {"cart": cart}))
        await begun.wait()
        with pytest.raises(ToolError, match="Other calls are changing this"):
            await client.call_tool("add", {"cart": cart, "item": "x"})
        done.set()
        await holding
        assert await one(client, "add", cart=cart, item="y") == ["y"]


async def test_an_edit_inside_an_edit_of_the_same_handle_is_an_error_and_no_deadlock() -> None:
    async def nested(first: Handle[Cart], second: Handle[Cart]) -> str:
        async with first.edit():
            with pytest.raises(RuntimeError, match="leave the block"):
                async with second.edit():
                    pass
            with pytest.raises(RuntimeError, match="leave the block"):
                await second.set(Cart())
        return "done"

    async with Client(shop(nested)) as client:
        cart = await one(client, "create")
        assert await one(client, "nested", first=cart, second=cart) == "done"


async def test_an_edit_ends_when_its_call_is_cancelled() -> None:
    begun = asyncio.Event()

    async def hold(cart: Handle[Cart]) -> None:
        async with cart.edit() as value:
            value.items.append("lost")
            begun.set()
            await asyncio.Event().wait()

    async with Client(shop(hold)) as client:
        cart = await one(client, "create")
        holding = asyncio.ensure_future(client.call_tool("hold", {"cart": cart}))
        await begun.wait()
        holding.cancel()
        assert await one(client, "add", cart=cart, item="kept") == ["kept"]


async def test_a_value_of_the_wrong_type_is_not_saved() -> None:
    async def spoil(cart: Handle[Cart]) -> None:
        await cart.set({"items": 7})  # type: ignore[arg-type]

    server = shop(spoil, mask_error_details=False)
    async with Client(server) as client:
        cart = await one(client, "create")
        with pytest.raises(ToolError, match="the value of the handle does not match Cart: items: expected an array"):
            await client.call_tool("spoil", {"cart": cart})
        assert await one(client, "show", cart=cart) == []


@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan")])
async def test_a_time_to_live_is_positive_and_finite(ttl: float) -> None:
    async def make(ctx: Context) -> None:
        await ctx.handle(Cart(), ttl=ttl)

    async with Client(shop(make, mask_error_details=False)) as client:
        with pytest.raises(ToolError, match="a handle lives for a positive number of seconds"):
            await client.call_tool("make")
