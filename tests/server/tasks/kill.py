"""Kills a server with SIGKILL in the middle of its tasks and starts it again, many times, then counts.

``python -m tests.server.tasks.kill --times 50`` prints a summary; with ``--backend redis`` it is one of several
workers that share a Redis, which is restarted now and then too (``kill_workers.py``).

What must hold: no task is lost, none runs more often than its policy allows, each ends as its policy says, what
``once`` has stored is not repeated, an answer that was acknowledged is not asked for again, and no key of a question is
used twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from tests.interaction.wire import Peer, _Pipes
from tests.server.tasks.fleet import PROGRAM
from tests.server.tasks.talk import EXTENSION, FINISHED, WITH_TASKS
from trunkline import Server
from trunkline.server.runtime import server_store
from trunkline.server.tasks.record import TaskRecord
from trunkline.server.tasks.records import TaskRecords

__all__ = ["Killer", "Known", "Report", "kill_many_times"]

RETRIES = {"once": 0, "twice": 1, "again": 3, "pay": 3, "ask": 3}
#: A killed process answers nothing more.
ANSWER_SECONDS = 30.0


class Known(Struct):
    """A task that the client was told of."""

    id: str
    name: str
    tool: str
    #: The message of each question by key, the answers that were acknowledged by message, and the last state.
    asked: dict[str, str] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)


class Report(Struct):
    """What was seen, and what should not have been."""

    kills: int = 0
    restarts: int = 0
    tasks: int = 0
    untold: int = 0
    completed: int = 0
    failed: int = 0
    runs: int = 0
    repeated: int = 0
    questions: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the summary."""
        rows = {
            "kills": self.kills,
            **({"restarts of Redis": self.restarts} if self.restarts else {}),
            "tasks (told to the client)": f"{self.tasks} ({self.tasks - self.untold})",
            "completed": self.completed,
            "failed, as their policy says": self.failed,
            "runs": self.runs,
            "tasks that ran more than once": self.repeated,
            "questions": self.questions,
            "faults": len(self.faults),
        }
        lines = [f"{name:30} {value}" for name, value in rows.items()]
        return "\n".join([*lines, *(f"  - {fault}" for fault in self.faults)])


class Requester(Protocol):
    """What sends the requests of the client."""

    async def request(self, method: str, params: Any = None) -> Any:
        """Send a request and return the answer."""

    async def result(self, method: str, params: Any = None) -> Any:
        """Send a request and return its result."""


class Killer:
    """A client that starts tasks, answers some of their questions, and kills the server."""

    #: Seconds that a task takes, at most.
    longest = 0.4
    #: Seconds after which the tasks of a killed process are taken over: some lives are longer.
    lease = 0.1
    #: The address of the client, over HTTP.
    address: str | None = None

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        #: Where the tasks are, as options of a server.
        self.stored: dict[str, Any] = {"store": str(folder / "state.db")}
        self.random = random.Random(seed)
        self.known: list[Known] = []
        self.report = Report()

    @asynccontextmanager
    async def server(self) -> AsyncIterator[Peer]:
        """Start the server; at the end it is killed."""
        where = {"folder": str(self.folder), **self.stored}
        options = {**where, "transport": "stdio", "lease": self.lease, "forever": True}
        pipes = await _Pipes.spawn([sys.executable, str(PROGRAM), json.dumps(options)])
        peer = Peer(pipes, revision=EXTENSION, capabilities={**WITH_TASKS, "elicitation": {}})
        pipes.start(peer)
        try:
            yield peer
        finally:
            pipes.process.kill()
            await pipes.process.wait()
            await asyncio.wait(pipes._tasks)

    async def one_life(self, count: int) -> None:
        """Start the server, start tasks, do this and that for a moment, and kill it."""
        async with self.server() as peer:
            async with asyncio.timeout(ANSWER_SECONDS):
                await peer.result("server/discover")
            work = asyncio.ensure_future(self.be_busy(peer, count))
            await asyncio.wait([work], timeout=self.random.uniform(0.0, 0.25))
        self.report.kills += 1
        work.cancel()
        await asyncio.wait([work])
        with suppress(asyncio.CancelledError, ConnectionError):
            work.result()

    async def be_busy(self, peer: Requester, count: int) -> None:
        """Start tasks and look at all that are unfinished, for as long as the server lives."""
        for number in range(count):
            await self.start(peer, f"{self.report.kills}-{number}")
        while True:
            for task in self.known:
                if task.state.get("status") not in FINISHED:
                    await self.look(peer, task)
            await asyncio.sleep(0.005)

    async def start(self, peer: Requester, name: str) -> None:
        """Start a task."""
        tool, seconds = self.random.choice(sorted(RETRIES)), self.random.uniform(0.0, self.longest)
        arguments: dict[str, Any] = {"name": name, "seconds": seconds}
        if tool == "ask":
            arguments = {**arguments, "questions": [f"First, {name}?", f"Second, {name}?"], "seconds": seconds / 4}
        task = await peer.result("tools/call", {"name": tool, "arguments": arguments})
        self.known.append(Known(task["taskId"], name, tool))

    async def look(self, peer: Requester, task: Known) -> None:
        """Look at a task, and perhaps answer its questions."""
        answer = await peer.request("tasks/get", {"taskId": task.id})
        if "error" in answer:
            self.report.faults.append(f"{task.name} is lost: {answer['error']['message']}")
            task.state = {"status": "failed"}
            return
        task.state = answer["result"]
        for key, question in task.state.get("inputRequests", {}).items():
            message = question["params"]["message"]
            self.check_question(task, key, message)
            if self.random.random() < 0.5:
                given = f"{message} {key}"
                responses = {key: {"action": "accept", "content": {"value": given}}}
                await peer.result("tasks/update", {"taskId": task.id, "inputResponses": responses})
                task.acknowledged.setdefault(message, given)

    def check_question(self, task: Known, key: str, message: str) -> None:
        """Check a question against those before it."""
        if task.asked.setdefault(key, message) != message:
            self.report.faults.append(f"{task.name}: the key {key} stands for two questions")
        if message in task.acknowledged and not task.acknowledged[message].endswith(f" {key}"):
            self.report.faults.append(f"{task.name}: {message!r} was answered, and is asked again")

    async def finish(self) -> None:
        """Start the server a last time and wait until every task has ended."""
        async with self.server() as peer:
            await self.end_all(peer)

    async def end_all(self, peer: Requester) -> None:
        """Wait until every task has ended, and count."""
        while any(task.state.get("status") not in FINISHED for task in self.known):
            for task in self.known:
                if task.state.get("status") not in FINISHED:
                    await self.look(peer, task)
        await self.count(peer)

    async def records(self) -> list[TaskRecord]:
        """Return all tasks that are stored."""
        server = Server("workers", **self.stored)
        try:
            stored = TaskRecords(
                await server_store(server).ready(), server_store(server).seal, runner="observer", now=time.time
            )
            return list(await stored.page(None, after=None, limit=1_000_000, address=self.address))
        finally:
            await server.aclose()

    async def count(self, peer: Requester) -> None:
        """Compare what the client saw, what the tools did, and what the store says."""
        while True:
            records = await self.records()
            # Tasks that no client was told of end too; their questions are not answered.
            if all(each.finished or each.requests for each in records):
                break
            await peer.request("server/discover")
        done: dict[str, list[str]] = defaultdict(list)
        for line in (self.folder / "log").read_text().splitlines():
            what, name, _ = line.split()
            done[name].append(what)
        for record in records:
            name = msgspec.json.decode(record.params)["arguments"]["name"]
            self.judge(record, name, done[name])
        missing = {task.id for task in self.known} - {record.id for record in records}
        self.report.faults += [f"{id} is not in the store" for id in missing]
        self.report.questions = sum(len(task.asked) for task in self.known)
        self.report.untold = len(records) - len(self.known)

    def judge(self, record: TaskRecord, name: str, events: list[str]) -> None:
        """Check one task against its policy."""
        report, faults, retry = self.report, self.report.faults, RETRIES[record.tool]
        runs, counted = events.count("run"), Counter(events)
        report.tasks += 1
        report.runs += runs
        report.repeated += runs > 1
        report.completed += record.status == "completed"
        report.failed += record.status == "failed"
        if not runs <= record.attempts <= retry + 1:
            faults.append(f"{name} ({record.tool}) ran {runs} times in {record.attempts} attempts")
        if record.status == "failed" and (record.attempts != retry + 1 or "server stopped" not in str(record.message)):
            faults.append(f"{name} ({record.tool}) failed in attempt {record.attempts}: {record.message}")
        if record.status == "completed" and not (counted["end"] and self.result_of(record)):
            faults.append(f"{name} ({record.tool}) completed with {events} and {record.result!r}")
        if record.status == "cancelled":
            faults.append(f"{name} was cancelled without a request")
        if "paid" in events and "pay" in events[events.index("paid") :]:
            faults.append(f"{name} paid again after its receipt was stored: {events}")

    @staticmethod
    def result_of(record: TaskRecord) -> str:
        """Return the text of a result."""
        assert record.result is not None
        text: str = json.loads(bytes(record.result))["content"][0]["text"]
        return text


async def kill_many_times(times: int, *, count: int = 6, seed: int = 1, backend: str = "sqlite") -> Report:
    """Kill a server so many times, each time with some more tasks, and report."""
    if backend == "redis":
        from tests.server.tasks.kill_workers import kill_workers

        return await kill_workers(times, count=count, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        killer = Killer(Path(folder), seed)
        for _ in range(times):
            await killer.one_life(count)
        try:
            async with asyncio.timeout(ANSWER_SECONDS + times):
                await killer.finish()
        except TimeoutError:
            open_ones = [task.name for task in killer.known if task.state.get("status") not in FINISHED]
            killer.report.faults.append(f"these tasks do not end: {', '.join(open_ones)}")
        return killer.report


def main() -> int:
    """Run as a program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--count", type=int, default=6, help="new tasks in each life of the server")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", choices=["sqlite", "redis"], default="sqlite")
    given = parser.parse_args()
    report = asyncio.run(kill_many_times(given.times, count=given.count, seed=given.seed, backend=given.backend))
    sys.stdout.write(f"{report}\n")
    return bool(report.faults)


if __name__ == "__main__":
    sys.exit(main())
