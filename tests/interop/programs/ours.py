"""A Trunkline server with something of every kind, for foreign clients; its arguments are the revisions it serves."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

from trunkline import Context, Image, Message, Server, ToolError
from trunkline.server import ElicitationResult
from trunkline.types import ResourceLink, Tool

__all__ = ["build"]

PIXEL = b"\x89PNG\r\n\x1a\n"


@dataclass
class Forecast:
    """What a city may expect."""

    city: str
    degrees: float


@dataclass
class Person:
    """A form of two fields."""

    name: str
    age: int = 30


def _name(answer: ElicitationResult[Person]) -> str:
    assert answer.action == "accept"
    return answer.data.name


def build(*revisions: str) -> Server:
    """Make the server; it serves the revisions named, or all."""
    server = Server(
        "ours", "Ask politely.", version="1.2.3", title="Our server", revisions=revisions or None, list_page_size=5
    )
    _add_tools(server)
    _add_telling_tools(server)
    _add_asking_tools(server)
    _add_changing_tools(server)
    _add_prompts_and_resources(server)
    return server


def _add_tools(server: Server) -> None:
    @server.tool(title="Add two numbers", annotations={"readOnlyHint": True})
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def forecast(city: str) -> Forecast:
        """Forecast the weather."""
        return Forecast(city, 21.5)

    @server.tool
    async def picture() -> Image:
        """Give a picture."""
        return Image(data=PIXEL, mime_type="image/png")

    @server.tool
    async def link() -> ResourceLink:
        """Point at a resource."""
        return ResourceLink(name="fixed", uri="note://fixed")

    @server.tool
    async def fail() -> str:
        """Fail on purpose."""
        raise ToolError("out of paper")

    @server.tool
    async def crash() -> str:
        """Fail by accident."""
        raise RuntimeError("the secret is 42")


def _add_telling_tools(server: Server) -> None:
    stopped = asyncio.Event()

    @server.tool
    async def count(steps: int, ctx: Context) -> int:
        """Count, and tell how far."""
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"step {step}")
        return steps

    @server.tool
    async def talk(ctx: Context) -> str:
        """Log at three levels."""
        await ctx.debug("a detail")
        await ctx.warning("a warning", logger_name="mouth")
        await ctx.error("an error")
        return "said"

    @server.tool
    async def wait(ctx: Context) -> str:
        """Wait until the caller gives up."""
        await ctx.report_progress(1)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    @server.tool
    async def was_stopped() -> bool:
        """Tell whether a waiting call was given up."""
        await asyncio.wait_for(stopped.wait(), 5)
        return True

    @server.tool
    async def caller(ctx: Context) -> dict[str, str]:
        """Tell who calls."""
        return {"name": ctx.client.name or "", "revision": ctx.client.revision}


def _add_asking_tools(server: Server) -> None:
    @server.tool
    async def ask_person(ctx: Context) -> str:
        """Ask for a person."""
        answer = await ctx.elicit("Who are you?", Person)
        return f"{answer.data.name}, {answer.data.age}" if answer.accepted else answer.action

    @server.tool
    async def ask_page(ctx: Context) -> str:
        """Send the user to a page."""
        answer = await ctx.elicit_url("Please sign in.", "https://example.com/sign-in", done=lambda: True)
        return answer.action

    @server.tool
    async def ask_model(ctx: Context) -> str:
        """Ask the caller's model."""
        answer = await ctx.sample("Say hello.", max_tokens=10, system_prompt="Be brief.")
        return f"{answer.model}: {answer.text}"

    @server.tool
    async def ask_model_with_tools(ctx: Context) -> str:
        """Let the caller's model choose a tool."""
        clock = Tool(name="clock", input_schema={"type": "object"})
        answer = await ctx.sample("What time is it?", tools=[clock])
        return f"{answer.stop_reason}: {answer.tool_uses[0].name}"

    @server.tool
    async def ask_roots(ctx: Context) -> list[str]:
        """Ask for the caller's folders."""
        return [str(root.uri) for root in await ctx.list_roots()]

    @server.tool
    async def ask_in_turn(ctx: Context) -> str:
        """Ask three things, one after the other."""
        names = [_name(await ctx.elicit(f"Who is number {number}?", Person)) for number in (1, 2)]
        words = (await ctx.sample(f"Greet {' and '.join(names)}.")).text
        return f"{words}: {', '.join(names)}"

    @server.tool
    async def ask_at_once(ctx: Context) -> str:
        """Ask two things at the same time."""
        person, words = await asyncio.gather(ctx.elicit("Who are you?", Person), ctx.sample("Say hello."))
        return f"{words.text}: {_name(person)}"

    @server.prompt
    async def personal(ctx: Context) -> str:
        """Ask inside a prompt."""
        return f"Write to {_name(await ctx.elicit('To whom?', Person))}."

    @server.resource("secret://door")
    async def door(ctx: Context) -> str:
        """Ask inside a resource."""
        return f"opened for {_name(await ctx.elicit('Who knocks?', Person))}"


def _add_changing_tools(server: Server) -> None:
    async def sprout() -> str:
        """Be new."""
        return "new"

    @server.tool
    async def grow() -> str:
        """Add a tool, a prompt and a resource."""
        server.add_tool(sprout)
        server.add_prompt(sprout)
        server.add_resource("note://sprout", "new")
        return "grown"

    @server.tool
    async def touch(uri: str) -> str:
        """Say that a resource changed."""
        server.changed(uri)
        return "touched"


def _add_prompts_and_resources(server: Server) -> None:
    @server.prompt(title="Greeting")
    def greet(name: str, tone: str = "kind") -> list[Message]:
        """Greet somebody."""
        return [Message(f"Greet {name} in a {tone} tone."), Message("Hello.", role="assistant")]

    @server.completion("greet", "tone")
    async def tones(value: str) -> list[str]:
        return [tone for tone in ("kind", "keen", "cold") if tone.startswith(value)]

    @server.resource("note://fixed", title="A note", mime_type="text/plain")
    def fixed() -> str:
        """Give a fixed note."""
        return "as it was"

    @server.resource("blob://dot", mime_type="image/png")
    def dot() -> bytes:
        """Give a picture."""
        return PIXEL

    @server.resource("city://{name}/map", mime_type="text/plain")
    def city_map(name: str) -> str:
        """Give the map of a city."""
        return f"the map of {name}"

    @server.completion("city://{name}/map", "name")
    async def cities(value: str, before: dict[str, str]) -> list[str]:
        known = ("Oslo", "Osaka", "Rome") if "country" not in before else ("Osaka",)
        return [city for city in known if city.startswith(value)]


if __name__ == "__main__":
    build(*sys.argv[1:]).run()
