"""The broker: the process that owns the stdio servers of a gateway with several workers.

It supervises them as a host does by itself (trust, start, health, restart), reports their state to the workers, and
lets workers use their processes: the shared connection of a server, and one process for each session that needs its
own, whichever worker serves that session. Such a process outlives the connection of a worker for as long as an idle one
is kept, since the next request of its session may reach another worker.

The socket is in a folder that only the user can access, and the kernel names the user of each connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from trunkline.client.options import ClientState
from trunkline.client.targets import Target
from trunkline.errors import ServerUnavailable, TooManyRequests, TrunklineError
from trunkline.host.config.model import ServerEntry
from trunkline.host.core import HostCore
from trunkline.host.events import ServerStateChanged
from trunkline.host.upstreams.broker.messages import (
    ENDED,
    Announce,
    Answer,
    Command,
    Hello,
    ListsChanged,
    PushedMessage,
    ServerSnapshot,
    Welcome,
    read_hello,
    refusal_of,
    send_frame,
)
from trunkline.host.upstreams.broker.multiplexer import LocalParticipant, Multiplexer, Participant
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.routing.active_calls import ConcurrencyLimiter
from trunkline.host.upstreams.supervision.clients import make_client
from trunkline.host.upstreams.supervision.sharing import ProcessSharing
from trunkline.host.upstreams.supervision.state import UpstreamState
from trunkline.host.upstreams.supervision.upstream import Upstream
from trunkline.protocol.caller import Origin
from trunkline.protocol.jsonrpc import Incoming, Message, Notification, Outbound
from trunkline.store.local import is_own_peer, pack_frame, read_frame, serve_store
from trunkline.store.memory import MemoryContents
from trunkline.transports.link import Link
from trunkline.transports.pipes import PipeLink
from trunkline.types import RequestId

__all__ = ["Broker", "OwnedProcesses"]

log = logging.getLogger("trunkline.host")

_HELLO_SECONDS = 5.0  # A worker sends its first message at once.
#: Changed lists are announced when all workers have them, or after so many seconds: a worker may be starting.
_ANNOUNCE_SECONDS = 1.0
_BACKLOG = 128  # Connections of all workers that open at once.
#: Bytes that wait to be read by a worker before it is disconnected: it has hung.
_MOST_UNREAD = 256 * 1024 * 1024


class OwnedProcesses(ProcessSharing):
    """The server processes of the broker; workers can join the shared connection of each."""

    def __init__(self) -> None:
        """Start without processes."""
        self._count = 0
        #: The process of each server's shared connection: its number, and the multiplexer.
        self.shared: dict[str, tuple[int, Multiplexer]] = {}
        self._limiters: WeakKeyDictionary[UpstreamState, ConcurrencyLimiter] = WeakKeyDictionary()

    def has_server(self, entry: ServerEntry) -> bool:
        """Return whether the broker has a server: it has those that are processes, or would be."""
        return entry.url is None and entry.target is None

    def share(self, state: UpstreamState, target: Target) -> Target:
        """Return a target that starts the process and joins it as its owner."""

        async def start() -> Link:
            multiplexer = Multiplexer(await target.open(), limiter=self.limiter(state), on_activity=_activity_of(state))
            self._count += 1
            self.shared[state.entry.name] = (self._count, multiplexer)
            return LocalParticipant(multiplexer)

        return replace(target, open=start)

    def limiter(self, state: UpstreamState) -> ConcurrencyLimiter:
        """Return what limits the concurrent calls of a server, on all of its connections."""
        most = state.entry.settings.concurrency
        limiter = self._limiters.get(state)
        if limiter is None:
            limiter = self._limiters[state] = ConcurrencyLimiter(most)
        if limiter.most != most:
            limiter.most = most
        return limiter


def _activity_of(state: UpstreamState) -> Callable[[int], None]:
    """Return a function that records calls of workers: a server in use is not idle, and an answer shows life."""

    def note(change: int) -> None:
        now = state.now()
        if change < 0 or not state.active_calls:
            state.last_activity_at = now
        state.active_calls += change
        state.used_at = now

    return note


class _SocketParticipant(Participant):
    """A worker on one connection to a server process."""

    def __init__(self, connection: socket.socket, name: str, on_left: Callable[[], None]) -> None:
        super().__init__()
        read_fd = connection.detach()
        self._link = PipeLink(read_fd, os.dup(read_fd))
        self._name = name
        self._on_left = on_left
        self._closing: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._link.attach(self)

    def deliver(self, message: Message) -> None:
        if self._link.unsent_bytes > _MOST_UNREAD:
            log.error("a worker does not read what %s sends, and is disconnected", self._name)
            self._left()
        else:
            self._link.send([Outbound(message)])

    def ended(self, error: Exception | None) -> None:
        if error is not None:
            params = Raw(msgspec.json.encode(refusal_of(error)))
            self._link.send([Outbound(Notification(ENDED, params))])
        self._close()

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        assert self.multiplexer is not None
        self.multiplexer.receive(self, incoming)

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        self._left()

    def _left(self) -> None:
        if self._closing is None:
            assert self.multiplexer is not None
            self.multiplexer.leave(self)
            self._close()
            self._on_left()

    def _close(self) -> None:
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._link.aclose())


class _DedicatedProcess:
    """A process for one session; it is not supervised, and ends with its server."""

    def __init__(self, upstream: Upstream, key: tuple[str, str], multiplexer: Multiplexer) -> None:
        self.upstream = upstream
        self.key = key
        self.multiplexer = multiplexer
        self.used_at = upstream._state.now()
        self.timer: asyncio.TimerHandle | None = None
        #: Whether no worker has been notified yet that the process was started for it.
        self.fresh = True

    @property
    def state(self) -> ClientState:
        """As a dedicated client, of which the status counts the connected ones."""
        return ClientState.TERMINATED if self.multiplexer.closed else ClientState.ACTIVE

    @property
    def idle(self) -> bool:
        """Whether it may be ended for another session; one that was just started is about to be used."""
        return not self.multiplexer.busy and (not self.fresh or self.timer is not None)

    async def aclose(self) -> None:
        """End the process; called when its server is stopped or restarted."""
        if self.timer is not None:
            self.timer.cancel()
        await self.multiplexer.aclose()


class _Worker:
    """The control connection of a worker."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        #: The offering that was sent of each server.
        self._sent: dict[str, Offering | None] = {}
        self.gateways: set[str] = set()

    def send(self, message: PushedMessage) -> None:
        if self._writer.transport.get_write_buffer_size() > _MOST_UNREAD:
            self._writer.transport.abort()
        elif not self._writer.is_closing():
            self._writer.write(pack_frame(message))

    def report(self, snapshot: ServerSnapshot, offering: Offering | None, encoded: bytes) -> None:
        known = snapshot.name in self._sent and self._sent[snapshot.name] is offering
        self._sent[snapshot.name] = offering
        self.send(snapshot if known else replace(snapshot, offering=encoded))


class Broker:
    """Lets workers use the servers of a host."""

    def __init__(self, core: HostCore, processes: OwnedProcesses, store: MemoryContents) -> None:
        """Serve the processes of a host, and the state that its workers share."""
        self._core = core
        self._processes = processes
        self._contents = store
        self._workers: dict[_Worker, None] = {}
        self._dedicated: dict[tuple[str, str], _DedicatedProcess] = {}
        self._opening: dict[tuple[str, str], asyncio.Task[_DedicatedProcess]] = {}
        #: The server of each process that is being started.
        self._starting: list[Upstream] = []
        self._unnamed = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        #: By gateway: the changed kinds, the workers that have them, and when they are announced at the latest.
        self._changes: dict[str, tuple[set[str], set[_Worker], asyncio.TimerHandle]] = {}
        self._encoded: dict[str, tuple[Offering | None, bytes]] = {}
        self._dirty: set[str] = set()

    async def serve(self, path: Path, started: Callable[[], object]) -> None:
        """Serve at a path until cancelled; the folder must be the user's alone."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(path))
            os.chmod(path, 0o600)
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            started()
            self._spawn(self._follow_states())
            loop = asyncio.get_running_loop()
            while True:
                connection, _ = await loop.sock_accept(listener)
                connection.setblocking(False)
                self._spawn(self._serve(connection))
        finally:
            listener.close()
            with suppress(OSError):
                os.unlink(path)
            await self._aclose()

    async def _aclose(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.gather(*(each.aclose() for each in self._dedicated.values()), return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_log_failure)

    # --- connections -------------------------------------------------------------------------------------------------

    async def _serve(self, connection: socket.socket) -> None:
        try:
            if not is_own_peer(connection):
                return
            async with asyncio.timeout(_HELLO_SECONDS):
                hello = await read_hello(connection)
            if hello.open in ("control", "store"):
                reader, writer = await asyncio.open_unix_connection(sock=connection)
                await (
                    self._control(reader, writer)
                    if hello.open == "control"
                    else serve_store(self._contents, reader, writer)
                )
                return
            participant = await self._joined(hello, connection)
            if participant is not None:
                participant.start()
        except (ConnectionError, OSError, TimeoutError, msgspec.DecodeError, asyncio.IncompleteReadError):
            log.debug("a connection of a worker ended early", exc_info=True)
        finally:
            if connection.fileno() >= 0:
                connection.close()

    async def _joined(self, hello: Hello, connection: socket.socket) -> _SocketParticipant | None:
        """Connect a worker to a process; if that fails, send the worker the reason and return None."""
        process: _DedicatedProcess | None = None
        fresh = False
        try:
            if hello.open == "shared":
                run, multiplexer = self._processes.shared.get(hello.server, (0, None))
                if multiplexer is None or run != hello.run or multiplexer.closed:
                    raise ServerUnavailable(f"The process of {hello.server} has ended")
            else:
                process = await self._process(hello)
                multiplexer = process.multiplexer
                fresh, process.fresh = process.fresh, False
        except (TrunklineError, OSError) as error:
            await send_frame(connection, refusal_of(error))
            return None
        try:
            await send_frame(connection, Welcome(pid=multiplexer.pid, fresh=fresh))
        except OSError:
            if process is not None:
                # The next worker is the first that uses it.
                process.fresh = not multiplexer.started
                self._left(process)
            raise
        participant = _SocketParticipant(connection, hello.server, lambda: self._left(process))
        if multiplexer.closed:
            participant.ended(multiplexer.error)
            return None
        multiplexer.join(participant)
        multiplexer.start()
        return participant

    # --- processes of single sessions --------------------------------------------------------------------------------

    async def _process(self, hello: Hello) -> _DedicatedProcess:
        """Return the process with a key; it is started if there is none."""
        if hello.key is None:
            self._unnamed += 1
        key = (hello.server, hello.key if hello.key is not None else f"/{self._unnamed}")
        found = self._dedicated.get(key)
        if found is not None and not found.multiplexer.closed:
            self._used(found)
            return found
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = asyncio.get_running_loop().create_task(self._start(key, hello))
            opening.add_done_callback(lambda task: self._opening.pop(key, None))
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(opening)

    async def _start(self, key: tuple[str, str], hello: Hello) -> _DedicatedProcess:
        upstream = self._core.upstream(hello.server)
        await upstream.verify_trust()
        self._make_room(upstream)
        context, state = upstream._context, upstream._state
        given = {} if context.client_options is None else context.client_options(upstream.launch)
        options: dict[str, Any] = {name: given[name] for name in ("env", "on_stderr") if name in given}
        if hello.env is not None:
            options["env"] = hello.env
        client = make_client(upstream.launch, options, sandboxed=context.sandboxed)
        self._starting.append(upstream)
        try:
            link = await client._core.target.open()
        finally:
            self._starting.remove(upstream)
        multiplexer = Multiplexer(link, limiter=self._processes.limiter(state), on_activity=_activity_of(state))
        process = self._dedicated[key] = _DedicatedProcess(upstream, key, multiplexer)
        # Ended with its server, as the dedicated clients of a host are.
        state.dedicated_clients.add(process)  # type: ignore[arg-type]
        return process

    def _make_room(self, upstream: Upstream) -> None:
        """End the longest unused process if the server has as many as allowed.

        Raises:
            TooManyRequests: all of them are in use.
        """
        self._dedicated = {key: each for key, each in self._dedicated.items() if not each.multiplexer.closed}
        most = upstream.entry.settings.dedicated_most
        there = [each for each in self._dedicated.values() if each.upstream is upstream]
        if len(there) + self._starting.count(upstream) < most:
            return
        idle = [each for each in there if each.idle]
        if not idle:
            raise TooManyRequests(
                f"{upstream.entry.name} has {most} connections for single sessions, all of them in use; try again "
                "later, or raise dedicatedMost in its entry",
                data={"limit": "dedicatedMost", "allowed": most, "retryAfter": 5},
            )
        self._end(min(idle, key=lambda each: each.used_at))

    def _used(self, process: _DedicatedProcess) -> None:
        process.used_at = process.upstream._state.now()
        if process.timer is not None:
            process.timer.cancel()
            process.timer = None

    def _left(self, process: _DedicatedProcess | None) -> None:
        """Called when a worker left: the process waits for the next one as long as an idle one is kept."""
        if process is None or process.multiplexer.participants or process.multiplexer.closed:
            return
        self._used(process)
        if process.key[1].startswith("/"):
            self._end(process)
            return
        seconds = process.upstream.entry.settings.dedicated_idle
        process.timer = asyncio.get_running_loop().call_later(seconds, self._end, process)

    def _end(self, process: _DedicatedProcess) -> None:
        if self._dedicated.get(process.key) is process:
            del self._dedicated[process.key]
        self._spawn(process.aclose())

    # --- workers -----------------------------------------------------------------------------------------------------

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker = _Worker(writer)
        self._workers[worker] = None
        try:
            for name in self._core.supervisor.upstreams:
                self._report(worker, name)
            while True:
                message = await read_frame(reader, Command | ListsChanged)
                if isinstance(message, ListsChanged):
                    self._lists_changed(worker, message)
                else:
                    self._spawn(self._execute(worker, message))
        finally:
            del self._workers[worker]
            for gateway in tuple(self._changes):
                self._announce_if_complete(gateway)
            writer.close()

    async def _execute(self, worker: _Worker, command: Command) -> None:
        try:
            result = await self._perform(command)
            # The caller that waits for the answer reads the state next.
            self._report(worker, command.server)
        except (TrunklineError, OSError) as error:
            if command.number:
                worker.send(Answer(number=command.number, error=refusal_of(error)))
        else:
            if command.number:
                worker.send(Answer(number=command.number, result=result))

    async def _perform(self, command: Command) -> str | None:
        if command.verb == "ended":
            process = self._dedicated.get((command.server, command.key))
            if process is not None:
                self._end(process)
            return None
        upstream = self._core.upstream(command.server)
        state = upstream._state
        if command.verb == "start":
            if not upstream.running:
                await upstream.connected_client()
        elif command.verb == "restart":
            await upstream.restart()
        elif command.verb == "stop":
            await upstream.stop()
        elif command.verb == "verify":
            await upstream.verify_trust()
        elif command.verb == "suspect" and state.on_suspected_failure is not None:
            state.on_suspected_failure()
        elif command.verb == "changed":
            upstream.changed(command.kinds)
        return None

    # --- what workers are told ---------------------------------------------------------------------------------------

    async def _follow_states(self) -> None:
        async with self._core.events.subscribe() as events:
            async for event in events:
                # Other events are those of changed lists, or that some events were missed.
                names = [event.server] if isinstance(event, ServerStateChanged) else [*self._core.supervisor.upstreams]
                for name in names:
                    self._report_soon(name)

    def _report_soon(self, name: str) -> None:
        if not self._dirty:
            asyncio.get_running_loop().call_soon(self._report_all)
        self._dirty.add(name)

    def _report_all(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for name in dirty:
            for worker in tuple(self._workers):
                self._report(worker, name)

    def _report(self, worker: _Worker, name: str) -> None:
        upstream = self._core.supervisor.upstreams.get(name)
        if upstream is None:
            return
        state, offering = upstream._state, upstream.offering
        run, multiplexer = self._processes.shared.get(name, (0, None))
        joinable = state.client is not None and multiplexer is not None and not multiplexer.closed
        kept, encoded = self._encoded.get(name, (None, b"null"))
        if kept is not offering:
            encoded = b"null" if offering is None else msgspec.json.encode(offering)
            self._encoded[name] = (offering, encoded)
        snapshot = ServerSnapshot(
            name=name,
            state=state.state,
            reason=state.reason,
            busy=state.busy,
            since=state.since,
            starts=state.starts,
            last_error=state.last_error,
            stderr=bytes(state._stderr),
            remark=state.remark,
            approved=state.approved,
            run=run if joinable else 0,
            revision=(state.client.revision or "") if joinable and state.client is not None else "",
        )
        worker.report(snapshot, offering, encoded)

    def _lists_changed(self, worker: _Worker, message: ListsChanged) -> None:
        """Record that lists have changed at a worker; announced too early, a client could ask an outdated worker."""
        worker.gateways.add(message.gateway)
        if message.gateway not in self._changes:
            timer = asyncio.get_running_loop().call_later(_ANNOUNCE_SECONDS, self._announce, message.gateway)
            self._changes[message.gateway] = (set(), set(), timer)
        kinds, heard, _ = self._changes[message.gateway]
        kinds.update(message.kinds)
        heard.add(worker)
        self._announce_if_complete(message.gateway)

    def _announce_if_complete(self, gateway: str) -> None:
        _, heard, _ = self._changes[gateway]
        if heard.issuperset(self._workers):
            self._announce(gateway)

    def _announce(self, gateway: str) -> None:
        kinds, heard, timer = self._changes.pop(gateway)
        timer.cancel()
        # Those that have the lists, and are still there.
        for worker in [each for each in self._workers if each in heard][:1]:
            worker.send(Announce(gateway=gateway, kinds=tuple(sorted(kinds))))


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("work for a worker failed", exc_info=error)
