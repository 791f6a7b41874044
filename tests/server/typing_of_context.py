"""What the type checker infers of a context's methods.

mypy reads this file with all the others and fails where an ``assert_type`` does not hold; nothing of it is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict, assert_never, assert_type

import msgspec
import pydantic

import trunkline.types as t
from trunkline import BlockingContext, Context, Handle
from trunkline.server import (
    AcceptedElicitation,
    BlockingHandle,
    CancelledElicitation,
    DeclinedElicitation,
    SamplingResult,
)
from trunkline.types.json_values import JsonObject


@dataclass
class Trip:
    """A form as a dataclass."""

    city: str


class Order(msgspec.Struct):
    """A form as a msgspec struct."""

    guests: int


class Contact(pydantic.BaseModel):
    """A form as a pydantic model."""

    email: str


async def the_data_has_the_type_that_was_asked_for(ctx: Context) -> None:
    """Each kind of form."""
    trip = await ctx.elicit("Where to?", Trip)
    assert_type(trip, AcceptedElicitation[Trip] | DeclinedElicitation | CancelledElicitation)
    assert_type((await ctx.elicit("?", Order)).data, Order | None)
    assert_type((await ctx.elicit("?", Contact)).data, Contact | None)
    assert_type((await ctx.elicit("?", int)).data, int | None)
    assert_type((await ctx.elicit("?", ["red", "blue"])).data, str | None)
    assert_type((await ctx.elicit("?", ("red", "blue"))).data, str | None)
    assert_type((await ctx.elicit("Sure?")).data, None)
    assert_type((await ctx.elicit("?", {"type": "object", "properties": {}})).data, JsonObject | None)
    assert_type((await ctx.elicit("?", response_type=Trip)).data, Trip | None)
    assert_type((await ctx.elicit("?", schema=Trip)).data, Trip | None)
    assert_type((await ctx.elicit("?", Literal["red", "blue"])).data, Any | None)
    assert_type((await ctx.elicit_url("Log in", "https://example.com")).data, None)


async def an_action_narrows(ctx: Context) -> str:
    """By the literal."""
    answer = await ctx.elicit("Where to?", Trip)
    if answer.action == "accept":
        assert_type(answer, AcceptedElicitation[Trip])
        return answer.data.city
    assert_type(answer.action, Literal["decline", "cancel"])
    return answer.action


async def accepted_narrows(ctx: Context) -> str:
    """By the property; pyright narrows by a literal or a class, and not by the truth of a member."""
    answer = await ctx.elicit("Where to?", Trip)
    return answer.data.city if answer.accepted else answer.action  # pyright: ignore[reportOptionalMemberAccess]


async def a_class_narrows(ctx: Context) -> str:
    """By isinstance."""
    answer = await ctx.elicit("Where to?", Trip)
    return answer.data.city if isinstance(answer, AcceptedElicitation) else "nowhere"


async def a_match_is_exhaustive(ctx: Context) -> str:
    """By match."""
    match await ctx.elicit("Where to?", Trip):
        case AcceptedElicitation(data=trip):
            assert_type(trip, Trip)
            return trip.city
        case DeclinedElicitation() | CancelledElicitation() as refused:
            return refused.action
        case other:
            assert_never(other)


async def sampling_has_real_keywords(ctx: Context) -> None:
    """Each with its type."""
    answer = await ctx.sample("2+2?", max_tokens=5, temperature=0.5, stop_sequences=["."], model_preferences="small")
    assert_type(answer, SamplingResult)
    assert_type(answer.content, list[t.SamplingMessageContentBlock])
    await ctx.sample("2+2?", tempreature=0.5)  # type: ignore[call-arg]
    await ctx.sample("2+2?", tool_choice="perhaps")  # type: ignore[arg-type]


async def a_log_call_has_one_order(ctx: Context) -> None:
    """First the level."""
    await ctx.log("info", "started", step=1)
    await ctx.log("info", {"disk": "full"}, extra={"percent": 100})
    await ctx.log("started", "info")  # type: ignore[arg-type]


class Draft(TypedDict):
    """A value that is a dictionary at run time."""

    lines: list[str]


async def a_handle_has_the_type_of_its_value(ctx: Context) -> None:
    """By the value, or by the type that is given."""
    trip = await ctx.handle(Trip("Oslo"), ttl=60, key="trip")
    assert_type(trip, Handle[Trip])
    assert_type(trip.value, Trip)
    assert_type(await ctx.handle(Draft(lines=[]), type=Draft), Handle[Draft])
    assert_type(await ctx.handle(Trip, ttl=60), Handle[Trip])
    await ctx.handle(Trip("Oslo"), type=Trip | None)
    async with trip.edit() as value:
        assert_type(value, Trip)
    await trip.set("Oslo")  # type: ignore[arg-type]


def a_blocking_handle_has_it_too(ctx: BlockingContext) -> None:
    """In a sync function."""
    trip = ctx.handle(Trip("Oslo"))
    assert_type(trip, BlockingHandle[Trip])
    assert_type(ctx.handle(Trip), BlockingHandle[Trip])
    with trip.edit() as value:
        assert_type(value, Trip)
