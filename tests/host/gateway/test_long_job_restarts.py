"""Long jobs whose gateway is a process that ends and is started again."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.hosted import gateway, write_config
from tests.host.gateway.long_jobs import FOUND, Site, polled
from tests.transports.http.serving_support import running
from trunkline import Client
from trunkline.errors import RequestFailed, ToolError

TOKEN = "a-token-of-the-test"
RULES = "".join(f'[[rule]]\neffect = "allow"\nserver = "{name}"\ntool = "*"\n' for name in ("new", "old"))
#: The clients: how each takes long calls, and its revision.
CLIENTS = (("task", "2025-11-25"), ("task", "2026-07-28"), ("poll", "2025-06-18"))
#: What is said of a call that its server knows nothing of any more.
LOST = "The gateway was restarted while the call was running; call the tool again"
#: What comes of the calls of tools, two of which are tasks at their servers.
RESULTS = {"new__optional": FOUND, "old__required": FOUND, "new__never": LOST, "old__optional": LOST}


async def _start(way: str, client: Client, tool: str) -> str:
    """Start a job and return its id, once it has said how far it is."""
    if way == "task":
        handle = await client.start_task(tool)
        await polled(handle.refresh, lambda state: handle.message is not None)
        return handle.id
    id: str = (await client.call_tool(tool)).structured_content["job"]

    async def look() -> Any:
        return json.loads((await client.call_tool("job_status", {"job": id})).text)

    await polled(look, lambda state: state["message"] is not None)
    return id


async def _result(way: str, client: Client, id: str) -> str:
    """Return the text of a job's result, or the error; of an error that says that the job was lost, that sentence."""
    try:
        if way == "task":
            return (await client.task(id).result()).text
        return (await client.call_tool("job_result", {"job": id})).text
    except (RequestFailed, ToolError) as error:
        return LOST if LOST in str(error) else str(error)


@asynccontextmanager
async def _gateway(folder: Path) -> AsyncIterator[Any]:
    """Run the gateway of a folder as a process."""
    words = (
        *("-c", "servers.json", "--policy", "rules.toml", "--token", TOKEN),
        *("--slow-calls", "poll", "--task-after", "0.05", "--store", "tasks.sqlite"),
    )
    process = gateway(*words, cwd=folder, env={"TRUNKLINE_HOME": str(folder / "home")})
    served = await asyncio.to_thread(process.__enter__)
    try:
        yield served
    finally:
        await asyncio.to_thread(process.__exit__, None, None, None)


@asynccontextmanager
async def _clients(url: str) -> AsyncIterator[dict[tuple[str, str], Client]]:
    """Connect all clients."""
    options: dict[str, Any] = {"auth": TOKEN, "elicitation": lambda question: "in the garden"}
    async with AsyncExitStack() as stack:
        yield {
            (way, revision): await stack.enter_async_context(Client(url, revision=revision, **options))
            for way, revision in CLIENTS
        }


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
async def test_a_task_of_a_server_goes_on_while_its_gateway_is_started_again(
    number: signal.Signals, tmp_path: Path
) -> None:
    new, old = Site("2026-07-28"), Site("2025-11-25")
    async with running(new.server.asgi()) as one, running(old.server.asgi()) as two:
        servers = {"new": {"url": f"{one.url}/mcp"}, "old": {"url": f"{two.url}/mcp"}}
        write_config(tmp_path / "servers.json", servers)
        (tmp_path / "rules.toml").write_text(RULES, encoding="utf-8")
        async with _gateway(tmp_path) as first:
            async with _clients(first.url) as clients:
                ids = {
                    (way, revision, tool): await _start(way, client, tool)
                    for (way, revision), client in clients.items()
                    for tool in RESULTS
                }
            await asyncio.to_thread(first.stop, number)
        new.go.set()
        old.go.set()
        async with _gateway(tmp_path) as second, _clients(second.url) as clients:
            results = {job: await _result(job[0], clients[job[0], job[1]], id) for job, id in ids.items()}
    assert results == {job: RESULTS[job[2]] for job in ids}
    assert (await new.tasks(), await old.tasks()) == (3, 3)
