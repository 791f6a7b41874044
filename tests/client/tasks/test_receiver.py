"""Requests of a server that our client runs as tasks, on the wire: bounded, and by the rules of the specification."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct

import trunkline.types as t
from tests.client.scripted_server import Scripted, handshake_server, settle
from tests.server.tasks.talk import CORE, Gate
from trunkline import Client
from trunkline.client.tasks.receiver import ReceivedTasks
from trunkline.errors import InvalidParams, RequestFailed, TooManyRequests

RELATED = "io.modelcontextprotocol/related-task"
MESSAGE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 10}
FORM = {
    "message": "Which?",
    "requestedSchema": {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]},
}


class Asking:
    """A server that sends requests, and reads the answers."""

    def __init__(self, server: Scripted) -> None:
        self._server = server
        self._last = 0

    async def ask(self, method: str, **params: Any) -> Any:
        """Send a request and return the result, or the error."""
        self._last += 1
        id, stage = f"s{self._last}", self._server.stage
        stage.ask(id, method, params)
        await self._server.until(lambda: id in stage.answers)
        return stage.answers[id]

    async def create(self, **task: Any) -> Any:
        """Ask for a message as a task, and return the task."""
        return (await self.ask("sampling/createMessage", **MESSAGE, task=task))["task"]

    async def until(self, id: str, *statuses: str) -> Any:
        """Return the state of a task once it has one of these statuses."""
        while (state := await self.ask("tasks/get", taskId=id))["status"] not in statuses:
            pass
        return state


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[Asking, Client]]:
    """Connect our client to a server that asks."""
    server = handshake_server(revision=CORE)
    async with Client(server, revision=CORE, **options) as client:
        yield Asking(server), client


def model(gate: Gate | None = None) -> Any:
    """Return a model that answers, once the gate is open."""

    async def sample(request: Any) -> str:
        if gate is not None:
            await gate.wait()
        return "Hello"

    return sample


# --- on the wire ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "requests"),
    [
        ({"sampling": model()}, {"sampling": {"createMessage": {}}}),
        ({"elicitation": lambda _: {}}, {"elicitation": {"create": {}}}),
        ({}, None),
        ({"sampling": model(), "received_tasks": False}, None),
    ],
    ids=["sampling", "elicitation", "nothing", "unwanted"],
)
async def test_a_client_declares_what_it_runs_as_a_task(options: Any, requests: Any) -> None:
    server = handshake_server(revision=CORE)
    async with Client(server, revision=CORE, **options):
        (hello,) = server.params_of("initialize")
    declared = hello["capabilities"].get("tasks")
    assert declared == (None if requests is None else {"list": {}, "cancel": {}, "requests": requests})


async def test_a_request_becomes_a_task_whose_result_is_fetched() -> None:
    gate = Gate()
    async with connected(sampling=model(gate)) as (server, _):
        task = await server.create(ttl=60_000)
        working = await server.ask("tasks/get", taskId=task["taskId"])
        gate.open.set()
        done = await server.until(task["taskId"], "completed")
        result = await server.ask("tasks/result", taskId=task["taskId"])
    assert (task["status"], working["status"], done["status"]) == ("working", "working", "completed")
    assert task["ttl"] == 60_000
    assert result["content"]["text"] == "Hello"
    assert result["_meta"] == {RELATED: {"taskId": task["taskId"]}}


async def test_a_form_becomes_a_task_too() -> None:
    async with connected(elicitation=lambda _: {"value": "red"}) as (server, _):
        task = (await server.ask("elicitation/create", **FORM, task={}))["task"]
        result = await server.ask("tasks/result", taskId=task["taskId"])
    assert (result["action"], result["content"]) == ("accept", {"value": "red"})


async def test_a_request_that_asks_for_no_task_is_answered_directly() -> None:
    async with connected(sampling=model()) as (server, _):
        result = await server.ask("sampling/createMessage", **MESSAGE)
    assert result["content"]["text"] == "Hello"


async def test_the_wish_is_ignored_by_a_client_that_did_not_declare_it() -> None:
    async with connected(sampling=model(), received_tasks=False) as (server, _):
        result = await server.ask("sampling/createMessage", **MESSAGE, task={})
        error = await server.ask("tasks/get", taskId="x")
    assert result["content"]["text"] == "Hello"
    assert error.code == -32601


async def test_a_result_is_waited_for_and_can_be_read_again() -> None:
    gate = Gate()
    async with connected(sampling=model(gate)) as (server, _):
        id = (await server.create())["taskId"]
        waiting = asyncio.ensure_future(server.ask("tasks/result", taskId=id))
        await settle()
        assert not waiting.done()
        gate.open.set()
        first, second = await waiting, await server.ask("tasks/result", taskId=id)
    assert first == second


async def test_a_cancelled_task_stays_cancelled() -> None:
    gate = Gate()
    async with connected(sampling=model(gate)) as (server, _):
        id = (await server.create())["taskId"]
        await gate.entered.wait()
        cancelled = await server.ask("tasks/cancel", taskId=id)
        await gate.cancelled.wait()
        again = await server.ask("tasks/cancel", taskId=id)
        state = await server.ask("tasks/get", taskId=id)
        result = await server.ask("tasks/result", taskId=id)
    assert (cancelled["status"], state["status"]) == ("cancelled", "cancelled")
    assert (again.code, again.message) == (-32602, "Cannot cancel task: already in terminal status 'cancelled'")
    assert result.message == "The task was cancelled"


async def test_tasks_are_listed() -> None:
    async with connected(sampling=model()) as (server, _):
        ids = [(await server.create())["taskId"] for _ in range(2)]
        listed = await server.ask("tasks/list")
    assert [each["taskId"] for each in listed["tasks"]] == ids


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tasks/cancel"])
async def test_an_unknown_task_is_an_invalid_param(method: str) -> None:
    async with connected(sampling=model()) as (server, _):
        assert (await server.ask(method, taskId="x")).code == -32602


async def test_a_callback_that_fails_is_a_failed_task_without_details() -> None:
    async def broken(request: Any) -> str:
        raise ValueError("password=hunter2")

    async with connected(sampling=broken) as (server, _):
        id = (await server.create())["taskId"]
        await server.until(id, "failed")
        error = await server.ask("tasks/result", taskId=id)
    assert "hunter2" not in error.message


async def test_an_error_meant_for_the_server_reaches_it() -> None:
    async def refuses(request: Any) -> str:
        raise RequestFailed("User rejected", code=-1)

    async with connected(sampling=refuses) as (server, _):
        id = (await server.create())["taskId"]
        state = await server.until(id, "failed")
        error = await server.ask("tasks/result", taskId=id)
    assert (error.code, error.message) == (-1, "User rejected")
    assert state["statusMessage"] == "User rejected"


async def test_the_end_of_the_connection_stops_the_tasks() -> None:
    gate = Gate()
    async with connected(sampling=model(gate)) as (server, _):
        await server.create()
        await gate.entered.wait()
    await gate.cancelled.wait()


# --- bounds -----------------------------------------------------------------------------------------------------------


class Answered(Struct, frozen=True):
    """A result without ``_meta``."""

    value: int = 1
    meta: Any = None


def wish(ttl: int | None = None) -> Any:
    """Return the params of a request that asks to become a task."""
    return t.CreateMessageRequestParams(messages=[], max_tokens=1, task=t.TaskMetadata(ttl=ttl))


async def create(tasks: ReceivedTasks, ttl: int | None = None) -> t.Task:
    """Create a task and return it."""
    made = await tasks.serve("sampling/createMessage", wish(ttl))
    assert isinstance(made, t.CreateTaskResult)
    return made.task


async def test_no_more_than_so_many_tasks_run_at_once() -> None:
    never = asyncio.Event()

    async def answer(method: str, params: Any) -> Any:
        await never.wait()

    tasks = ReceivedTasks(answer)
    ids = [(await create(tasks)).task_id for _ in range(100)]
    with pytest.raises(TooManyRequests, match="100 at most"):
        await create(tasks)
    await tasks.serve("tasks/cancel", t.CancelTaskRequestParams(task_id=ids[0]))
    await create(tasks)
    tasks.close()


async def test_finished_tasks_make_room_oldest_first() -> None:
    async def answer(method: str, params: Any) -> Any:
        return Answered()

    tasks = ReceivedTasks(answer)
    ids = []
    for _ in range(150):
        ids.append((await create(tasks)).task_id)
        await tasks.serve("tasks/result", t.GetTaskPayloadRequestParams(task_id=ids[-1]))
    listed = await tasks.serve("tasks/list", t.PaginatedRequestParams())
    assert isinstance(listed, t.ListTasksResult)
    assert [each.task_id for each in listed.tasks] == ids[50:]
    tasks.close()


@pytest.mark.parametrize(
    ("wanted", "given"),
    [(None, 600_000), (5_000, 5_000), (10**9, 3_600_000), (-5, 1)],
    ids=["usual", "own", "long", "negative"],
)
async def test_the_time_of_a_task_is_bounded(wanted: int | None, given: int) -> None:
    async def answer(method: str, params: Any) -> Any:
        return Answered()

    tasks = ReceivedTasks(answer)
    assert (await create(tasks, wanted)).ttl == given
    tasks.close()


async def test_a_task_whose_time_is_over_is_stopped_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, ahead = Gate(), [0.0]
    real = time.time
    monkeypatch.setattr("trunkline.client.tasks.receiver.time.time", lambda: real() + ahead[0])

    async def answer(method: str, params: Any) -> Any:
        await gate.wait()

    tasks = ReceivedTasks(answer)
    id = (await create(tasks, 5_000)).task_id
    await gate.entered.wait()
    ahead[0] = 6.0
    with pytest.raises(InvalidParams):
        await tasks.serve("tasks/get", t.GetTaskRequestParams(task_id=id))
    await gate.cancelled.wait()


async def test_ids_cannot_be_guessed() -> None:
    async def answer(method: str, params: Any) -> Any:
        return Answered()

    tasks = ReceivedTasks(answer)
    ids = {(await create(tasks)).task_id for _ in range(20)}
    assert {len(id) for id in ids} == {32}
    assert len(ids) == 20
    tasks.close()
