"""Calls of the fetch tool, each with its own server and client."""

from __future__ import annotations

from tests.net.origins import Origin
from trunkline import Client, Server
from trunkline.types import TextContent
from trunkline_servers.fetch import make_server

__all__ = ["PAGE", "fetch", "fetch_with", "page_of", "prompt"]

PAGE = (
    b"<html><head><title>Rivers</title></head><body><nav><a href=/>Home</a></nav>"
    b"<main><h1>Rivers</h1><p>The Danube passes <b>ten</b> countries.</p></main></body></html>"
)


async def fetch_with(server: Server, url: str, **arguments: object) -> str:
    """Call the tool of a server and give its text."""
    async with Client(server) as client:
        return (await client.call_tool("fetch", {"url": url, **arguments})).text


async def fetch(site: Origin, path: str, **arguments: object) -> str:
    """Fetch a page of a site on this machine that the server is told to allow."""
    return await fetch_with(make_server(allow_hosts=[f"127.0.0.1:{site.port}"]), f"{site.url}{path}", **arguments)


async def page_of(site: Origin, path: str, **arguments: object) -> str:
    """Fetch a page and give what stands behind the line that names it."""
    return (await fetch(site, path, **arguments)).partition(f"Contents of {site.url}{path}:\n")[2]


async def prompt(server: Server, url: str) -> str:
    """Get the prompt of a server and give its text."""
    async with Client(server) as client:
        content = (await client.get_prompt("fetch", {"url": url})).messages[0].content
    assert isinstance(content, TextContent)
    return content.text
