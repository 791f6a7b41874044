"""The servers of a broker as a worker of a gateway uses them.

The host of a worker has the same servers as any other; only their processes are elsewhere. ``MirroredTask`` takes the
place of the task that owns a server: it repeats the states that the broker reports, and keeps a client connected to the
shared process. Without its broker a worker ends: the servers are gone with it.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from trunkline.client.client import Client
from trunkline.client.options import ClientState
from trunkline.client.targets import Target
from trunkline.errors import ConfigError, ConnectionLost, LinkError, ServerUnavailable, TrunklineError
from trunkline.host.config.model import ServerEntry
from trunkline.host.events import ServerState
from trunkline.host.upstreams.broker.messages import (
    ENDED,
    Announce,
    Command,
    Hello,
    ListsChanged,
    PushedMessage,
    Refusal,
    ServerSnapshot,
    Welcome,
    end_of,
    pack_frame,
    read_frame,
    receive_frame,
    send_frame,
)
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.supervision.clients import make_client
from trunkline.host.upstreams.supervision.server_task import ServerCommand, ServerTask, SupervisionContext
from trunkline.host.upstreams.supervision.sharing import ProcessSharing
from trunkline.host.upstreams.supervision.state import TRANSITIONS, UpstreamState
from trunkline.protocol.caller import STDIO, Origin
from trunkline.protocol.jsonrpc import Incoming, Notification
from trunkline.protocol.limits import Limits
from trunkline.transports.link import LinkWrapper, Receiver
from trunkline.transports.pipes import PipeLink
from trunkline.types import RequestId

__all__ = ["BrokerConnection", "BrokeredProcesses", "open_stream"]

log = logging.getLogger("trunkline.host")

_CONNECT_SECONDS = 10.0  # The broker is a local process, and answers at once unless the machine is overloaded.
_AGAIN_SECONDS = 0.2  # Before a lost connection to a running process is opened again.
#: A server is started, stopped or checked; far more than its start timeout allows.
_COMMAND_SECONDS = 600.0
_RUNNING = ("ready", "partial")


async def _connect(path: Path, hello: Hello) -> socket.socket:
    """Open a connection to the broker.

    Raises:
        LinkError: the broker is gone.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.setblocking(False)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(connection, str(path))
            await send_frame(connection, hello)
    except (OSError, TimeoutError) as error:
        connection.close()
        raise LinkError(f"the process that owns the servers cannot be reached: {error}") from error
    except BaseException:
        connection.close()
        raise
    return connection


async def open_stream(path: Path, hello: Hello) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a connection to the broker as a stream of frames.

    Raises:
        LinkError: the broker is gone.
    """
    return await asyncio.open_unix_connection(sock=await _connect(path, hello))


# --- links -----------------------------------------------------------------------------------------------------------


class BrokeredLink(LinkWrapper):
    """A link to a server process of the broker."""

    def __init__(self, link: PipeLink, welcome: Welcome) -> None:
        """Wrap the connection."""
        super().__init__(link)
        self._welcome = welcome
        self._receiver: Receiver | None = None
        self._error: Exception | None = None

    @property
    def pid(self) -> int | None:
        """The id of the server process."""
        return self._welcome.pid

    @property
    def fresh(self) -> bool:
        """Whether the process was started for this link."""
        return self._welcome.fresh

    def attach(self, receiver: Receiver) -> None:
        """Start to read."""
        self._receiver = receiver
        self._link.attach(self)

    def message_received(self, incoming: Incoming, origin: Origin) -> None:
        """Deliver a message, unless it says that the process is gone."""
        assert self._receiver is not None
        if isinstance(incoming, Notification) and incoming.method == ENDED:
            self._error = end_of(incoming.params)
        else:
            self._receiver.message_received(incoming, origin)

    def eof_received(self, error: Exception | None = None, *, about: RequestId | None = None) -> None:
        """Report why the process is gone."""
        assert self._receiver is not None
        self._receiver.eof_received(self._error or error or ConnectionLost("the server was stopped"), about=about)


async def _open_link(path: Path, hello: Hello, limits: Limits) -> BrokeredLink:
    """Join a process of the broker.

    Raises:
        TrunklineError: it cannot be joined, or not be started.
    """
    connection = await _connect(path, hello)
    try:
        # Starting a process has its own time limits.
        async with asyncio.timeout(_COMMAND_SECONDS):
            answer = await receive_frame(connection, Welcome | Refusal)
    except (OSError, TimeoutError, msgspec.DecodeError) as error:
        connection.close()
        raise LinkError(f"the process that owns the servers does not answer: {error}") from error
    except BaseException:
        connection.close()
        raise
    if isinstance(answer, Refusal):
        connection.close()
        raise answer.error()
    read_fd = connection.detach()
    return BrokeredLink(PipeLink(read_fd, os.dup(read_fd), limits=limits, origin=STDIO), answer)


# --- the control connection ------------------------------------------------------------------------------------------


class BrokerConnection:
    """The control connection of a worker."""

    def __init__(self, path: Path) -> None:
        """Set the path of the broker's socket."""
        self.path = path
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[str | None]] = {}
        self._tasks: dict[str, MirroredTask] = {}
        self._snapshots: dict[str, ServerSnapshot] = {}
        #: By gateway: called with the kinds of lists to announce.
        self.announcers: dict[str, Callable[[tuple[str, ...]], None]] = {}
        #: Set when the broker is gone.
        self.lost = asyncio.Event()

    async def connect(self) -> None:
        """Connect to the broker.

        Raises:
            LinkError: it is gone.
        """
        reader, self._writer = await open_stream(self.path, Hello(open="control"))
        self._reading = asyncio.get_running_loop().create_task(self._read(reader), name="trunkline-broker")

    async def aclose(self) -> None:
        """Disconnect."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._writer is not None:
            self._writer.close()

    def tell(self, message: Command | ListsChanged) -> None:
        """Send a message that has no answer."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(pack_frame(message))

    async def command(self, verb: Any, server: str) -> None:
        """Send a command and wait until it was executed.

        Raises:
            TrunklineError: it failed.
        """
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.tell(Command(number=number, verb=verb, server=server))
        try:
            async with asyncio.timeout(_COMMAND_SECONDS):
                await answer
        except TimeoutError as error:
            raise ServerUnavailable(f"{server}: the process that owns the servers does not answer") from error
        finally:
            self._waiting.pop(number, None)

    def follow(self, task: MirroredTask, name: str) -> None:
        """Report the state of a server to its task, now and on each change."""
        self._tasks[name] = task
        if (snapshot := self._snapshots.get(name)) is not None:
            task.report(snapshot)

    def unfollow(self, task: MirroredTask, name: str) -> None:
        """Stop reporting the state of a server to its task."""
        if self._tasks.get(name) is task:
            del self._tasks[name]

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                self._received(await read_frame(reader, PushedMessage))
        except (asyncio.IncompleteReadError, ConnectionError, OSError, msgspec.DecodeError):
            log.error("the process that owns the servers is gone")
        finally:
            self.lost.set()
            for each in self._waiting.values():
                if not each.done():
                    each.set_exception(LinkError("the process that owns the servers is gone"))

    def _received(self, message: PushedMessage) -> None:
        if isinstance(message, ServerSnapshot):
            before = self._snapshots.get(message.name)
            if not message.offering and before is not None:
                message = msgspec.structs.replace(message, offering=before.offering)
            self._snapshots[message.name] = message
            if (task := self._tasks.get(message.name)) is not None:
                task.report(message)
        elif isinstance(message, Announce):
            if (announce := self.announcers.get(message.gateway)) is not None:
                announce(message.kinds)
        elif (answer := self._waiting.get(message.number)) is not None and not answer.done():
            if message.error is not None:
                answer.set_exception(message.error.error())
            else:
                answer.set_result(message.result)


class BrokeredProcesses(ProcessSharing):
    """The processes of a worker's servers: those of the broker."""

    def __init__(self, broker: BrokerConnection) -> None:
        """Use a broker."""
        self._broker = broker

    def make_task(
        self, state: UpstreamState, context: SupervisionContext, after: asyncio.Future[Any] | None
    ) -> ServerTask | None:
        """Return a task that repeats the states of the broker's server; a worker connects to a URL by itself."""
        entry = state.entry
        return None if entry.url is not None or entry.target is not None else MirroredTask(state, context, self._broker)

    def dedicated_target(self, entry: ServerEntry, key: str | None, env: Mapping[str, str] | None) -> Target | None:
        """Return the target of a process that the broker starts for a session."""
        if entry.url is not None or entry.target is not None:
            return None
        hello = Hello(open="dedicated", server=entry.name, key=key, env=None if env is None else dict(env))
        return _target(self._broker.path, hello, entry)

    def session_ended(self, entry: ServerEntry, key: str) -> None:
        """End the process of a session."""
        if entry.url is None and entry.target is None:
            self._broker.tell(Command(number=0, verb="ended", server=entry.name, key=key))


def _target(path: Path, hello: Hello, entry: ServerEntry) -> Target:
    limits = Limits() if entry.settings.message_bytes is None else Limits(message_bytes=entry.settings.message_bytes)
    return Target(entry.name, lambda: _open_link(path, hello, limits))


# --- a server --------------------------------------------------------------------------------------------------------


class MirroredTask(ServerTask):
    """Repeats the states of a server that the broker owns."""

    def __init__(self, state: UpstreamState, context: SupervisionContext, broker: BrokerConnection) -> None:
        """Follow the server of the same name."""
        super().__init__(state, context)
        self._broker = broker
        self._news = asyncio.Event()
        #: Set while no reported state waits to be entered.
        self._applied = asyncio.Event()
        self._snapshot: ServerSnapshot | None = None
        self._ending = False
        self._run = 0
        self._offered = b""
        self._commands: set[asyncio.Task[None]] = set()

    def report(self, snapshot: ServerSnapshot) -> None:
        """Called with each state of the server."""
        self._snapshot = snapshot
        self._applied.clear()
        self._news.set()

    # --- commands ----------------------------------------------------------------------------------------------------

    def send_command(self, command: ServerCommand) -> asyncio.Future[None]:
        """Send a command to the broker; END is not sent, since it ends only this worker's host."""
        loop = asyncio.get_running_loop()
        if command == ServerCommand.END:
            self._ending = True
            self._news.set()
            return _done(loop)
        if self._finished or (command == ServerCommand.START and self._state.state != "known"):
            return _done(loop)
        task = loop.create_task(self._pass_on(command.name.lower()))
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)
        return task

    async def _pass_on(self, verb: str) -> None:
        try:
            await self._broker.command(verb, self._state.entry.name)
            # The state that the command led to was reported before its answer.
            async with asyncio.timeout(_CONNECT_SECONDS):
                await self._applied.wait()
        except (TrunklineError, TimeoutError) as error:
            log.debug("%s: %s", self._state.entry.name, error)

    async def verify_trust(self) -> str | None:
        """Ask the broker to check whether the server may run."""
        try:
            await self._broker.command("verify", self._state.entry.name)
        except ServerUnavailable as error:
            raise ConfigError(str(error)) from error
        self._state.approved = True
        return None

    # --- states ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Repeat the states until the end."""
        state, name = self._state, self._state.entry.name
        client: Client | None = None
        self._broker.follow(self, name)
        state.on_suspected_failure = lambda: self._broker.tell(Command(number=0, verb="suspect", server=name))
        state.on_change = lambda kinds: self._broker.tell(
            Command(number=0, verb="changed", server=name, kinds=tuple(kinds))
        )
        try:
            while not self._ending:
                await self._news.wait()
                self._news.clear()
                if self._snapshot is not None and not self._ending:
                    client = await self._apply(self._snapshot, client)
                if not self._news.is_set():
                    self._applied.set()
        finally:
            self._finished = True
            self._broker.unfollow(self, name)
            state.client = state.on_suspected_failure = state.on_change = None
            await asyncio.gather(*(each.aclose() for each in list(state.dedicated_clients)), return_exceptions=True)
            if client is not None:
                await client.aclose()
            self._move("stopped", "removed from the configuration, or the host was closed")

    async def _apply(self, snapshot: ServerSnapshot, client: Client | None) -> Client | None:
        """Enter the state of a snapshot; return the client of the shared process."""
        state = self._state
        state.starts, state.last_error, state.remark = snapshot.starts, snapshot.last_error, snapshot.remark
        state.approved = snapshot.approved
        state.clear_stderr()
        state.append_stderr(snapshot.stderr)
        if client is not None and (snapshot.run != self._run or client.state is not ClientState.ACTIVE):
            state.client = None
            await client.aclose()
            client = None
        self._offer(snapshot)
        if snapshot.state in _RUNNING:
            client = client or await self._joined(snapshot)
            if client is None:
                # Its process has ended, which the broker is about to report, or the connection failed.
                asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._news.set)
                return None
            state.client = client
        self._move(cast("ServerState", snapshot.state), snapshot.reason)
        state.since = snapshot.since
        state.busy = snapshot.busy
        return client

    def _offer(self, snapshot: ServerSnapshot) -> None:
        if snapshot.offering == self._offered:
            return
        self._offered = snapshot.offering
        self._state.offer(msgspec.json.decode(snapshot.offering or b"null", type=Offering | None))

    def _move(self, state: ServerState, reason: str | None) -> None:
        """Enter a state; those between were not reported if they were short."""
        own = self._state
        if state != own.state and state not in TRANSITIONS[own.state]:
            own.state = "starting"
        own.transition_to(state, reason)

    async def _joined(self, snapshot: ServerSnapshot) -> Client | None:
        """Connect to the shared process; None if that fails."""
        if not snapshot.run:
            return None
        state, context = self._state, self._context
        given = {} if context.client_options is None else dict(context.client_options(state.entry))
        options = {name: value for name, value in given.items() if name not in ("env", "on_stderr")}
        hello = Hello(open="shared", server=state.entry.name, run=snapshot.run)
        client = make_client(
            state.entry,
            # The broker has negotiated the revision; its handshake is repeated as it was.
            {**options, "revision": snapshot.revision, "era_memory": None, "on_state": self._client_moved},
            clock=context.timers.clock,
            elsewhere=_target(self._broker.path, hello, state.entry),
        )
        try:
            await client.__aenter__()
        except TrunklineError as error:
            log.info("%s cannot be joined: %s", state.entry.name, error)
            await client.aclose()
            return None
        self._run = snapshot.run
        return client

    def _client_moved(self, state: ClientState, reason: Exception | None) -> None:
        if state is ClientState.FAILED:
            self._state.client = None
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._news.set)


def _done(loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    done: asyncio.Future[None] = loop.create_future()
    done.set_result(None)
    return done
