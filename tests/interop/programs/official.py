"""A server of the official Python SDK, with its friendly face, for our client."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Any

import mcp_types as theirs
from mcp.server.mcpserver import (
    AssistantMessage,
    Context,
    Elicit,
    Image,
    ListRoots,
    MCPServer,
    Message,
    Resolve,
    Sample,
    UserMessage,
)
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

__all__ = ["build"]

PIXEL = b"\x89PNG\r\n\x1a\n"


class Forecast(BaseModel):
    """What a city may expect."""

    city: str
    degrees: float


class Person(BaseModel):
    """A form of two fields."""

    name: str
    age: int = 30


async def who() -> Elicit[Person]:
    """Ask for a person."""
    return Elicit("Who are you?", Person)


async def words() -> Sample:
    """Ask the model."""
    question = theirs.SamplingMessage(role="user", content=theirs.TextContent(text="Say hello."))
    return Sample([question], max_tokens=10)


async def choice() -> Sample:
    """Let the model choose a tool."""
    question = theirs.SamplingMessage(role="user", content=theirs.TextContent(text="What time is it?"))
    return Sample([question], max_tokens=10, tools=[theirs.Tool(name="clock", input_schema={"type": "object"})])


async def where() -> ListRoots:
    """Ask for the folders."""
    return ListRoots()


def build() -> MCPServer:
    """Make the server."""
    server = MCPServer("official", title="Their server", instructions="Be kind.", version="4.5.6", log_level="ERROR")
    _add_tools(server)
    _add_telling_tools(server)
    _add_asking_tools(server)
    _add_prompts_and_resources(server)
    return server


def _add_tools(server: MCPServer) -> None:
    @server.tool(title="Add two numbers", annotations=theirs.ToolAnnotations(read_only_hint=True))
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    def forecast(city: str) -> Forecast:
        """Forecast the weather."""
        return Forecast(city=city, degrees=21.5)

    @server.tool()
    async def picture() -> Image:
        """Give a picture."""
        return Image(data=PIXEL, format="png")

    @server.tool()
    async def fail() -> str:
        """Fail on purpose."""
        raise ToolError("out of paper")

    @server.tool()
    async def exit_now(status: int) -> str:
        """End the process in the middle of the call."""
        print("the last words", file=sys.stderr, flush=True)  # noqa: T201 - what the client keeps of stderr
        os._exit(status)


def _add_telling_tools(server: MCPServer) -> None:
    stopped = asyncio.Event()

    @server.tool()
    async def count(steps: int, ctx: Context) -> int:
        """Count, and tell how far."""
        for step in range(1, steps + 1):
            await ctx.report_progress(step, steps, f"step {step}")
        return steps

    @server.tool()
    async def talk(ctx: Context) -> str:
        """Log at two levels."""
        await ctx.debug("a detail")
        await ctx.error("an error", logger_name="mouth")
        return "said"

    @server.tool()
    async def wait(ctx: Context) -> str:
        """Wait until the caller gives up."""
        await ctx.report_progress(1)
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    @server.tool()
    async def was_stopped() -> bool:
        """Tell whether a waiting call was given up."""
        await asyncio.wait_for(stopped.wait(), 5)
        return True

    @server.tool()
    async def change(uri: str, ctx: Context) -> str:
        """Say that all lists and a resource changed."""
        await ctx.notify_tools_changed()
        await ctx.notify_prompts_changed()
        await ctx.notify_resources_changed()
        await ctx.notify_resource_updated(uri)
        return "told"


def _add_asking_tools(server: MCPServer) -> None:
    @server.tool()
    async def ask_person(person: Annotated[Person, Resolve(who)]) -> str:
        """Ask for a person."""
        return f"{person.name}, {person.age}"

    @server.tool()
    async def ask_model(answer: Annotated[theirs.CreateMessageResult, Resolve(words)]) -> str:
        """Ask the caller's model."""
        assert isinstance(answer.content, theirs.TextContent)
        return f"{answer.model}: {answer.content.text}"

    @server.tool()
    async def ask_model_with_tools(
        answer: Annotated[theirs.CreateMessageResultWithTools, Resolve(choice)],
    ) -> str:
        """Let the caller's model choose a tool."""
        [use] = answer.content if isinstance(answer.content, list) else [answer.content]
        assert isinstance(use, theirs.ToolUseContent)
        return f"{answer.stop_reason}: {use.name}"

    @server.tool()
    async def ask_page(ctx: Context) -> str:
        """Send the user to a page, as a request of a session."""
        answer = await ctx.elicit_url("Please sign in.", "https://example.com/sign-in", "page-1")
        await ctx.session.send_elicit_complete("page-1")
        return answer.action

    @server.tool()
    async def ask_whether_alive(ctx: Context) -> str:
        """Ping the caller, as a request of a session."""
        return type(await ctx.session.send_ping()).__name__

    @server.tool()
    async def ask_roots(found: Annotated[theirs.ListRootsResult, Resolve(where)]) -> str:
        """Ask for the caller's folders."""
        return ", ".join(str(root.uri) for root in found.roots)

    @server.tool()
    async def ask_all(
        person: Annotated[Person, Resolve(who)],
        answer: Annotated[theirs.CreateMessageResult, Resolve(words)],
        found: Annotated[theirs.ListRootsResult, Resolve(where)],
    ) -> str:
        """Ask everything there is to ask."""
        return f"{person.name} {answer.model} {len(found.roots)}"


def _add_prompts_and_resources(server: MCPServer) -> None:
    @server.prompt(title="Greeting")
    def greet(name: str, tone: str = "kind") -> list[Message]:
        """Greet somebody."""
        return [UserMessage(f"Greet {name} in a {tone} tone."), AssistantMessage("Hello.")]

    async def complete(
        ref: theirs.PromptReference | theirs.ResourceTemplateReference,
        argument: theirs.CompletionArgument,
        context: theirs.CompletionContext | None,
    ) -> theirs.Completion:
        """Complete a tone, or a city of the country given before."""
        given = (context.arguments or {}) if context is not None else {}
        found = ["Oslo"] if given.get("country") == "Norway" else ["kind", "keen", "cold"]
        return theirs.Completion(values=[each for each in found if each.startswith(argument.value)])

    register: Any = server.completion
    register()(complete)

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


if __name__ == "__main__":
    build().run()
