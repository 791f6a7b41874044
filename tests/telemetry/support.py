"""Servers with metrics, and a reader of their text: the parser of Prometheus's own client library."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from trunkline import Context, Server, ToolError
from trunkline.errors import RequestFailed

__all__ = ["Answer", "Samples", "free_port", "get", "over_http", "samples", "shop"]


class Answer(NamedTuple):
    """A response of the listener."""

    status: int
    kind: str
    text: str


class Samples(dict[tuple[str, frozenset[tuple[str, str]]], float]):
    """The samples of a text, by name and labels."""

    def value(self, name: str, /, **labels: str) -> float | None:
        """Return the value of one sample; None if there is none."""
        return self.get((name, frozenset(labels.items())))

    def label_values(self, name: str, label: str) -> set[str]:
        """Return the values that a label of a metric has."""
        return {dict(labels)[label] for found, labels in self if found == name}


def samples(text: str) -> Samples:
    """Parse a text in the exposition format."""
    families = list(text_string_to_metric_families(text))
    return Samples(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }
    )


def shop(*more: Callable[..., Any], name: str = "shop") -> Server:
    """Return a server whose tools succeed, fail, fail with a protocol error and ask."""

    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def fail() -> str:
        """Fail."""
        raise ToolError("secret-argument")

    async def explode() -> str:
        """Fail with a protocol error."""
        raise RequestFailed("no", code=-31999)

    async def ask(ctx: Context) -> str:
        """Ask."""
        return str((await ctx.elicit("Name?", str)).data)

    return Server(name, tools=[add, fail, explode, ask, *more])


def free_port() -> int:
    """Return a port that is free now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


async def get(url: str, path: str = "/metrics", **headers: str) -> Answer:
    """Request a page of a listener."""
    async with aiohttp.ClientSession() as web, web.get(url + path, headers=headers) as response:
        return Answer(response.status, response.headers.get("Content-Type", ""), await response.text())


@asynccontextmanager
async def over_http(server: Server, **options: Any) -> AsyncIterator[tuple[str, str]]:
    """Run a server over HTTP with metrics; yield the URLs of both."""
    port = free_port()
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(
        server.run_async("http", port=0, started=url.set_result, metrics=f"127.0.0.1:{port}", **options)
    )
    waited: list[asyncio.Future[Any]] = [running, url]
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    try:
        yield f"{url.result()}/mcp", f"http://127.0.0.1:{port}"
    finally:
        running.cancel()
        await asyncio.wait([running])
