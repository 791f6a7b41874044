"""How the requests of one read start: together at its end, on Python 3.12 and newer eagerly, and answered in one write.

What a client sees is the same on every version of Python, on the loop of asyncio and on uvloop.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support import run_async
from trunkline import Context, Server
from trunkline.transports import pipes
from trunkline.transports.pipes import PipeLink

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
EAGER = sys.version_info >= (3, 12)


class Wire:
    """The client's end of two pipes to a server."""

    def __init__(self) -> None:
        self._to_server, self._from_server = os.pipe(), os.pipe()
        self.link = PipeLink(self._to_server[0], self._from_server[1])
        self._lines = os.fdopen(self._from_server[0], "rb")
        self.output = self._from_server[1]

    def write(self, *messages: dict[str, Any]) -> None:
        """Write messages at once, so that one read of the server brings them all."""
        os.write(self._to_server[1], b"".join(json.dumps(each).encode() + b"\n" for each in messages))

    async def read(self, count: int) -> list[dict[str, Any]]:
        """Read this many messages."""
        return [json.loads(await asyncio.to_thread(self._lines.readline)) for _ in range(count)]

    async def rest(self) -> list[dict[str, Any]]:
        """End the input, and read what the server still writes."""
        os.close(self._to_server[1])
        return [json.loads(line) for line in await asyncio.to_thread(self._lines.readlines)]

    def close(self) -> None:
        """Close the client's end of the output."""
        self._lines.close()


@asynccontextmanager
async def serving(server: Server) -> AsyncIterator[Wire]:
    """Serve over pipes until the input ends, which the test does with ``rest``."""
    wire = Wire()
    task = asyncio.create_task(server.serve(wire.link))
    await asyncio.sleep(0)
    try:
        yield wire
        await task
    finally:
        wire.close()


def call(id: int, tool: str, **arguments: object) -> dict[str, Any]:
    """Return a call of a tool."""
    params = {"name": tool, "arguments": arguments, "_meta": META}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def cancel(id: int) -> dict[str, Any]:
    """Return the cancellation of a call."""
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


def text(answer: dict[str, Any]) -> str:
    """Return the text of a tool's result."""
    return str(answer["result"]["content"][0]["text"])


def run_on_uvloop(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine on uvloop."""
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


@pytest.fixture(params=[run_async, run_on_uvloop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Runs a test on each loop."""
    chosen: Callable[[Coroutine[Any, Any, None]], None] = request.param
    return chosen


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_64_lines_of_one_read_are_answered_in_one_write(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("test")

    @server.tool
    async def double(n: int) -> int:
        return 2 * n

    writes: list[int] = []

    class CountingOs:
        """The module ``os``, with a count of writes."""

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        @staticmethod
        def write(fd: int, data: bytes) -> int:
            writes.append(fd)
            return os.write(fd, data)

    async def scene() -> None:
        async with serving(server) as wire:
            monkeypatch.setattr(pipes, "os", CountingOs())
            wire.write(*(call(n, "double", n=n) for n in range(1, 65)))
            answers = await wire.read(64)
            assert [(answer["id"], text(answer)) for answer in answers] == [(n, str(2 * n)) for n in range(1, 65)]
            assert writes == [wire.output]
            monkeypatch.undo()
            assert await wire.rest() == []

    run(scene())


def test_answers_that_are_ready_do_not_wait_for_a_handler_that_suspends(run: Run) -> None:
    server = Server("test")
    gate = asyncio.Event()

    @server.tool
    async def slow() -> str:
        await gate.wait()
        return "slow"

    @server.tool
    async def fast() -> str:
        return "fast"

    async def scene() -> None:
        async with serving(server) as wire:
            wire.write(call(1, "slow"), call(2, "fast"), call(3, "fast"))
            assert [answer["id"] for answer in await wire.read(2)] == [2, 3]
            gate.set()
            assert [(answer["id"], text(answer)) for answer in await wire.read(1)] == [(1, "slow")]
            assert await wire.rest() == []

    run(scene())


def test_a_request_cancelled_in_the_same_read_never_starts(run: Run) -> None:
    server = Server("test")
    started: list[int] = []

    @server.tool
    async def note(n: int) -> int:
        started.append(n)
        return n

    async def scene() -> None:
        async with serving(server) as wire:
            wire.write(call(1, "note", n=1), call(2, "note", n=2), cancel(1))
            assert [answer["id"] for answer in await wire.read(1)] == [2]
            assert started == [2]
            assert await wire.rest() == []

    run(scene())


def test_handlers_do_not_see_the_context_variables_of_each_other(run: Run) -> None:
    server = Server("test")
    number = contextvars.ContextVar("number", default=0)

    @server.tool
    async def add(n: int) -> int:
        number.set(number.get() + n)
        await asyncio.sleep(0) if n % 2 else None
        return number.get()

    async def scene() -> None:
        async with serving(server) as wire:
            wire.write(*(call(n, "add", n=n) for n in range(1, 5)))
            answers = await wire.read(4)
            assert sorted((answer["id"], text(answer)) for answer in answers) == [(n, str(n)) for n in range(1, 5)]
            assert number.get() == 0
            assert await wire.rest() == []

    run(scene())


def test_a_broken_output_ends_what_has_not_started(run: Run) -> None:
    server = Server("test")
    started: list[int] = []

    @server.tool
    async def note(n: int, ctx: Context) -> int:
        started.append(n)
        await ctx.report_progress(1)
        await ctx._exchange.connection.drain() if n == 1 else None
        if n == 1:
            ctx._exchange.connection.flush()
        return n

    async def scene() -> None:
        wire = Wire()
        task = asyncio.create_task(server.serve(wire.link))
        await asyncio.sleep(0)
        wire.close()
        requests = [call(n, "note", n=n) for n in (1, 2, 3)]
        for request in requests:
            request["params"]["_meta"] = {**META, "progressToken": request["id"]}
        wire.write(*requests)
        await task
        assert started == [1]
        os.close(wire._to_server[1])

    run(scene())


@pytest.mark.skipif(not EAGER, reason="tasks start eagerly from Python 3.12 on")
def test_a_handler_that_does_not_suspend_costs_no_iteration_of_the_loop(run: Run) -> None:
    server = Server("test")
    order: list[str] = []

    @server.tool
    async def note() -> None:
        order.append("handler")

    async def scene() -> None:
        async with serving(server) as wire:
            received = wire.link._received

            def observed(data: bytes) -> None:
                received(data)
                order.append("read ended")

            wire.link._received = observed  # type: ignore[method-assign]
            wire.write(call(1, "note"))
            await wire.read(1)
            assert order == ["handler", "read ended"]
            assert await wire.rest() == []

    run(scene())
