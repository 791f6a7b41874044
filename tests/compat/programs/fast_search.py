"""A FastMCP server whose tools are found by a search."""

from fastmcp import FastMCP
from fastmcp.server.transforms.search import BM25SearchTransform

mcp = FastMCP("search", transforms=[BM25SearchTransform(always_visible=["about"])])


@mcp.tool
def about() -> str:
    """Tell what this is."""
    return "a server"


@mcp.tool
def send_email(to: str) -> str:
    """Send an email to somebody."""
    return f"sent to {to}"


@mcp.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
