"""Helpers of the tests of handles: values of several kinds, a shop with a cart, a book with pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NewType, TypedDict

import msgspec
import pydantic

from trunkline import Client, Context, Handle, Server
from trunkline.client import CallResult
from trunkline.types import TextContent

INVALID = "This handle is not valid here or has expired. Get a new one from the tool that creates it."


@dataclass
class Cart:
    items: list[str] = field(default_factory=list)
    open: bool = True


class Order(msgspec.Struct):
    number: int = 1


class Page(msgspec.Struct, frozen=True):
    offset: int
    query: str = ""


@dataclass(frozen=True)
class Choice:
    names: tuple[str, ...]


class Note(pydantic.BaseModel):
    text: str
    tags: list[str] = []


class FixedNote(pydantic.BaseModel, frozen=True):
    text: str


class Draft(TypedDict):
    lines: list[str]


Ticket = NewType("Ticket", int)


async def create(ctx: Context) -> Handle[Cart]:
    """Create a cart."""
    return await ctx.handle(Cart())


async def add(cart: Handle[Cart], item: str) -> list[str]:
    """Add an item."""
    async with cart.edit() as value:
        value.items.append(item)
    return cart.value.items


async def show(cart: Handle[Cart]) -> list[str]:
    """Show the items."""
    return cart.value.items


async def drop(cart: Handle[Cart]) -> str:
    """Delete the cart."""
    await cart.delete()
    return "deleted"


def shop(*more: Callable[..., Any], **options: Any) -> Server:
    return Server("shop", tools=[create, add, show, drop, *more], **options)


async def one(client: Client, name: str, **arguments: Any) -> Any:
    return (await client.call_tool(name, arguments)).data


def spoil(cart: Cart) -> None:
    """Change a cart, and fail."""
    cart.items.append("lost")
    raise ZeroDivisionError


def said(result: CallResult) -> str:
    """Return the text of a result."""
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def first_page(ctx: Context, query: str = "") -> Handle[Page]:
    """Begin to read."""
    return await ctx.handle(Page(0, query))


async def next_page(page: Handle[Page], ctx: Context) -> dict[str, Any]:
    """Read on."""
    return {"offset": page.value.offset, "next": await ctx.handle(Page(page.value.offset + 1))}


def book(*more: Callable[..., Any], **options: Any) -> Server:
    return Server("book", tools=[first_page, next_page, *more], **options)
