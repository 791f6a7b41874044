"""Helpers of the tests of tasks: servers whose handlers wait for the test, and raw clients of both forms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.interaction.wire import Peer, Wire
from trunkline import Server
from trunkline.extensions import TASKS

__all__ = [
    "ALL",
    "CORE",
    "DECLARES_NOTHING",
    "EXTENSION",
    "FINISHED",
    "FORMS",
    "OLDER",
    "PLAIN",
    "WITH_TASKS",
    "Gate",
    "TaskPeer",
    "at_workshop",
    "opened",
    "serving",
    "workshop",
]

OLDER = ("2024-11-05", "2025-03-26", "2025-06-18")
CORE = "2025-11-25"
EXTENSION = "2026-07-28"
ALL = (*OLDER, CORE, EXTENSION)
#: Runs a test in both forms of tasks.
FORMS = pytest.mark.parametrize("revision", [CORE, EXTENSION])
#: Runs a test in every revision.
PLAIN = pytest.mark.parametrize("revision", ALL)
#: The capabilities of a client with the extension.
WITH_TASKS: Mapping[str, Any] = {"extensions": {TASKS: {}}}
#: The ``_meta`` of a request whose client declares nothing.
DECLARES_NOTHING: Mapping[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {}}
FINISHED = ("completed", "failed", "cancelled")


class Gate:
    """Where handlers wait until the test lets them go on."""

    def __init__(self) -> None:
        """Create a gate that is closed."""
        #: Set when a handler has arrived, when handlers may go on, and when one was cancelled.
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.count = 0

    async def wait(self) -> None:
        """Called by a handler."""
        self.count += 1
        self.entered.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def workshop(task: Any = True, **options: Any) -> tuple[Server, Gate]:
    """Return a server with the slow tool ``work``, and the gate at which it waits."""
    server, gate = Server("workshop", **options), Gate()

    @server.tool(task=task)
    async def work(n: int = 1) -> int:
        """Wait at the gate."""
        await gate.wait()
        return n

    return server, gate


def serving(*functions: Callable[..., Any], task: Any = True, **options: Any) -> Server:
    """Return a server with functions as tools that can be tasks."""
    server = Server("s", **options)
    for function in functions:
        server.add_tool(function, task=task)
    return server


class TaskPeer:
    """A raw client that uses tasks, in the form of its revision."""

    def __init__(self, peer: Peer) -> None:
        """Use a raw client."""
        self.peer = peer
        self.core = peer.revision == CORE

    async def create(self, name: str, /, *, meta: Any = None, ttl: int | None = None, **arguments: Any) -> Any:
        """Call a tool as a task and return the task."""
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if self.core:
            params["task"] = {} if ttl is None else {"ttl": ttl}
        result = await self.peer.result("tools/call", params, meta=meta)
        return result["task"] if self.core else result

    async def start(self, name: str = "work", /, **arguments: Any) -> str:
        """Call a tool as a task and return the id."""
        id: str = (await self.create(name, **arguments))["taskId"]
        return id

    async def get(self, id: str) -> Any:
        """Return the state of a task."""
        return await self.peer.result("tasks/get", {"taskId": id})

    async def until(self, id: str, *statuses: str) -> Any:
        """Return the state of a task once it has one of these statuses; without any, once it is finished."""
        while True:
            state = await self.get(id)
            if state["status"] in (statuses or FINISHED):
                return state

    async def outcome(self, id: str) -> Any:
        """Wait for the end of a task and return its result, or its error as ``{"error": ...}``."""
        if self.core:
            answer = await self.peer.request("tasks/result", {"taskId": id})
            return answer["result"] if "result" in answer else {"error": answer["error"]}
        state = await self.until(id)
        return state["result"] if "result" in state else {"error": state.get("error")}

    async def cancel(self, id: str) -> Any:
        """Cancel a task and return the answer."""
        return await self.peer.request("tasks/cancel", {"taskId": id})

    async def question(self, id: str) -> tuple[Any, Any]:
        """Wait for a question of a task; return its key, or the id of its request, and the request."""
        if not self.core:
            found: dict[str, Any] = (await self.until(id, "input_required"))["inputRequests"]
            return next(iter(found.items()))
        while True:
            message = await self.peer.hear()
            if "method" in message and "id" in message:
                return message["id"], message
            self.peer.aside.append(message)

    async def answer(self, id: str, key: Any, result: Any) -> None:
        """Answer a question of a task."""
        if self.core:
            await self.peer.say({"jsonrpc": "2.0", "id": key, "result": result})
        else:
            await self.peer.result("tasks/update", {"taskId": id, "inputResponses": {key: result}})


@asynccontextmanager
async def opened(
    server: Server, revision: str, capabilities: Mapping[str, Any] | None = None, *, transport: str = "memory"
) -> AsyncIterator[TaskPeer]:
    """Connect a raw client with tasks to a server; the server is closed at the end."""
    declared = {**WITH_TASKS, **(capabilities or {})} if revision == EXTENSION else dict(capabilities or {})
    try:
        async with Wire(transport, revision).open(server, capabilities=declared) as peer:
            yield TaskPeer(peer)
    finally:
        await server.aclose()


@asynccontextmanager
async def at_workshop(
    revision: str, task: Any = True, *, transport: str = "memory", **options: Any
) -> AsyncIterator[tuple[TaskPeer, Gate]]:
    """Connect a raw client with tasks to a server with the slow tool ``work``, which may go on at the end."""
    server, gate = workshop(task, **options)
    async with opened(server, revision, transport=transport) as peer:
        yield peer, gate
        gate.open.set()
