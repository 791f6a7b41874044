"""Tasks of a server in a process of its own: the end by a signal, and by a client that leaves."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.interaction.wire import Peer, _Pipes
from tests.server.tasks.fleet import PROGRAM, Workplace
from tests.server.tasks.talk import CORE, EXTENSION, WITH_TASKS, TaskPeer


@asynccontextmanager
async def started(folder: Path, revision: str, **options: Any) -> AsyncIterator[tuple[TaskPeer, _Pipes, Workplace]]:
    """Start the server and connect a raw client."""
    given = json.dumps({"folder": str(folder), "transport": "stdio", **options})
    pipes = await _Pipes.spawn([sys.executable, str(PROGRAM), given])
    peer = Peer(pipes, revision=revision, capabilities=dict(WITH_TASKS) if revision == EXTENSION else {})
    pipes.start(peer)
    try:
        if revision != EXTENSION:
            await peer.shake_hands()
        yield TaskPeer(peer), pipes, Workplace(folder)
    finally:
        if pipes.process.returncode is None:
            pipes.process.kill()
        await pipes.process.wait()
        await asyncio.wait(pipes._tasks)


async def test_a_signal_waits_for_tasks_that_would_be_lost(tmp_path: Path) -> None:
    async with started(tmp_path, EXTENSION) as (peer, pipes, place):
        id = await peer.start("once", name="job")
        await place.until("run", "job")
        pipes.process.send_signal(signal.SIGTERM)
        while "error" not in await peer.peer.request("tools/list"):
            pass
        # The server stops, and still says how its tasks are.
        state = await peer.get(id)
        place.open("job")
        await pipes.process.wait()
    assert state["status"] == "working"
    assert (place.done("job"), pipes.process.returncode) == ({"run": 1, "end": 1}, 0)


async def test_who_waits_for_a_result_gets_it_before_the_end(tmp_path: Path) -> None:
    async with started(tmp_path, CORE) as (peer, pipes, place):
        id = await peer.start("once", name="job")
        await place.until("run", "job")
        waiting = await peer.peer.send("tasks/result", {"taskId": id})
        pipes.process.send_signal(signal.SIGTERM)
        place.open("job")
        answer = await peer.peer.answer(waiting)
        await pipes.process.wait()
    assert answer["result"]["content"][0]["text"] == "job done"


async def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    async with started(tmp_path, CORE) as (peer, pipes, place):
        await peer.start("once", name="job")
        await place.until("run", "job")
        pipes.process.send_signal(signal.SIGTERM)
        while "error" not in await peer.peer.request("tools/list"):
            pass
        pipes.process.send_signal(signal.SIGTERM)
        await pipes.process.wait()
    assert place.done("job") == {"run": 1, "cancelled": 1}


async def test_a_signal_leaves_durable_tasks_to_the_next_process(tmp_path: Path) -> None:
    store = str(tmp_path / "state.db")
    async with started(tmp_path, CORE, store=store) as (peer, pipes, place):
        id = await peer.start("again", name="job")
        await place.until("run", "job")
        pipes.process.send_signal(signal.SIGTERM)
        await pipes.process.wait()
    stopped = place.done("job")
    place.open("job")
    async with started(tmp_path, CORE, store=store) as (peer, _, _):
        outcome = await peer.outcome(id)
    assert stopped == {"run": 1, "cancelled": 1}
    assert outcome["content"][0]["text"] == "job done"


async def test_a_client_that_leaves_stops_the_tasks_of_its_server(tmp_path: Path) -> None:
    async with started(tmp_path, EXTENSION) as (peer, pipes, place):
        await peer.start("once", name="job")
        await place.until("run", "job")
        await pipes.end()
        await pipes.process.wait()
    assert (place.done("job"), pipes.process.returncode) == ({"run": 1, "cancelled": 1}, 0)
