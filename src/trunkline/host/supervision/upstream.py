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
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from trunkline.client.client import Client
from trunkline.client.state import State
from trunkline.errors import ConfigError, RequestTimeout, ServerUnavailable, TrunklineError
from trunkline.host.catalog.offerings import Offering
from trunkline.host.clocks import within
from trunkline.host.entries import ServerEntry
from trunkline.host.events import ServerState, ServerStateChanged
from trunkline.host.supervision.clients import make_client, process_id, start_seconds
from trunkline.host.supervision.condition import HOPELESS, Condition, Use
from trunkline.host.supervision.health import find_silence
from trunkline.host.supervision.listing import EVERYTHING, Bounds, list_offering
from trunkline.host.supervision.tending import Order, Surroundings, Tender

__all__ = ["Status", "Upstream"]

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


_CONNECTED = frozenset({State.CONNECTING, State.INITIALIZED, State.ACTIVE})


class Status(Struct, frozen=True, kw_only=True):
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


class Upstream:
    """One server of a host."""

    def __init__(
        self,
        entry: ServerEntry,
        around: Surroundings,
        *,
        on_move: Callable[[ServerStateChanged], None],
        on_offering: Callable[[Upstream], None],
        after: asyncio.Future[Any] | None = None,
    ) -> None:
        """Create a server that does nothing before ``begin``; ``after`` is the end of the one that it replaces."""
        self._around = around
        self._condition = Condition(
            entry,
            now=around.timekeeper.clock.now,
            on_move=on_move,
            on_offering=lambda: on_offering(self),
            secrets=around.secrets,
        )
        self._tender = Tender(self._condition, around, after=after)
        self._use = Use(self._condition)
        self._began = around.timekeeper.clock.now()
        self._task: asyncio.Task[None] | None = None
        #: Whether the server requested roots; set by its dedicated connections.
        self.asks_roots = False
        #: Whether a server with a stateless revision also supports the handshake; None until tried.
        self.shakes: bool | None = None

    def __repr__(self) -> str:
        """Show name and state."""
        return f"Upstream({self.entry.name!r}, {self._condition.state!r})"

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def entry(self) -> ServerEntry:
        """The entry of the configuration."""
        return self._condition.entry

    @property
    def launch(self) -> ServerEntry:
        """The entry as launched, with its secrets filled in once it was found to be trusted."""
        return self._condition.launch

    @property
    def offering(self) -> Offering | None:
        """What the server offers; kept during a restart, None while the server cannot be used at all."""
        return self._condition.offering

    @property
    def client(self) -> Client | None:
        """The shared client, while it is connected."""
        return self._condition.client

    @property
    def may_shake(self) -> bool:
        """Whether a handshake is worth trying: the entry sets no era, and no handshake was refused."""
        return self.shakes is not False and self.entry.settings.era == "auto"

    @property
    def declared(self) -> Mapping[str, Any]:
        """The capabilities that the shared connection declares to the server."""
        contact = None if self._condition.client is None else self._condition.client._core.contact
        return {} if contact is None else contact.capabilities

    @property
    def state(self) -> ServerState:
        """Its state."""
        return self._condition.state

    @property
    def busy(self) -> bool:
        """Whether the outcome of its start is still open."""
        return self._condition.busy

    @property
    def running(self) -> bool:
        """Whether the server can be called without waiting for it."""
        return self._condition.client is not None

    def list_wait(self, seconds: float, *, fresh: bool = False) -> float:
        """Return until when a list waits for this server, by the clock of the host; in the past if it does not.

        A cached list of an earlier run is good enough, unless ``fresh``.
        """
        condition = self._condition
        if (condition.offering is not None and not fresh) or not condition.busy:
            return float("-inf")
        own = condition.entry.settings.wait
        return self._began + (seconds if own is None else own)

    @property
    def stderr(self) -> str:
        """The last lines that its process wrote to stderr."""
        return self._condition.stderr_tail()

    @property
    def status(self) -> Status:
        """Its status, with reasons."""
        condition, entry = self._condition, self._condition.entry
        offering, hide = condition.offering, condition.secrets.hide
        return Status(
            name=entry.name,
            state=condition.state,
            reason=condition.reason,
            era=(offering.revision or None) if offering is not None else None,
            pid=process_id(condition.client or condition.held),
            url=None if entry.url is None else entry.shown,
            tools=0 if offering is None else len(offering.tools),
            prompts=0 if offering is None else len(offering.prompts),
            resources=0 if offering is None else len(offering.resources) + len(offering.templates),
            last_error=condition.last_error,
            restarts=max(0, condition.starts - 1),
            dedicated=sum(client.state in _CONNECTED for client in condition.made),
            since=condition.since,
            source=str(entry.source),
            command=entry.shown,
            failures={} if offering is None else {key: hide(why) for key, why in offering.failures.items()},
        )

    # --- use ---------------------------------------------------------------------------------------------------------

    async def reach(self) -> Client:
        """Return the shared client, connected; the server is started if necessary.

        Raises:
            ServerUnavailable: it is not running, with the reason and what can be done; raised at once, or when the
                start timeout is over.
        """
        condition = self._condition
        condition.used_at = condition.now()
        return condition.client or await self._started()

    async def _started(self) -> Client:
        condition = self._condition
        condition.waiting += 1
        try:
            return await self._until_started(start_seconds(condition.entry))
        finally:
            condition.waiting -= 1
            condition.used_at = condition.now()

    async def wait_for_start(self) -> None:
        """Wait for a starting server as a call would; ignore the outcome."""
        if self._condition.busy:
            with suppress(ServerUnavailable):
                await self._started()

    async def _until_started(self, seconds: float) -> Client:
        """Wait for the server for at most ``seconds``, not counting the time that its start is queued."""
        condition, left = self._condition, seconds
        while (client := condition.client) is None:
            self._check_hope()
            if condition.state == "known" and not condition.busy:
                self._tender.order(Order.START)
            if condition.queued:
                await condition.moved()
                continue
            began = condition.now()
            try:
                await within(self._around.timekeeper, left, condition.moved())
            except RequestTimeout:
                since = f": {condition.reason}" if condition.reason else ""
                raise ServerUnavailable(
                    f"The server {self.entry.name} is {condition.state} and was not ready within {seconds:g} s{since}"
                ) from None
            left = max(0.0, left - (condition.now() - began))
        return client

    def _check_hope(self) -> None:
        condition = self._condition
        if condition.state in HOPELESS and not condition.busy:
            what = _WHAT_TO_DO[condition.state].format(source=condition.entry.source)
            reason = f": {condition.reason}" if condition.reason else "."
            raise ServerUnavailable(f"The server {condition.entry.name} {what}{reason}")

    def make_client(self, **options: Any) -> Client:
        """Create a dedicated client for the same server; ``options`` take precedence.

        It is not supervised, but closed when the server is stopped, restarted or removed from the configuration. It
        starts a process whenever it is connected: call ``verify_trust`` before that.

        Raises:
            ServerUnavailable: the server may not be started now.
        """
        self._check_hope()
        if not self._condition.approved:
            raise ServerUnavailable(f"The server {self.entry.name} was not checked for approval yet.")
        around = self._around
        given = {} if around.client_options is None else around.client_options(self.launch)
        client = make_client(
            self.launch,
            {name: given[name] for name in ("env", "client_info") if name in given} | options,
            auth=self._tender.auth,
            clock=around.timekeeper.clock,
            eras=around.eras,
            sandboxed=around.sandboxed,
        )
        self._condition.made.add(client)
        return client

    async def hangs(self, client: Client) -> bool:
        """Return True if the process behind a dedicated client is unresponsive; called after a call timed out."""
        settings, never = self.entry.settings, float("-inf")
        try:
            why = await find_silence(client, settings, timekeeper=self._around.timekeeper, heard_at=lambda: never)
        except TrunklineError:
            return False
        return why is not None

    async def list_on(
        self, client: Client, before: Offering | None = None, kinds: Collection[str] = EVERYTHING
    ) -> Offering:
        """List what the server offers on a dedicated connection, within the same bounds as on the shared one."""
        return await list_offering(
            client,
            before,
            kinds=kinds,
            listed_at=time.time(),
            bounds=Bounds(seconds=start_seconds(self.entry)),
            timekeeper=self._around.timekeeper,
        )

    async def vet(self) -> None:
        """Check again whether the server may run, as before each start; stop it if it no longer may.

        Raises:
            ServerUnavailable: it may not run.
        """
        self._check_hope()
        try:
            reason = await self._tender.vet()
        except ConfigError as error:
            why = self._condition.secrets.hide(str(error))
            raise ServerUnavailable(f"The server {self.entry.name} cannot be started: {why}") from error
        if reason is not None:
            self._tender.order(Order.RESTART)
            raise ServerUnavailable(f"The server {self.entry.name} {_WHAT_TO_DO['unapproved']}: {reason}")

    def using(self) -> AbstractContextManager[None]:
        """Count a call while it is in progress: the server is then not idle, and may be silent as long as the call."""
        return self._use

    def heard(self) -> None:
        """Record a sign of life that only the caller can see, such as progress."""
        self._condition.heard_at = self._condition.now()

    def changed(self, kinds: Collection[str]) -> None:
        """Record a change of lists that was announced on a dedicated connection; they are listed again."""
        if self._condition.on_change is not None:
            self._condition.on_change(kinds)

    async def tell_roots_changed(self) -> None:
        """Notify the server on every connection that its roots changed; a stateless one asks each time."""
        condition = self._condition
        for client in {condition.client, *condition.made}:
            if client is not None and client.state is State.ACTIVE:
                try:
                    await client.notify_roots_changed()
                except TrunklineError as error:
                    log.debug("telling %s of its roots: %s", self.entry.name, error)

    # --- commands ----------------------------------------------------------------------------------------------------

    async def restart(self) -> None:
        """Restart the server and forget its failures; wait for the outcome."""
        self.shakes = None
        await self._tender.order(Order.RESTART)

    async def stop(self) -> None:
        """Stop the server until it is restarted; wait until its process has ended."""
        await self._tender.order(Order.STOP)

    # --- for the supervisor ------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start its task."""
        self._task = asyncio.get_running_loop().create_task(self._tender.run())

    def adopt(self, entry: ServerEntry) -> None:
        """Replace the entry by one that does not affect the running server."""
        condition = self._condition
        condition.launch = replace(condition.launch, settings=entry.settings, source=entry.source)
        condition.entry = entry

    def retry(self) -> None:
        """Retry a state that a change elsewhere may have resolved."""
        if self._condition.state in HOPELESS - {"disabled", "stopped"}:
            self._tender.order(Order.RESTART)

    def end(self) -> asyncio.Task[None]:
        """Stop it for good; the task is done once nothing of it is left."""
        if self._task is None:
            self.begin()
        assert self._task is not None
        if not self._task.done():
            self._tender.order(Order.END)
        return self._task
