"""One event loop's life of a server: what serving needs, and what ends with it.

A ``Server`` is a definition and owns nothing of an event loop or a process. A runtime serves one definition in one
event loop: ``run``, ``serve``, ``asgi`` and ``accept`` find it by the running loop, or make it. So all connections of a
definition in one loop share handles, tasks, store and listeners, and two loops in two threads have a runtime each::

    start   runtime_for(server)    the store is chosen; timers, and the hub of changes
              |                    (threads, tasks, seal and handles: on first use)
            state.start()          the store is connected, if it is not the memory of this process
              |
    serve   accept(link) <---+     lifespans are entered for the first connection; requests are served
              |              |     replace(new): the definition is swapped; connections, streams and tasks stay,
              |              |     running requests finish with the old one, whose lifespans are exited after the last
              +--------------+
              |
    drain   begin_drain()          new requests are rejected, subscriptions end with a result
            drain(seconds)         running tasks finish, or remain for the next process
              |
    stop    connections close      their lifespans are exited, the last first
            aclose()               tasks are stopped, threads end, the store is disconnected

A definition knows its runtimes weakly, to pass changes on, and its connections, acceptors and running tasks keep a
runtime alive; so a loop that has ended leaves nothing. What a definition stored in the memory of this process is not
part of a runtime: it stays for the next loop, and two loops that serve at the same time share it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, finalize

from msgspec import Struct

from trunkline.connection import Connection
from trunkline.protocol.caller import Session
from trunkline.server.dispatch import ServerConnection
from trunkline.server.lifespan import HeldLifespans, Lifespan
from trunkline.server.subscriptions import ChangeHub, ChangeRelay, Subscriber, SubscriptionStream
from trunkline.service import TaskFactory
from trunkline.timers import Timers
from trunkline.transports.link import Link

if TYPE_CHECKING:
    import contextvars

    from trunkline.protocol.limits import Limits
    from trunkline.server.dispatch_table import DispatchTable
    from trunkline.server.handle_service import HandleService
    from trunkline.server.request_state import StateSeal
    from trunkline.server.server import Server
    from trunkline.server.tasks.leases import TaskRunner
    from trunkline.server.tasks.service import Tasks
    from trunkline.server.telemetry import ServerMetrics
    from trunkline.server.worker_pool import WorkerPool
    from trunkline.store.server_store import ServerStore, StoreOption
    from trunkline.telemetry.requests import RequestTelemetry

__all__ = ["ProcessState", "ServerRuntime", "current_runtime", "has_shared_store", "runtime_for", "server_store"]

log = logging.getLogger("trunkline")


class ProcessState:
    """What one process has of a definition, whatever the event loop: it outlives the runtimes."""

    __slots__ = ("runners", "running", "runtimes", "store")

    def __init__(self) -> None:
        """Start with nothing: the first runtime fills it."""
        #: The runtimes that serve the definition, or served it until it was replaced.
        self.runtimes: WeakSet[ServerRuntime] = WeakSet()
        #: Has an engine for each event loop, or the memory for all.
        self.store: ServerStore | None = None
        #: Those that run, or ran, tasks of the definition, by name.
        self.runners: dict[str, TaskRunner] = {}
        #: Running tasks: without a reference they may be garbage-collected, with the runtime that they use.
        self.running: set[asyncio.Task[Any]] = set()


class ServerRuntime:
    """What serves one definition in one event loop."""

    def __init__(self, definition: Server) -> None:
        """Create the runtime of a definition in the running event loop; use ``runtime_for``."""
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.process: int = os.getpid()
        self.timers: Timers = Timers(definition.settings.clock)
        self.hub: ChangeHub = definition._make_hub()
        #: Observes requests: metrics, spans, log lines; None as long as nothing does.
        self.telemetry: RequestTelemetry | None = None
        #: The metrics, if they are served.
        self.metrics: ServerMetrics | None = None
        #: Whether the server is stopping: running requests finish, new ones are rejected.
        self.draining: bool = False
        self.closed: bool = False
        #: Notification handlers that are still running: a task without a reference may be garbage-collected.
        self.running_handlers: set[asyncio.Future[Any]] = set()
        #: The lifespans that were entered in this loop, also those of mounted servers.
        self._lifespans: dict[Server, Lifespan] = {}
        #: Those in use of definitions that were replaced, and still have running requests.
        self.retired: dict[Server, HeldLifespans] = {}
        #: The worker threads of sync functions; started by the first call of one.
        self.pool: WorkerPool | None = None
        self._state: ServerStore | None = None
        self._seal: StateSeal | None = None
        self._handles: HandleService | None = None
        self._tasks: Tasks | None = None
        #: The lifespans in use, by holder.
        self.held: HeldLifespans = self.lifespans_of(definition)
        self._use(definition)

    def _use(self, definition: Server) -> None:
        self.definition: Server = definition
        self.table: DispatchTable = definition.table
        self.limits: Limits = definition.limits
        with definition._lock:
            definition._process.runtimes.add(self)

    def replace(self, definition: Server, held: HeldLifespans) -> None:
        """Serve the next requests with another definition, of which these lifespans are entered already.

        Open connections, streams and tasks stay; running requests finish with the old definition. What was stored and
        sealed stays valid if both definitions name the same store and keys.
        """
        before, holders = self.definition, [holder for holder in self.held.holders if not self.is_task(holder)]
        self.retired[before], self.held = self.held, held
        self._use(definition)
        self._keep_state(before)
        for holder in holders:
            if isinstance(holder, Connection) and isinstance(holder.service, ServerConnection):
                holder.service.table = self.table
            held.add(holder)

    def forget(self, definition: Server) -> None:
        """Forget a definition whose last request has finished, or that is not served after all."""
        self.retired.pop(definition, None)
        for server in {*definition._all()}.difference(self.definition._all()):
            self._lifespans.pop(server, None)

    def _keep_state(self, before: Server) -> None:
        """Use the store of the definition before, unless this one names another, or other keys."""
        old, new = before.settings, self.definition.settings
        state = before._process.store if self._state is None else self._state
        if (old.store, old.state_keys) == (new.store, new.state_keys):
            if state is not None:
                self._state = self.definition._process.store = state
            return
        # The store that was given to this run stays.
        option = None if state is None or state.option == old.store else state.option
        self._state, self._seal, self._handles = server_store(self.definition, option), None, None
        if self._tasks is not None:
            self._tasks.close()
            self._tasks = None

    # --- connections -------------------------------------------------------------------------------------------------

    def accept(
        self,
        link: Link,
        service: ServerConnection | None = None,
        *,
        prefix: str = "",
        create_task: TaskFactory | None = None,
    ) -> Connection:
        """Start serving a link and return at once."""
        if service is None:
            self.definition._check_apps()
            self.find_telemetry()
            service = ServerConnection(self)
        connection = Connection(
            link, service, limits=self.limits, timers=self.timers, prefix=prefix, create_task=create_task
        )
        service.connection = connection
        self.hold(connection)
        connection.cleanup = self._clean_up
        connection.start()
        return connection

    async def _clean_up(self, connection: Connection) -> None:
        """Clean up after a connection has ended."""
        assert isinstance(connection.service, ServerConnection)
        self.hub.detach(connection.service)
        await connection.aclose()
        await self.held.release(connection)
        self.definition._connection_ended(connection)

    def find_telemetry(self) -> None:
        """Observe requests from now on if the program traces, or its log lines name requests; once for a connection."""
        traces = "opentelemetry.trace" in sys.modules and _program_traces()
        logs = any(getattr(handler, "shows_requests", False) for handler in logging.root.handlers)
        if traces or logs:
            from trunkline.server.telemetry import observe_requests

            observe_requests(self, traces=traces, logs=logs)

    # --- lifespans ---------------------------------------------------------------------------------------------------

    def hold(self, holder: object) -> list[Lifespan]:
        """Enter the lifespans for a holder, which serves one connection or several, until it is released."""
        if self.tasks is not None:
            self.tasks.start()
        return self.held.add(holder)

    async def enter_lifespans(self, definition: Server, holder: object) -> None:
        """Wait until the lifespans of a definition, with what was mounted since, are entered for a holder."""
        held = self.retired.get(definition, self.held)
        held.acquire(holder)
        await held.entered(holder)

    def _lifespan(self, definition: Server) -> Lifespan | None:
        """Return the lifespan of a definition, which all its users in this event loop share; None if it has none."""
        if definition._lifespan is None:
            return None
        lifespan = self._lifespans.get(definition)
        if lifespan is None:
            for runtime in _serving(definition):
                lifespan = lifespan or runtime._lifespans.get(definition)
            lifespan = self._lifespans[definition] = lifespan or Lifespan(definition._lifespan)
        return lifespan

    def lifespans_of(self, definition: Server) -> HeldLifespans:
        """Return the lifespans of a definition and of everything mounted in it, without a holder."""
        return HeldLifespans(definition, self._lifespan)

    def is_task(self, holder: object) -> bool:
        """Return True if a holder of lifespans is a running task, which releases them itself."""
        return self._tasks is not None and holder in self._tasks.holders

    def lifespans(self) -> list[Lifespan]:
        """Return the lifespans of the definition, and of everything mounted in it by now."""
        return [lifespan for server in self.definition._all() if (lifespan := self._lifespan(server)) is not None]

    def lifespan_value(self, definition: Server | None = None) -> Any:
        """Return the value that the lifespan of the definition, or of a mounted one, yielded."""
        lifespan = self._lifespans.get(definition or self.definition)
        return None if lifespan is None else lifespan.value

    # --- what is made on first use -----------------------------------------------------------------------------------

    @property
    def state(self) -> ServerStore:
        """The store of everything that outlives a request, and the server's keys."""
        if self._state is None:
            self._state = server_store(self.definition)
        return self._state

    def use_store(self, option: StoreOption) -> None:
        """Use the store of a run instead of the one in the definition; before anything is stored."""
        if option is None:
            return
        state = server_store(self.definition, option)
        if state is not self._state:
            self._state, self._seal, self._handles = state, None, None

    @property
    def seal(self) -> StateSeal:
        """Seals and opens request state."""
        if self._seal is None:
            import time

            from trunkline.server.request_state import StateSeal

            self._seal = StateSeal(self.state, limits=self.limits, now=time.time, random=os.urandom)
        return self._seal

    @property
    def handles(self) -> HandleService:
        """The handle service, also of servers mounted in this one."""
        if self._handles is None:
            from trunkline.server.handle_service import HandleService

            self._handles = HandleService(self.state, limits=self.limits)
        return self._handles

    @property
    def tasks(self) -> Tasks | None:
        """Runs calls as tasks; None if the definition has no tool with ``task=``."""
        if self._tasks is None and self.table.task_settings is not None:
            from trunkline.server.tasks.service import Tasks

            self._tasks = Tasks(self, self.table.task_settings)
        return self._tasks

    def submit(
        self, function: Callable[..., object], kwargs: Mapping[str, object], context: contextvars.Context | None = None
    ) -> asyncio.Future[Any]:
        """Call a sync function in a worker thread and return the future of its result."""
        return (self.pool or self.start_pool()).submit(function, kwargs, context)

    def start_pool(self) -> WorkerPool:
        """Create the worker threads, for the first call of a sync function."""
        from trunkline.server.worker_pool import WorkerPool

        self.pool = pool = WorkerPool(self.limits.threads)
        finalize(self, pool.close)
        if self.closed:
            pool.close()
        return pool

    # --- clients -----------------------------------------------------------------------------------------------------

    def notify(self, method: str, params: Struct | Mapping[str, object] | None, relays: Sequence[ChangeRelay]) -> None:
        """Send a custom notification to the handshake clients of this event loop, and to those that relays reach."""
        from trunkline.server.extension_methods import may_notify

        for listener in self.hub.listeners():
            if not isinstance(listener, ServerConnection) or listener.hears_announcements or listener.session is None:
                continue
            if may_notify(self.definition, listener.session.caller, method):
                listener.notify(method, params)
        for relay in relays:
            relay.notification(method, params)

    def subscribers(self) -> list[Subscriber]:
        """Return the clients that are connected now and can be notified of changes."""
        return [each for each in self.hub.listeners() if isinstance(each, ServerConnection | SubscriptionStream)]

    def subscriber(self, session: Session) -> Subscriber | None:
        """Return the subscriber of a session; None once it has ended."""
        return next((each for each in self.subscribers() if each.session is session), None)

    # --- the end -----------------------------------------------------------------------------------------------------

    def begin_drain(self) -> None:
        """End all subscriptions with a result: they would never finish; new requests are rejected from now on."""
        self.draining = True
        self.hub.end("the server is shutting down")

    async def drain(self, seconds: float) -> None:
        """Wait, with a timeout, for running tasks that would end with the process."""
        if self._tasks is not None:
            await self._tasks.drain(seconds)

    def close(self) -> None:
        """End all subscriptions and stop the worker threads; a later connection gets a new runtime."""
        self.hub.end("the server is shutting down")
        self.closed = True
        if self._tasks is not None:
            self._tasks.close()
        if self.pool is not None:
            self.pool.close()

    async def aclose(self) -> None:
        """Close, and wait until running tasks are stopped and the store is closed."""
        self.close()
        if self._tasks is not None:
            await self._tasks.aclose()
        if self._state is not None:
            await self._state.aclose()


def runtime_for(server: Server) -> ServerRuntime:
    """Return the runtime that serves a definition in the running event loop; it is made if there is none."""
    return _own_runtime(server, asyncio.get_running_loop()) or ServerRuntime(server)


def current_runtime(server: Server) -> ServerRuntime:
    """Return the runtime that serves a definition in the running event loop, by itself or as part of another.

    Raises:
        RuntimeError: it is not served there.
    """
    runtime = next(iter(_serving(server)), None)
    if runtime is None:
        raise RuntimeError(f"the server {server.name!r} is not served in this event loop")
    return runtime


def _own_runtime(server: Server, loop: asyncio.AbstractEventLoop) -> ServerRuntime | None:
    """Return the runtime of a definition in an event loop; of a replaced one, that of its successor."""
    open_here = [each for each in server._known_runtimes() if each.loop is loop and not each.closed]
    return next((each for each in open_here if each.definition is server), open_here[0] if open_here else None)


def _serving(server: Server) -> list[ServerRuntime]:
    """Return the runtimes of the running loop that serve a definition: its own first, then those it is part of."""
    own = _own_runtime(server, asyncio.get_running_loop())
    parents = [runtime for parent in server._parents for runtime in _serving(parent)]  # type: ignore[arg-type]
    return parents if own is None else [own, *parents]


def server_store(server: Server, option: StoreOption = None) -> ServerStore:
    """Return the store of a definition in this process; with an option, of a run that uses another one."""
    store = server._process.store
    if store is None or (option is not None and option != store.option):
        from trunkline.store.server_store import ServerStore

        chosen = server.settings.store if option is None else option
        store = server._process.store = ServerStore(chosen, name=server.name, keys=server.settings.state_keys)
    return store


def has_shared_store(server: Server) -> bool:
    """Return True if other processes may use the store of a definition too: any but the memory of this one."""
    store = server._process.store
    return server.settings.store is not None if store is None else store.is_shared


def _program_traces() -> bool:
    """Return whether the program uses the OpenTelemetry that is loaded.

    redis-py loads it where it is installed: with a Redis store it counts only if the program has set it up.
    """
    if "trunkline.store.redis" not in sys.modules:
        return True
    trace = sys.modules["opentelemetry.trace"]
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
