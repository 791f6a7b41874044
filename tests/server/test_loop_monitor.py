"""Functions that block the event loop of a running server are told, with file and line."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.server.talk import STATELESS
from tests.server.test_run import Pipes
from trunkline import Client, Server
from trunkline.protocol.limits import Limits
from trunkline.transports.stdio import StdioLink


class Warnings(logging.Handler):
    """The warnings of the server; functions of the tests block until the next one arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.arrived = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        self.arrived.set()

    def names(self) -> list[str]:
        """What the messages say about whom."""
        return [message.partition(" blocked the event loop for ")[0] for message in self.messages]


@pytest.fixture
def warned() -> Iterator[Warnings]:
    handler, logger = Warnings(), logging.getLogger("trunkline")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@asynccontextmanager
async def running(server: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """A client of a server that runs as a program does."""
    pipes = Pipes()
    monkeypatch.setattr(StdioLink, "claim", pipes.claim)
    program = asyncio.ensure_future(server.run_async())
    async with Client(pipes.client_end(), revision=STATELESS) as client:
        yield client
    await program


def making(seconds: float = 0.04) -> Server:
    return Server("s", limits=Limits(blocking_seconds=seconds))


async def test_a_function_that_blocks_the_loop_is_told_once_with_file_and_line(
    warned: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = making()

    @server.tool
    async def slow(seconds: float) -> None:
        warned.arrived.wait(seconds)

    @server.tool
    async def other() -> None:
        warned.arrived.wait(120)

    async with running(server, monkeypatch) as client:
        await client.call_tool("slow", {"seconds": 10})
        warned.arrived.clear()
        await client.call_tool("slow", {"seconds": 0.2})
        await client.call_tool("other")
    line = slow.__code__.co_firstlineno + 2
    assert warned.names() == ["tool 'slow'", "tool 'other'"]
    assert f" s at {__file__}:{line} (`warned.arrived.wait(seconds)`). " in warned.messages[0]


async def test_neither_a_tool_in_a_thread_nor_a_slow_lifespan_is_told(
    warned: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        warned.arrived.wait(0.2)
        yield

    server = Server("s", lifespan=lifespan, limits=Limits(blocking_seconds=0.04))
    finish = threading.Event()

    @server.tool
    def threaded() -> None:
        finish.wait(120)

    @server.tool
    async def slow() -> None:
        warned.arrived.wait(120)
        finish.set()

    async with running(server, monkeypatch) as client:
        await asyncio.gather(client.call_tool("threaded"), client.call_tool("slow"))
    assert warned.names() == ["tool 'slow'"]


async def test_resources_prompts_and_tasks_of_a_tool_are_told_too(
    warned: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = making()

    @server.resource("x://slow")
    async def resource() -> str:
        return str(warned.arrived.wait(120))

    @server.prompt
    async def prompt() -> str:
        return str(warned.arrived.wait(120))

    async def fetch() -> None:
        warned.arrived.wait(120)

    @server.tool
    async def gathering() -> None:
        await asyncio.gather(fetch())

    async with running(server, monkeypatch) as client:
        await client.read_resource("x://slow")
        warned.arrived.clear()
        await client.get_prompt("prompt")
        warned.arrived.clear()
        await client.call_tool("gathering")
    assert warned.names() == ["resource 'x://slow'", "prompt 'prompt'", f"the function {fetch.__qualname__!r}"]


async def test_nothing_watches_the_loop_with_a_limit_of_0(monkeypatch: pytest.MonkeyPatch) -> None:
    server = making(0)
    # A monitor of a test before this one may still be ending.
    before = threading.enumerate()

    @server.tool
    async def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread not in before]

    async with running(server, monkeypatch) as client:
        assert "trunkline loop monitor" not in (await client.call_tool("threads")).data


async def test_the_loop_is_watched_until_the_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    server = making()

    @server.tool
    async def watching() -> bool:
        return any(thread.name == "trunkline loop monitor" for thread in threading.enumerate())

    async with running(server, monkeypatch) as client:
        assert (await client.call_tool("watching")).data
