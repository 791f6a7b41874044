"""Simulated clients: they follow the protocol, retry what failed, and check what they are sent.

A client opens a session, reads its GET stream, makes calls, answers what it is asked, and resumes every stream that it
lost after the last event that it has. It knows nothing of workers; what it may expect is in `SessionRecord`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec

from tests.simulation.tools import RESOURCES, TICK
from tests.simulation.world import ConnectionBroken, WireResponse, World
from trunkline.protocol.revisions import HANDSHAKE_NAMES
from trunkline.protocol.sse import EventReader, ServerSentEvent
from trunkline.store.interface import entry_position
from trunkline.transports.http.server.sessions.facts import SessionFacts

__all__ = [
    "ATTEMPTS",
    "SessionRecord",
    "SimulatedClient",
    "TaskRecord",
    "get_position",
    "is_own",
    "observe_task",
    "read_events",
    "task_may_be_lost",
]

_BOTH = (b"accept", b"application/json, text/event-stream")
_JSON = (b"content-type", b"application/json")
#: For so long a client waits for the result of a task before it asks again.
_RESULT_SECONDS = 20.0
#: The most attempts to do one thing; with the pauses between them more than the longest outage.
ATTEMPTS = 60

#: The position in the id of no event.
_NOWHERE = ((-1, -1), (-1, -1))

encode = msgspec.json.encode
decode = msgspec.json.decode


class SessionRecord:
    """A session as its client knows it, and what the client has received in it."""

    def __init__(self, id: bytes, revision: str, began: float, facts: SessionFacts) -> None:
        self.id = id
        self.revision = revision
        #: What only workers can read in the id: the name in the store, and the generation that it began in.
        self.key: str = facts.key
        self.generation: str = facts.generation
        #: When the request that opened it was sent, and when its response had arrived.
        self.began = began
        self.opened = began
        #: Whether DELETE was sent, and whether it was acknowledged.
        self.deleting = False
        self.deleted = False
        #: Whether it answered with 404.
        self.ended = False
        #: The messages of its own on its GET stream, as entries of its log; and the id of the last event there.
        self.received: list[str] = []
        self.last = ""
        self.ticks: list[int] = []
        #: The resources whose changes it was notified of, each with the time.
        self.updates: list[tuple[str, float]] = []
        #: When each subscription was acknowledged; and those whose outcome is unknown.
        self.subscribed: dict[str, float] = {}
        self.uncertain: set[str] = set()
        #: The responses that were its GET stream.
        self.responses: list[WireResponse] = []


class TaskRecord:
    """A task as its client knows it."""

    def __init__(self, key: str, tool: str, id: str, created: float, seconds: float) -> None:
        self.key = key
        #: How long its handler takes.
        self.seconds = seconds
        self.tool = tool
        self.id = id
        self.created = created
        #: The first final state that was seen, and when.
        self.final: str | None = None
        self.final_at = 0.0
        #: The requests for its result.
        self.results: list[int] = []
        #: Whether it waits for an answer.
        self.asks = False
        #: Whether it went with lost writes.
        self.lost = False


def observe_task(world: World, task: TaskRecord, status: str | None, method: str) -> None:
    """Check a state of a task: the first outcome that was seen is final, and has its reason."""
    world.trace("%s of %s: %s", method, task.key, status)
    lost = world.redis.lost_at
    if task.final is not None and status != task.final and (lost is None or lost < task.final_at):
        world.violated(f"the task {task.key} was {task.final}, and is {status}")
    if status in ("completed", "failed", "cancelled"):
        if task.final != status:
            task.final, task.final_at = status, world.loop.time()
        if status == "failed" and world.calm:
            world.violated(f"the task {task.key} failed, although no worker died")
        if status == "completed" and task.tool != "asking_job" and task.key not in world.completed:
            world.violated(f"the task {task.key} is completed, and its handler has not returned")


def task_may_be_lost(world: World, task: TaskRecord) -> bool:
    """Return whether a task may have gone with lost writes; it is then not asked for again."""
    lost = world.redis.lost_at
    task.lost = task.lost or (lost is not None and lost >= task.created)
    return task.lost


def get_position(event_id: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the two positions that the id of an event of a GET stream has: in the log and in the announcements."""
    entry, _, told = event_id.partition("~")
    return entry_position(entry) or (-1, -1), entry_position(told) or (-1, -1)


def is_own(message: dict[str, Any]) -> bool:
    """Return whether a message of a GET stream is of its session alone, and no notice of a change."""
    method = message.get("method", "")
    return not (method in (TICK, "notifications/resources/updated") or method.endswith("/list_changed"))


async def read_events(response: WireResponse) -> AsyncIterator[ServerSentEvent]:
    """Yield the events of a response until it ends."""
    reader = EventReader(max_event=1 << 20)
    while True:
        message = await response.next()
        for event in reader.feed(message.get("body", b"")):
            yield event
        if not message.get("more_body"):
            return


class SimulatedClient:
    """One client, with one session at a time."""

    def __init__(self, world: World, name: str, operations: int) -> None:
        self.world = world
        self.actor = world.loop.actor(name)
        self._operations = operations
        self._ids = itertools.count(1)
        self.session: SessionRecord | None = None
        self.sessions: list[SessionRecord] = []
        #: What the client waits for, for the report of a run that hangs.
        self.waits: dict[int, str] = {}
        #: The requests that it has cancelled: their streams end without an answer.
        self._cancelled: set[int] = set()
        self._background: list[asyncio.Task[Any]] = []
        self._listeners: list[asyncio.Task[Any]] = []
        self.finished = False

    # --- what it does ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Do so many things, then wait for what was begun."""
        random = self.world.random
        for _ in range(self._operations):
            if self.session is None or self.session.ended or self.session.deleting:
                await self.open()
            work = self._choose()
            if random.random() < 0.5:
                await work()
            else:
                self._background.append(asyncio.get_running_loop().create_task(work()))
            if random.random() < 0.7:
                await asyncio.sleep(random.random() * 0.4)
        for task in self._background:
            await task
        self.finished = True

    def _choose(self) -> Callable[[], Coroutine[Any, Any, None]]:
        chance = self.world.random.random()
        for share, work in _OPERATIONS:
            chance -= share
            if chance < 0:
                return lambda: work(self)
        return self.add

    # --- sessions ----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open a session, and go on trying."""
        random, world = self.world.random, self.world
        # Half of the sessions speak the newest handshake revision, which has tasks and streams that can be polled.
        newest = random.random() < 0.5
        revision = HANDSHAKE_NAMES[-1 if newest else 1 + int(random.random() * (len(HANDSHAKE_NAMES) - 1))]
        params = {
            "protocolVersion": revision,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "client", "version": "1"},
        }
        for _ in range(ATTEMPTS):
            began = world.loop.time()
            id = next(self._ids)
            body = encode({"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params})
            try:
                with self._waiting(f"initialize {id}"):
                    response = world.request(self.actor, "POST", [_JSON, _BOTH], body)
                    status = await response.head()
                    answer = await response.body()
            except ConnectionBroken:
                status = 0
            if status == 200:
                if "result" not in decode(answer):
                    world.violated(f"initialize failed: {answer!r}")
                sealed = response.headers[b"mcp-session-id"]
                session = SessionRecord(sealed, revision, began, world.facts(sealed))
                session.opened = world.loop.time()
                self.session = session
                self.sessions.append(session)
                world.trace("has session %d", len(self.sessions))
                self._listeners.append(asyncio.get_running_loop().create_task(self.listen(session)))
                return
            self._check_refusal(status, "initialize")
            await asyncio.sleep(0.2 + random.random() * 0.5)
        world.violated("a session could not be opened")

    async def delete(self) -> None:
        """End the session."""
        session = self._session()
        session.deleting = True
        for _ in range(ATTEMPTS):
            began = self.world.loop.time()
            try:
                with self._waiting("DELETE"):
                    response = self._send(session, "DELETE", [], b"")
                    status = await response.head()
            except ConnectionBroken:
                status = 0
            if status == 404:
                self.ended(session, began)
            if status in (204, 404):
                session.deleted = status == 204
                self.world.trace("deleted its session: %d", status)
                return
            self._check_refusal(status, "DELETE")
            await asyncio.sleep(0.2 + self.world.random.random() * 0.5)
        self.world.violated("a session could not be deleted")

    def _session(self) -> SessionRecord:
        assert self.session is not None
        return self.session

    def is_lost(self, session: SessionRecord) -> bool:
        """Return whether a session ended with lost writes."""
        return session.generation != self.world.redis.generation

    def ended(self, session: SessionRecord, began: float) -> None:
        """Called when a session answers a request, sent at a time, with 404: that needs a reason.

        It was deleted or lost; or a worker has not noticed yet that writes were lost, and does not know a new session.
        """
        world = self.world
        known = world.is_terminated(session.key) or self.is_lost(session)
        if not known and not world.redis.unnoticed_since(began):
            world.violated(f"404 for a session of {self.actor.name} that was neither deleted nor lost")
        session.ended = True

    def vanished(self, session: SessionRecord) -> list[ServerSentEvent]:
        """Return the events that were written to responses of the GET stream and did not arrive."""
        found: list[ServerSentEvent] = []
        for response in session.responses:
            found += EventReader(max_event=1 << 20).feed(b"".join(response.vanished))
        return found

    # --- calls -------------------------------------------------------------------------------------------------------

    async def add(self) -> None:
        """Make a plain call."""
        a = int(self.world.random.random() * 100)
        answer = await self.call("add", {"a": a, "b": 1})
        if isinstance(answer, dict):
            self._check_text(answer, str(a + 1))

    async def steps(self) -> None:
        """Make a call that reports progress."""
        key, n = self._key(), 1 + int(self.world.random.random() * 5)
        seen: list[float] = []
        answer = await self.call("steps", {"key": key, "n": n}, progress=seen)
        if isinstance(answer, dict) and "result" in answer:
            self._check_text(answer, key)
            self._check_progress(seen, list(range(1, n + 1)))
        if self.world.ran.get(key, 0) > 1:
            self.world.violated("one call ran twice")

    async def release(self) -> None:
        """Make a call whose response ends before its answer."""
        key = self._key()
        seen: list[float] = []
        answer = await self.call("release", {"key": key}, progress=seen)
        if isinstance(answer, dict) and "result" in answer:
            self._check_text(answer, key)
            self._check_progress(seen, [1, 2])

    def _check_progress(self, seen: list[float], expected: list[int]) -> None:
        # An answer that could not be stored is sent without what came before it.
        if seen != expected and (seen or self.world.calm):
            self.world.violated(f"progress {seen} instead of {expected}")

    async def ask(self) -> None:
        """Make a call that asks for something."""
        key = self._key()
        answer = await self.call("ask", {"key": key})
        if isinstance(answer, dict) and "result" in answer and not answer["result"].get("isError"):
            self._check_text(answer, f"{key}:answer to {key}")

    async def cancel(self) -> None:
        """Cancel a call."""
        session, key = self._session(), self._key()
        id = next(self._ids)
        call = self.call("wait", {"key": key, "seconds": 1 + self.world.random.random() * 5}, id=id)
        task = asyncio.get_running_loop().create_task(call)
        await asyncio.sleep(self.world.random.random() * 0.5)
        self._cancelled.add(id)
        await self._notify(session, "notifications/cancelled", {"requestId": id})
        # Whether it came in time is not known; if not, the call is answered.
        await task

    async def tick(self) -> None:
        """Make the server notify every session."""
        number = self.world.next_tick()
        await self.call("tick", {"number": number})

    async def touch(self) -> None:
        """Change a resource, once or several times in a row."""
        for uri in self.world.next_touches():
            await self.call("touch", {"uri": uri})

    async def subscribe(self) -> None:
        """Subscribe to two resources at once."""
        session, first = self._session(), int(self.world.random.random() * len(RESOURCES))
        second = (first + 1 + int(self.world.random.random() * (len(RESOURCES) - 1))) % len(RESOURCES)
        await asyncio.gather(*(self._subscribe(session, RESOURCES[each]) for each in (first, second)))

    async def _subscribe(self, session: SessionRecord, uri: str) -> None:
        if uri in session.subscribed or uri in session.uncertain:
            return
        session.uncertain.add(uri)
        answer = await self.request("resources/subscribe", {"uri": uri}, session=session)
        if isinstance(answer, dict) and "result" in answer:
            session.uncertain.discard(uri)
            session.subscribed[uri] = self.world.loop.time()

    async def job(self) -> None:
        """Create a task and follow it to its end; some are cancelled."""
        random = self.world.random
        session = self._session()
        if session.revision != HANDSHAKE_NAMES[-1]:
            # Only this revision has tasks in its core.
            return
        tool = ("job", "safe_job", "asking_job")[int(random.random() * 3)]
        key = self._key()
        seconds = random.random() ** 2 * 6
        arguments = {"key": key} if tool == "asking_job" else {"key": key, "seconds": seconds}
        params = {"name": tool, "arguments": arguments, "task": {"ttl": 3_600_000}}
        answer = await self.request("tools/call", params, session=session)
        if not isinstance(answer, dict) or "result" not in answer:
            self.world.jobs[key] = tool
            return
        task = TaskRecord(key, tool, answer["result"]["task"]["taskId"], self.world.loop.time(), seconds)
        self.world.jobs[key] = tool
        self.world.trace("has task %s of %s", task.id[:6], key)
        await self._follow_task(session, task)

    async def _follow_task(self, session: SessionRecord, task: TaskRecord) -> None:
        random, cancels = self.world.random, self.world.random.random() < 0.4
        if cancels:
            # About when it ends: only one of the two may count.
            until = task.created + task.seconds + (random.random() - 0.6) * 4 * self.world.redis.faults.latency
            await asyncio.sleep(max(0.0, until - self.world.loop.time()))
            await self._look_at(session, task, "tasks/cancel")
        while not (task.final or task.lost or session.ended):
            await asyncio.sleep(0.4 + random.random())
            method = "tasks/cancel" if cancels and random.random() < 0.3 else "tasks/get"
            await self._look_at(session, task, method)
            if task.asks:
                # The question is asked on this request, which is answered once the task has ended.
                await self._task_result(session, task)
        if not (task.final and not session.ended):
            return
        if random.random() < 0.5:
            await self._task_result(session, task)
        await asyncio.sleep(random.random() * 5)
        await self._look_at(session, task, "tasks/get" if random.random() < 0.5 else "tasks/cancel")
        await self._look_at(session, task, "tasks/get")

    async def _look_at(self, session: SessionRecord, task: TaskRecord, method: str) -> None:
        answer = await self.request(method, {"taskId": task.id}, session=session)
        if not isinstance(answer, dict):
            return
        if "error" in answer:
            self._check_task_error(task, method, answer["error"])
            return
        state = answer["result"]
        status = state.get("status", "cancelled" if method == "tasks/cancel" else None)
        observe_task(self.world, task, status, method)
        task.asks = status == "input_required"

    def _check_task_error(self, task: TaskRecord, method: str, error: dict[str, Any]) -> None:
        if error["code"] == -32602 and method == "tasks/cancel" and "erminal" in error["message"]:
            return
        if error["code"] == 503 and not self.world.calm:
            return
        if task_may_be_lost(self.world, task):
            return
        self.world.violated(f"{method} of {task.key} ({task.final}): {error}")

    async def _task_result(self, session: SessionRecord, task: TaskRecord) -> None:
        for given_up in task.results:
            # A question may be asked on a request whose response was lost; cancelled, it is asked on this one.
            await self._notify(session, "notifications/cancelled", {"requestId": given_up})
        id = next(self._ids)
        task.results.append(id)
        try:
            async with asyncio.timeout(_RESULT_SECONDS):
                answer = await self.request("tasks/result", {"taskId": task.id}, session=session, id=id)
        except TimeoutError:
            return
        if not isinstance(answer, dict):
            return
        if "result" in answer:
            text = answer["result"]["content"][0]["text"]
            if answer["result"].get("isError") or task.final in ("failed", "cancelled"):
                self.world.trace("result of %s: %s", task.key, text)
            elif text != (f"{task.key}:answer to {task.key}" if task.tool == "asking_job" else task.key):
                self.world.violated(f"the result of {task.key} is {text!r}")
        elif task.final == "completed" and answer["error"]["code"] != 503:
            self._check_task_error(task, "tasks/result", answer["error"])

    async def limited(self) -> None:
        """Make calls that count against a limit."""
        await asyncio.gather(*(self.call("limited", {}) for _ in range(4)))

    def _key(self) -> str:
        return f"{self.actor.name}-{next(self._ids)}"

    def _check_text(self, answer: dict[str, Any], text: str) -> None:
        if "result" in answer and not answer["result"].get("isError"):
            found = answer["result"]["content"][0]["text"]
            if found != text:
                self.world.violated(f"{found!r} instead of {text!r}")

    async def call(
        self, tool: str, arguments: dict[str, Any], *, progress: list[float] | None = None, id: int | None = None
    ) -> dict[str, Any] | str:
        """Call a tool; return the answer, or why there is none."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if progress is not None:
            params["_meta"] = {"progressToken": next(self._ids)}
        return await self.request("tools/call", params, progress=progress, id=id)

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        progress: list[float] | None = None,
        id: int | None = None,
        session: SessionRecord | None = None,
    ) -> dict[str, Any] | str:
        """Send a request; return the answer, or why there is none."""
        session = session or self._session()
        id = next(self._ids) if id is None else id
        body = encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        label = f"{method} {params.get('name', '')} {id}"
        self.world.trace("sends %s", label)
        with self._waiting(label):
            outcome = await self._exchange(session, id, body, progress)
        if isinstance(outcome, str):
            self.world.trace("%s: %s", label, outcome)
        else:
            self.world.trace("%s: answered", label)
        return outcome

    async def _exchange(
        self, session: SessionRecord, id: int, body: bytes, progress: list[float] | None
    ) -> dict[str, Any] | str:
        began = self.world.loop.time()
        response = self._send(session, "POST", [_JSON, _BOTH], body)
        try:
            status = await response.head()
            if status != 200:
                return self._refused(session, status, began)
            if response.headers.get(b"content-type") == b"application/json":
                answer = decode(await response.body())
                if answer.get("id") != id:
                    self.world.violated(f"the answer to {id} is {answer}")
                self._check_error(answer, began)
                return answer  # type: ignore[no-any-return]
        except ConnectionBroken:
            return "broken"
        found = await self._follow(session, response, id, progress)
        if isinstance(found, dict):
            self._check_error(found, began)
        return found

    def _check_error(self, answer: dict[str, Any], began: float) -> None:
        """Check that an error which names a dead worker or a store that is gone has this cause."""
        error, world = answer.get("error", {"code": 0, "message": ""}), self.world
        if "worker" in error["message"] and world.crashed_at < began:
            world.violated(f"{error['message']}, and no worker crashed")
        if error["code"] == 503 and world.calm:
            world.violated(f"{error['message']}, and it was there")

    async def _follow(
        self, session: SessionRecord, response: WireResponse | str, id: int, progress: list[float] | None
    ) -> dict[str, Any] | str:
        """Read a stream until the answer, and resume it as often as it breaks."""
        last = ""
        answer: dict[str, Any] | None = None
        while not isinstance(response, str):
            try:
                async for event in read_events(response):
                    last = self._check_order(last, event)
                    if not event.data:
                        continue
                    message = decode(event.data)
                    if message.get("id") == id and "method" not in message:
                        if answer is not None:
                            self.world.violated(f"two answers to {id}")
                        answer = message
                    elif answer is not None:
                        self.world.violated(f"{message} after the answer to {id}")
                    else:
                        self._receive(session, message, progress)
            except ConnectionBroken:
                pass
            if answer is not None:
                return answer
            if id in self._cancelled:
                return "cancelled"
            if not last:
                return "broken"
            response = await self._resume(session, last)
        return response

    async def _resume(self, session: SessionRecord, last: str) -> WireResponse | str:
        world = self.world
        for _ in range(ATTEMPTS):
            await asyncio.sleep(0.05 + world.random.random() * 0.5)
            world.trace("resumes after %s", last)
            began = world.loop.time()
            response = self._send(session, "GET", [_BOTH, (b"last-event-id", last.encode())], b"")
            try:
                status = await response.head()
            except ConnectionBroken:
                continue
            if status == 200:
                return response
            if status == 400:
                self._not_kept(session, last)
                return "not kept"
            refused = self._refused(session, status, began)
            if session.ended:
                return refused
        world.violated(f"a stream could not be resumed after {last}")
        return "given up"

    def _not_kept(self, session: SessionRecord, last: str) -> None:
        """Called when an event is not kept that the client has received: that needs a reason."""
        unnoticed = self.world.redis.unnoticed_since(self.world.loop.time())
        if not (self.world.is_terminated(session.key) or self.is_lost(session) or unnoticed):
            self.world.violated(f"the event {last} is not kept any more")

    def _refused(self, session: SessionRecord, status: int, began: float) -> str:
        if status == 404:
            self.ended(session, began)
        elif status == 410:
            # The worker that asked is gone, or cannot be heard in this moment; the question was asked before.
            if self.world.crashed_at < session.began and not self.world.redis.unheard_since(session.began):
                self.world.violated("410, and no worker was gone")
        else:
            self._check_refusal(status, "a request")
        return f"status {status}"

    def _check_refusal(self, status: int, what: str) -> None:
        # 0: the connection broke. 202: the request was cancelled.
        allowed = (202,) if self.world.calm else (0, 202, 503)
        if status not in allowed:
            self.world.violated(f"status {status} for {what}")

    def _check_order(self, last: str, event: ServerSentEvent) -> str:
        if event.id is None:
            self.world.violated("an event without an id")
            return last
        if last and (entry_position(event.id) or (0, 0)) <= (entry_position(last) or (0, 0)):
            self.world.violated(f"the event {event.id} after {last}")
        return event.id

    def _check_get_order(self, last: str, event: ServerSentEvent) -> str:
        """Check that an event of a GET stream goes back in neither log."""
        before, position = get_position(last), get_position(event.id or "")
        if event.id is None or position == _NOWHERE:
            self.world.violated(f"an event of a GET stream with the id {event.id}")
            return last
        if position[0] < before[0] or position[1] < before[1]:
            self.world.violated(f"the event {event.id} after {last}")
        return event.id

    # --- what it is sent ---------------------------------------------------------------------------------------------

    def _receive(self, session: SessionRecord, message: dict[str, Any], progress: list[float] | None) -> None:
        method = message.get("method")
        if method == "notifications/progress" and progress is not None:
            progress.append(message["params"]["progress"])
        elif method == "elicitation/create":
            self._background.append(asyncio.get_running_loop().create_task(self._answer(session, message)))

    async def _answer(self, session: SessionRecord, asked: dict[str, Any]) -> None:
        """Answer a question; an answer that may not have arrived is sent again."""
        await asyncio.sleep(self.world.random.random() * 0.5)
        content = {"value": f"answer to {asked['params']['message']}"}
        body = encode({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": content}})
        await self._deliver(session, body, f"answer {asked['id']}")

    async def _notify(self, session: SessionRecord, method: str, params: dict[str, Any]) -> None:
        await self._deliver(session, encode({"jsonrpc": "2.0", "method": method, "params": params}), method)

    async def _deliver(self, session: SessionRecord, body: bytes, label: str) -> None:
        with self._waiting(label):
            for _ in range(ATTEMPTS):
                began = self.world.loop.time()
                try:
                    response = self._send(session, "POST", [_JSON, _BOTH], body)
                    status = await response.head()
                except ConnectionBroken:
                    status = 0
                self.world.trace("%s: status %d", label, status)
                if status == 202 or self._refused(session, status, began) in ("status 404", "status 410"):
                    return
                await asyncio.sleep(0.2 + self.world.random.random() * 0.5)
        self.world.violated(f"{label} could not be delivered")

    async def listen(self, session: SessionRecord) -> None:
        """Read the GET stream of a session until it ends."""
        world = self.world
        while not session.ended:
            last = session.last
            resuming = [(b"last-event-id", last.encode())] if last else []
            began = world.loop.time()
            response = self._send(session, "GET", [_BOTH, *resuming], b"")
            session.responses.append(response)
            try:
                status = await response.head()
                if status == 404:
                    self.ended(session, began)
                    return
                if status == 400 and last:
                    self._not_kept(session, last)
                    session.last = ""
                elif status != 200:
                    self._check_refusal(status, "GET")
                else:
                    world.trace("listens after %s", last or "nothing")
                    async for event in read_events(response):
                        session.last = self._check_get_order(session.last, event)
                        if event.data:
                            self._noticed(session, decode(event.data))
            except ConnectionBroken:
                pass
            await asyncio.sleep(0.05 + world.random.random() * 0.3)

    def _noticed(self, session: SessionRecord, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method == TICK:
            number = message["params"]["number"]
            self.world.trace("hears tick %d", number)
            # A session from before writes were lost may be served for a moment more, without what it was told.
            ends = self.world.is_terminated(session.key) or self.is_lost(session)
            if number in session.ticks and not ends:
                self.world.violated(f"{self.actor.name} heard the tick {number} twice")
            session.ticks.append(number)
        elif method == "notifications/resources/updated":
            uri = message["params"]["uri"]
            self.world.trace("hears of %s", uri)
            # After writes were lost, a worker that may have missed announcements says that anything may have changed.
            ends = self.world.is_terminated(session.key) or self.world.redis.lost_at is not None
            session.updates.append((uri, self.world.loop.time()))
            heard, changed = sum(each == uri for each, _ in session.updates), len(self.world.changes(uri))
            # Each response but the first may begin with one that was sent before.
            if heard > changed + len(session.responses) - 1 and not ends:
                self.world.violated(f"{self.actor.name} heard {heard} times of {uri}, which changed {changed} times")
        elif is_own(message):
            session.received.append(session.last.partition("~")[0])
            self._receive(session, message, None)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _send(
        self, session: SessionRecord, method: str, headers: list[tuple[bytes, bytes]], body: bytes, *, slot: Any = None
    ) -> WireResponse:
        own = [(b"mcp-session-id", session.id), (b"mcp-protocol-version", session.revision.encode())]
        return self.world.request(self.actor, method, [*own, *headers], body, slot=slot)

    async def status_at(self, session: SessionRecord, slot: int) -> int:
        """Return the status of a ping at one worker."""
        body = encode({"jsonrpc": "2.0", "id": next(self._ids), "method": "ping"})
        try:
            response = self._send(session, "POST", [_JSON, _BOTH], body, slot=slot)
            return await response.head()
        except ConnectionBroken:
            return 0

    def _waiting(self, label: str) -> _Waiting:
        return _Waiting(self.waits, label)


class _Waiting:
    """Keeps a label while something is waited for."""

    __slots__ = ("_label", "_waits")

    def __init__(self, waits: dict[int, str], label: str) -> None:
        self._waits = waits
        self._label = label

    def __enter__(self) -> None:
        self._waits[id(self)] = self._label

    def __exit__(self, *_: object) -> None:
        self._waits.pop(id(self), None)


#: What clients do, and how often.
_OPERATIONS: tuple[tuple[float, Callable[[SimulatedClient], Coroutine[Any, Any, None]]], ...] = (
    (0.11, SimulatedClient.add),
    (0.13, SimulatedClient.steps),
    (0.12, SimulatedClient.ask),
    (0.19, SimulatedClient.job),
    (0.08, SimulatedClient.cancel),
    (0.07, SimulatedClient.release),
    (0.12, SimulatedClient.tick),
    (0.05, SimulatedClient.touch),
    (0.07, SimulatedClient.subscribe),
    (0.03, SimulatedClient.delete),
    (0.03, SimulatedClient.limited),
)
