"""Handlers that ask their caller, in every way and place there is."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from trunkline import Context, MissingCapability, Server
from trunkline.types import SamplingMessage, TextContent, Tool, ToolResultContent


class Order(Struct):
    """What is ordered."""

    dish: Annotated[str, Meta(description="what to cook", max_length=20)]
    number: int = 1


class Place(Struct):
    """Something with a record inside."""

    order: Order


def make() -> Server:
    """Make the server."""
    server = Server("asking", version="1")
    add_forms(server)
    add_pages(server)
    add_models(server)
    add_places(server)
    return server


def add_forms(server: Server) -> None:
    """Add tools that have the user fill in forms."""
    charged: list[str] = []

    @server.tool
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit("What would you like?", Order)
        return f"{answer.action} {answer.data}"

    @server.tool
    async def count(ctx: Context) -> str:
        answer = await ctx.elicit("How many?", int)
        return f"{answer.action} {answer.data}"

    @server.tool
    async def twice(ctx: Context) -> str:
        first = await ctx.elicit("First?", str)
        second = await ctx.elicit("Second?", str)
        return f"{first.data} {second.data}"

    @server.tool
    async def at_once(ctx: Context) -> str:
        answers = await asyncio.gather(ctx.elicit("Left?", str), ctx.elicit("Right?", str))
        return " ".join(str(each.data) for each in answers)

    @server.tool
    async def same_again(ctx: Context) -> str:
        answers = [str((await ctx.elicit("Again?", str)).data) for _ in range(3)]
        return " ".join(answers)

    @server.tool
    async def pay(ctx: Context) -> str:
        """Do what must happen once between two questions."""
        await ctx.elicit("Really?", bool)
        await ctx.once("charge", charged.append, "card")
        await ctx.elicit("Receipt?", bool)
        return f"charged {len(charged)}"

    @server.tool
    async def keyed(subject: str, ctx: Context) -> str:
        answer = await ctx.elicit(f"What about {subject}?", str, key="about")
        return str(answer.data)

    @server.tool
    def in_thread(ctx: Context) -> str:
        """Ask from a worker thread, twice."""
        answers: list[Any] = [ctx.elicit("One?", str), ctx.elicit("Two?", str)]
        return " ".join(answer.data for answer in answers)

    @server.tool
    async def nested(ctx: Context) -> str:
        """Ask for more than a form can hold."""
        return str((await ctx.elicit("Where?", Place)).data)

    @server.tool
    async def colour(ctx: Context) -> str:
        """Let the user choose."""
        return str((await ctx.elicit("Which?", Literal["red", "green"])).data)

    @server.tool
    async def degrade(ctx: Context) -> str:
        """Do without where the client cannot ask."""
        if ctx.client.supports("elicitation"):
            return "could ask"
        return "did without"

    @server.tool
    async def told(ctx: Context) -> str:
        """Report before and after a question."""
        await ctx.report_progress(1)
        await ctx.elicit("Go on?", bool)
        await ctx.report_progress(2)
        return "told"


def add_pages(server: Server) -> None:
    """Add tools that send the user to a page."""
    visited: list[str] = []

    @server.tool
    async def log_in(ctx: Context) -> str:
        """Send the user to a page that is finished at once."""
        answer = await ctx.elicit_url("Log in", "https://example.com/login", done=lambda: True)
        return answer.action

    @server.tool
    async def visit(ctx: Context) -> str:
        """Send the user to a page and not wait for it."""
        answer = await ctx.elicit_url("Look", "https://example.com/look")
        visited.append(answer.action)
        return answer.action


def add_models(server: Server) -> None:
    """Add tools that ask the client's model or for its folders."""

    @server.tool
    async def sum_up(text: str, ctx: Context) -> str:
        answer = await ctx.sample(
            f"Sum up: {text}",
            max_tokens=50,
            system_prompt="Be brief.",
            model_preferences=["small"],
            temperature=0.5,
            stop_sequences=["END"],
        )
        return f"{answer.text} by {answer.model}"

    @server.tool
    async def with_tools(ctx: Context) -> str:
        tool = Tool(name="add", input_schema={"type": "object"})
        answer = await ctx.sample("Add.", max_tokens=50, tools=[tool], tool_choice="auto")
        return str(answer.stop_reason)

    @server.tool
    async def tool_loop(ctx: Context) -> str:
        """Send back what a tool answered to the model."""
        result = ToolResultContent(tool_use_id="t1", content=[TextContent(text="4")])
        messages = [
            SamplingMessage(role="user", content=TextContent(text="2+2?")),
            SamplingMessage(role="user", content=[result, TextContent(text="and more")]),
        ]
        answer = await ctx.sample(messages, max_tokens=50, tools=[Tool(name="add", input_schema={"type": "object"})])
        return str(answer.text)

    @server.tool
    async def folders(ctx: Context) -> str:
        return " ".join(root.uri for root in await ctx.list_roots())

    @server.tool
    async def careful(ctx: Context) -> str:
        """Catch what says that the client cannot be asked."""
        try:
            await ctx.sample("Anything?")
        except MissingCapability as error:
            return f"without {error.capability}"
        return "with"


def add_places(server: Server) -> None:
    """Ask from everything that is not a tool."""

    @server.prompt
    async def letter(ctx: Context) -> str:
        return f"Write to {(await ctx.elicit('To whom?', str)).data}."

    @server.resource("asking://one")
    async def one(ctx: Context) -> str:
        return f"for {(await ctx.elicit('For whom?', str)).data}"

    @server.prompt
    async def plain(name: str) -> str:
        return name

    @server.completion("plain", "name")
    async def names(value: str, ctx: Context) -> list[str]:
        await ctx.elicit("May I?", bool)
        return [value]

    @server.method("acme/ask")
    async def ask(ctx: Context) -> dict[str, Any]:
        await ctx.elicit("May I?", bool)
        return {}


if __name__ == "__main__":
    make().run()
