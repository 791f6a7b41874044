"""One server as the rest of the host sees it: its status, a client on demand, and commands to its task.

It starts nothing itself: it sends commands to the task that owns the server (``server_task``), and reads the state that
the task writes (``state``). Using a running server costs one attribute lookup.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.client import Client
from trunkline.client.options import ClientState
from trunkline.errors import (
    ConfigError,
    HandlerError,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
    ServerUnavailable,
    TrunklineError,
)
from trunkline.host.config.model import ServerEntry
from trunkline.host.events import ServerState, ServerStateChanged
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.supervision.clients import (
    ALL_LISTS,
    ListBounds,
    list_offering,
    make_client,
    process_id,
    requires_login,
    start_timeout,
)
from trunkline.host.upstreams.supervision.monitor import unresponsive_reason
from trunkline.host.upstreams.supervision.server_task import ServerCommand, ServerTask, SupervisionContext
from trunkline.host.upstreams.supervision.state import UNAVAILABLE_STATES, UpstreamState
from trunkline.timers import wait_within

__all__ = ["Adopter", "CallMetrics", "ServerStatus", "Upstream"]

log = logging.getLogger("trunkline.host")

_WHAT_TO_DO = MappingProxyType(
    {
        "disabled": "is disabled; enable it in {source}",
        "misconfigured": "cannot be started as it is configured in {source}",
        "unapproved": "is not approved",
        "needs login": "needs a login",
        "broken": "exited too often and is not restarted for now; restart it once the cause is fixed",
        "stopped": "is stopped",
    }
)


_STDERR_SECONDS = 0.05  # It was written before the answer, and only has to be read.
_CONNECTED = frozenset({ClientState.CONNECTING, ClientState.INITIALIZED, ClientState.ACTIVE})


class ServerStatus(Struct, frozen=True, kw_only=True):
    """The status of one server."""

    name: str
    state: ServerState
    #: Why it is in this state, and what can be done, if there is something to report.
    reason: str | None
    #: The negotiated revision.
    era: str | None
    pid: int | None
    url: str | None
    #: Usable items; those removed by filters, reviews or the policy are counted in ``unusable``.
    tools: int
    prompts: int
    resources: int
    last_error: str | None
    #: How often it was started after the first time.
    restarts: int
    #: The number of dedicated connections besides the shared one.
    dedicated: int = 0
    #: Seconds since the epoch at which this state began.
    since: float
    source: str
    #: The command or URL, with secrets masked.
    command: str
    #: The number of listed items that cannot be used: hidden by a filter, dropped, or denied by the policy.
    unusable: int = 0
    #: The lists that failed, by method, with the reason.
    failures: dict[str, str] = {}


class _CallTracker:
    """Context manager that counts a call while it is in progress; one object serves any number of calls."""

    __slots__ = ("_state",)

    def __init__(self, state: UpstreamState) -> None:
        self._state = state

    def __enter__(self) -> None:
        state = self._state
        now = state.now()
        if not state.active_calls:
            # Its silence counts from here: nothing was expected from it before.
            state.last_activity_at = now
        state.active_calls += 1
        state.used_at = now

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        state = self._state
        state.active_calls -= 1
        state.used_at = state.now()
        # A response, even an error, is a sign of life.
        if error is None or isinstance(error, RequestFailed | HandlerError | RemoteProtocolError):
            state.last_activity_at = state.used_at
        if error is None or state.on_suspected_failure is None:
            return
        if isinstance(error, RequestTimeout) or requires_login(error):
            state.on_suspected_failure()


class CallMetrics(Protocol):
    """Measures the calls of servers."""

    def track(self, server: str, inner: AbstractContextManager[None]) -> AbstractContextManager[None]:
        """Return a context manager around the one that counts a call."""


class Adopter(Protocol):
    """A session that uses the shared connection for questions too."""

    async def answer(self, capability: str, *question: Any) -> Any:
        """Return the answer to a question of the server: ``sampling``, ``elicitation`` or ``roots``."""

    def deliver_log(self, message: t.LoggingMessageNotificationParams) -> bool:
        """Deliver a log message to the call that it belongs to; return False if there is none."""


class Upstream:
    """One server of a host."""

    def __init__(
        self,
        entry: ServerEntry,
        context: SupervisionContext,
        *,
        on_move: Callable[[ServerStateChanged], None],
        on_offering: Callable[[Upstream], None],
        after: asyncio.Future[Any] | None = None,
    ) -> None:
        """Create a server that does nothing before ``begin``; ``after`` is the end of the one that it replaces."""
        self._context = context
        self._state = UpstreamState(
            entry,
            now=context.timers.clock.now,
            on_move=on_move,
            on_offering=lambda: on_offering(self),
            secrets=context.secrets,
        )
        #: The command or URL as it may be printed, with secrets masked.
        self.shown = entry.shown
        task = None if context.sharing is None else context.sharing.make_task(self._state, context, after)
        self._server_task: ServerTask = task or ServerTask(self._state, context, after=after)
        self._use = _CallTracker(self._state)
        #: Measures its calls; None if nothing does.
        self.call_metrics: CallMetrics | None = None
        self._began = context.timers.clock.now()
        self._task: asyncio.Task[None] | None = None
        #: Whether the server requested roots; set by its dedicated connections.
        self.asks_roots = False
        #: The sessions that have adopted the shared connection (``routing/adopted_connection.py``), and their calls.
        #: Without one, questions on it are refused, since they do not identify the call that they belong to.
        self.adopters: list[Adopter] = []
        self.adopted_calls: dict[Any, Any] = {}
        #: Whether a server with a stateless revision also supports the handshake; None until tried.
        self.supports_handshake: bool | None = None

    def __repr__(self) -> str:
        """Show name and state."""
        return f"Upstream({self.entry.name!r}, {self._state.state!r})"

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def entry(self) -> ServerEntry:
        """The entry of the configuration."""
        return self._state.entry

    @property
    def launch(self) -> ServerEntry:
        """The entry as launched, with its secrets filled in once it was found to be trusted."""
        return self._state.launch

    @property
    def offering(self) -> Offering | None:
        """What the server offers; kept during a restart, None while the server cannot be used at all."""
        return self._state.offering

    @property
    def client(self) -> Client | None:
        """The shared client, while it is connected."""
        return self._state.client

    @property
    def may_handshake(self) -> bool:
        """Whether a handshake is worth trying: the entry sets no era, and no handshake was refused."""
        return self.supports_handshake is not False and self.entry.settings.era == "auto"

    @property
    def declared(self) -> Mapping[str, Any]:
        """The capabilities that the shared connection declares to the server."""
        contact = None if self._state.client is None else self._state.client._core.session
        return {} if contact is None else contact.capabilities

    @property
    def state(self) -> ServerState:
        """Its state."""
        return self._state.state

    @property
    def restarts(self) -> int:
        """How often it was started after the first time."""
        return max(0, self._state.starts - 1)

    @property
    def active_calls(self) -> int:
        """The number of calls in progress."""
        return self._state.active_calls

    @property
    def busy(self) -> bool:
        """Whether the outcome of its start is still open."""
        return self._state.busy

    @property
    def running(self) -> bool:
        """Whether the server can be called without waiting for it."""
        return self._state.client is not None

    def list_deadline(self, seconds: float, *, fresh: bool = False) -> float:
        """Return until when a list waits for this server, by the clock of the host; in the past if it does not.

        A cached list of an earlier run is good enough, unless ``fresh``.
        """
        state = self._state
        if (state.offering is not None and not fresh) or not state.busy:
            return float("-inf")
        own = state.entry.settings.wait
        return self._began + (seconds if own is None else own)

    def explain_failure(self, outcome: t.CallToolResult | Exception) -> None:
        """Log what its sandbox kept from a server whose answer to a call was an error."""
        state = self._state
        if state.explain_sandbox is None or not isinstance(outcome, t.CallToolResult | RequestFailed):
            return
        content = outcome.content if isinstance(outcome, t.CallToolResult) else [t.TextContent(text=str(outcome))]
        state.explain_failure("\n".join(block.text for block in content if isinstance(block, t.TextContent)))
        # The traceback of an unexpected error is on stderr, which is read after the answer.
        asyncio.get_running_loop().call_later(_STDERR_SECONDS, lambda: state.explain_failure(state.stderr_tail()))

    def _start_reason(self) -> str | None:
        """Return what a server that has not answered yet wrote to stderr, and what its sandbox kept from it."""
        state = self._state
        stderr = state.stderr_tail() if state.state == "starting" else ""
        if not stderr:
            return None
        found = "" if state.explain_sandbox is None else state.explain_sandbox(stderr)
        return f"no answer yet{f' in its sandbox, which {found}' if found else ''}; last lines of stderr:\n{stderr}"

    @property
    def stderr(self) -> str:
        """The last lines that its process wrote to stderr."""
        return self._state.stderr_tail()

    @property
    def status(self) -> ServerStatus:
        """Its status, with reasons."""
        state, entry = self._state, self._state.entry
        offering, hide = state.offering, state.secrets.hide
        return ServerStatus(
            name=entry.name,
            state=state.state,
            reason=state.reason or self._start_reason(),
            era=(offering.revision or None) if offering is not None else None,
            pid=process_id(state.client or state.held),
            url=None if entry.url is None else self.shown,
            tools=0 if offering is None else len(offering.tools),
            prompts=0 if offering is None else len(offering.prompts),
            resources=0 if offering is None else len(offering.resources) + len(offering.templates),
            last_error=state.last_error,
            restarts=self.restarts,
            dedicated=sum(client.state in _CONNECTED for client in state.dedicated_clients),
            since=state.since,
            source=str(entry.source),
            command=self.shown,
            failures={} if offering is None else {key: hide(why) for key, why in offering.failures.items()},
        )

    # --- use ---------------------------------------------------------------------------------------------------------

    async def connected_client(self) -> Client:
        """Return the shared client, connected; the server is started if necessary.

        Raises:
            ServerUnavailable: it is not running, with the reason and what can be done; raised at once, or when the
                start timeout is over.
        """
        state = self._state
        state.used_at = state.now()
        return state.client or await self._started()

    async def _started(self) -> Client:
        state = self._state
        state.waiting += 1
        try:
            return await self._until_started(start_timeout(state.entry))
        finally:
            state.waiting -= 1
            state.used_at = state.now()

    async def wait_for_start(self) -> None:
        """Wait for a starting server as a call would; ignore the outcome."""
        if self._state.busy:
            with suppress(ServerUnavailable):
                await self._started()

    async def _until_started(self, seconds: float) -> Client:
        """Wait for the server for at most ``seconds``, not counting the time that its start is queued."""
        state, left = self._state, seconds
        while (client := state.client) is None:
            self._check_available()
            if state.state == "known" and not state.busy:
                self._server_task.send_command(ServerCommand.START)
            if state.queued:
                await state.next_transition()
                continue
            began = state.now()
            try:
                await wait_within(self._context.timers, left, state.next_transition())
            except RequestTimeout:
                since = f": {state.reason}" if state.reason else ""
                raise ServerUnavailable(
                    f"The server {self.entry.name} is {state.state} and was not ready within {seconds:g} s{since}"
                ) from None
            left = max(0.0, left - (state.now() - began))
        return client

    def _check_available(self) -> None:
        state = self._state
        if state.state in UNAVAILABLE_STATES and not state.busy:
            what = _WHAT_TO_DO[state.state].format(source=state.entry.source)
            reason = f": {state.reason}" if state.reason else "."
            raise ServerUnavailable(f"The server {state.entry.name} {what}{reason}")

    def make_client(self, *, key: str | None = None, **options: Any) -> Client:
        """Create a dedicated client for the same server; ``options`` take precedence.

        ``key`` names the process if several processes of a gateway may use it.

        It is not supervised, but closed when the server is stopped, restarted or removed from the configuration. It
        starts a process whenever it is connected: call ``verify_trust`` before that.

        Raises:
            ServerUnavailable: the server may not be started now.
        """
        self._check_available()
        if not self._state.approved:
            raise ServerUnavailable(f"The server {self.entry.name} was not checked for approval yet.")
        context = self._context
        given = {} if context.client_options is None else context.client_options(self.launch)
        sharing = context.sharing
        elsewhere = None if sharing is None else sharing.dedicated_target(self.entry, key, options.get("env"))
        shown = ("client_info",) if elsewhere is not None else ("env", "client_info", "on_stderr")
        own = {name: given[name] for name in shown if name in given}
        if "tap" in given:
            own["tap"] = given["tap"].dedicated()
        client = make_client(
            self.launch,
            own | options,
            auth=self._server_task.auth,
            clock=context.timers.clock,
            eras=context.eras,
            sandboxed=context.sandboxed,
            elsewhere=elsewhere,
        )
        self._state.dedicated_clients.add(client)
        return client

    def end_process(self, key: str) -> None:
        """End the process that the workers of a gateway use for one session."""
        if self._context.sharing is not None:
            self._context.sharing.session_ended(self.entry, key)

    async def is_hanging(self, client: Client) -> bool:
        """Return True if the process behind a dedicated client is unresponsive; called after a call timed out."""
        settings, never = self.entry.settings, float("-inf")
        try:
            why = await unresponsive_reason(
                client, settings, timers=self._context.timers, last_activity_at=lambda: never
            )
        except TrunklineError:
            return False
        return why is not None

    async def list_on(
        self, client: Client, before: Offering | None = None, kinds: Collection[str] = ALL_LISTS
    ) -> Offering:
        """List what the server offers on a dedicated connection, within the same bounds as on the shared one."""
        return await list_offering(
            client,
            before,
            kinds=kinds,
            listed_at=time.time(),
            bounds=ListBounds(seconds=start_timeout(self.entry)),
            timers=self._context.timers,
        )

    async def verify_trust(self) -> None:
        """Check again whether the server may run, as before each start; stop it if it no longer may.

        Raises:
            ServerUnavailable: it may not run.
        """
        self._check_available()
        try:
            reason = await self._server_task.verify_trust()
        except ConfigError as error:
            why = self._state.secrets.hide(str(error))
            raise ServerUnavailable(f"The server {self.entry.name} cannot be started: {why}") from error
        if reason is not None:
            self._server_task.send_command(ServerCommand.RESTART)
            raise ServerUnavailable(f"The server {self.entry.name} {_WHAT_TO_DO['unapproved']}: {reason}")

    def track_call(self) -> AbstractContextManager[None]:
        """Count a call while it is in progress: the server is then not idle, and may be silent as long as the call."""
        return self._use if self.call_metrics is None else self.call_metrics.track(self.entry.name, self._use)

    def record_activity(self) -> None:
        """Record a sign of life that only the caller can see, such as progress."""
        self._state.last_activity_at = self._state.now()

    def changed(self, kinds: Collection[str]) -> None:
        """Record a change of lists that was announced on a dedicated connection; they are listed again."""
        if self._state.on_change is not None:
            self._state.on_change(kinds)

    async def notify_roots_changed(self) -> None:
        """Notify the server on every connection that its roots changed; a stateless one asks each time."""
        state = self._state
        for client in {state.client, *state.dedicated_clients}:
            if client is not None and client.state is ClientState.ACTIVE:
                try:
                    await client.notify_roots_changed()
                except TrunklineError as error:
                    log.debug("telling %s of its roots: %s", self.entry.name, error)

    # --- commands ----------------------------------------------------------------------------------------------------

    async def restart(self) -> None:
        """Restart the server and forget its failures; wait for the outcome."""
        self.supports_handshake = None
        await self._server_task.send_command(ServerCommand.RESTART)

    async def stop(self) -> None:
        """Stop the server until it is restarted; wait until its process has ended."""
        await self._server_task.send_command(ServerCommand.STOP)

    # --- for the supervisor ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start its task."""
        self._task = asyncio.get_running_loop().create_task(self._server_task.run())

    def update_entry(self, entry: ServerEntry) -> None:
        """Replace the entry by one that does not affect the running server."""
        state = self._state
        state.launch = replace(state.launch, settings=entry.settings, source=entry.source)
        state.entry = entry
        self.shown = entry.shown

    def retry(self) -> None:
        """Retry a state that a change elsewhere may have resolved."""
        if self._state.state in UNAVAILABLE_STATES - {"disabled", "stopped"}:
            self._server_task.send_command(ServerCommand.RESTART)

    def end(self) -> asyncio.Task[None]:
        """Stop it for good; the task is done once nothing of it is left."""
        if self._task is None:
            self.begin()
        assert self._task is not None
        if not self._task.done():
            self._server_task.send_command(ServerCommand.END)
        return self._task
