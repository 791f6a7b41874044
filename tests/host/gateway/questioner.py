"""A server of one revision that asks each kind of question: ``python -m tests.host.gateway.questioner REVISION``."""

from __future__ import annotations

import asyncio
import sys

import trunkline.types as t
from trunkline import Context, Server
from trunkline.server import SamplingResult

__all__ = ["WEB_PAGE", "make"]

#: The page that the user is asked to open.
WEB_PAGE = "https://pay.example/1"
_WEATHER = t.Tool(name="weather", input_schema={"type": "object", "properties": {"city": {"type": "string"}}})


def make(revision: str) -> Server:
    """Make a server with a tool for each kind of question, and two that ask several."""
    made = Server("questioner", revisions=[revision])
    for tool in (form, page, sample, sample_with_tools, roots, one_after_another, all_at_once):
        made.add_tool(tool)
    return made


async def form(ctx: Context, action: str) -> str:
    """Ask the user to fill in a form; the message names the action that the test wants."""
    answer = await ctx.elicit(f"Please {action}", str)
    return f"{answer.action} {answer.data}"


async def page(ctx: Context) -> str:
    """Ask the user to open a page."""
    return (await ctx.elicit_url("Please pay", WEB_PAGE)).action


async def sample(ctx: Context) -> str:
    """Ask the client's model."""
    said = await ctx.sample("2+2?", max_tokens=17, system_prompt="Be short.")
    return f"{said.model}: {said.text}"


async def sample_with_tools(ctx: Context) -> str:
    """Ask the client's model, which calls a tool, and ask it again with the result of that tool."""
    question = t.SamplingMessage(role="user", content=t.TextContent(text="How is the weather in Oslo?"))
    called = await ctx.sample(question, tools=[_WEATHER], tool_choice="required")
    said = await ctx.sample([question, _turn(called), _results(called)], tools=[_WEATHER])
    return said.text


def _turn(said: SamplingResult) -> t.SamplingMessage:
    return t.SamplingMessage(role="assistant", content=said.content)


def _results(said: SamplingResult) -> t.SamplingMessage:
    return t.SamplingMessage(
        role="user",
        content=[
            t.ToolResultContent(tool_use_id=use.id, content=[t.TextContent(text=f"rain in {use.input['city']}")])
            for use in said.tool_uses
        ],
    )


async def roots(ctx: Context) -> str:
    """Ask for the folders of the client."""
    return " ".join(root.uri for root in await ctx.list_roots())


async def one_after_another(ctx: Context) -> str:
    """Ask one question of each kind, each after the answer to the one before."""
    return " / ".join([await form(ctx, "accept"), await page(ctx), await sample(ctx), await roots(ctx)])


async def all_at_once(ctx: Context) -> str:
    """Ask one question of each kind, all at the same time."""
    return " / ".join(await asyncio.gather(form(ctx, "accept"), page(ctx), sample(ctx), roots(ctx)))


if __name__ == "__main__":
    make(sys.argv[1]).run()
