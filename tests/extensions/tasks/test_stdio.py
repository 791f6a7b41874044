"""Tasks of a server in a process of its own: calls, restarts, and the end by a signal."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.tasks.talk import ALL, CORE, EXTENSION, FORMS, WITH_TASKS, TaskPeer
from tests.interaction.wire import Peer, _Pipes
from tests.server.talk import accept
from trunkline import Client

EVERY = pytest.mark.parametrize("revision", ALL)


def program(folder: Path, *database: str) -> list[str]:
    """Return the command of the server."""
    return [sys.executable, "-m", "tests.extensions.tasks.stdio_server", str(folder), *database]


@asynccontextmanager
async def started(command: list[str], revision: str) -> AsyncIterator[tuple[TaskPeer, _Pipes]]:
    """Start the server and connect a raw client."""
    pipes = await _Pipes.spawn(command)
    capabilities = {**WITH_TASKS, "elicitation": {}} if revision == EXTENSION else {"elicitation": {}}
    peer = Peer(pipes, revision=revision, capabilities=capabilities)
    pipes.start(peer)
    try:
        if revision != EXTENSION:
            await peer.shake_hands()
        yield TaskPeer(peer), pipes
    finally:
        if pipes.process.returncode is None:
            pipes.process.kill()
        await pipes.process.wait()
        await asyncio.wait(pipes._tasks)


async def appears(folder: Path, pattern: str) -> None:
    """Wait until the server has left a file."""
    while not list(folder.glob(pattern)):  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.005)


def files(folder: Path) -> set[str]:
    """Return what the tools have left, without process ids."""
    return {
        each.name.partition("-begun-")[0] + "-begun" if "-begun-" in each.name else each.name
        for each in folder.iterdir()
        if "tasks" not in each.name
    }


# --- calls ------------------------------------------------------------------------------------------------------------


@EVERY
async def test_a_slow_tool_is_called_in_every_revision(revision: str, tmp_path: Path) -> None:
    seen: list[Any] = []
    options: Any = {"on_progress": lambda *each: seen.append(each), "elicitation": lambda _: {"value": "red"}}
    async with Client(program(tmp_path), revision=revision, **options) as client:
        added = await client.call_tool("add", {"a": 2, "b": 3})
        asked = await client.call_tool("ask", raise_on_error=False)
    assert added.content[0].text == "5"  # type: ignore[union-attr]
    assert asked.is_error == (revision in ALL[:2])
    assert len(seen) == 1


@FORMS
async def test_a_task_survives_a_restart_of_the_client_and_of_the_server(revision: str, tmp_path: Path) -> None:
    command = program(tmp_path, str(tmp_path / "tasks.sqlite"))
    async with Client(command, revision=revision) as client:
        id = (await client.start_task("wait", {"name": "job"})).id
        await appears(tmp_path, "job-begun-*")
    (tmp_path / "job-go").touch()
    async with Client(command, revision=revision) as client:
        result = await client.task(id, tool="wait").result()
    assert result.data == "job"
    assert len(list(tmp_path.glob("job-begun-*"))) == 2  # noqa: ASYNC240


async def test_a_question_of_the_core_form_comes_unasked_where_that_is_possible(tmp_path: Path) -> None:
    async with started(program(tmp_path), CORE) as (peer, _):
        id = await peer.start("ask")
        key, _ = await peer.question(id)
        await peer.answer(id, key, accept("red"))
        outcome = await peer.outcome(id)
    assert outcome["content"][0]["text"] == "red"


# --- the end ----------------------------------------------------------------------------------------------------------


@FORMS
async def test_a_signal_waits_for_tasks_that_would_be_lost(revision: str, tmp_path: Path) -> None:
    async with started(program(tmp_path), revision) as (peer, pipes):
        id = await peer.start("wait", name="job")
        await appears(tmp_path, "job-begun-*")
        pipes.process.send_signal(signal.SIGTERM)
        error = await peer.peer.request("tools/list")
        while "error" not in error:
            error = await peer.peer.request("tools/list")
        # The server stops, and still says how its tasks are.
        state = await peer.get(id)
        (tmp_path / "job-go").touch()
        await pipes.process.wait()
    assert state["status"] == "working"
    assert (files(tmp_path), pipes.process.returncode) == ({"job-begun", "job-go", "job-ended"}, 0)


async def test_who_waits_for_a_result_gets_it_before_the_end(tmp_path: Path) -> None:
    async with started(program(tmp_path), CORE) as (peer, pipes):
        id = await peer.start("wait", name="job")
        await appears(tmp_path, "job-begun-*")
        waiting = await peer.peer.send("tasks/result", {"taskId": id})
        pipes.process.send_signal(signal.SIGTERM)
        (tmp_path / "job-go").touch()
        answer = await peer.peer.answer(waiting)
        await pipes.process.wait()
    assert answer["result"]["content"][0]["text"] == "job"


@FORMS
async def test_a_second_signal_does_not_wait(revision: str, tmp_path: Path) -> None:
    async with started(program(tmp_path), revision) as (peer, pipes):
        await peer.start("wait", name="job")
        await appears(tmp_path, "job-begun-*")
        pipes.process.send_signal(signal.SIGTERM)
        while "error" not in await peer.peer.request("tools/list"):
            pass
        pipes.process.send_signal(signal.SIGTERM)
        await pipes.process.wait()
    assert files(tmp_path) == {"job-begun", "job-cancelled"}


@FORMS
async def test_a_signal_leaves_durable_tasks_to_the_next_process(revision: str, tmp_path: Path) -> None:
    command = program(tmp_path, str(tmp_path / "tasks.sqlite"))
    async with started(command, revision) as (peer, pipes):
        id = await peer.start("wait", name="job")
        await appears(tmp_path, "job-begun-*")
        pipes.process.send_signal(signal.SIGTERM)
        await pipes.process.wait()
    stopped = files(tmp_path)
    (tmp_path / "job-go").touch()
    async with started(command, revision) as (peer, _):
        outcome = await peer.outcome(id)
    assert stopped == {"job-begun", "job-cancelled"}
    assert outcome["content"][0]["text"] == "job"


@FORMS
async def test_a_client_that_leaves_stops_the_tasks_of_its_server(revision: str, tmp_path: Path) -> None:
    async with started(program(tmp_path), revision) as (peer, pipes):
        await peer.start("wait", name="job")
        await appears(tmp_path, "job-begun-*")
        await pipes.end()
        await pipes.process.wait()
    assert (files(tmp_path), pipes.process.returncode) == ({"job-begun", "job-cancelled"}, 0)


@FORMS
async def test_no_files_but_the_database_are_left(revision: str, tmp_path: Path) -> None:
    command = program(tmp_path, str(tmp_path / "tasks.sqlite"))
    async with started(command, revision) as (peer, pipes):
        await peer.until(await peer.start("add", a=1, b=2))
        await pipes.end()
        await pipes.process.wait()
    assert [each.name for each in tmp_path.iterdir()] == ["tasks.sqlite"]  # noqa: ASYNC240
