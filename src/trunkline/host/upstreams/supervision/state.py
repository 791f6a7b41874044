"""The state of one server, and what is known of it: written by the task that owns the server, read by all.

::

    disabled   misconfigured           by the configuration
                   ▲
    known ──▶ starting ──▶ ready ◀──▶ partial         one of its lists failed
      ▲  ▲     ▲ │ │ │       │           │
      │  │     │ │ │ └──▶ needs login ◀──┤            until a login is stored, or restarted
      │  └─────│─│─│──── not used ───────┤            idle, or lazy: until it is used
      │        │ │ └────▶ waiting ◀──────┤            exited: until the wait is over
      │        │ └──────▶ broken ◀───────┘            exited too often: until restarted, or minutes later
      │        └── unapproved                         until approved
      └──────────▶ stopped, from anywhere             until restarted, or for good

``TRANSITIONS`` is the whole table; any other transition raises. Starts nothing and knows no process.

``EraMemory`` is the era of one server as known from earlier runs, cached in the same file as its catalog. A server that
needed the handshake is not probed again for a while. One that answered ``server/discover``, even too late, gets as long
to answer as a start may take: a slow start must not be mistaken for an older server.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING
from weakref import WeakSet

from trunkline.client.client import Client
from trunkline.errors import LocalProtocolError, RequestTimeout
from trunkline.host.config.model import ServerEntry
from trunkline.host.events import ServerState, ServerStateChanged
from trunkline.host.secrets.registry import SecretRegistry
from trunkline.host.upstreams.catalog.catalog import CatalogCache
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.host.upstreams.supervision.clients import offerings_differ
from trunkline.protocol.revisions import NEWEST, Revision, uses_handshake

if TYPE_CHECKING:
    from trunkline.host.sandbox.launch import LaunchPlan

__all__ = ["TRANSITIONS", "UNAVAILABLE_STATES", "EraMemory", "UpstreamState"]

log = logging.getLogger("trunkline.host")

_FINDING = "its sandbox"
_MOST_FINDINGS = 3  # A server chooses what its errors name; it must not fill the log.

_AFTER_RUNNING: frozenset[ServerState] = frozenset(
    {"broken", "known", "needs login", "partial", "ready", "starting", "stopped", "waiting"}
)

_ONLY_STARTING: frozenset[ServerState] = frozenset({"misconfigured", "unapproved"})

#: The states that may follow each state.
TRANSITIONS: Mapping[ServerState, frozenset[ServerState]] = MappingProxyType(
    {
        "disabled": frozenset({"stopped"}),
        "misconfigured": frozenset({"starting", "stopped"}),
        "unapproved": frozenset({"starting", "stopped"}),
        "known": frozenset({"starting", "stopped", "unapproved"}),
        "starting": _AFTER_RUNNING | _ONLY_STARTING,
        "ready": _AFTER_RUNNING - {"ready"},
        "partial": _AFTER_RUNNING - {"partial"},
        "needs login": frozenset({"starting", "stopped"}),
        "waiting": frozenset({"starting", "stopped"}),
        "broken": frozenset({"starting", "stopped"}),
        "stopped": frozenset({"starting"}),
    }
)

#: States in which waiting for the server is useless: something else has to happen first.
UNAVAILABLE_STATES: frozenset[ServerState] = frozenset(
    {"broken", "disabled", "misconfigured", "needs login", "stopped", "unapproved"}
)

_STDERR_BYTES = 8 * 1024  # The end of stderr, for the reason in a status.
_STDERR_LINES = 10  # A short traceback.


class UpstreamState:
    """The state of one server, with what is known of it."""

    def __init__(
        self,
        entry: ServerEntry,
        *,
        now: Callable[[], float],
        on_move: Callable[[ServerStateChanged], None],
        on_offering: Callable[[], None],
        secrets: SecretRegistry | None = None,
    ) -> None:
        """Start in the state of the entry; the callbacks are called on transitions and on changes of the offering."""
        self.entry = entry
        #: The entry as launched, with its secrets filled in; the entry itself until they are looked up.
        self.launch = entry
        #: Secrets that must not occur in reasons or anything else that is shown.
        self.secrets: SecretRegistry = SecretRegistry() if secrets is None else secrets
        self.secrets.add(entry.secrets)
        self.now = now
        self._on_move = on_move
        self._on_offering = on_offering
        self.state: ServerState = "disabled" if entry.disabled else "misconfigured" if entry.problem else "known"
        self.reason: str | None = entry.problem
        #: Seconds since the epoch at which the state began.
        self.since: float = time.time()
        #: Whether the outcome of a start is still open.
        self.busy: bool = self.state == "known"
        #: The shared client; None while it cannot be used.
        self.client: Client | None = None
        self.offering: Offering | None = None
        #: Whether the server was approved at the last trust check.
        self.approved = False
        #: Seconds since the epoch at which its era was last probed, in this run or before.
        self.probed_at: float = 0.0
        #: Set once the server answered ``server/discover``, and whether that is cached for the next run.
        self.discovers: asyncio.Event = asyncio.Event()
        self.discovery_cached = False
        #: Serializes writes to the cache.
        self.cache_lock: asyncio.Lock = asyncio.Lock()
        #: Whether its start is queued.
        self.queued = False
        self.last_error: str | None = None
        self.starts = 0
        #: A remark on how it was launched, and on what its sandbox kept from it.
        self.remark: str | None = None
        #: Returns what its sandbox kept from it, given its output; None without a sandbox.
        self.explain_sandbox: Callable[[str], str] | None = None
        #: Calls in progress, and callers that wait for the server to start.
        self.active_calls: int = 0
        self.waiting = 0
        self.used_at: float = now()
        self.last_activity_at: float = self.used_at
        #: The shared client during a health check, when no call may use it.
        self.held: Client | None = None
        #: Called when a call timed out or was refused for lack of a login; set while the server runs.
        self.on_suspected_failure: Callable[[], None] | None = None
        #: Called with the kinds of lists that changed, as seen on other connections; set while the server runs.
        self.on_change: Callable[[Collection[str]], None] | None = None
        #: Dedicated clients of the same server, which are closed with it.
        self.dedicated_clients: WeakSet[Client] = WeakSet()
        self._moved: set[asyncio.Future[None]] = set()
        self._stderr = bytearray()
        self._stderr_cut = False

    # --- transitions -------------------------------------------------------------------------------------------------

    def transition_to(self, state: ServerState, reason: str | None = None) -> None:
        """Enter a state and call ``on_move``.

        Raises:
            LocalProtocolError: the table has no such transition.
        """
        reason = None if reason is None else self.secrets.hide(reason)
        if state == self.state and state != "starting":
            if reason == self.reason:
                self.settle(state)
                return
        elif state not in TRANSITIONS[self.state]:
            raise LocalProtocolError(f"{self.entry.name}: no transition from {self.state!r} to {state!r}.")
        if state != self.state:
            self.since = time.time()
        self.state, self.reason = state, reason
        if state in UNAVAILABLE_STATES:
            self.offer(None)
        self.settle(state)
        self._on_move(ServerStateChanged(self.entry.name, state, reason))

    def settle(self, state: ServerState) -> None:
        """Update ``busy``, and wake all waiters."""
        self.busy = state == "starting"
        moved, self._moved = self._moved, set()
        for future in moved:
            if not future.done():
                future.set_result(None)

    async def next_transition(self) -> None:
        """Wait for the next transition."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._moved.add(future)
        try:
            await future
        finally:
            self._moved.discard(future)

    def offer(self, offering: Offering | None) -> None:
        """Set what the server offers; call ``on_offering`` if it changed."""
        before, self.offering = self.offering, offering
        if not offerings_differ(before, offering):
            return
        try:
            self._on_offering()
        except Exception:
            log.exception("the callback for a changed offering of %s failed", self.entry.name)

    # --- calls -------------------------------------------------------------------------------------------------------

    @property
    def is_needed(self) -> bool:
        """Whether a call is in progress, or waits for the server."""
        return bool(self.active_calls or self.waiting)

    # --- stderr ------------------------------------------------------------------------------------------------------

    def append_stderr(self, data: bytes) -> None:
        """Append stderr output of the process; only the end is kept."""
        self._stderr += data
        if len(self._stderr) > _STDERR_BYTES:
            self._stderr_cut = True
            del self._stderr[:-_STDERR_BYTES]

    def launched(self, launch: LaunchPlan) -> None:
        """Store how the sandboxed server was launched."""
        self.remark, self.explain_sandbox = launch.remark, launch.explain

    def explain_failure(self, output: str) -> None:
        """Log and show in the status what the sandbox kept from a server whose call failed; each finding once."""
        found = "" if self.explain_sandbox is None else self.secrets.hide(self.explain_sandbox(output))
        told = self.remark or ""
        is_enough = found in told or told.count(_FINDING) == _MOST_FINDINGS
        if not found or is_enough or self.state not in ("ready", "partial"):
            return
        log.warning("a call of %s failed in its sandbox, which %s", self.entry.name, found)
        other_reason = (self.reason or "").removeprefix(told).removeprefix("; ")
        self.remark = "; ".join(filter(None, (told, f"{_FINDING} {found}")))
        self.transition_to(self.state, "; ".join(filter(None, (self.remark, other_reason))))

    def clear_stderr(self) -> None:
        """Clear the buffer: a new process writes."""
        self._stderr.clear()
        self._stderr_cut = False

    def stderr_tail(self) -> str:
        """Return the last lines, with secrets masked."""
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        # Half a secret would not be recognized, so a truncated line is left out.
        whole = lines[1:] if self._stderr_cut else lines
        return self.secrets.hide("\n".join(whole[-_STDERR_LINES:]))


class EraMemory:
    """The remembered era of one server."""

    def __init__(self, state: UpstreamState, cache: CatalogCache | None) -> None:
        """Start with a cache; without one nothing is remembered between runs."""
        self._state = state
        self._cache = cache
        self._started_before = False

    async def handshake_probed_at(self) -> float | None:
        """Return when the server was last probed, if it needed the handshake; None after the first start of a run."""
        cache, entry, first = self._cache, self._state.entry, not self._started_before
        self._started_before = True
        if not first or cache is None or entry.target is not None or entry.settings.era != "auto":
            return None
        return await asyncio.to_thread(cache.handshake_probed_at, entry, time.time())

    async def expect(self, client: Client) -> None:
        """Extend the probe timeout of a client to that of a start, if the server is known to answer."""
        self._state.discovers.clear()
        client._core.on_discovered = self._discovered
        cache, entry = self._cache, self._state.entry
        if cache is None or entry.target is not None or entry.settings.era != "auto":
            return
        if await asyncio.to_thread(cache.discovers, entry):
            client._core.known = NEWEST

    def agreed(self, client: Client) -> bool:
        """Note the era of a server that was just connected; return whether it used the handshake."""
        handshake = uses_handshake(client.revision)
        if not handshake:
            self._state.discovers.set()
        return handshake

    def _discovered(self, revision: Revision) -> None:
        log.info(
            "%s answered the era probe late with %s: its next start uses that",
            self._state.entry.name,
            revision.name,
        )
        self._state.discovers.set()

    async def distrust_era(self, client: Client, error: BaseException) -> BaseException:
        """Forget the era of a server whose start failed; return the failure, with a note about that."""
        client._core.forget_era()
        cache, entry = self._cache, self._state.entry
        if cache is None or not isinstance(error, Exception):
            return error
        try:
            await asyncio.to_thread(cache.forget_era, entry)
        except OSError as problem:
            log.warning("the remembered era of %s cannot be removed: %s", entry.name, problem)
        if not isinstance(error, RequestTimeout):
            return error
        said = f"{error}; the era was remembered from an earlier run, and the next start probes it again"
        return RequestTimeout(said, clock=error.clock, seconds=error.seconds)
