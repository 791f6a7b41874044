"""Where one server is in its life, and what is known of it: written by the task that owns the server, read by all.

::

    disabled   misconfigured           by the configuration
                   ▲
    known ──▶ starting ──▶ ready ◀──▶ partial         one of its lists could not be read
      ▲  ▲     ▲ │ │ │       │           │
      │  │     │ │ │ └──▶ needs login ◀──┤            until a login is kept, or restarted
      │  └─────│─│─│──── not used ───────┤            idle, or lazy: until it is used
      │        │ │ └────▶ waiting ◀──────┤            ended: until the wait is over
      │        │ └──────▶ broken ◀───────┘            ended too often: until restarted, or minutes later
      │        └── unapproved                         until approved
      └──────────▶ stopped, from anywhere             until restarted, or for good

``MOVES`` is the whole table; a move that is not in it raises. It starts nothing and knows no process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from weakref import WeakSet

from trunkline.client.client import Client
from trunkline.errors import HandlerError, LocalProtocolError, RemoteProtocolError, RequestFailed, RequestTimeout
from trunkline.host.catalog.offerings import Offering
from trunkline.host.entries import ServerEntry
from trunkline.host.events import ServerState, ServerStateChanged
from trunkline.host.secrecy.book import SecretBook
from trunkline.host.supervision.clients import wants_login
from trunkline.host.supervision.listing import differs

__all__ = ["HOPELESS", "MOVES", "Condition", "Use"]

log = logging.getLogger("trunkline.host")

_AFTER_RUNNING: frozenset[ServerState] = frozenset(
    {"broken", "known", "needs login", "partial", "ready", "starting", "stopped", "waiting"}
)

_ONLY_STARTING: frozenset[ServerState] = frozenset({"misconfigured", "unapproved"})

#: From a state to those that may follow it.
MOVES: Mapping[ServerState, frozenset[ServerState]] = MappingProxyType(
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

#: States in which waiting for the server is of no use: something else has to happen first.
HOPELESS: frozenset[ServerState] = frozenset(
    {"broken", "disabled", "misconfigured", "needs login", "stopped", "unapproved"}
)

_STDERR_BYTES = 8 * 1024
_STDERR_LINES = 10


class Condition:
    """The state of one server, with what everybody may know of it."""

    def __init__(
        self,
        entry: ServerEntry,
        *,
        now: Callable[[], float],
        on_move: Callable[[ServerStateChanged], None],
        on_offering: Callable[[], None],
        secrets: SecretBook | None = None,
    ) -> None:
        """Begin as the entry says; the two callbacks hear of moves and of changes of what is offered."""
        self.entry = entry
        #: The entry as it is started, with its secrets filled in; the entry itself until they are looked up.
        self.launch = entry
        #: What must be in no reason, and in nothing else that is shown.
        self.secrets = SecretBook() if secrets is None else secrets
        self.secrets.add(entry.secrets)
        self.now = now
        self._on_move = on_move
        self._on_offering = on_offering
        self.state: ServerState = "disabled" if entry.disabled else "misconfigured" if entry.problem else "known"
        self.reason: str | None = entry.problem
        #: Seconds since the epoch at which the state began.
        self.since = time.time()
        #: Whether it is still being found out how things stand.
        self.busy = self.state == "known"
        #: The client that calls may use; None while there is none.
        self.client: Client | None = None
        self.offering: Offering | None = None
        #: Whether the server was found to be approved when that was last looked at.
        self.approved = False
        #: Seconds since the epoch at which it was last asked what it speaks, in this run or before.
        self.probed_at = 0.0
        #: Set once the server was seen to answer ``server/discover``, and whether that is kept for the next run.
        self.discovers = asyncio.Event()
        self.discovers_kept = False
        #: Serializes what is written of the server for the next run.
        self.keeping = asyncio.Lock()
        #: Whether it waits for its turn to start.
        self.queued = False
        self.last_error: str | None = None
        self.starts = 0
        #: What there is to say of how it was started.
        self.remark: str | None = None
        #: Calls under way, and callers who wait for the server to run.
        self.uses = 0
        self.waiting = 0
        self.used_at = self.heard_at = now()
        #: The same client while it is asked whether the server still answers; no call may use it then.
        self.held: Client | None = None
        #: Called at once when a call was refused for want of a login, or timed out; set while the server runs.
        self.on_trouble: Callable[[], None] | None = None
        #: Told which kinds of lists changed by whoever else heard of it; written by the same.
        self.on_change: Callable[[Collection[str]], None] | None = None
        #: Other clients of the same server, which end with it.
        self.made: WeakSet[Client] = WeakSet()
        self._moved: set[asyncio.Future[None]] = set()
        self._stderr = bytearray()
        self._stderr_cut = False

    # --- moving ------------------------------------------------------------------------------------------------------

    def move(self, state: ServerState, reason: str | None = None) -> None:
        """Go to a state, and tell.

        Raises:
            LocalProtocolError: the table has no such move.
        """
        reason = None if reason is None else self.secrets.hide(reason)
        if state == self.state and state != "starting":
            if reason == self.reason:
                self.settle(state)
                return
        elif state not in MOVES[self.state]:
            raise LocalProtocolError(f"{self.entry.name}: no server goes from {self.state!r} to {state!r}.")
        if state != self.state:
            self.since = time.time()
        self.state, self.reason = state, reason
        if state in HOPELESS:
            self.offer(None)
        self.settle(state)
        self._on_move(ServerStateChanged(self.entry.name, state, reason))

    def settle(self, state: ServerState) -> None:
        """Note whether things are found out, and wake whoever waits for that."""
        self.busy = state == "starting"
        moved, self._moved = self._moved, set()
        for future in moved:
            if not future.done():
                future.set_result(None)

    async def moved(self) -> None:
        """Wait for the next move."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._moved.add(future)
        try:
            await future
        finally:
            self._moved.discard(future)

    def offer(self, offering: Offering | None) -> None:
        """Say what the server offers; tell if that is something else than before."""
        before, self.offering = self.offering, offering
        if not differs(before, offering):
            return
        try:
            self._on_offering()
        except Exception:
            log.exception("a callback failed (what %s offers)", self.entry.name)

    # --- being used --------------------------------------------------------------------------------------------------

    @property
    def wanted(self) -> bool:
        """Whether anybody uses the server, or waits to."""
        return bool(self.uses or self.waiting)

    def began(self) -> None:
        """Note that a call began."""
        now = self.now()
        if not self.uses:
            # Its silence counts from here: nobody listened to it before.
            self.heard_at = now
        self.uses += 1
        self.used_at = now

    def ended(self, error: BaseException | None) -> None:
        """Note that a call ended, and how: an answer, even one with an error, is a sign of life."""
        self.uses -= 1
        self.used_at = self.now()
        if error is None or isinstance(error, RequestFailed | HandlerError | RemoteProtocolError):
            self.heard_at = self.used_at
        if self.on_trouble is not None and (isinstance(error, RequestTimeout) or wants_login(error)):
            self.on_trouble()

    # --- last words --------------------------------------------------------------------------------------------------

    def take_stderr(self, data: bytes) -> None:
        """Keep the end of what the process writes to stderr."""
        self._stderr += data
        if len(self._stderr) > _STDERR_BYTES:
            self._stderr_cut = True
            del self._stderr[:-_STDERR_BYTES]

    def note(self, remark: str | None) -> None:
        """Note what there is to say of how the server was started."""
        self.remark = remark

    def forget_stderr(self) -> None:
        """Begin anew: another process writes."""
        self._stderr.clear()
        self._stderr_cut = False

    def stderr_tail(self) -> str:
        """Give the last lines of it, secrets left out."""
        lines = self._stderr.decode("utf-8", "replace").strip().splitlines()
        # Half a secret would not be known again, so a line that was cut is left out.
        whole = lines[1:] if self._stderr_cut else lines
        return self.secrets.hide("\n".join(whole[-_STDERR_LINES:]))


class Use:
    """Counts a call while it is under way; one object serves any number of calls at once."""

    __slots__ = ("_condition",)

    def __init__(self, condition: Condition) -> None:
        """Count for a server."""
        self._condition = condition

    def __enter__(self) -> None:
        self._condition.began()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._condition.ended(error)
