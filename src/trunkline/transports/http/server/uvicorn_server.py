"""A uvicorn server that stops as it should: it refuses, drains, closes, and returns.

It knows uvicorn and the application's two faces (ASGI, and ``drain``), no HTTP and no messages. Uvicorn raises the
signal again that stopped it, logs a failed start instead of raising it, knows no drain, and looks ten times a second
whether it should stop; here signals and a program set one event, and a second signal another that ends every wait. Only
names without an underscore are overridden: ``capture_signals``, ``startup``, ``main_loop`` and ``shutdown``.
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
from typing import Any, Protocol

import uvicorn

from trunkline.errors import ConfigError
from trunkline.protocol.limits import Limits
from trunkline.transports.http.server.uvicorn_protocol import ConnectionTracker

__all__ = ["DrainableApp", "DrainingServer", "UvicornLifespan"]

log = logging.getLogger("trunkline.transports")

#: Time for cancelled tasks to end and for the last bytes to leave, after which nobody waits any more.
GRACE_SECONDS = 1.0
#: Between two looks at the date that answers carry.
TICK_SECONDS = 1.0

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]


class DrainableApp(Protocol):
    """An ASGI application that can be told to finish."""

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Serve one ASGI scope: ``http`` or ``lifespan``."""

    async def drain(self, seconds: float) -> None:
        """Refuse new work and let what is in flight finish; cancel what is left after so long."""


class UvicornLifespan:
    """The application's own start and end, in the shape that uvicorn asks for; a failed start raises."""

    def __init__(self, config: uvicorn.Config) -> None:
        """Take the application from the configuration."""
        self.state: dict[str, Any] = {}
        self.should_exit = False
        self._app = config.loaded_app
        self._task: asyncio.Task[None] | None = None
        self._inbox: asyncio.Queue[_Message] = asyncio.Queue()
        self._said: asyncio.Queue[_Message] = asyncio.Queue()

    async def startup(self) -> None:
        """Start the application.

        Raises:
            ConfigError: it said that it cannot start. What it raised itself comes out as it is.
        """
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        self._task = asyncio.create_task(self._app(scope, self._inbox.get, self._said.put))
        said = await self._exchange("lifespan.startup")
        if said is not None and said["type"] == "lifespan.startup.failed":
            await self.abandon()
            if not self._task.cancelled() and (failure := self._task.exception()):
                raise failure
            raise ConfigError(f"The application did not start: {said.get('message') or 'it does not say why'}")
        if said is None:
            self._task.result()

    async def shutdown(self) -> None:
        """End the application; what goes wrong now is logged, since everything else is over."""
        if self._task is None or self._task.done():
            return
        said = await self._exchange("lifespan.shutdown")
        if said is not None and said["type"] == "lifespan.shutdown.failed":
            log.error("the application did not shut down cleanly: %s", said.get("message", ""))
        await self.abandon()

    async def abandon(self) -> None:
        """Wait a moment for the application's task, then cancel it."""
        if self._task is None:
            return
        # It has said its last word, or never will: a turn of the loop is enough for one that returns by itself.
        await asyncio.wait([self._task], timeout=GRACE_SECONDS / 10)
        self._task.cancel()
        await asyncio.wait([self._task], timeout=GRACE_SECONDS)
        if self._task.done() and not self._task.cancelled() and (failure := self._task.exception()):
            log.debug("the application ended with an error", exc_info=failure)

    async def _exchange(self, kind: str) -> _Message | None:
        """Tell the application something; give its word, or nothing if it returned without one."""
        assert self._task is not None
        await self._inbox.put({"type": kind})
        word = asyncio.create_task(self._said.get())
        try:
            await asyncio.wait([self._task, word], return_when=asyncio.FIRST_COMPLETED)
            if not word.done() and not self._said.empty():
                await asyncio.wait([word])
            return word.result() if word.done() else None
        finally:
            word.cancel()


class DrainingServer(uvicorn.Server):
    """Serves an application until it is told to stop, then lets it finish."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: DrainableApp,
        *,
        watch: ConnectionTracker,
        limits: Limits,
        stopping: asyncio.Event,
    ) -> None:
        """Take a loaded configuration; ``stopping`` may be set by anyone."""
        super().__init__(config)
        self.stopping = stopping
        #: Set by a second signal: nothing is waited for any more.
        self.exit_now = asyncio.Event()
        #: Called once connections are accepted.
        self.on_started: Callable[[], None] = lambda: None
        self._app = app
        self._watch = watch
        self._limits = limits

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM stop this server while it runs, in the main thread; then put back what was there."""
        if threading.current_thread() is not threading.main_thread():
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
                # None: it was not set from Python, and cannot be put back from there.
                signal.signal(number, signal.SIG_DFL if previous is None else previous)

    def _stop(self) -> None:
        (self.exit_now if self.stopping.is_set() else self.stopping).set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept connections; a signal before that ends it all."""
        done = False
        try:
            done = await finished_before(self.stopping, super().startup(sockets))
        finally:
            if not done:
                self.should_exit = True
                self._close_listeners()
                await self.lifespan.abandon()

    async def main_loop(self) -> None:
        """Serve until told to stop."""
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
        """Accept nothing more, let the application finish, close what is open, end the application."""
        self.stopping.set()
        self._close_listeners()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        await finished_before(self.exit_now, self._drain())
        await self._cancel_tasks()
        await self._close_connections()
        await finished_before(self.exit_now, self._end_application())
        await self.lifespan.abandon()

    def _close_listeners(self) -> None:
        for server in getattr(self, "servers", ()):
            server.close()

    async def _drain(self) -> None:
        seconds = self._limits.drain_seconds
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        try:
            async with asyncio.timeout(seconds + GRACE_SECONDS):
                await self._app.drain(seconds)
        except Exception:
            log.exception("the application could not be drained")
        # What it does not count as its work, such as the last bytes of an answer, has what is left of the time.
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
        for connection in tuple(self._watch.connections):
            connection.transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._watch.empty.wait()
        for connection in tuple(self._watch.connections):
            connection.transport.abort()

    async def _end_application(self) -> None:
        try:
            async with asyncio.timeout(max(self._limits.drain_seconds, GRACE_SECONDS)):
                await self.lifespan.shutdown()
        except TimeoutError:
            log.error("the application did not shut down in time")


async def finished_before(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run something until it is done or an event is set, which cancels it; say whether it was done."""
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
