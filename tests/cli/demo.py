"""The server that the tests of the command line talk to; it runs in a process of its own."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec

from trunkline import AssistantMessage, Context, Image, Message, Server, ToolError, UserMessage
from trunkline.errors import RequestFailed, UrlElicitationRequired
from trunkline.types import ElicitRequestParams, ResourceLink

server = Server("demo", version="1.0.0")
LINK = ResourceLink(uri="note://one", name="one", title="The note")


@dataclass
class Trip:
    """A form with a field of each kind."""

    city: Annotated[str, msgspec.Meta(title="City", description="Where to?")]
    days: Annotated[int, msgspec.Meta(ge=1, le=14)] = 3
    budget: float | None = None
    car: bool = False
    seat: Literal["aisle", "window"] = "window"
    meals: list[Literal["fish", "meat", "rice"]] = field(default_factory=list)


@server.tool
async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def echo(text: str) -> str:
    """Say the same again."""
    return text


@server.tool
async def show(value: Any) -> str:
    """Show a value as JSON."""
    return msgspec.json.encode(value).decode()


@server.tool(description="Clear the \x1b[2Jscreen and \u202eturn round.")
async def evil() -> str:
    """Answer with what could control a terminal."""
    return "red \x1b[31m, C1 \x9b0m, turned \u202e, bell \x07\r\n\tkept"


@server.tool
async def mixed() -> list[str | Image | ResourceLink]:
    """Answer with several kinds of content."""
    return ["some text", Image(data=b"12345", format="png"), LINK]


@server.tool
async def fail() -> str:
    """Fail on purpose."""
    raise ToolError("no luck\x1b[1m today")


@server.tool
async def refuse() -> str:
    """Answer with an error."""
    raise RequestFailed("not\x1b[1m now", code=-32050, data={"retry": 5})


@server.tool
async def die() -> str:
    """End the process."""
    sys.stderr.write("last words\x1b[1m\n")
    sys.stderr.flush()
    os._exit(3)


@server.tool
async def hang() -> str:
    """Never answer."""
    await asyncio.sleep(60)
    return "late"


@server.tool
async def work(ctx: Context, steps: int = 2) -> str:
    """Report progress, log, and write to stderr."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step\x1b[1m {step}")
        await ctx.info(f"log\x1b[1m {step}")
        sys.stderr.write(f"stderr\x1b[1m {step}\n")
    await ctx.debug("a detail\ntrunkline: all is well")
    return "worked"


@server.tool
async def count(ctx: Context) -> str:
    """Report progress without a total."""
    await ctx.report_progress(7, message="so far")
    return "counted"


@server.tool
async def variables(name: str) -> str:
    """Show a variable of the environment and the working folder."""
    return f"{os.environ.get(name)} {os.getcwd()}"


@server.tool
async def choose(ctx: Context) -> str:
    """Ask for one choice."""
    answer = await ctx.elicit("Which unit?", Literal["celsius", "fahrenheit"])
    return f"{answer.action} {answer.data}"


@server.tool
async def confirm(ctx: Context) -> str:
    """Ask for a plain yes."""
    return (await ctx.elicit("Really?\x1b[31m\nTo be sent:", None)).action


@server.tool
async def plan(ctx: Context) -> str:
    """Ask for a whole form."""
    answer = await ctx.elicit("Which trip?", Trip)
    return f"{answer.action} {answer.data}"


@server.tool
async def both(ctx: Context) -> str:
    """Ask two things at once."""
    first, second = await asyncio.gather(ctx.elicit("First?", str), ctx.elicit("Second?", str))
    return f"{first.data} {second.data}"


@server.tool
async def hurry(ctx: Context) -> str:
    """Ask, but do not wait for the answer."""
    try:
        async with asyncio.timeout(0.2):
            await ctx.elicit("Now?", str)
    except TimeoutError:
        return "too late"
    return "in time"


@server.tool
async def visit(ctx: Context, url: str = "https://user@example.com/pay?id=1") -> str:
    """Ask for a page to be opened."""
    return (await ctx.elicit_url("Please pay.", url)).action


@server.tool
async def visit_first() -> str:
    """Answer that a page must be opened first."""
    page = ElicitRequestParams(message="Pay", mode="url", url="https://example.com/pay", elicitation_id="1")
    raise UrlElicitationRequired("pay first", data={"elicitations": [msgspec.to_builtins(page)]})


@server.tool
async def think(ctx: Context) -> str:
    """Ask for a model's answer."""
    answer = await ctx.sample(
        "Say\x1b[1m hi", max_tokens=10, system_prompt="Be kind.", model_preferences={"hints": [{"name": "small"}]}
    )
    return answer.text


@server.tool
async def grow(ctx: Context) -> str:
    """Add a tool, then change a note."""
    ctx.server.add_tool(lambda: "new", name="grown")
    return "grown"


@server.resource("note://one", mime_type="text/plain")
def one() -> str:
    """The first note."""
    return "hello\x1b[1m\n"


@server.resource("note://bytes", mime_type="application/octet-stream")
def some_bytes() -> bytes:
    """Three bytes."""
    return b"\x00\x1b\xff"


@server.resource("note://{name}/page")
def page(name: str) -> str:
    """A page of a note."""
    return f"page of {name}"


@server.prompt
def greet(name: str, style: str = "short") -> list[Message]:
    """Greet somebody."""
    return [UserMessage(f"greet\x1b[1m {name}, {style}"), AssistantMessage("gladly")]


@server.completion("greet", "name")
async def names(value: str) -> list[str]:
    """Propose names."""
    return [name for name in ("ann", "anna", "bob") if name.startswith(value)]


@server.completion("note://{name}/page", "name")
async def note_names(value: str) -> list[str]:
    """Propose notes."""
    return [f"{value}-{number}\x1b[1m" for number in range(150)]
