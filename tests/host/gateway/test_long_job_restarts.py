"""Long jobs whose gateway, or whose server, is a process that ends and is started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.cli.hosted import SOURCE, gateway, write_config
from tests.host.gateway.long_jobs import FOUND, Site, polled
from tests.transports.http.serving_support import running
from trunkline import Client
from trunkline.errors import RequestFailed, ToolError

TOKEN = "a-token-of-the-test"
RULES = "".join(f'[[rule]]\neffect = "allow"\nserver = "{name}"\ntool = "*"\n' for name in ("new", "old"))
WAYS = ("task in 2025-11-25", "task in 2026-07-28", "poll in 2025-06-18")
ROOT = Path(__file__).parents[3]
EACH_END = pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
#: What is said of a call that its server knows nothing of any more.
LOST = "The gateway was restarted while the call was running; call the tool again"
#: What comes of the calls of tools, two of which are tasks at their servers.
RESULTS = {"new__optional": FOUND, "old__required": FOUND, "new__never": LOST, "old__optional": LOST}


def _answer(question: Any) -> str:
    return "in the garden"


class Jobs(Protocol):
    """A client's way with long jobs, by the name of a tool."""

    async def start(self, tool: str) -> str:
        """Start a job and return its id, once it has said how far it is."""

    async def result(self, id: str) -> str:
        """Return the text of its result, or the error."""


class _Tasks:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def start(self, tool: str) -> str:
        handle = await self.client.start_task(tool)
        await polled(handle.refresh, lambda state: handle.message is not None)
        return handle.id

    async def result(self, id: str) -> str:
        try:
            return (await self.client.task(id).result()).text
        except RequestFailed as error:
            return str(error)


class _Polled:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def start(self, tool: str) -> str:
        handle = await self.client.call_tool(tool)
        id: str = handle.structured_content["job"]

        async def look() -> Any:
            return json.loads((await self.client.call_tool("job_status", {"job": id})).text)

        await polled(look, lambda state: state["message"] is not None)
        return id

    async def result(self, id: str) -> str:
        try:
            return (await self.client.call_tool("job_result", {"job": id})).text
        except ToolError as error:
            return str(error)


class Place:
    """A folder with the files of a gateway in front of servers at URLs."""

    def __init__(self, folder: Path, **urls: str) -> None:
        self.folder = folder
        write_config(folder / "servers.json", {name: {"url": f"{url}/mcp"} for name, url in urls.items()})
        (folder / "rules.toml").write_text(RULES, encoding="utf-8")

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[Any]:
        """Run the gateway as a process."""
        words = (
            *("-c", "servers.json", "--policy", "rules.toml", "--token", TOKEN),
            *("--slow-calls", "poll", "--task-after", "0.05", "--tasks-file", "tasks.sqlite"),
        )
        process = gateway(*words, cwd=self.folder, env={"TRUNKLINE_HOME": str(self.folder / "home")})
        served = await asyncio.to_thread(process.__enter__)
        try:
            yield served
        finally:
            await asyncio.to_thread(process.__exit__, None, None, None)


@asynccontextmanager
async def _client(way: str, url: str, **options: Any) -> AsyncIterator[Jobs]:
    revision = way.split()[-1]
    async with Client(url, revision=revision, elicitation=_answer, **options) as client:
        yield _Tasks(client) if way.startswith("task") else _Polled(client)


@asynccontextmanager
async def _clients(url: str, **options: Any) -> AsyncIterator[dict[str, Jobs]]:
    async with AsyncExitStack() as stack:
        yield {way: await stack.enter_async_context(_client(way, url, **options)) for way in WAYS}


async def _start(clients: dict[str, Jobs], tools: Iterable[str]) -> dict[str, dict[str, str]]:
    """Start a job with each tool for each client, and return the ids."""
    return {way: {tool: await jobs.start(tool) for tool in tools} for way, jobs in clients.items()}


async def _results(clients: dict[str, Jobs], ids: dict[str, dict[str, str]], known: str) -> dict[str, dict[str, str]]:
    """Return what came of each job; of an error that contains a known sentence, that sentence."""
    found = {way: {tool: await clients[way].result(id) for tool, id in jobs.items()} for way, jobs in ids.items()}
    return {
        way: {tool: known if known in text else text for tool, text in texts.items()} for way, texts in found.items()
    }


@EACH_END
async def test_a_task_of_a_server_goes_on_while_its_gateway_is_started_again(
    number: signal.Signals, tmp_path: Path
) -> None:
    new, old = Site("2026-07-28"), Site("2025-11-25")
    async with running(new.server.asgi()) as one, running(old.server.asgi()) as two:
        place = Place(tmp_path, new=one.url, old=two.url)
        async with place.gateway() as first:
            async with _clients(first.url, auth=TOKEN) as clients:
                ids = await _start(clients, RESULTS)
            await asyncio.to_thread(first.stop, number)
        new.go.set()
        old.go.set()
        async with place.gateway() as second, _clients(second.url, auth=TOKEN) as clients:
            assert await _results(clients, ids, LOST) == dict.fromkeys(WAYS, RESULTS)
    assert (await new.tasks(), await old.tasks()) == (3, 3)


# --- a server alone --------------------------------------------------------------------------------------------------

#: What is said of a task whose tool does not say that it may run again.
STOPPED = "The server stopped while the task was running"


@asynccontextmanager
async def _served(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """Run a server whose tasks are kept in a file of this folder, and give its URL."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.host.gateway.long_job_program"),
        stdout=asyncio.subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), SOURCE])},
    )
    assert process.stdout is not None
    try:
        yield process, f"{(await process.stdout.readline()).decode().strip()}/mcp"
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@EACH_END
async def test_a_server_alone_runs_a_task_again_after_its_process_ended(number: signal.Signals, tmp_path: Path) -> None:
    async with _served(tmp_path) as (process, url):
        async with _clients(url) as clients:
            ids = await _start(clients, ("again", "once"))
        process.send_signal(number)
        await process.wait()
    (tmp_path / "go").touch()
    async with _served(tmp_path) as (_, url), _clients(url) as clients:
        expected = {"again": FOUND, "once": STOPPED}
        assert await _results(clients, ids, STOPPED) == dict.fromkeys(WAYS, expected)
