"""Long calls through the gateway: limits, approval, owners, what is listed, and how a gateway ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.host.gateway.long_jobs import ASKED, FOUND, Site, capabilities_of, make_caller
from tests.host.gateway.support import fronted, on_stage, served
from tests.host.supervised import scripted
from tests.interaction.wire import Wire
from tests.transports.http.serving_support import running
from trunkline import Client, Server
from trunkline.auth import StaticTokens
from trunkline.errors import RequestFailed, ToolError
from trunkline.extensions import TASKS
from trunkline.host.authorization.policy.policy import Policy
from trunkline.host.config.model import ServerEntry
from trunkline.host.gateway.sessions import GatewayOptions

SERVER = "site"
SOON = 0.01
ROOT = Path(__file__).parents[3]
#: A client for each form in which a long call is answered.
WAYS = pytest.mark.parametrize(
    ("client", "way"),
    [("2025-11-25", "task"), ("2026-07-28", "task"), ("2025-06-18", "poll"), ("2026-07-28", "poll")],
)
#: A client of each era, in front of a task at a server of the other.
HELD_TASKS = pytest.mark.parametrize(
    ("client", "server", "kind"), [("2025-06-18", "2026-07-28", "optional"), ("2026-07-28", "2025-11-25", "required")]
)


def _options(way: str, after: float = SOON, **more: Any) -> GatewayOptions:
    return GatewayOptions(slow_calls="poll" if way == "poll" else "hold", task_after=after, **more)


def _entry(server: Server, **settings: Any) -> ServerEntry:
    return scripted(SERVER, server, **settings)


# --- how it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "way", "server", "kind"),
    [
        ("2025-11-25", "task", "2026-07-28", "optional"),
        ("2026-07-28", "task", "2025-11-25", "required"),
        ("2025-06-18", "poll", "2025-11-25", "required"),
    ],
)
async def test_a_gateway_that_ends_cancels_the_tasks_that_it_does_not_keep(
    client: str, way: str, server: str, kind: str, tmp_path: Path
) -> None:
    site = Site(server)
    async with (
        on_stage({SERVER: site.server}, tmp_path, gateway=_options(way)) as stage,
        Wire("memory", client).open(stage.gateway, capabilities=capabilities_of(way, client)) as peer,
    ):
        caller = make_caller(way, peer, f"{SERVER}__{kind}")
        await caller.start()
        await caller.status()
        await stage.gateway.aclose()
        await site.cancelled.wait()


@pytest.mark.parametrize("kind", ["optional", "never"])
async def test_a_job_is_known_to_the_next_gateway_if_its_tasks_are_in_a_file(kind: str, tmp_path: Path) -> None:
    site, store = Site("2026-07-28"), str(tmp_path / "tasks.sqlite")
    # Long enough for the server to answer with its task, before the call becomes a job.
    options: dict[str, Any] = {"gateway": _options("poll", 1.0, store=store), "elicitation": _answer}
    async with fronted({SERVER: site.server}, tmp_path, "2025-06-18", **options) as caller:
        job = (await caller.call_tool(f"{SERVER}__{kind}")).structured_content["job"]
    site.go.set()
    async with fronted({SERVER: site.server}, tmp_path, "2025-06-18", **options) as caller:
        result = await caller.call_tool("job_result", {"job": job}, raise_on_error=False)
    # Only a task of the server goes on while there is no gateway.
    assert (result.text == FOUND, "The gateway was restarted" in result.text) == (kind == "optional", kind == "never")


@HELD_TASKS
async def test_the_total_timeout_of_an_entry_holds_for_tasks_too(
    client: str, server: str, kind: str, tmp_path: Path
) -> None:
    site = Site(server)
    async with fronted({SERVER: _entry(site.server, total_timeout=0.2)}, tmp_path, client) as caller:
        with pytest.raises(RequestFailed, match=r"took longer than 0\.2 s"):
            await caller.call_tool(f"{SERVER}__{kind}")
        await site.cancelled.wait()


@HELD_TASKS
async def test_the_time_of_a_person_does_not_count(client: str, server: str, kind: str, tmp_path: Path) -> None:
    site = Site(server)
    site.go.set()

    async def answer(question: Any) -> str:
        await asyncio.sleep(0.6)
        return "in the garden"

    async with fronted(
        {SERVER: _entry(site.server, total_timeout=0.4)}, tmp_path, client, elicitation=answer
    ) as caller:
        assert (await caller.call_tool(f"{SERVER}__{kind}")).text == FOUND


# --- at once ---------------------------------------------------------------------------------------------------------


@WAYS
async def test_without_a_delay_a_quick_call_is_a_task_or_a_job_too(client: str, way: str, tmp_path: Path) -> None:
    server = Server("quick")
    server.tool(name="quick")(lambda: "done")
    extensions: dict[str, Any] = {} if way == "task" else {"extensions": {TASKS: None}}
    async with fronted({SERVER: server}, tmp_path, client, gateway=_options(way, 0), **extensions) as caller:
        if way == "task":
            task = await caller.start_task(f"{SERVER}__quick")
            assert task.id
            assert (await task.result()).text == "done"
        else:
            job = (await caller.call_tool(f"{SERVER}__quick")).structured_content["job"]
            assert (await caller.call_tool("job_result", {"job": job})).text == "done"


# --- who asks, and whom ----------------------------------------------------------------------------------------------


@WAYS
async def test_the_approval_of_a_long_call_is_a_question_of_its_job(client: str, way: str, tmp_path: Path) -> None:
    site, kind = (Site("2026-07-28"), "optional") if way == "task" else (Site("2025-06-18"), "never")
    site.go.set()
    asked: list[str] = []

    def answer(question: Any) -> Any:
        asked.append(question.message)
        fields = question.requested_schema["properties"]
        return "in the garden" if ASKED in question.message else {next(iter(fields)): "allow once"}

    async with fronted(
        {SERVER: site.server},
        tmp_path,
        client,
        policy=Policy(()),
        gateway=_options(way),
        elicitation=answer,
        **{} if way == "task" else {"extensions": {TASKS: None}},
    ) as caller:
        assert await _outcome(caller, way, f"{SERVER}__{kind}") == FOUND
    assert len(asked) == 2
    assert ASKED in asked[1]


async def _outcome(client: Client, way: str, tool: str) -> str:
    """Call a tool as a task, or as a job, and return the text of its result."""
    if way == "task":
        return (await (await client.start_task(tool)).result()).text
    result = await client.call_tool(tool)
    while (job := re.search(r'"job": "([^"]+)"', result.text)) is not None:
        result = await client.call_tool("job_result", {"job": job[1]})
    return result.text


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_a_question_that_waits_when_a_call_becomes_a_job_is_answered(transport: str, tmp_path: Path) -> None:
    site = Site("2026-07-28")
    site.go.set()
    answering = asyncio.Event()

    async def answer(question: Any) -> str:
        await answering.wait()
        return "in the garden"

    async with AsyncExitStack() as stack:
        if transport == "memory":
            stage = await stack.enter_async_context(on_stage({SERVER: site.server}, tmp_path, gateway=_options("poll")))
            client = stage.client("2025-11-25", elicitation=answer)
        else:
            # The response that the question came in ends with the job, so the question is asked again.
            options: dict[str, Any] = {"slow_calls": "poll", "task_after": SOON}
            web = await stack.enter_async_context(served({SERVER: site.server}, tmp_path, **options))
            client = web.client("2025-06-18", elicitation=answer)
        caller = await stack.enter_async_context(client)
        job = (await caller.call_tool(f"{SERVER}__never")).structured_content["job"]
        answering.set()
        assert (await caller.call_tool("job_result", {"job": job})).text == FOUND


async def test_a_job_of_one_user_does_not_exist_for_another(tmp_path: Path) -> None:
    site = Site("2026-07-28")
    tokens = StaticTokens({"a": "Ada", "b": "Bob"})
    async with (
        served({SERVER: site.server}, tmp_path, auth=tokens, slow_calls="poll", task_after=SOON) as web,
        web.client("2025-06-18", token="a") as ada,
        web.client("2025-06-18", token="b") as bob,
    ):
        job = (await ada.call_tool(f"{SERVER}__optional")).structured_content["job"]
        for tool in ("job_status", "job_result"):
            with pytest.raises(ToolError, match="There is no job"):
                await bob.call_tool(tool, {"job": job})
        assert json.loads((await ada.call_tool("job_status", {"job": job})).text)["status"] == "working"
        # The gateway waits for running jobs when it ends.
        site.go.set()


# --- what is listed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "options", "polls"),
    [
        pytest.param("2025-06-18", {}, True, id="without tasks"),
        pytest.param("2025-11-25", {}, True, id="with tasks in the core"),
        pytest.param("2026-07-28", {"extensions": {TASKS: None}}, True, id="without the extension"),
        pytest.param("2026-07-28", {}, False, id="with the extension"),
    ],
)
async def test_the_tools_of_jobs_are_listed_to_clients_that_may_need_them(
    client: str, options: Mapping[str, Any], polls: bool, tmp_path: Path
) -> None:
    gateway = _options("poll", search="on", approval="client")
    async with fronted({SERVER: Site("2026-07-28").server}, tmp_path, client, gateway=gateway, **options) as caller:
        listed = {tool.name: tool for tool in await caller.list_tools()}
        await caller.call_tool("search_tools", {"query": "dig"})
        listed.update({tool.name: tool for tool in await caller.list_tools()})
    assert ({"job_status", "job_result"} <= set(listed)) is polls
    # A job has the form of no tool's result.
    assert (listed[f"{SERVER}__optional"].output_schema is None) is polls


# --- over processes and sockets --------------------------------------------------------------------------------------


def _answer(question: Any) -> str:
    return "in the garden"


@asynccontextmanager
async def _outside(kind: str, revision: str) -> AsyncIterator[dict[str, Any]]:
    """Yield the entry of a server that is a process, or of one at a URL, which runs inside the block."""
    if kind == "process":
        variables = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        yield {"command": sys.executable, "args": ["-m", "tests.host.gateway.long_jobs", revision], "env": variables}
    else:
        site = Site(revision)
        site.go.set()
        async with running(site.server.asgi()) as web:
            yield {"url": f"{web.url}/mcp"}


@pytest.mark.parametrize(
    ("kind", "server"), [("process", "2025-11-25"), ("url", "2025-06-18"), ("url", "2025-11-25"), ("url", "2026-07-28")]
)
async def test_long_jobs_of_clients_over_http_at_servers_outside(kind: str, server: str, tmp_path: Path) -> None:
    clients = [("2025-11-25", "task"), ("2026-07-28", "task"), ("2024-11-05", "poll"), ("2026-07-28", "poll")]
    async with (
        _outside(kind, server) as entry,
        served({SERVER: entry}, tmp_path, slow_calls="poll", task_after=SOON) as web,
    ):
        for client, way in clients:
            options: dict[str, Any] = {"elicitation": _answer, "sampling": _answer}
            options |= {} if way == "task" else {"extensions": {TASKS: None}}
            async with web.client(client, **options) as caller:
                for tool in ("never", "optional", "required"):
                    assert await _outcome(caller, way, f"{SERVER}__{tool}") == FOUND, (client, way, tool)
