"""The task that owns one server: it alone starts and stops the server.

It goes from phase to phase: begin, stay, start, serve, wait. Each phase ends by itself or by a command (start, restart,
stop, end), and returns the next phase. Other code sends it commands only, so no two tasks ever start or stop the same
server, and no task waits for another's server. Nothing is started that trust does not allow, and trust is checked
before each start: the program may have changed since. Only then are its secrets looked up.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import IntEnum
from functools import partial
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from trunkline.client.client import Client
from trunkline.client.options import ClientState
from trunkline.errors import (
    ConfigError,
    ConnectionLost,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
    ServerExited,
    TrunklineError,
)
from trunkline.host.config.model import ServerEntry
from trunkline.host.events import ServerState
from trunkline.host.secrets.registry import SecretRegistry
from trunkline.host.secrets.resolve import ReadSecret, resolve_secrets
from trunkline.host.upstreams.catalog.catalog import CatalogCache
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.supervision.clients import (
    ListBounds,
    SandboxLauncher,
    StoredLogins,
    doctor_hint,
    has_authorization_header,
    list_offering,
    make_client,
    requires_login,
    start_timeout,
)
from trunkline.host.upstreams.supervision.monitor import RunOutcome, ServerMonitor, cache_offering, running_state
from trunkline.host.upstreams.supervision.sharing import ProcessSharing
from trunkline.host.upstreams.supervision.start_queue import (
    HALF_OPEN_SECONDS,
    STEADY_SECONDS,
    Backoff,
    Breaker,
    StartQueue,
)
from trunkline.host.upstreams.supervision.state import EraMemory, UpstreamState
from trunkline.timers import Timers, wait_within

__all__ = ["ServerCommand", "ServerTask", "SupervisionContext", "TrustCheck"]

log = logging.getLogger("trunkline.host")
T = TypeVar("T")
_Phase: TypeAlias = "Callable[[], Awaitable[_Phase | None]]"

#: Returns whether a server may run, and if not, why.
TrustCheck: TypeAlias = Callable[[ServerEntry], Awaitable[tuple[bool, str | None]]]

_LONGEST_REASON = 2000  # Some lines of stderr in a status.
# How often the stored logins are checked while a server waits for one.
_LOGIN_SECONDS = 30.0
# Limit of starts in a row that time out; each takes the whole timeout, so the crash breaker would never trip.
_MOST_LATE_STARTS = 3
_LATE_FIRST = 5.0  # A start that timed out has taken long already; it is not repeated as soon as a crash.


class ServerCommand(IntEnum):
    """Commands to a server's task. END always wins; of STOP and RESTART the later one; START never replaces another."""

    START = 1
    RESTART = 2
    STOP = 3
    END = 4


class SupervisionContext(Struct, frozen=True, kw_only=True):
    """State that the tasks of all servers share; none of it makes one task wait for another."""

    trust: TrustCheck
    cache: CatalogCache | None
    timers: Timers
    spread: Callable[[], float]
    client_options: Callable[[ServerEntry], Mapping[str, Any]] | None
    logins: StoredLogins
    #: Looks up secrets that entries name, and collects those that must not be shown.
    secret: ReadSecret
    secrets: SecretRegistry
    eras: dict[str, str]
    #: Bounds how many processes start at the same time.
    starts: StartQueue
    sandboxed: SandboxLauncher | None = None
    sharing: ProcessSharing | None = None


class _Unapproved(Exception):
    """Trust does not allow this server to run."""


class ServerTask:
    """The task that owns one server."""

    def __init__(
        self, state: UpstreamState, context: SupervisionContext, *, after: asyncio.Future[Any] | None = None
    ) -> None:
        """Create the task; ``after`` is the end of another server, which this one waits for before it starts."""
        self._state = state
        self._context = context
        self._after = after
        self._timers = context.timers
        settings = state.entry.settings
        self._lazy = settings.start == "lazy"
        self._start_requested = not self._lazy
        self._backoff = Backoff()
        self._breaker = Breaker(settings.crashes, settings.crash_seconds)
        self._command: ServerCommand | None = None
        self._wakeup: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Futures of commands not yet picked up; futures of the command being executed, resolved by `_acknowledge`.
        self._queued_futures: list[asyncio.Future[None]] = []
        self._executing_futures: list[asyncio.Future[None]] = []
        self._finished = False
        self._monitor: ServerMonitor | None = None
        self._loss: Exception | None = None
        #: The stored logins at the last start.
        self._stored_logins: list[Any] = []
        self._eras = EraMemory(state, context.cache)
        #: Starts in a row that timed out.
        self._late_starts = 0
        self._late_backoff = Backoff(first=_LATE_FIRST)
        #: The login that was last used.
        self.auth: Any = None

    # --- commands ----------------------------------------------------------------------------------------------------

    def send_command(self, command: ServerCommand) -> asyncio.Future[None]:
        """Send a command; the future is done once it was executed, as far as possible."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._finished or (command == ServerCommand.START and self._state.state != "known"):
            done.set_result(None)
            return done
        self._queued_futures.append(done)
        if (
            self._command is None
            or command == ServerCommand.END
            or (command > ServerCommand.START and self._command < ServerCommand.END)
        ):
            self._command = command
        if not self._wakeup.done():
            self._wakeup.set_result(None)
        return done

    def _pop_command(self) -> ServerCommand | None:
        command, self._command = self._command, None
        if command is not None:
            self._executing_futures += self._queued_futures
            self._queued_futures.clear()
            self._wakeup = asyncio.get_running_loop().create_future()
        return command

    def _acknowledge(self) -> None:
        futures, self._executing_futures = self._executing_futures, []
        for done in futures:
            if not done.done():
                done.set_result(None)

    async def _next_command(self, seconds: float | None) -> ServerCommand | None:
        """Wait for a command; return None on timeout."""
        timer = None if seconds is None else self._timers.after(seconds, self._wake)
        try:
            await self._wakeup
        finally:
            if timer is not None:
                timer.cancel()
        if self._command is None:
            self._wakeup = asyncio.get_running_loop().create_future()
        return self._pop_command()

    def _wake(self) -> None:
        if not self._wakeup.done():
            self._wakeup.set_result(None)

    async def _unless_commanded(self, work: Coroutine[Any, Any, T]) -> T | ServerCommand:
        """Run something until it is done or a command arrives; in that case cancel it first."""
        task = asyncio.get_running_loop().create_task(work)
        try:
            either: tuple[asyncio.Future[Any], ...] = (task, self._wakeup)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        command = self._pop_command() if task.cancelled() or task.exception() else None
        return task.result() if command is None else command

    async def _execute(self, command: ServerCommand) -> _Phase | None:
        if command != ServerCommand.START:
            await asyncio.gather(
                *(client.aclose() for client in list(self._state.dedicated_clients)), return_exceptions=True
            )
        if command == ServerCommand.STOP:
            return partial(self._stay, "stopped", "stopped; restart it to use it again")
        if command == ServerCommand.END:
            self._state.transition_to("stopped", "removed from the configuration, or the host was closed")
            return None
        if command == ServerCommand.RESTART:
            self._reset_failures()
        self._start_requested = True
        return self._start

    async def verify_trust(self) -> str | None:
        """Check again whether the server may run; return why not, or None.

        Raises:
            ConfigError: a secret that it needs is not available.
        """
        try:
            await self._check_trust()
        except _Unapproved as refusal:
            return str(refusal)
        if self._state.launch.sealed:
            await self._fill_secrets()
        return None

    # --- phases ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the server until the command to end."""
        phase: _Phase | None = self._begin
        try:
            while phase is not None:
                phase = await phase()
        except Exception as error:
            log.exception("the task of %s failed", self._state.entry.name)
            self._state.state = "starting"
            self._state.transition_to("broken", self._describe(f"internal error: {error!r}"))
        finally:
            self._finished = True
            self._executing_futures += self._queued_futures
            self._acknowledge()

    async def _begin(self) -> _Phase | None:
        entry = self._state.entry
        if entry.disabled or entry.problem is not None:
            return partial(self._stay, self._state.state, self._state.reason)
        if self._context.cache is None or (entry.target is not None and not self._lazy):
            return self._start
        try:
            kept = await self._unless_commanded(self._recall())
        except _Unapproved as refusal:
            return partial(self._stay, "unapproved", str(refusal))
        except Exception:
            # The cause will show again in the start, which can report it.
            log.exception("the cached catalog of %s cannot be read", entry.name)
            return self._start
        if isinstance(kept, ServerCommand):
            return await self._execute(kept)
        if kept is not None:
            self._state.offer(kept)
        if kept is None or not self._lazy:
            # A lazy server has to be listed once. Any other one is shown as cached until it is running.
            return self._start
        return partial(self._stay, "known", "starts when it is used")

    async def _stay(self, state: ServerState, reason: str | None, seconds: float | None = None) -> _Phase | None:
        """Stay in a state until a command arrives, or for ``seconds``."""
        # The configuration may have been reloaded meanwhile, with other line numbers.
        reason = self._state.entry.problem or reason
        self._state.transition_to(state, reason)
        self._acknowledge()
        command = await self._next_command(seconds)
        if command is None:
            return self._try_once_more if state == "broken" else self._start
        if state == "disabled" or self._state.entry.problem is not None:
            return await self._execute(command) if command == ServerCommand.END else partial(self._stay, state, reason)
        return await self._execute(command)

    async def _try_once_more(self) -> _Phase | None:
        self._breaker.try_once()
        return self._start

    async def _await_login(self, reason: str) -> _Phase | None:
        """Stay until the stored logins differ from those that the server refused."""
        state = self._state
        state.transition_to("needs login", reason)
        self._acknowledge()
        seconds = None if has_authorization_header(state.launch) else _LOGIN_SECONDS
        while True:
            kept = await self._unless_commanded(self._context.logins.stored(state.launch))
            if isinstance(kept, ServerCommand):
                return await self._execute(kept)
            if kept != self._stored_logins:
                return self._start
            command = await self._next_command(seconds)
            if command is not None:
                return await self._execute(command)

    async def _start(self) -> _Phase | None:
        state = self._state
        state.transition_to("starting")
        state.starts += 1
        try:
            started = await self._unless_commanded(self._connect())
        except _Unapproved as refusal:
            return partial(self._stay, "unapproved", str(refusal))
        except ConfigError as error:
            return partial(self._stay, "misconfigured", self._describe(error))
        except (TrunklineError, OSError) as error:
            return self._failed(error)
        except Exception as error:
            # A bug in a callback; only this server fails because of it.
            log.exception("starting %s failed", state.entry.name)
            return self._failed(error)
        if isinstance(started, ServerCommand):
            return await self._execute(started)
        return partial(self._serve, *started)

    async def _serve(self, client: Client, offering: Offering) -> _Phase | None:
        state = self._state
        since = self._timers.clock.now()
        self._late_starts = 0
        self._late_backoff.reset()
        state.used_at = state.last_activity_at = since
        state.offer(offering)
        # Before it is ready: if it is stopped right after that, the catalog is already cached.
        await cache_offering(self._context.cache, state, offering)
        if not self._start_requested and not state.is_needed:
            await client.aclose()
            return partial(self._stay, "known", "starts when it is used")
        outcome: RunOutcome | ServerCommand
        try:
            monitor = self._monitor = self._make_monitor(client)
            state.client = client
            state.transition_to(*running_state(offering, state))
            self._acknowledge()
            if self._loss is not None:
                monitor.finish(RunOutcome("lost", self._loss))
            outcome = await self._unless_commanded(monitor.run())
        finally:
            self._monitor = state.client = None
            await client.aclose()
        if isinstance(outcome, ServerCommand):
            return await self._execute(outcome)
        return self._after_run(outcome, lived=self._timers.clock.now() - since)

    def _make_monitor(self, client: Client) -> ServerMonitor:
        context = self._context
        return ServerMonitor(self._state, client, timers=self._timers, spread=context.spread, cache=context.cache)

    async def _wait(self, seconds: float, reason: str) -> _Phase | None:
        when = "at once" if seconds < 0.05 else f"in {seconds:.1f} s"
        self._state.transition_to("waiting", f"starts again {when}: {reason}")
        self._acknowledge()
        command = await self._next_command(seconds)
        return self._start if command is None else await self._execute(command)

    # --- the next phase ----------------------------------------------------------------------------------------------

    def _after_run(self, ending: RunOutcome, *, lived: float) -> _Phase:
        """Return the phase that follows the run of a server."""
        if lived >= STEADY_SECONDS:
            self._reset_failures()
        if ending.kind == "idle":
            return partial(self._stay, "known", str(ending.error))
        if isinstance(ending.error, str):
            ending = RunOutcome(ending.kind, ConnectionLost(ending.error))
        return self._failed(ending.error)

    def _failed(self, error: Exception | str) -> _Phase:
        """Return the phase that follows a failed start, or an exit."""
        state = self._state
        reason = state.last_error = self._describe(error)
        log.info("%s: %s", state.entry.name, reason)
        if state.entry.url is not None:
            if isinstance(error, Exception) and requires_login(error):
                return partial(self._await_login, self._how_to_log_in(reason))
        elif self._breaker.failed(self._timers.clock.now()):
            return partial(self._stay, "broken", reason, HALF_OPEN_SECONDS)
        elif isinstance(error, RequestTimeout):
            self._late_starts += 1
            if self._late_starts >= _MOST_LATE_STARTS:
                reason = f"{self._late_starts} starts in a row took too long, the last one: {reason}"
                return partial(self._stay, "broken", reason, HALF_OPEN_SECONDS)
        if self._lazy and state.offering is not None and not state.is_needed:
            self._start_requested = False
            return partial(self._stay, "known", f"{reason}; starts again when it is used")
        backoff = self._late_backoff if isinstance(error, RequestTimeout) else self._backoff
        return partial(self._wait, backoff.next(self._context.spread()), reason)

    def _reset_failures(self) -> None:
        """Forget earlier failures."""
        self._late_starts = 0
        self._late_backoff.reset()
        self._backoff.reset()
        self._breaker.reset()

    def _how_to_log_in(self, reason: str) -> str:
        name = self._state.entry.name
        if has_authorization_header(self._state.entry):
            return f"{reason}; the Authorization header of its entry is not accepted: give another one"
        return f"{reason}; run: trunkline auth login {name}"

    def _describe(self, error: Exception | str) -> str:
        """Return an error as a reason: masked, bounded, with the end of stderr unless it is included already."""
        text = str(error) or type(error).__name__
        words = self._state.stderr_tail()
        if words and not isinstance(error, ServerExited):
            text += f"; last lines of stderr:\n{words}"
        if isinstance(error, ServerExited):
            text += doctor_hint(self._state.entry, error)
        return self._state.secrets.hide(text)[:_LONGEST_REASON]

    # --- starting ----------------------------------------------------------------------------------------------------

    async def _recall(self) -> Offering | None:
        """Return the cached offering of a server; trust is checked even for that."""
        await self._check_trust()
        cache = self._context.cache
        kept = None if cache is None else await asyncio.to_thread(cache.get, self._state.entry)
        return None if kept is None else replace(kept, recalled=True)

    async def _check_trust(self) -> None:
        """Check whether the server may run.

        Raises:
            _Unapproved: it may not run.
        """
        state = self._state
        state.approved = False
        seconds = start_timeout(state.entry)
        allowed, reason = await wait_within(self._timers, seconds, self._context.trust(state.entry))
        if not allowed:
            raise _Unapproved(reason or f"run: trunkline trust approve {state.entry.name}")
        state.approved = True

    async def _fill_secrets(self) -> None:
        """Look up the secrets of a server that may run.

        Raises:
            ConfigError: one of them is not available.
        """
        state = self._state
        launch = await resolve_secrets(state.entry, self._context.secret) if state.entry.sealed else state.entry
        state.secrets.add(launch.secrets)
        state.launch = launch

    async def _connect(self) -> tuple[Client, Offering]:
        """Start the server and list what it offers; on failure nothing is left running."""
        state = self._state
        if self._after is not None:
            # Two instances at once could compete for a port, a lock or files.
            await asyncio.wait([self._after])
            self._after = None
        await self._check_trust()
        if state.entry.command is None:
            return await self._connect_now()
        queued = self._context.starts.full
        await self._slot()
        try:
            if queued:
                # The program may have changed while it was queued.
                await self._check_trust()
            return await self._connect_now()
        finally:
            self._context.starts.leave()

    async def _slot(self) -> None:
        """Wait until this process may start; the start timeout has not begun yet."""
        state, starts = self._state, self._context.starts
        if not starts.full:
            await starts.enter(self._urgency)
            return
        state.queued = True
        state.transition_to("starting", f"queued: {starts.most} servers start at a time")
        try:
            await starts.enter(self._urgency)
        finally:
            state.queued = False
        state.transition_to("starting")

    def _urgency(self) -> int:
        """Return how soon the server is needed: a call waits for it, it is required, or neither."""
        state = self._state
        return 2 if state.is_needed else int(state.entry.settings.required)

    async def _connect_now(self) -> tuple[Client, Offering]:
        """Connect and list, within the start timeout."""
        state = self._state
        # At each start: a secret may have changed.
        await self._fill_secrets()
        logins = self._context.logins
        self._stored_logins = await logins.stored(state.launch)
        self.auth = await logins.find(state.launch)
        self._loss = None
        state.clear_stderr()
        client = await self._open_client()
        try:
            offering = await list_offering(
                client,
                state.offering,
                listed_at=time.time(),
                bounds=ListBounds(seconds=start_timeout(state.entry)),
                timers=self._timers,
            )
            if client.state is not ClientState.ACTIVE:
                raise client.reason or ConnectionLost("the connection ended at once")
            return client, offering
        except BaseException:
            await client.aclose()
            raise

    async def _open_client(self) -> Client:
        """Connect to the server; one that used the handshake in an earlier run is not probed.

        Should it be another server by now, which refuses the handshake, it is connected once more as an unknown one.
        """
        state, eras = self._state, self._eras
        asked_at = await eras.handshake_probed_at()
        if asked_at is not None:
            client = self._make_client(revision="handshake")
            try:
                await client.__aenter__()
            except BaseException as error:
                await client.aclose()
                if not _may_be_replaced(error, state.entry):
                    raise await eras.distrust_era(client, error) from error
                log.info(
                    "%s refused the handshake that it used before: %s", state.entry.name, self._describe(str(error))
                )
                self._loss = None
            else:
                state.probed_at = asked_at if eras.agreed(client) else time.time()
                return client
        client = self._make_client()
        await eras.expect(client)
        try:
            await client.__aenter__()
        except BaseException as error:
            await client.aclose()
            if isinstance(error, RequestTimeout) and client._core.was_known:
                raise await eras.distrust_era(client, error) from error
            raise
        state.probed_at = state.probed_at or time.time()
        eras.agreed(client)
        return client

    def _make_client(self, **more: Any) -> Client:
        state, context = self._state, self._context
        given = {} if context.client_options is None else dict(context.client_options(state.launch))
        options = {
            **more,
            **given,
            "on_state": _both(self._client_moved, given.get("on_state")),
            "on_stderr": _both(state.append_stderr, given.get("on_stderr")),
        }
        how: dict[str, Any] = {"clock": self._timers.clock, "eras": context.eras, "sandboxed": context.sandboxed}
        client = make_client(state.launch, options, auth=self.auth, on_launch=state.launched, **how)
        if context.sharing is not None and state.entry.command is not None:
            client._core.target = context.sharing.share(state, client._core.target)
        return client

    def _client_moved(self, state: ClientState, reason: Exception | None) -> None:
        """Called when the state of the client changes; a client for a URL reconnects by itself."""
        if self._state.entry.url is not None:
            if state is ClientState.ACTIVE and self._monitor is not None:
                self._monitor.reconnected()
        elif state is ClientState.FAILED:
            self._state.client = None
            self._loss = reason or ConnectionLost("the connection ended")
            if self._monitor is not None:
                self._monitor.finish(RunOutcome("lost", self._loss))


def _may_be_replaced(error: BaseException, entry: ServerEntry) -> bool:
    """Return True if a server may have refused just the handshake; failures to connect or timeouts do not count."""
    if isinstance(error, RequestFailed | RemoteProtocolError):
        return not requires_login(error)
    return isinstance(error, ConnectionLost) and entry.command is not None


def _both(ours: Callable[..., None], theirs: Callable[..., Any] | None) -> Callable[..., None]:
    """Combine two callbacks; ours is called first."""
    if theirs is None:
        return ours

    def tell(*news: Any) -> None:
        ours(*news)
        theirs(*news)

    return tell
