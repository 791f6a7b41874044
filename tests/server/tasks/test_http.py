"""Tasks over HTTP: headers, streams, callers that leave, and whose task it is."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.interaction.web import served
from tests.server.talk import accept
from tests.server.tasks.talk import (
    ALL,
    CORE,
    EXTENSION,
    FINISHED,
    FORMS,
    Gate,
    at_workshop,
    opened,
    serving,
    workshop,
)
from trunkline import Client, Context, Server, StaticTokens
from trunkline.errors import InvalidParams
from trunkline.extensions import TASKS
from trunkline.store.memory import MemoryContents, MemoryEngine
from trunkline.transports.http.server.serve import serve

RELATED = "io.modelcontextprotocol/related-task"
ASKS: Mapping[str, Any] = {"elicitation": {}}
TOKENS = StaticTokens({"ann-token": "ann", "bob-token": "bob"})


@asynccontextmanager
async def listening(server: Server) -> AsyncIterator[str]:
    """Serve over HTTP; the server is closed at the end."""
    try:
        async with served(server) as (url, _):
            yield url
    finally:
        await server.aclose()


# --- the wire ---------------------------------------------------------------------------------------------------------


@FORMS
async def test_the_state_of_a_task_is_one_json_body(revision: str) -> None:
    async with at_workshop(revision, transport="http") as (peer, _):
        await peer.get(await peer.start())
        kinds = [reply.kind for reply in peer.peer.carrier.replies[-2:]]  # type: ignore[attr-defined]
    # 2025-11-25: servers SHOULD NOT upgrade to a stream in response to tasks/get.
    assert kinds == ["application/json"] * 2


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
@pytest.mark.parametrize("name", ["another", "x"], ids=["wrong", "short"])
async def test_the_name_header_is_the_id_of_the_task(method: str, name: str | None) -> None:
    async with at_workshop(EXTENSION, transport="http") as (peer, _):
        id = await peer.start()
        web: Any = peer.peer.carrier
        message = peer.peer.request_of(method, {"taskId": id, "inputResponses": {}}, id=9)
        right = {**web.headers(message), "Mcp-Method": method}
        wrong = {each: value for each, value in right.items() if each != "Mcp-Name"} | (
            {} if name is None else {"Mcp-Name": name}
        )
        refused = await web.exchange("POST", wrong, data=json.dumps(message).encode())
        accepted = await web.exchange("POST", right, data=json.dumps(message).encode())
    assert right["Mcp-Name"] == id
    assert (refused.status, refused.messages[0]["error"]["code"]) == (400, -32020)
    assert "result" in accepted.messages[0]


async def test_our_client_names_the_task_in_the_header() -> None:
    server, gate = workshop()
    seen: list[tuple[str | None, str | None]] = []
    gate.open.set()
    endpoint = server.asgi()

    class Noting:
        """Notes the headers of requests about tasks."""

        path = "/mcp"

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            headers = {name.decode(): value.decode() for name, value in scope.get("headers", ())}
            if headers.get("mcp-method", "").startswith("tasks/"):
                seen.append((headers["mcp-method"], headers.get("mcp-name")))
            await endpoint(scope, receive, send)

        async def drain(self, seconds: float) -> None:
            await endpoint.drain(seconds)

    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stopping = asyncio.Event()
    options: Any = {"limits": server.limits, "port": 0, "log_level": None}
    running = asyncio.create_task(serve(Noting(), started=started.set_result, stopping=stopping, **options))
    async with Client(f"{await started}/mcp") as client:
        handle = await client.start_task("work")
        await handle.result()
        await client.task(handle.id).cancel()
    stopping.set()
    await running
    await server.aclose()
    assert ("tasks/get", handle.id) in seen
    assert seen[-1] == ("tasks/cancel", handle.id)


async def test_progress_of_the_core_form_arrives_on_the_stream_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.server.tasks.service.FIRST_POLL", 0.0)
    gate = Gate()

    async def work(ctx: Context) -> str:
        await gate.wait()
        await ctx.report_progress(1, 2, "half")
        return "done"

    async with opened(serving(work), CORE, transport="http") as peer:
        task = await peer.create("work", meta={"progressToken": "p"})
        gate.open.set()
        progress = await peer.peer.notice("notifications/progress")
        status = await peer.peer.notice("notifications/tasks/status")
    assert (progress["progressToken"], progress["_meta"]) == ("p", {RELATED: {"taskId": task["taskId"]}})
    assert (status["taskId"], status["status"]) == (task["taskId"], "completed")


async def test_a_question_of_the_core_form_is_asked_on_the_request_for_the_result() -> None:
    async def work(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", str)).data)

    async with opened(serving(work), CORE, ASKS, transport="http") as peer:
        id = await peer.start("work")
        await peer.until(id, "input_required")
        assert not [each for each in peer.peer.heard if each.get("method") == "elicitation/create"]
        waiting = await peer.peer.send("tasks/result", {"taskId": id})
        key, request = await peer.question(id)
        await peer.answer(id, key, accept("red"))
        result = (await peer.peer.answer(waiting))["result"]
    assert request["params"]["_meta"] == {RELATED: {"taskId": id}}
    assert result["content"][0]["text"] == "red"


async def test_a_client_that_left_the_request_for_the_result_is_asked_again() -> None:
    async def work(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", str)).data)

    async with opened(serving(work), CORE, ASKS, transport="http") as peer:
        id = await peer.start("work")
        waiting = await peer.peer.send("tasks/result", {"taskId": id})
        first, _ = await peer.question(id)
        await peer.peer.tell("notifications/cancelled", {"requestId": waiting})
        again = await peer.peer.send("tasks/result", {"taskId": id})
        second, _ = await peer.question(id)
        await peer.answer(id, second, accept("blue"))
        result = (await peer.peer.answer(again))["result"]
    assert first != second
    assert result["content"][0]["text"] == "blue"


# --- callers that leave -----------------------------------------------------------------------------------------------


@FORMS
async def test_a_caller_that_leaves_its_task_does_not_stop_it(revision: str) -> None:
    server, gate = workshop()
    async with listening(server) as url:
        async with Client(url, revision=revision) as client:
            id = (await client.start_task("work", {"n": 5})).id
            await gate.entered.wait()
        gate.open.set()
        async with Client(url, revision=revision) as client:
            result = await client.task(id, tool="work").result()
    assert (result.data, gate.cancelled.is_set()) == (5, False)


@FORMS
async def test_a_plain_caller_that_leaves_stops_its_held_call(revision: str) -> None:
    server, gate = workshop()
    async with listening(server) as url, Client(url, revision=revision, extensions={TASKS: None}) as client:
        calling = asyncio.ensure_future(client.call_tool("work"))
        await gate.entered.wait()
        calling.cancel()
        await gate.cancelled.wait()


# --- whose task it is -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def two_callers(server: Server, revision: str) -> AsyncIterator[tuple[Client, Client]]:
    """Connect two principals to a server."""
    async with (
        listening(server) as url,
        Client(url, revision=revision, auth="ann-token") as ann,
        Client(url, revision=revision, auth="bob-token") as bob,
    ):
        yield ann, bob


@pytest.mark.parametrize(
    ("revision", "method"),
    [
        *((CORE, each) for each in ("tasks/get", "tasks/result", "tasks/cancel")),
        *((EXTENSION, each) for each in ("tasks/get", "tasks/update", "tasks/cancel")),
    ],
    ids=lambda each: each.replace("/", "-"),
)
async def test_the_task_of_another_caller_does_not_exist(revision: str, method: str) -> None:
    server, gate = workshop(auth=TOKENS)
    async with two_callers(server, revision) as (ann, bob):
        handle = await ann.start_task("work")
        with pytest.raises(InvalidParams) as theirs:
            await bob.request(method, {"taskId": handle.id, "inputResponses": {}})
        with pytest.raises(InvalidParams) as nobodys:
            await bob.request(method, {"taskId": "unknown", "inputResponses": {}})
        await handle.refresh()
        gate.open.set()
        await handle.result()
    assert theirs.value.message == nobodys.value.message
    assert handle.status == "completed"


async def test_the_task_of_another_caller_cannot_be_watched() -> None:
    server, gate = workshop(auth=TOKENS)
    async with listening(server) as url, Client(url, auth="ann-token") as ann:
        mine = (await ann.start_task("work")).id
        async with opened(server, EXTENSION, transport="http") as peer:
            peer.peer.carrier.extra["Authorization"] = "Bearer bob-token"  # type: ignore[attr-defined]
            own = await peer.start()
            await peer.peer.send("subscriptions/listen", {"notifications": {"taskIds": [mine, own]}})
            acknowledged = await peer.peer.notice("notifications/subscriptions/acknowledged")
            gate.open.set()
            while (await peer.peer.notice("notifications/tasks"))["status"] not in FINISHED:
                pass
            seen = {each["taskId"] for each in peer.peer.notices("notifications/tasks")}
    assert acknowledged["notifications"] == {"taskIds": [own]}
    assert seen == {own}


async def test_a_caller_lists_its_own_tasks() -> None:
    server, gate = workshop(auth=TOKENS)
    async with two_callers(server, CORE) as (ann, bob):
        mine = [(await ann.start_task("work")).id for _ in range(2)]
        theirs = (await bob.start_task("work")).id
        lists = [(await each.request("tasks/list"))["tasks"] for each in (ann, bob)]
        gate.open.set()
    assert [[each["taskId"] for each in found] for found in lists] == [mine, [theirs]]


async def test_callers_that_cannot_be_told_apart_list_nothing() -> None:
    async with at_workshop(CORE, transport="http") as (peer, _):
        await peer.start()
        declared = (await peer.peer.met())["capabilities"]["tasks"]
        error = await peer.peer.error("tasks/list")
    assert declared == {"cancel": {}, "requests": {"tools": {"call": {}}}}
    assert error["code"] == -32601


async def test_an_anonymous_caller_does_not_see_the_task_of_a_principal() -> None:
    store = MemoryEngine(MemoryContents(now=time.time, random=os.urandom))
    protected, gate = workshop(auth=TOKENS, store=store)
    open_to_all, _ = workshop(store=store)
    async with listening(protected) as url, Client(url, auth="ann-token") as ann:
        id = (await ann.start_task("work")).id
        async with listening(open_to_all) as other, Client(other) as anyone:
            with pytest.raises(InvalidParams):
                await anyone.task(id).refresh()
        gate.open.set()


# --- our client -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ALL)
async def test_our_client_calls_a_slow_tool_in_every_revision(revision: str) -> None:
    async def work(n: int, ctx: Context) -> int:
        answer = await ctx.elicit("Sure?", bool) if revision >= "2025-06-18" else None
        await ctx.report_progress(1, 2, "half")
        return n if answer is None or answer.data else 0

    seen: list[Any] = []
    async with listening(serving(work)) as url:
        options: Any = {"elicitation": lambda _: {"value": True}, "on_progress": lambda *each: seen.append(each)}
        async with Client(url, revision=revision, **options) as client:
            result = await client.call_tool("work", {"n": 3})
    assert result.content[0].text == "3"  # type: ignore[union-attr]
    assert len(seen) == 1


# --- the end of a server ----------------------------------------------------------------------------------------------


async def test_stopping_waits_for_tasks_that_would_be_lost() -> None:
    server, gate = workshop()
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stopping = asyncio.Event()
    options: Any = {"limits": server.limits, "port": 0, "log_level": None}
    running = asyncio.create_task(serve(server.asgi(), started=started.set_result, stopping=stopping, **options))
    async with Client(f"{await started}/mcp") as client:
        await client.start_task("work")
        await gate.entered.wait()
    stopping.set()
    done, _ = await asyncio.wait([running], timeout=0.2)
    gate.open.set()
    await running
    await server.aclose()
    assert not done
    assert not gate.cancelled.is_set()
