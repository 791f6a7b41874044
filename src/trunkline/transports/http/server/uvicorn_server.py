"""A uvicorn server with a graceful shutdown: it rejects new requests, drains, closes, and returns.

One of several workers retires first: other workers accept what is new, and each client that has a connection here may
send one more request on it, whose response says ``Connection: close``. A connection closed under a client that is about
to send would lose a call which HTTP does not let the client send again.

It knows uvicorn and the application's two interfaces (ASGI, and ``drain``), no HTTP and no messages. Uvicorn raises the
signal again that stopped it, logs a failed start instead of raising it, has no drain, and polls ten times a second
whether it should stop; here a signal or the program sets one event, and a second signal another that ends every wait.
Only names without an underscore are overridden: ``capture_signals``, ``startup``, ``main_loop`` and ``shutdown``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, MutableMapping
from types import FrameType
from typing import Any, Protocol, runtime_checkable

import uvicorn

from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.connection_tracker import ConnectionTracker
from trunkline.transports.http.server.worker_process import ConnectionAcceptor, WorkerProcess

__all__ = ["DrainableApp", "DrainingServer", "StreamingApp", "UvicornLifespan"]

log = logging.getLogger("trunkline.transports")

#: How long to wait for cancelled tasks to end and for the last bytes to be sent.
GRACE_SECONDS = 1.0
#: Seconds between two looks at the connections of a worker that retires.
_RETIRE_TICK_SECONDS = 0.1
#: Seconds between two updates of the ``Date`` header.
TICK_SECONDS = 1.0

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class DrainableApp(Protocol):
    """An ASGI application that can be drained."""

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Serve one ASGI scope: ``http`` or ``lifespan``."""

    async def drain(self, seconds: float) -> None:
        """Reject new requests and let those in flight finish; cancel the rest after so many seconds."""


@runtime_checkable
class StreamingApp(DrainableApp, Protocol):
    """An application with streams that do not end by themselves."""

    def end_streams(self) -> None:
        """End them; their clients open them again, at another worker."""


class UvicornLifespan:
    """The lifespan of the application, with uvicorn's interface; a failed start raises."""

    def __init__(self, config: uvicorn.Config) -> None:
        """Use the application of the configuration."""
        self.state: dict[str, Any] = {}
        self.should_exit = False
        self._app = config.loaded_app
        self._task: asyncio.Task[None] | None = None
        self._to_app: asyncio.Queue[_Message] = asyncio.Queue()
        self._from_app: asyncio.Queue[_Message] = asyncio.Queue()

    async def startup(self) -> None:
        """Start the application.

        Raises:
            ConfigError: it reported that it cannot start. An exception of its own is raised unchanged.
        """
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        self._task = asyncio.create_task(self._app(scope, self._to_app.get, self._from_app.put))
        event = await self._exchange("lifespan.startup")
        if event is not None and event["type"] == "lifespan.startup.failed":
            await self.abandon()
            if not self._task.cancelled() and (failure := self._task.exception()):
                raise failure
            raise ConfigError(f"The application did not start: {event.get('message') or 'it does not say why'}")
        if event is None:
            self._task.result()

    async def shutdown(self) -> None:
        """Shut the application down; errors are logged, since everything else has already ended."""
        if self._task is None or self._task.done():
            return
        event = await self._exchange("lifespan.shutdown")
        if event is not None and event["type"] == "lifespan.shutdown.failed":
            log.error("the application did not shut down cleanly: %s", event.get("message", ""))
        await self.abandon()

    async def abandon(self) -> None:
        """Wait a moment for the application's task, then cancel it."""
        if self._task is None:
            return
        # It has sent its last event, or never will: a turn of the loop is enough for one that returns by itself.
        await asyncio.wait([self._task], timeout=GRACE_SECONDS / 10)
        self._task.cancel()
        await asyncio.wait([self._task], timeout=GRACE_SECONDS)
        if self._task.done() and not self._task.cancelled() and (failure := self._task.exception()):
            log.debug("the application ended with an error", exc_info=failure)

    async def _exchange(self, kind: str) -> _Message | None:
        """Send an event to the application; return its reply, or None if it returned without one."""
        assert self._task is not None
        await self._to_app.put({"type": kind})
        reply = asyncio.create_task(self._from_app.get())
        try:
            await asyncio.wait([self._task, reply], return_when=asyncio.FIRST_COMPLETED)
            if not reply.done() and not self._from_app.empty():
                await asyncio.wait([reply])
            return reply.result() if reply.done() else None
        finally:
            reply.cancel()


class DrainingServer(uvicorn.Server):
    """Serves an application until it is stopped, then drains it."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: DrainableApp,
        *,
        tracker: ConnectionTracker,
        limits: Limits,
        stopping: asyncio.Event,
    ) -> None:
        """Use a loaded configuration; setting ``stopping`` stops the server."""
        super().__init__(config)
        self.stopping = stopping
        #: Set by a second signal: all waits end.
        self.exit_now = asyncio.Event()
        #: Called once connections are accepted.
        self.on_started: Callable[[], None] = lambda: None
        #: What this process has of its supervisor, if it is one of several workers.
        self.worker: WorkerProcess | None = None
        self._acceptor: ConnectionAcceptor | None = None
        self._opening: set[asyncio.Task[Any]] = set()
        #: Whether SIGINT and SIGTERM stop this server.
        self.handles_signals = True
        self._app = app
        self._tracker = tracker
        self._limits = limits

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop this server on SIGINT and SIGTERM, in the main thread; restore the previous handlers at the end."""
        if not self.handles_signals or threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()

        def on_signal(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self._stop)

        names = ("SIGINT", "SIGTERM", "SIGBREAK")
        before = {number: signal.signal(number, on_signal) for name in names if (number := getattr(signal, name, None))}
        try:
            yield
        finally:
            for number, previous in before.items():
                # None: it was not set from Python, and cannot be restored from there.
                signal.signal(number, signal.SIG_DFL if previous is None else previous)

    def _stop(self) -> None:
        (self.exit_now if self.stopping.is_set() else self.stopping).set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept connections; a signal before that stops the server."""
        done = False
        try:
            done = await finished_before(self.stopping, super().startup(sockets))
            if done and self.worker is not None:
                self._accept_connections(self.worker)
        finally:
            if not done:
                self.should_exit = True
                self._close_listeners()
                await self.lifespan.abandon()

    async def main_loop(self) -> None:
        """Serve until stopped."""
        try:
            self.on_started()
            while not self.stopping.is_set() and not await self.on_tick(0):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_SECONDS):
                        await self.stopping.wait()
        except BaseException:
            self.stopping.set()
            self.exit_now.set()
            await self.shutdown()
            raise

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, drain the application, close the connections, and shut the application down."""
        self.stopping.set()
        self._close_listeners()
        until = asyncio.get_running_loop().time() + self._limits.drain_seconds
        if self.worker is not None:
            await finished_before(self.exit_now, self._retire(until))
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        await finished_before(self.exit_now, self._drain(until))
        await self._cancel_tasks()
        await self._close_connections()
        await finished_before(self.exit_now, self._end_application())
        await self.lifespan.abandon()
        if self.worker is not None:
            self.worker.stop()

    # --- one of several workers --------------------------------------------------------------------------------------

    def _accept_connections(self, worker: WorkerProcess) -> None:
        """Accept connections beside the other workers; stop when the supervisor is gone."""
        loop, config = asyncio.get_running_loop(), self.config

        def make_protocol() -> asyncio.Protocol:
            state = {"server_state": self.server_state, "app_state": self.lifespan.state}
            return config.http_protocol_class(config=config, **state)  # type: ignore[call-arg]

        async def open_connection(connection: socket.socket) -> None:
            try:
                await loop.connect_accepted_socket(make_protocol, connection, ssl=config.ssl)
            except (OSError, TimeoutError) as error:
                # The client has gone, or its TLS handshake failed.
                log.debug("a connection was not opened: %s", error)
                connection.close()

        def accepted(connection: socket.socket) -> None:
            task = loop.create_task(open_connection(connection))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

        self._tracker.on_count = worker.row.count
        self._acceptor = ConnectionAcceptor(worker, accepted)
        worker.start(self.stopping.set)
        self._acceptor.start()

    async def _retire(self, until: float) -> None:
        """Answer one more request on each connection, and close those that stay silent."""
        loop, tracker = asyncio.get_running_loop(), self._tracker
        tracker.retire()
        while (self._opening or tracker.connections) and loop.time() < until:
            # Again and again: a client may open its stream with the last request of its connection.
            if isinstance(self._app, StreamingApp):
                self._app.end_streams()
            tracker.close_silent(self._limits.retire_seconds)
            await asyncio.sleep(_RETIRE_TICK_SECONDS)

    def _close_listeners(self) -> None:
        if self._acceptor is not None:
            self._tracker.on_count = None
            self._acceptor.close()
        for server in getattr(self, "servers", ()):
            server.close()

    async def _drain(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        seconds = max(0.0, until - loop.time())
        try:
            async with asyncio.timeout(seconds + GRACE_SECONDS):
                await self._app.drain(seconds)
        except Exception:
            log.exception("the application could not be drained")
        # Request tasks the application does not wait for, such as one writing the last bytes of a response, get the
        # remaining time.
        if self.server_state.tasks:
            await asyncio.wait(tuple(self.server_state.tasks), timeout=max(until - loop.time(), GRACE_SECONDS / 2))

    async def _cancel_tasks(self) -> None:
        left = tuple(self.server_state.tasks)
        if not left:
            return
        log.warning("stopped %d request(s) that did not finish in time", len(left))
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=GRACE_SECONDS)

    async def _close_connections(self) -> None:
        for connection in tuple(self._tracker.connections):
            connection.transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._tracker.empty.wait()
        for connection in tuple(self._tracker.connections):
            connection.transport.abort()

    async def _end_application(self) -> None:
        try:
            async with asyncio.timeout(max(self._limits.drain_seconds, GRACE_SECONDS)):
                await self.lifespan.shutdown()
        except TimeoutError:
            log.error("the application did not shut down in time")


async def finished_before(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run a coroutine until it is done or an event is set, which cancels it; return whether it was done."""
    task = asyncio.create_task(work)
    waiter = asyncio.create_task(event.wait())
    try:
        await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return True
        return False
    finally:
        waiter.cancel()
        task.cancel()
        await asyncio.wait([task, waiter], timeout=GRACE_SECONDS)
