"""Simulated clients of the stateless era: each request is complete in itself, and reaches any worker.

A plain call needs nothing of the store, so it is never refused; if its connection breaks, it is sent again.
What a call has between its rounds travels with the client, or is stored for all workers. A listen stream hears of each
change once, whichever worker made it, for as long as its connection lasts.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.clients import ATTEMPTS, TaskRecord, decode, encode, observe_task, read_events, task_may_be_lost
from tests.simulation.tools import RESOURCES
from tests.simulation.world import ConnectionBroken, WireResponse, World
from trunkline.protocol.extensions import TASKS
from trunkline.protocol.revisions import NEWEST
from trunkline.types import META_CLIENT_CAPABILITIES, META_PROTOCOL_VERSION

__all__ = ["ListenRecord", "StatelessClient"]

_HEADERS = [
    (b"accept", b"application/json, text/event-stream"),
    (b"content-type", b"application/json"),
    (b"mcp-protocol-version", NEWEST.name.encode()),
]
_CAPABILITIES: dict[str, Any] = {"elicitation": {}, "extensions": {TASKS: {}}}
_META = {META_PROTOCOL_VERSION: NEWEST.name, META_CLIENT_CAPABILITIES: _CAPABILITIES}


class ListenRecord:
    """A listen stream as its client knows it."""

    def __init__(self, uris: list[str]) -> None:
        self.uris = uris
        #: When its acknowledgement arrived, and whether it is open.
        self.acknowledged: float | None = None
        self.open = True
        self.heard: list[str] = []
        #: Whether its worker joined the others later: then anything may have changed before.
        self.early = False


class StatelessClient:
    """One client without a session."""

    def __init__(self, world: World, name: str, operations: int) -> None:
        self.world = world
        self.actor = world.loop.actor(name)
        self._operations = operations
        self._ids = itertools.count(1)
        self.streams: list[ListenRecord] = []
        #: What the client waits for, for the report of a run that hangs.
        self.waits: dict[int, str] = {}
        self._background: list[asyncio.Task[Any]] = []
        self.finished = False

    async def run(self) -> None:
        """Listen, do so many things, then wait for what was begun."""
        random, loop = self.world.random, asyncio.get_running_loop()
        listening = loop.create_task(self._listen())
        for _ in range(self._operations):
            work = self._choose()
            if random.random() < 0.5:
                await work()
            else:
                self._background.append(loop.create_task(work()))
            if random.random() < 0.7:
                await asyncio.sleep(random.random() * 0.4)
        for task in self._background:
            await task
        self.finished = True
        # The stream stays open until the end: what was announced must arrive.
        assert not listening.done()

    def _choose(self) -> Callable[[], Coroutine[Any, Any, None]]:
        chance = self.world.random.random()
        for share, work in _OPERATIONS:
            chance -= share
            if chance < 0:
                return lambda: work(self)
        return self.add

    # --- calls that need nothing shared ------------------------------------------------------------------------------

    async def add(self) -> None:
        """Make a plain call."""
        a = int(self.world.random.random() * 100)
        self._check_text(await self._call("add", {"a": a, "b": 1}), str(a + 1))

    async def steps(self) -> None:
        """Make a call that reports progress."""
        key, n = self._key(), 1 + int(self.world.random.random() * 5)
        progress: list[float] = []
        answer = await self._call("steps", {"key": key, "n": n}, progress=progress)
        self._check_text(answer, key)
        if progress != list(range(1, n + 1)):
            self.world.violated(f"progress {progress} of {n} steps")

    async def ask(self) -> None:
        """Make a call of two rounds, at any workers; its state travels with the client."""
        key = self._key()
        rounds = await self._call("ask", {"key": key})
        answer = await self._call("ask", {"key": key}, more=self._answers(rounds))
        self._check_text(answer, f"{key}:answer to {key}")

    async def touch(self) -> None:
        """Change a resource, once or several times in a row."""
        for uri in self.world.next_touches():
            await self._attempt("tools/call", {"name": "touch", "arguments": {"uri": uri}})

    # --- calls whose state is shared ---------------------------------------------------------------------------------

    async def keep(self) -> None:
        """Make a call whose state is too large to travel: it is stored for all workers."""
        key, began = self._key(), self.world.loop.time()
        rounds = await self._shared_call("keep", {"key": key})
        answer = await self._shared_call("keep", {"key": key}, more=self._answers(rounds))
        lost = self.world.redis.lost_at
        if "error" in answer and lost is not None and lost >= began and "not valid" in answer["error"]["message"]:
            return
        self._check_text(answer, f"{key}:answer to {key}")

    async def buy(self) -> None:
        """Make a call whose last round counts once, and send that round twice, to any workers."""
        key, world, began = self._key(), self.world, self.world.loop.time()
        rounds = await self._call("buy", {"key": key})
        more = self._answers(rounds)
        both = await asyncio.gather(*(self._call_once("buy", {"key": key}, more) for _ in range(2)))
        results = [each for each in both if "result" in each]
        for answer in results:
            self._check_text(answer, f"{key}:answer to {key}")
        lost = world.redis.lost_at
        if world.ran.get(key, 0) > 1 and (lost is None or lost < began):
            world.violated(f"the state of {key} was used {world.ran[key]} times")
        if world.calm and len(results) != 1:
            world.violated(f"the state of {key} was used by {len(results)} of two requests")

    def _answers(self, rounds: dict[str, Any]) -> dict[str, Any]:
        """Return what the next round of a call has in addition."""
        result = rounds.get("result", {})
        if result.get("resultType") != "input_required":
            self.world.violated(f"no question: {rounds}")
            return {}
        answers = {key: _accept(each["params"]["message"]) for key, each in result["inputRequests"].items()}
        return {"inputResponses": answers, "requestState": result["requestState"]}

    # --- tasks -------------------------------------------------------------------------------------------------------

    async def job(self) -> None:
        """Make a call that becomes a task, and follow it at any workers; some are cancelled."""
        random, world = self.world.random, self.world
        tool = ("job", "safe_job", "asking_job")[int(random.random() * 3)]
        key, seconds = self._key(), random.random() ** 2 * 6
        world.jobs[key] = tool
        arguments: dict[str, Any] = {"key": key} if tool == "asking_job" else {"key": key, "seconds": seconds}
        answer = await self._attempt("tools/call", {"name": tool, "arguments": arguments})
        if answer is None or "error" in answer:
            self._check_error(answer)
            return
        if answer["result"].get("resultType") != "task":
            world.violated(f"no task: {answer}")
            return
        task = TaskRecord(key, tool, answer["result"]["taskId"], world.loop.time(), seconds)
        world.trace("has task %s of %s", task.id[:6], key)
        cancels = random.random() < 0.3
        while not (task.final or task.lost):
            await asyncio.sleep(0.4 + random.random())
            if cancels and random.random() < 0.5:
                await self._look_at(task, "tasks/cancel")
            await self._look_at(task, "tasks/get")
        await asyncio.sleep(random.random() * 5)
        if not task.lost:
            await self._look_at(task, "tasks/get")

    async def _look_at(self, task: TaskRecord, method: str, **more: Any) -> None:
        answer = await self._attempt(method, {"taskId": task.id, **more})
        if answer is None:
            return
        if "error" in answer:
            if answer["error"]["code"] == 503:
                self._check_error(answer)
            elif not task_may_be_lost(self.world, task):
                self.world.violated(f"{method} of {task.key} ({task.final}): {answer['error']}")
            return
        if method != "tasks/get":
            # Acknowledged; what became of it is seen by asking for the task.
            return
        state = answer["result"]
        observe_task(self.world, task, state["status"], method)
        if state["status"] == "completed":
            expected = f"{task.key}:answer to {task.key}" if task.tool == "asking_job" else task.key
            self._check_text(state, expected)
        if asked := state.get("inputRequests"):
            answers = {key: _accept(each["params"]["message"]) for key, each in asked.items()}
            await self._look_at(task, "tasks/update", inputResponses=answers)

    # --- listening ---------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Listen to some resources, and open the stream again whenever it breaks."""
        world = self.world
        while True:
            stream = ListenRecord([uri for uri in RESOURCES if world.random.random() < 0.7])
            self.streams.append(stream)
            params = {"notifications": {"resourceSubscriptions": stream.uris}}
            response = self._send("subscriptions/listen", params, next(self._ids))
            try:
                status = await response.head()
                stream.early = response.early
                if status != 200:
                    world.violated(f"status {status} for a listen stream")
                async for event in read_events(response):
                    if event.data:
                        self._heard(stream, decode(event.data))
                world.violated("a listen stream was ended by its worker")
            except ConnectionBroken:
                pass
            stream.open = False
            await asyncio.sleep(0.05 + world.random.random() * 0.3)

    def _heard(self, stream: ListenRecord, message: dict[str, Any]) -> None:
        world, method = self.world, message.get("method")
        if method == "notifications/subscriptions/acknowledged":
            stream.acknowledged = world.loop.time()
        elif method == "notifications/resources/updated":
            uri = message["params"]["uri"]
            world.trace("hears of %s on its listen stream", uri)
            if uri not in stream.uris:
                world.violated(f"{self.actor.name} is not subscribed to {uri}")
            # After writes were lost, a worker that may have missed announcements says that anything may have changed.
            stream.heard.append(uri)
            heard, changed = stream.heard.count(uri), len(world.touched.get(uri, ()))
            if heard > changed and world.redis.lost_at is None and not stream.early:
                world.violated(f"{self.actor.name} heard {heard} times of {uri}, which changed {changed} times")

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _call(
        self,
        tool: str,
        arguments: dict[str, Any],
        *,
        more: dict[str, Any] | None = None,
        progress: list[float] | None = None,
    ) -> dict[str, Any]:
        """Call a tool that needs nothing shared, until its connection holds; it must be answered, and not refused."""
        for _ in range(ATTEMPTS):
            if progress is not None:
                progress.clear()
            answer = await self._attempt("tools/call", {"name": tool, "arguments": arguments, **(more or {})}, progress)
            if answer is not None:
                return answer
            await asyncio.sleep(0.05 + self.world.random.random() * 0.5)
        self.world.violated(f"a call of {tool} could not be made")
        return {}

    async def _shared_call(
        self, tool: str, arguments: dict[str, Any], *, more: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Call a tool that needs the store, until it can be reached."""
        for _ in range(ATTEMPTS):
            answer = await self._call(tool, arguments, more=more)
            if answer.get("error", {}).get("code") != 503:
                return answer
            self._check_error(answer)
            await asyncio.sleep(0.2 + self.world.random.random() * 0.5)
        self.world.violated(f"a call of {tool} could not be made")
        return {}

    async def _call_once(self, tool: str, arguments: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
        """Send the last round of a call whose state is used once; return an empty answer if its connection broke."""
        answer = await self._attempt("tools/call", {"name": tool, "arguments": arguments, **more}) or {}
        if "error" in answer and "used already" not in answer["error"]["message"]:
            self._check_error(answer)
        return answer

    async def _attempt(
        self, method: str, params: dict[str, Any], progress: list[float] | None = None
    ) -> dict[str, Any] | None:
        """Send a request to any worker; return the answer, None if its connection broke."""
        id = next(self._ids)
        label = f"{method} {params.get('name', params.get('taskId', ''))} {id}"
        self.waits[id] = label
        try:
            response = self._send(method, params, id, progress)
            await response.head()
            if response.headers.get(b"content-type") == b"application/json":
                answer: dict[str, Any] | None = decode(await response.body())
            else:
                answer = await self._read(response, id, progress)
        except ConnectionBroken:
            answer = None
        finally:
            del self.waits[id]
        self.world.trace("%s: %s", label, "broken" if answer is None else "answered")
        if answer is not None and answer.get("id") != id:
            self.world.violated(f"the answer to {id} is {answer}")
        return answer

    async def _read(self, response: WireResponse, id: int, progress: list[float] | None) -> dict[str, Any] | None:
        answer: dict[str, Any] | None = None
        async for event in read_events(response):
            message = decode(event.data) if event.data else {}
            if answer is not None:
                self.world.violated(f"{message} after the answer to {id}")
            if message.get("method") == "notifications/progress" and progress is not None:
                progress.append(message["params"]["progress"])
            elif "method" not in message and message:
                answer = message
        return answer

    def _send(self, method: str, params: dict[str, Any], id: int, progress: list[float] | None = None) -> WireResponse:
        meta = _META if progress is None else {**_META, "progressToken": id}
        body = encode({"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": meta}})
        name = params.get("name", params.get("taskId"))
        headers = [*_HEADERS, (b"mcp-method", method.encode()), *([(b"mcp-name", name.encode())] if name else [])]
        self.world.trace("sends %s %s %d", method, name or "", id)
        return self.world.request(self.actor, "POST", headers, body)

    def _key(self) -> str:
        return f"{self.actor.name}-{next(self._ids)}"

    def _check_text(self, answer: dict[str, Any], text: str) -> None:
        found = answer.get("result", {}).get("content", [{}])[0].get("text")
        if found != text:
            self.world.violated(f"{answer} instead of {text!r}")

    def _check_error(self, answer: dict[str, Any] | None) -> None:
        """Check that an error means a store that cannot be reached."""
        if answer is not None and "error" in answer and (answer["error"]["code"] != 503 or self.world.calm):
            self.world.violated(f"the error {answer['error']}")


def _accept(message: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": f"answer to {message}"}}


#: What clients do, and how often.
_OPERATIONS: tuple[tuple[float, Callable[[StatelessClient], Coroutine[Any, Any, None]]], ...] = (
    (0.15, StatelessClient.add),
    (0.13, StatelessClient.steps),
    (0.15, StatelessClient.ask),
    (0.15, StatelessClient.touch),
    (0.12, StatelessClient.keep),
    (0.12, StatelessClient.buy),
    (0.18, StatelessClient.job),
)
