"""What the clients of a soak do: operations on sessions of every era, each checked when it ends."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp

from tests.soak.connections import current_wire, repeated
from tests.soak.ledger import Ledger
from tests.soak.listeners import URI, GetListener, ListenStream
from tests.soak.sessions import RETRY_SECONDS, Answered, Lost, Refused, SoakSession
from tests.soak.tasks import TaskBook
from trunkline import Client
from trunkline.errors import ConnectionLost, HttpError, LinkError, RequestFailed, StoreUnavailable
from trunkline.protocol.revisions import HANDSHAKE_NAMES, NEWEST, NEWEST_HANDSHAKE

__all__ = ["Crowd"]

#: Requests under way at a time: as many as keep two cores busy without making every answer late.
ACTORS = 12
STATELESS, LEGACY = 4, 8
GET_LISTENERS, LISTENERS = 60, 40
#: Seconds between two notices to all clients.
TICK_SECONDS = 1.0
#: All clients get the last notices within this time.
SETTLE_SECONDS = 60.0
#: Every worker has heard of the end of a session within this time, on a busy machine too.
HEARD_SECONDS = 5.0
#: A notice whose worker is killed so soon after its call was answered, or after Redis was back, may not have left it.
ANNOUNCED_SECONDS = 2.0


class Crowd:
    """All clients, and what they were promised."""

    def __init__(self, http: aiohttp.ClientSession, url: str, ledger: Ledger, *, sessions: int, seed: int) -> None:
        """Prepare so many sessions; nothing is sent yet."""
        self._http = http
        self._url = url
        self._ledger = ledger
        self._random = random.Random(seed)
        streamable = HANDSHAKE_NAMES[1:]
        self.sessions = [SoakSession(http, url, streamable[n % len(streamable)], ledger) for n in range(sessions)]
        self._gets = [GetListener(each) for each in self.sessions[:GET_LISTENERS]]
        self._streams = [ListenStream(http, url, ledger) for _ in range(LISTENERS)]
        self._listening: list[asyncio.Task[None]] = []
        self._running: list[asyncio.Task[None]] = []
        self._stopping = False
        #: The process that sent each notice, and when its call was answered; None if it was not.
        self._ticks: dict[int, tuple[int, float] | None] = {}
        self._touches = 0
        #: What each listen stream had heard before the last notice.
        self._final: list[int] = []
        self.tasks = TaskBook(ledger)

    async def open(self) -> None:
        """Open all sessions, a few at a time, and all streams."""
        waiting = list(self.sessions)

        async def some() -> None:
            while waiting:
                await waiting.pop().open()

        await asyncio.gather(*(some() for _ in range(ACTORS)))
        for listener in self._gets:
            await self._change(listener.session, "resources/subscribe", {"uri": URI})
        await self.listen()

    def move(self, http: aiohttp.ClientSession) -> None:
        """Use other connections from now on."""
        self._http = http
        for session in self.sessions:
            session.http = http
        for stream in self._streams:
            stream.http = http

    async def listen(self) -> None:
        """Open the streams that stay open, and wait until they are."""
        streams: list[GetListener | ListenStream] = [*self._gets, *self._streams]
        for each in streams:
            each.opened.clear()
        self._listening = [asyncio.create_task(each.run()) for each in streams]
        async with asyncio.timeout(SETTLE_SECONDS):
            for each in streams:
                await each.opened.wait()

    def start(self) -> None:
        """Run all clients until `stop`."""
        self._stopping = False
        seeds = [self._random.randrange(1 << 30) for _ in range(ACTORS + STATELESS + LEGACY)]
        work = [self._actor(random.Random(each)) for each in seeds[:ACTORS]]
        work += [self._client(random.Random(each), NEWEST.name, "") for each in seeds[ACTORS : ACTORS + STATELESS]]
        work += [self._client(random.Random(each), HANDSHAKE_NAMES[0], "/sse") for each in seeds[ACTORS + STATELESS :]]
        self._running = [asyncio.create_task(each) for each in (*work, self._notices())]

    async def stop(self) -> None:
        """Wait until all clients have finished what is under way."""
        self._stopping = True
        await asyncio.gather(*self._running)

    async def close(self) -> None:
        """End the streams that stay open."""
        for each in self._listening:
            each.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)

    # --- handshake sessions ---

    async def _actor(self, choose: random.Random) -> None:
        operations: list[Callable[[SoakSession, random.Random], Awaitable[None]]] = [
            *[self._add] * 8, *[self._walk] * 3, *[self._ask] * 2, self._level, self._reopen, self._task,
        ]  # fmt: skip
        while not self._stopping:
            session = choose.choice(self.sessions)
            if session.closed:
                continue
            operation, begun = choose.choice(operations), time.monotonic()
            what = operation.__name__.removeprefix("_")
            session.users += 1
            try:
                await operation(session, choose)
            except Lost as lost:
                self._ledger.lost(what, lost.heard)
            except Refused:
                self._ledger.refused(what, begun, needs_redis=what != "add")
            except TimeoutError:
                self._ledger.fault(f"{what} was not answered in time")
            finally:
                session.users -= 1
            self._ledger.counts["requests in sessions"] += 1

    def _check(self, what: str, found: Answered, begun: float, wanted: str) -> bool:
        """Check that there was one answer, the right one or a clear error; return whether it is the right one."""
        if found.doubled:
            self._ledger.fault(f"{what} was answered twice")
        if len(found.pids) > 1:
            self._ledger.fault(f"{what} ran at {found.pids}")
        if found.answer is None:
            self._ledger.fault(f"{what} got {found.status}, and no answer: {found.reason[:200]}")
        elif found.worker_gone:
            self._ledger.unknown(what, found.pids, begun)
        elif found.text != wanted:
            self._ledger.fault(f"{what} was answered with {str(found.answer)[:300]}")
        else:
            return True
        return False

    async def _add(self, session: SoakSession, choose: random.Random) -> None:
        a, begun = choose.randrange(1000), time.monotonic()
        self._check("add", await session.call("add", {"a": a, "b": 1}), begun, str(a + 1))

    async def _walk(self, session: SoakSession, choose: random.Random) -> None:
        n, begun = choose.randint(3, 25), time.monotonic()
        found = await session.call("walk", {"n": n}, leave_after=choose.choice((None, 1, n // 2)))
        right = self._check("walk", found, begun, f"walked {n}")
        steps = [each["data"].partition(" pid ")[0] for each in found.notifications]
        wanted = [f"step {step}" for step in range(n)]
        self._ledger.counts["events of calls, each once and in order"] += len(steps)
        if steps != (wanted if right else wanted[: len(steps)]) and not (right and not steps):
            self._ledger.fault(f"the events of a walk of {n} were {steps}")
        elif right and not steps:
            # Redis was gone: the answer is sent without what came before.
            self._ledger.refused("the events of a walk", begun)

    async def _ask(self, session: SoakSession, choose: random.Random) -> None:
        if session.revision in HANDSHAKE_NAMES[:2]:
            return  # These have no elicitation.
        key, begun = f"k{choose.randrange(1 << 20)}", time.monotonic()
        found = await session.call("ask", {"key": key})
        self._check("ask", found, begun, f"{key} answer-{found.id}")

    async def _level(self, session: SoakSession, choose: random.Random) -> None:
        await self._change(session, "logging/setLevel", {"level": choose.choice(("debug", "info"))})

    async def _change(self, session: SoakSession, method: str, params: Any) -> None:
        status, answer = await session.post(session.next_request(method, params))
        if status != 200 or "result" not in answer:
            self._ledger.fault(f"{method} got {status}: {str(answer)[:200]}")

    async def _reopen(self, session: SoakSession, choose: random.Random) -> None:
        """End a session, see that it is gone everywhere, and open another in its place."""
        index = self.sessions.index(session)
        if index < GET_LISTENERS or session is self.sessions[-1] or session.keep or session.users > 1:
            return
        session.closed = True
        fresh = SoakSession(self._http, self._url, session.revision, self._ledger)
        await fresh.open()
        self.sessions[index] = fresh
        async with asyncio.timeout(SETTLE_SECONDS):
            await self._delete(session)
            # Other workers hear of it a moment later.
            gone, ended = 0, time.monotonic()
            while gone < 8:
                begun = time.monotonic()
                try:
                    status, _ = await session.post(session.next_request("ping", {}))
                except Lost as lost:
                    self._ledger.lost("a ping", lost.heard)
                    continue
                except Refused:
                    self._ledger.refused("a ping", begun, needs_redis=False)
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                if status == 200 and begun - ended > HEARD_SECONDS:
                    # A worker that has not heard of it because Redis is gone serves it until Redis is back.
                    self._ledger.served_late("a session that had ended", ended)
                elif status not in (200, 404):
                    self._ledger.fault(f"a session that had ended got {status}")
                gone = gone + 1 if status == 404 else 0
        self._ledger.counts["sessions ended and opened anew"] += 1

    async def _delete(self, session: SoakSession) -> None:
        uncertain = False
        while True:
            begun, again = time.monotonic(), repeated()
            try:
                async with self._http.delete(self._url, headers=session.headers) as response:
                    status = response.status
                current_wire().hear()
                uncertain = uncertain or again()
            except (aiohttp.ClientError, OSError):
                self._ledger.lost("delete", current_wire().heard)
                uncertain, status = True, 0
            if status == 503:
                self._ledger.refused("delete", begun)
                # It may have been done, although its answer did not arrive from Redis.
                uncertain = True
            elif status == 204 or (status == 404 and uncertain):
                return
            elif status:
                self._ledger.fault(f"delete got {status}")
                return
            await asyncio.sleep(RETRY_SECONDS)

    # --- tasks ---

    async def _task(self, session: SoakSession, choose: random.Random) -> None:
        """Create a task at one worker; any worker is asked for it later."""
        if session.revision != NEWEST_HANDSHAKE.name:
            return
        tool = choose.choice(("work_once", "work_again"))
        name = self.tasks.new_name()
        arguments = {"name": name, "seconds": round(choose.uniform(0.1, 4.0), 1)}
        params = {"name": tool, "arguments": arguments, "task": {"ttl": 3_600_000}}
        begun = time.monotonic()
        status, answer = await session.post(session.next_request("tools/call", params))
        if status != 200 or "task" not in answer.get("result", {}):
            self._ledger.fault(f"a task was not created: {status} {str(answer)[:200]}")
            return
        session.keep = True
        self.tasks.created(answer["result"]["task"]["taskId"], name, tool, session, begun)

    # --- clients of ours: the stateless era, and the transport of 2024 ---

    async def _client(self, choose: random.Random, revision: str, path: str) -> None:
        async def answer(_: Any) -> str:
            return "stateless"

        kinds = ("add", "add", "walk", *(("ask", "task") if revision == NEWEST.name else ()))
        while not self._stopping:
            # When what this client did before began, or it began to connect: what ends its connection came after that.
            heard = begun = time.monotonic()
            kind = "connect"
            try:
                async with AsyncExitStack() as stack:
                    client = await stack.enter_async_context(
                        Client(f"{self._url}{path}", revision=revision, elicitation=answer)
                    )
                    while not self._stopping:
                        heard, begun = begun, time.monotonic()
                        kind = choose.choice(kinds)
                        await self._use(client, kind, revision)
            except (LinkError, RequestFailed) as error:
                self._client_failed(error, f"{kind} in {revision}", begun, heard, stateless=revision == NEWEST.name)
                await asyncio.sleep(RETRY_SECONDS)

    def _client_failed(self, error: Exception, what: str, begun: float, heard: float, *, stateless: bool) -> None:
        status = error.status if isinstance(error, HttpError) else 0
        # A client of 2024 whose event stream is refused reports that its POST, the first attempt, was.
        refused = status == 503 or isinstance(error, StoreUnavailable) or "takes GET" in str(error)
        if refused:
            self._ledger.refused(what, begun)
            if stateless and not what.startswith("task "):
                self._ledger.fault(f"{what} was refused, and stateless calls need nothing of Redis")
        elif isinstance(error, ConnectionLost) or (status == 404 and not stateless):
            # 404: the stream of a client of 2024 ended with its worker, and another was asked.
            self._ledger.lost(f"{what} ({error})", heard)
        else:
            self._ledger.fault(f"{what} failed: {error!r}")

    async def _use(self, client: Client, kind: str, revision: str) -> None:
        if kind == "task":
            name = self.tasks.new_name()
            handle = await client.start_task("work_again", {"name": name, "seconds": 0.2})
            result, wanted = await handle.result(timeout=SETTLE_SECONDS), f"{name} done"
            self._ledger.counts["tasks of stateless clients completed"] += 1
        elif kind == "ask":
            result, wanted = await client.call_tool("ask", {"key": "k"}), "k stateless"
        elif kind == "walk":
            result, wanted = await client.call_tool("walk", {"n": 5}), "walked 5"
        else:
            result, wanted = await client.call_tool("add", {"a": 1, "b": 2}), "3"
        self._ledger.counts[f"calls in {revision}"] += 1
        if result.text != wanted:
            self._ledger.fault(f"{kind} in {revision} was answered with {result.text[:200]}")

    # --- notices ---

    async def _notices(self) -> None:
        sender = self.sessions[-1]
        while not self._stopping:
            await self._notify(sender)
            await asyncio.sleep(TICK_SECONDS)
        # All clients must get these: nothing is killed any more, and what was sent before has arrived.
        async with asyncio.timeout(SETTLE_SECONDS):
            for stream in self._streams:
                await stream.opened.wait()
        await asyncio.sleep(2 * TICK_SECONDS)
        self._final = [stream.updates for stream in self._streams]
        await self._notify(sender)

    async def _notify(self, sender: SoakSession) -> None:
        number = len(self._ticks) + 1
        self._ticks[number] = None
        begun = time.monotonic()
        try:
            found = await sender.call("tick", {"n": number})
            if found.text is not None:
                self._ticks[number] = (int(found.text), time.monotonic())
            self._touches += 1
            for each in (found, await sender.call("touch", {})):
                if each.text is None:
                    self._ledger.fault(f"a notice got {each.status}: {each.answer or each.reason[:200]}")
        except Lost as lost:
            self._ledger.lost("a notice", lost.heard)
        except Refused:
            self._ledger.refused("a notice", begun, needs_redis=False)

    async def settle(self) -> None:
        """Check which notices each client got, after all had the time to."""
        heard = set[int]()

        def complete() -> bool:
            heard.update(*(each.ticks for each in self._gets))
            streams = zip(self._streams, self._final, strict=True)
            return (
                max(self._ticks) in heard
                and all(set(each.ticks) == heard for each in self._gets)
                and all(stream.updates > before for stream, before in streams)
            )

        deadline = time.monotonic() + SETTLE_SECONDS
        while not complete() and time.monotonic() < deadline:  # noqa: ASYNC110  (the same)
            await asyncio.sleep(RETRY_SECONDS)
        self._ledger.counts["notices to all sessions"] += len(heard)
        for number, sent in self._ticks.items():
            if number not in heard and sent is not None and not self._may_be_unannounced(number, *sent, heard):
                self._ledger.fault(f"notice {number} of {sent[0]} was heard by no session")
        for index, each in enumerate(self._gets):
            self._ledger.counts["notices received, each once"] += len(each.ticks)
            if missing := sorted(heard - set(each.ticks)):
                self._ledger.fault(f"GET stream {index} ({each.session.revision}) missed the notices {missing}")
            if doubled := {number: times for number, times in each.ticks.items() if times > 1}:
                self._ledger.fault(f"GET stream {index} ({each.session.revision}) heard notices twice: {doubled}")
            if each.updates > self._touches:
                self._ledger.fault(f"GET stream {index} heard {each.updates} updates of {self._touches}")
        for index, (stream, before) in enumerate(zip(self._streams, self._final, strict=True)):
            self._ledger.counts["updates received by listen streams"] += stream.updates
            if stream.updates - before != 1:
                self._ledger.fault(f"listen stream {index} heard the last update {stream.updates - before} times")
            if stream.updates > self._touches:
                self._ledger.fault(f"listen stream {index} heard {stream.updates} updates of {self._touches}")

    def _may_be_unannounced(self, number: int, pid: int, answered: float, heard: set[int]) -> bool:
        """Return whether a notice may have died with its worker: killed at once, or before Redis was back."""
        killed = self._ledger.kills.get(pid)
        if killed is None:
            return False
        # A worker announces in order: what came before a notice that was heard has left it.
        answered_by = {later: sent[0] for later, sent in self._ticks.items() if sent is not None}
        if any(later > number and answered_by.get(later) == pid for later in heard):
            return False
        periods = (*self._ledger.outages, *self._ledger.slow)
        outages = [each for each in periods if each.overlaps(answered, killed.begun)]
        since = max([answered, *(min(each.until, killed.begun) for each in outages)])
        return killed.begun - since <= ANNOUNCED_SECONDS
