"""The world of one run: workers that crash and start again, the network between them and clients, and the faults.

Each worker is a `Server` with its endpoint, driven through ASGI or through the shorter interface of the package's own
HTTP server, and its own connection to the store. A request reaches a random worker, as behind a load balancer
without sticky routing. A connection may break at any time, and each side notices it by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, MutableMapping
from random import Random
from typing import Any

from tests.simulation.loop import Actor, SimulationLoop
from tests.simulation.store import TIMEOUT, Faults, SimulatedRedis, SimulatedStore
from tests.simulation.tools import RESOURCES, STATE_BYTES, add_tools, tick_mark
from trunkline import Server
from trunkline.protocol.limits import Limits
from trunkline.server.task_options import TaskSettings
from trunkline.store.interface import Entry
from trunkline.transports.http.server.endpoint import Endpoint
from trunkline.transports.http.server.request import CONNECTION_KEY, DirectExchange
from trunkline.transports.http.server.sessions.facts import SessionFacts, SessionIds

__all__ = ["KEY", "ConnectionBroken", "SimulatedWorker", "WireResponse", "World"]

KEY = "5a" * 32
#: The lease of a task: shorter than the usual one, so that a run has time for several.
LEASE_SECONDS = 3.0
#: What cannot be done without the store is refused within this time: a request sends at most about six commands one
#: after another, each of which may be slow, after it waited for its worker to join the others; each gets two seconds.
REFUSAL_SECONDS = 7 * TIMEOUT
_CLOSED = {"type": "http.disconnect"}


class ConnectionBroken(Exception):
    """The connection of a request broke, or was refused."""


class WireResponse:
    """A response as its client sees it: what has arrived."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = world.loop
        self._sent = world.loop.time()
        self._arrived: deque[MutableMapping[str, Any] | None] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        #: Whether its worker had not joined the others yet.
        self.early = False
        #: What the worker wrote, and what never arrives.
        self.vanished: list[bytes] = []
        #: Ends the connection; set once the request is at a worker.
        self.hang_up: Callable[[], None] = lambda: None

    def arrive(self, message: MutableMapping[str, Any] | None) -> None:
        """Called with each part; None when the connection broke."""
        self._arrived.append(message)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> MutableMapping[str, Any]:
        """Return the next part.

        Raises:
            ConnectionBroken: there is none.
        """
        if not self._arrived:
            self._waiter = self._loop.create_future()
            await self._waiter
        message = self._arrived.popleft()
        if message is None:
            self._arrived.append(None)
            raise ConnectionBroken
        return message

    async def head(self) -> int:
        """Wait for the status."""
        message = await self.next()
        self.status, self.headers = message["status"], dict(message["headers"])
        if self.status == 503:
            self._world.refused(self._loop.time() - self._sent, self.headers)
        return self.status

    async def body(self) -> bytes:
        """Read the whole body."""
        parts = []
        while True:
            message = await self.next()
            parts.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(parts)


class _WireRequest(DirectExchange):
    """One HTTP request at a worker: the ASGI side, and the connection that may break."""

    def __init__(self, world: World, worker: SimulatedWorker, client: Actor, response: WireResponse, body: bytes):
        self._world = world
        self._worker = worker
        self._client = client
        self._response = response
        self._body: bytes | None = body
        self._broken = False
        self._over = False
        #: Whether the application has written the whole response: from then on it receives a disconnect, as ASGI says.
        self._complete = False
        self._gone: asyncio.Future[None] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._last = 0.0
        worker.requests[self] = None

    # --- what the application calls ---

    async def receive(self) -> MutableMapping[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body}
        if not (self._broken or self._complete):
            self._gone = self._world.loop.create_future()
            await self._gone
        return _CLOSED

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if self._broken:
            self._response.vanished.append(message.get("body", b""))
            raise OSError("the client has disconnected")
        self._pass_on(message)

    def take_body(self) -> bytes | None:
        body, self._body = self._body, None
        return body

    def write_json(self, body: bytes) -> bool:
        if not self._broken:
            headers = [(b"content-type", b"application/json")]
            self._pass_on({"type": "http.response.start", "status": 200, "headers": headers})
            self._pass_on({"type": "http.response.body", "body": body})
        return True

    def write_chunk(self, body: bytes) -> bool:
        if self._broken or self._over:
            return False
        self._pass_on({"type": "http.response.body", "body": body, "more_body": True})
        return True

    def add_disconnect_callback(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)
        if self._broken:
            callback()

    def remove_disconnect_callback(self, callback: Callable[[], None]) -> None:
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def _pass_on(self, message: MutableMapping[str, Any]) -> None:
        if self._over:
            self._response.vanished.append(message.get("body", b""))
            return
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._over = self._complete = True
            self._release()
        world = self._world
        if world.random.random() < world.breaks:
            self._response.vanished.append(message.get("body", b""))
            self.break_off()
            return
        world.loop.schedule(self._client, self._in_order(), self._response.arrive, message)

    def _in_order(self) -> float:
        now = self._world.loop.time()
        self._last = max(self._last, now + self._world.latency())
        return self._last - now

    # --- the connection ---

    def break_off(self) -> None:
        """Break the connection; the client notices it soon, the worker a while later."""
        world = self._world
        self._over = True
        world.loop.schedule(self._client, self._in_order(), self._response.arrive, None)
        world.loop.schedule(self._worker.actor, world.random.random() * 3.0, self.disconnected)

    def hang_up(self) -> None:
        """Called when the client ends the connection."""
        self._over = True
        self._world.loop.schedule(self._worker.actor, self._world.latency(), self.disconnected)

    def disconnected(self) -> None:
        """Called when the worker notices that the client is gone."""
        if self._broken:
            return
        self._broken = self._over = True
        self._release()
        for callback in tuple(self._callbacks):
            callback()

    def _release(self) -> None:
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    async def serve(self, scope: dict[str, Any]) -> None:
        """Call the application; its errors are violations."""
        receive, send = self.receive, self.send
        try:
            if CONNECTION_KEY in scope:
                await self._worker.app(scope, receive, send)
            else:
                # Without the shorter interface, which the endpoint finds behind the two methods.
                await self._worker.app(scope, lambda: receive(), lambda message: send(message))
        except Exception as error:  # noqa: BLE001 - whatever it is, a user would see a traceback
            self._world.violated(f"the endpoint raised {error!r}")
        finally:
            self._worker.requests.pop(self, None)
            if not self._over:
                # What an HTTP server does with an application that has not finished its response.
                self.break_off()


class SimulatedWorker:
    """One process: its server, its endpoint and its store."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.actor: Actor = world.loop.actor(name)
        self.requests: dict[_WireRequest, None] = {}
        self.store = SimulatedStore(world.redis, self.actor)
        self.server: Server
        self.app: Endpoint
        self.ids: SessionIds
        self.actor.context.copy().run(self._start)

    def _start(self) -> None:
        tasks = TaskSettings(lease=LEASE_SECONDS)
        limits = Limits(state_bytes=STATE_BYTES)
        self.server = Server("simulated", version="1", state_keys=[KEY], tasks=tasks, limits=limits)
        add_tools(self.server, self)
        self.app = self.server.asgi(store=self.store, sse=False)
        # The order of a set depends on addresses, which differ from run to run.
        self.app.open_responses.streams = OrderedSet()  # type: ignore[assignment]
        endpoint: Any = self.app._session_endpoint
        self.ids = endpoint._worker.ids
        self.app.start()

    @property
    def has_joined(self) -> bool:
        """Whether it has reached the store, and the other workers."""
        endpoint: Any = self.app._session_endpoint
        return bool(endpoint._worker._joined)

    def crash(self) -> None:
        """End the process at once; its clients and the store notice it a moment later."""
        world = self.world
        world.loop.kill(self.actor)
        world.loop.schedule(world.redis.actor, world.latency(), world.redis.disconnect, self.store)
        for request in list(self.requests):
            request.break_off()


class OrderedSet(dict[Any, None]):
    """A set in the order of insertion."""

    def add(self, item: Any) -> None:
        """Add an item."""
        self[item] = None

    def discard(self, item: Any) -> None:
        """Remove an item."""
        self.pop(item, None)


class World:
    """One run: everything that is simulated, and what was observed."""

    def __init__(self, seed: int, *, tracing: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.loop = SimulationLoop(self.random)
        self.lines: list[str] | None = [] if tracing else None
        self.violations: list[str] = []
        self.actor = self.loop.actor("world")
        self.redis = SimulatedRedis(self.loop, self.random, self.trace, self.violated)
        self.workers: list[SimulatedWorker | None] = []
        self.started = 0
        #: How often the part of a response breaks its connection.
        self.breaks = 0.0
        #: Whether requests go through the interface of the package's own HTTP server, or through plain ASGI.
        self.direct = self.random.random() < 0.5
        #: How often each handler ran, by the key of the call.
        self.ran: dict[str, int] = {}
        #: The tool of each task that was created, by its key.
        self.jobs: dict[str, str] = {}
        #: The keys of the tasks whose handlers have returned.
        self.completed: set[str] = set()
        #: The worker at which each tick happened.
        self.ticks: dict[int, SimulatedWorker] = {}
        #: When each tick happened, and when each of them was about to happen.
        self.ticked_at: dict[int, float] = {}
        self.tick_times: dict[int, float] = {}
        #: When each resource changed.
        self.touched: dict[str, list[float]] = {}
        #: The ticks that died with a worker before they were stored, and those that were lost with other writes.
        self.unannounced: set[int] = set()
        self.lost_ticks: set[int] = set()
        self.slowest_refusal = 0.0
        #: When a worker crashed last.
        self.crashed_at = -1.0
        #: Whether nothing fails in this run.
        self.calm = False
        #: How often something larger fails: a worker, a connection, the store.
        self.mischief = 0.0
        #: The limit that all clients share.
        self.rate, self.burst = 2.0, 3
        #: Reads session ids, as every worker does.
        self.ids: SessionIds | None = None

    # --- observing ---------------------------------------------------------------------------------------------------

    def trace(self, text: str, *args: object) -> None:
        """Add a line to the trace, if there is one."""
        if self.lines is not None:
            from tests.simulation.loop import current_actor

            try:
                name = current_actor().name
            except LookupError:
                name = "world"
            self.lines.append(f"{self.loop.time():9.4f}  {name:10}  {text % args if args else text}")

    def violated(self, text: str) -> None:
        """Record that an invariant does not hold."""
        if self.loop.is_closed():
            # What is closed at the end runs its handlers once more; nothing of it counts.
            return
        self.trace("VIOLATION: %s", text)
        self.violations.append(text)

    def refused(self, seconds: float, headers: dict[bytes, bytes]) -> None:
        """Check a refusal: it comes in time, and says when to try again."""
        self.slowest_refusal = max(self.slowest_refusal, seconds)
        if b"retry-after" not in headers:
            self.violated("503 without Retry-After")
        if seconds > REFUSAL_SECONDS:
            self.violated(f"503 after {seconds:.1f} s")

    def next_tick(self) -> int:
        """Return a number that was not announced yet."""
        number = len(self.tick_times) + 1
        self.tick_times[number] = self.loop.time()
        return number

    def next_touches(self) -> list[str]:
        """Return a resource, once for each time that it is to change now."""
        return [RESOURCES[int(self.random.random() * len(RESOURCES))]] * (1 + int(self.random.random() * 3))

    # --- workers -----------------------------------------------------------------------------------------------------

    def start_worker(self, slot: int | None = None) -> SimulatedWorker:
        """Start a worker, in the place of one that crashed."""
        self.started += 1
        worker = SimulatedWorker(self, f"worker{self.started}")
        if slot is None:
            self.workers.append(worker)
        else:
            self.workers[slot] = worker
        self.trace("%s starts", worker.actor.name)
        self.ids = self.ids or worker.ids
        return worker

    def crash_worker(self, slot: int) -> None:
        """Kill the worker in a place."""
        worker = self.workers[slot]
        # One that dies before it has noticed lost writes takes the knowledge of them with it: nobody could notice.
        if worker is not None and not worker.store.has_lost_writes:
            self.trace("%s crashes", worker.actor.name)
            self.workers[slot] = None
            self.crashed_at = self.loop.time()
            waiting = b"\n".join(worker.store.unacknowledged)
            own = {number for number, sender in self.ticks.items() if sender is worker}
            # Those of this very moment may not have been passed on yet.
            self.unannounced |= {
                number for number in own if tick_mark(number) in waiting or self.ticked_at[number] == self.crashed_at
            }
            worker.crash()

    # --- what all of them share ---------------------------------------------------------------------------------------

    def announced(self) -> set[int]:
        """Return the ticks that are stored."""
        text = b"\n".join(entry.data for entry in self.redis.history.get("announcements", []))
        return {number for number in self.ticks if tick_mark(number) in text}

    def changes(self, uri: str) -> list[Entry]:
        """Return the announcements that a resource has changed."""
        return [entry for entry in self.redis.history.get("announcements", ()) if uri.encode() in entry.data]

    def fail_over(self) -> None:
        """Let the store lose writes."""
        before = self.announced()
        self.redis.fail_over()
        self.lost_ticks |= before - self.announced()

    def facts(self, id: bytes) -> SessionFacts:
        """Return what a session id carries, which clients cannot read."""
        assert self.ids is not None
        found = self.ids.read(id.decode())
        assert found is not None
        return found

    def is_terminated(self, key: str) -> bool:
        """Return whether the end of a session is stored."""
        return any(key.encode() in entry.data for entry in self.redis.history.get("terminated", ()))

    # --- the network -------------------------------------------------------------------------------------------------

    def latency(self) -> float:
        """Return how long something is under way between a client and a worker."""
        return 0.0005 + self.random.random() * 0.003

    def request(
        self, client: Actor, method: str, headers: list[tuple[bytes, bytes]], body: bytes, *, slot: int | None = None
    ) -> WireResponse:
        """Send a request to a random worker, or to the one in a place."""
        response = WireResponse(self)
        if slot is None:
            slot = int(self.random.random() * len(self.workers))
        self.loop.schedule(self.actor, self.latency(), self._route, client, slot, (method, headers, body), response)
        return response

    def _route(self, client: Actor, slot: int, request: tuple[str, Any, bytes], response: WireResponse) -> None:
        worker = self.workers[slot]
        if worker is None:
            self.loop.schedule(client, self.latency(), response.arrive, None)
            return
        method, headers, body = request
        wire = _WireRequest(self, worker, client, response, body)
        response.hang_up = wire.hang_up
        response.early = not worker.has_joined
        scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "method": method,
            "path": "/mcp", "raw_path": b"/mcp", "root_path": "", "query_string": b"",
            "headers": [(b"host", b"127.0.0.1:8000"), *headers], "server": ("127.0.0.1", 8000), "client": None,
        }  # fmt: skip
        if self.direct:
            scope[CONNECTION_KEY] = wire
        self.loop.start(worker.actor, wire.serve(scope))

    def quiet(self) -> None:
        """End all faults: what goes on from here on must come to an end."""
        self.trace("no more faults")
        self.redis.faults = Faults()
        self.breaks = 0.0


logging.getLogger("trunkline").addHandler(logging.NullHandler())
