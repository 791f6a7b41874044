"""A server for ``fastmcp``: transformed tools, generators, ready-made resources, typed arguments of prompts."""

from collections.abc import Iterator
from typing import Annotated

from fastmcp import FastMCP
from fastmcp.prompts import Message
from fastmcp.resources import ResourceContent, TextResource
from fastmcp.tools import Tool, forward, tool
from fastmcp.tools.tool_transform import ArgTransform
from pydantic import BaseModel, Field

mcp = FastMCP("objects")


class Point(BaseModel):
    x: int
    y: int = 0


@mcp.tool
def move(point: Point, by: Annotated[int, Field(ge=0)] = 1) -> Point:
    """Move a point.

    Args:
        point: Where it is.
        by: How far.
    """
    return Point(x=point.x + by, y=point.y)


@mcp.tool
def count(to: int) -> Iterator[int]:
    """Count."""
    yield from range(to)


@tool(name="add", tags={"math"})
def plus(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


async def loud(number: int) -> str:
    result = await forward(number=number)
    return f"{result.content[0].text}!"


mcp.add_tool(plus)
mcp.add_tool(
    Tool.from_tool(
        plus,
        name="add_loud",
        transform_fn=loud,
        transform_args={"a": ArgTransform(name="number"), "b": ArgTransform(hide=True, default=40)},
    )
)
mcp.add_resource(TextResource(uri="note://one", name="one", text="a note", meta={"team": "docs"}))


@mcp.resource("files://{path*}{?lines}")
def file(path: str, lines: int = 10) -> list[ResourceContent]:
    """Return a file."""
    return [ResourceContent(f"{path}:{lines}", mime_type="text/x-path")]


@mcp.prompt
def summary(numbers: list[int], style: str = "short") -> list[Message]:
    """Sum up numbers."""
    return [Message(f"{style}: {sum(numbers)}"), Message("Fine.", role="assistant")]
