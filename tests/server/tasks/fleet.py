"""Server processes that share tasks through a Redis, and raw clients of both forms that choose one for each call."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

import trunkline.types as t
from tests.server.tasks.talk import EXTENSION, FINISHED, WITH_TASKS
from tests.transports.http.serving_support import BOTH, modern_headers, request
from tests.transports.http.shared.machines import Machine, machine

__all__ = ["PROGRAM", "SECONDS", "Fleet", "TaskClient", "Workplace", "eventually", "fleet", "task_client", "text"]

PROGRAM = Path(__file__).parent / "server_program.py"
#: The longest wait of these tests, for a machine that is busy with others.
SECONDS = 60.0
CAPABILITIES = {**WITH_TASKS, "elicitation": {}}


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds that other processes do."""
    async with asyncio.timeout(SECONDS):
        while not await holds():  # noqa: ASYNC110 - what is observed has no event
            await asyncio.sleep(0.02)


class Workplace:
    """The folder where the tools of a server program write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, name: str) -> None:
        """Let a task go on."""
        (self.folder / name).touch()

    def done(self, name: str) -> Counter[str]:
        """Return how often a task did what."""
        log = self.folder / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return Counter(line.split()[0] for line in lines if line.split()[1] == name)

    async def until(self, what: str, name: str, times: int = 1) -> None:
        """Wait until a task has done something so often."""

        async def holds() -> bool:
            return self.done(name)[what] >= times

        await eventually(holds)


class Fleet(Workplace):
    """The machines of a test, and the folder where their tools write."""

    def __init__(self, machines: list[Machine], folder: Path) -> None:
        super().__init__(folder)
        self.machines = machines

    def __getitem__(self, index: int) -> Machine:
        return self.machines[index]


@contextmanager
def fleet(folder: Path, url: str, count: int = 2, **options: Any) -> Iterator[Fleet]:
    """Run so many machines."""
    with ExitStack() as stack:
        run = [
            stack.enter_context(machine(program=PROGRAM, folder=str(folder), store=url, **options))
            for _ in range(count)
        ]
        yield Fleet(run, folder)


class TaskClient:
    """A client of the extension, whose requests go to any of several machines."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http
        self._ids = itertools.count(1)

    def _post(self, machine: Machine, method: str, params: dict[str, Any]) -> Any:
        meta = {t.META_PROTOCOL_VERSION: EXTENSION, t.META_CLIENT_CAPABILITIES: CAPABILITIES}
        message = request(method, {**params, "_meta": meta}, id=next(self._ids))
        headers = {"accept": BOTH, **modern_headers(method, params.get("name"))}
        return self._http.post(machine.url, json=message, headers=headers)

    async def request(self, machine: Machine, method: str, params: dict[str, Any]) -> tuple[int, Any]:
        """Send a request; return the status and the body."""
        async with self._post(machine, method, params) as response:
            return response.status, await response.json()

    async def result(self, machine: Machine, method: str, params: dict[str, Any]) -> Any:
        """Send a request and return its result."""
        status, body = await self.request(machine, method, params)
        assert status == 200, body
        return body["result"]

    async def start(self, machine: Machine, tool: str, name: str) -> str:
        """Call a tool as a task and return the id."""
        params = {"name": tool, "arguments": {"name": name}}
        id: str = (await self.result(machine, "tools/call", params))["taskId"]
        return id

    async def get(self, machine: Machine, id: str) -> Any:
        """Return the state of a task."""
        return await self.result(machine, "tasks/get", {"taskId": id})

    async def until(self, machine: Machine, id: str, *statuses: str) -> Any:
        """Return the state of a task once it has one of these statuses; without any, once it is finished."""
        state: Any = None

        async def holds() -> bool:
            nonlocal state
            state = await self.get(machine, id)
            return state["status"] in (statuses or FINISHED)

        await eventually(holds)
        return state

    async def answer(self, machine: Machine, id: str, key: str, value: str) -> None:
        """Answer a question of a task."""
        responses = {key: {"action": "accept", "content": {"value": value}}}
        await self.result(machine, "tasks/update", {"taskId": id, "inputResponses": responses})


def text(state: Any) -> str:
    """Return the text of the result of a task."""
    return str(state["result"]["content"][0]["text"])


@asynccontextmanager
async def task_client() -> AsyncIterator[TaskClient]:
    """Return a client of the extension."""
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=SECONDS)) as http:
        yield TaskClient(http)
