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
from trunkline.client.state import State
from trunkline.errors import (
    ConfigError,
    ConnectionLost,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
    ServerExited,
    TrunklineError,
)
from trunkline.host.catalog.keeping import KeptCatalogs
from trunkline.host.catalog.offerings import Offering
from trunkline.host.clocks import within
from trunkline.host.entries import ServerEntry
from trunkline.host.events import ServerState
from trunkline.host.secrecy.book import SecretBook
from trunkline.host.secrecy.filling import Read, fill
from trunkline.host.supervision.backoff import HALF_OPEN_SECONDS, STEADY_SECONDS, Backoff, Breaker
from trunkline.host.supervision.clients import Logins, Sandboxed, make_client, says_who_asks, start_seconds, wants_login
from trunkline.host.supervision.condition import Condition
from trunkline.host.supervision.eras import EraMemory, shakes_hands
from trunkline.host.supervision.listing import Bounds, list_offering
from trunkline.host.supervision.serving import Ending, Serving, keep, running_state
from trunkline.host.supervision.start_queue import StartQueue
from trunkline.timekeeper import Timekeeper

__all__ = ["Order", "Surroundings", "Tender", "Trust"]

log = logging.getLogger("trunkline.host")
T = TypeVar("T")
_Phase: TypeAlias = "Callable[[], Awaitable[_Phase | None]]"

#: Returns whether a server may run, and if not, why.
Trust: TypeAlias = Callable[[ServerEntry], Awaitable[tuple[bool, str | None]]]

_LONGEST_REASON = 2000
# How often the stored logins are checked while a server waits for one.
_LOGIN_SECONDS = 30.0
# Limit of starts in a row that time out; each takes the whole timeout, so the crash breaker would never trip.
_MOST_LATE_STARTS = 3
_LATE_FIRST = 5.0


class Order(IntEnum):
    """Commands to the task of a server; a higher one takes precedence over a lower one."""

    START = 1
    RESTART = 2
    STOP = 3
    END = 4


class Surroundings(Struct, frozen=True, kw_only=True):
    """What the tasks of all servers share; none of it makes one wait for another."""

    trust: Trust
    cache: KeptCatalogs | None
    timekeeper: Timekeeper
    spread: Callable[[], float]
    client_options: Callable[[ServerEntry], Mapping[str, Any]] | None
    logins: Logins
    #: Looks up secrets that entries name, and collects those that must not be shown.
    secret: Read
    secrets: SecretBook
    eras: dict[str, str]
    #: Bounds how many processes start at the same time.
    starts: StartQueue
    sandboxed: Sandboxed | None = None


class _Unapproved(Exception):
    """Trust does not allow this server to run."""


class Tender:
    """The task that owns one server."""

    def __init__(self, condition: Condition, around: Surroundings, *, after: asyncio.Future[Any] | None = None) -> None:
        """Create the task; ``after`` is the end of another server, which this one waits for before it starts."""
        self._condition = condition
        self._around = around
        self._after = after
        self._timekeeper = around.timekeeper
        settings = condition.entry.settings
        self._lazy = settings.start == "lazy"
        self._asked_for = not self._lazy
        self._backoff = Backoff()
        self._breaker = Breaker(settings.crashes, settings.crash_seconds)
        self._order: Order | None = None
        self._arrival: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Futures of commands that were sent, and of those being executed.
        self._unheard: list[asyncio.Future[None]] = []
        self._heard: list[asyncio.Future[None]] = []
        self._finished = False
        self._serving: Serving | None = None
        self._loss: Exception | None = None
        #: The stored logins at the last start.
        self._kept: list[Any] = []
        self._eras = EraMemory(condition, around.cache)
        #: Starts in a row that timed out.
        self._late_starts = 0
        self._late_backoff = Backoff(first=_LATE_FIRST)
        #: The login that was last used.
        self.auth: Any = None

    # --- commands ----------------------------------------------------------------------------------------------------

    def order(self, order: Order) -> asyncio.Future[None]:
        """Send a command; the future is done once it was executed, as far as possible."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._finished or (order == Order.START and self._condition.state != "known"):
            done.set_result(None)
            return done
        self._unheard.append(done)
        if self._order is None or order == Order.END or (order > Order.START and self._order < Order.END):
            self._order = order
        if not self._arrival.done():
            self._arrival.set_result(None)
        return done

    def _take(self) -> Order | None:
        order, self._order = self._order, None
        if order is not None:
            self._heard += self._unheard
            self._unheard.clear()
            self._arrival = asyncio.get_running_loop().create_future()
        return order

    def _carried_out(self) -> None:
        heard, self._heard = self._heard, []
        for done in heard:
            if not done.done():
                done.set_result(None)

    async def _order_within(self, seconds: float | None) -> Order | None:
        """Wait for a command; return None on timeout."""
        row = None if seconds is None else self._timekeeper.after(seconds, self._ring)
        try:
            await self._arrival
        finally:
            if row is not None:
                row.cancel()
        if self._order is None:
            self._arrival = asyncio.get_running_loop().create_future()
        return self._take()

    def _ring(self) -> None:
        if not self._arrival.done():
            self._arrival.set_result(None)

    async def _unless_ordered(self, work: Coroutine[Any, Any, T]) -> T | Order:
        """Run something until it is done or a command arrives; in that case cancel it first."""
        task = asyncio.get_running_loop().create_task(work)
        try:
            either: tuple[asyncio.Future[Any], ...] = (task, self._arrival)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        order = self._take() if task.cancelled() or task.exception() else None
        return task.result() if order is None else order

    async def _obey(self, order: Order) -> _Phase | None:
        if order != Order.START:
            await asyncio.gather(*(client.aclose() for client in list(self._condition.made)), return_exceptions=True)
        if order == Order.STOP:
            return partial(self._rest, "stopped", "stopped; restart it to use it again")
        if order == Order.END:
            self._condition.move("stopped", "removed from the configuration, or the host was closed")
            return None
        if order == Order.RESTART:
            self._forgive()
        self._asked_for = True
        return self._start

    async def vet(self) -> str | None:
        """Check again whether the server may run; return why not, or None.

        Raises:
            ConfigError: a secret that it needs is not available.
        """
        try:
            await self._check_trust()
        except _Unapproved as refusal:
            return str(refusal)
        if self._condition.launch.sealed:
            await self._unseal()
        return None

    # --- phases ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the server until the command to end."""
        phase: _Phase | None = self._begin
        try:
            while phase is not None:
                phase = await phase()
        except Exception as error:
            log.exception("the task of %s failed", self._condition.entry.name)
            self._condition.state = "starting"
            self._condition.move("broken", self._said(f"internal error: {error!r}"))
        finally:
            self._finished = True
            self._heard += self._unheard
            self._carried_out()

    async def _begin(self) -> _Phase | None:
        entry = self._condition.entry
        if entry.disabled or entry.problem is not None:
            return partial(self._rest, self._condition.state, self._condition.reason)
        if self._around.cache is None or (entry.target is not None and not self._lazy):
            return self._start
        try:
            kept = await self._unless_ordered(self._recall())
        except _Unapproved as refusal:
            return partial(self._rest, "unapproved", str(refusal))
        except Exception:
            # The cause will show again in the start, which can report it.
            log.exception("the cached catalog of %s cannot be read", entry.name)
            return self._start
        if isinstance(kept, Order):
            return await self._obey(kept)
        if kept is not None:
            self._condition.offer(kept)
        if kept is None or not self._lazy:
            # A lazy server has to be listed once. Any other one is shown as cached until it is running.
            return self._start
        return partial(self._rest, "known", "starts when it is used")

    async def _rest(self, state: ServerState, reason: str | None, seconds: float | None = None) -> _Phase | None:
        """Stay in a state until a command arrives, or for ``seconds``."""
        # The configuration may have been reloaded meanwhile, with other line numbers.
        reason = self._condition.entry.problem or reason
        self._condition.move(state, reason)
        self._carried_out()
        order = await self._order_within(seconds)
        if order is None:
            return self._try_once_more if state == "broken" else self._start
        if state == "disabled" or self._condition.entry.problem is not None:
            return await self._obey(order) if order == Order.END else partial(self._rest, state, reason)
        return await self._obey(order)

    async def _try_once_more(self) -> _Phase | None:
        self._breaker.try_once()
        return self._start

    async def _await_login(self, reason: str) -> _Phase | None:
        """Stay until the stored logins differ from those that the server refused."""
        condition = self._condition
        condition.move("needs login", reason)
        self._carried_out()
        seconds = None if says_who_asks(condition.launch) else _LOGIN_SECONDS
        while True:
            kept = await self._unless_ordered(self._around.logins.kept(condition.launch))
            if isinstance(kept, Order):
                return await self._obey(kept)
            if kept != self._kept:
                return self._start
            order = await self._order_within(seconds)
            if order is not None:
                return await self._obey(order)

    async def _start(self) -> _Phase | None:
        condition = self._condition
        condition.move("starting")
        condition.starts += 1
        try:
            started = await self._unless_ordered(self._connect())
        except _Unapproved as refusal:
            return partial(self._rest, "unapproved", str(refusal))
        except ConfigError as error:
            return partial(self._rest, "misconfigured", self._said(error))
        except (TrunklineError, OSError) as error:
            return self._failed(error)
        except Exception as error:
            # A bug in a callback; only this server fails because of it.
            log.exception("starting %s failed", condition.entry.name)
            return self._failed(error)
        if isinstance(started, Order):
            return await self._obey(started)
        return partial(self._serve, *started)

    async def _serve(self, client: Client, offering: Offering) -> _Phase | None:
        condition = self._condition
        since = self._timekeeper.clock.now()
        self._late_starts = 0
        self._late_backoff.reset()
        condition.used_at = condition.heard_at = since
        condition.offer(offering)
        # Before it is ready: if it is stopped right after that, the catalog is already cached.
        await keep(self._around.cache, condition, offering)
        if not self._asked_for and not condition.wanted:
            await client.aclose()
            return partial(self._rest, "known", "starts when it is used")
        outcome: Ending | Order
        try:
            serving = self._serving = self._look_after(client)
            condition.client = client
            condition.move(*running_state(offering, condition))
            self._carried_out()
            if self._loss is not None:
                serving.conclude(Ending("lost", self._loss))
            outcome = await self._unless_ordered(serving.run())
        finally:
            self._serving = condition.client = None
            await client.aclose()
        if isinstance(outcome, Order):
            return await self._obey(outcome)
        return self._over(outcome, lived=self._timekeeper.clock.now() - since)

    def _look_after(self, client: Client) -> Serving:
        around = self._around
        return Serving(self._condition, client, timekeeper=self._timekeeper, spread=around.spread, cache=around.cache)

    async def _wait(self, seconds: float, reason: str) -> _Phase | None:
        when = "at once" if seconds < 0.05 else f"in {seconds:.1f} s"
        self._condition.move("waiting", f"starts again {when}: {reason}")
        self._carried_out()
        order = await self._order_within(seconds)
        return self._start if order is None else await self._obey(order)

    # --- the next phase ----------------------------------------------------------------------------------------------

    def _over(self, ending: Ending, *, lived: float) -> _Phase:
        """Return the phase that follows the run of a server."""
        if lived >= STEADY_SECONDS:
            self._forgive()
        if ending.kind == "idle":
            return partial(self._rest, "known", str(ending.error))
        if isinstance(ending.error, str):
            ending = Ending(ending.kind, ConnectionLost(ending.error))
        return self._failed(ending.error)

    def _failed(self, error: Exception | str) -> _Phase:
        """Return the phase that follows a failed start, or an exit."""
        condition = self._condition
        reason = condition.last_error = self._said(error)
        log.info("%s: %s", condition.entry.name, reason)
        if condition.entry.url is not None:
            if isinstance(error, Exception) and wants_login(error):
                return partial(self._await_login, self._how_to_log_in(reason))
        elif self._breaker.failed(self._timekeeper.clock.now()):
            return partial(self._rest, "broken", reason, HALF_OPEN_SECONDS)
        elif isinstance(error, RequestTimeout):
            self._late_starts += 1
            if self._late_starts >= _MOST_LATE_STARTS:
                reason = f"{self._late_starts} starts in a row took too long, the last one: {reason}"
                return partial(self._rest, "broken", reason, HALF_OPEN_SECONDS)
        if self._lazy and condition.offering is not None and not condition.wanted:
            self._asked_for = False
            return partial(self._rest, "known", f"{reason}; starts again when it is used")
        backoff = self._late_backoff if isinstance(error, RequestTimeout) else self._backoff
        return partial(self._wait, backoff.next(self._around.spread()), reason)

    def _forgive(self) -> None:
        """Forget earlier failures."""
        self._late_starts = 0
        self._late_backoff.reset()
        self._backoff.reset()
        self._breaker.reset()

    def _how_to_log_in(self, reason: str) -> str:
        name = self._condition.entry.name
        if says_who_asks(self._condition.entry):
            return f"{reason}; the Authorization header of its entry is not accepted: give another one"
        return f"{reason}; run: trunkline auth login {name}"

    def _said(self, error: Exception | str) -> str:
        """Return an error as a reason: masked, bounded, with the end of stderr unless it is included already."""
        text = str(error) or type(error).__name__
        words = self._condition.stderr_tail()
        if words and not isinstance(error, ServerExited):
            text += f"; last lines of stderr:\n{words}"
        return self._condition.secrets.hide(text)[:_LONGEST_REASON]

    # --- starting ----------------------------------------------------------------------------------------------------

    async def _recall(self) -> Offering | None:
        """Return the cached offering of a server; trust is checked even for that."""
        await self._check_trust()
        cache = self._around.cache
        kept = None if cache is None else await asyncio.to_thread(cache.get, self._condition.entry)
        return None if kept is None else replace(kept, recalled=True)

    async def _check_trust(self) -> None:
        """Check whether the server may run.

        Raises:
            _Unapproved: it may not run.
        """
        condition = self._condition
        condition.approved = False
        seconds = start_seconds(condition.entry)
        allowed, reason = await within(self._timekeeper, seconds, self._around.trust(condition.entry))
        if not allowed:
            raise _Unapproved(reason or f"run: trunkline trust approve {condition.entry.name}")
        condition.approved = True

    async def _unseal(self) -> None:
        """Look up the secrets of a server that may run.

        Raises:
            ConfigError: one of them is not available.
        """
        condition = self._condition
        launch = await fill(condition.entry, self._around.secret)
        condition.secrets.add(launch.secrets)
        condition.launch = launch

    async def _connect(self) -> tuple[Client, Offering]:
        """Start the server and list what it offers; on failure nothing is left running."""
        condition = self._condition
        if self._after is not None:
            # Two instances at once could compete for a port, a lock or files.
            await asyncio.wait([self._after])
            self._after = None
        await self._check_trust()
        if condition.entry.command is None:
            return await self._connect_now()
        queued = self._around.starts.full
        await self._slot()
        try:
            if queued:
                # The program may have changed while it was queued.
                await self._check_trust()
            return await self._connect_now()
        finally:
            self._around.starts.leave()

    async def _slot(self) -> None:
        """Wait until this process may start; the start timeout has not begun yet."""
        condition, starts = self._condition, self._around.starts
        if not starts.full:
            await starts.enter(self._urgency)
            return
        condition.queued = True
        condition.move("starting", f"queued: {starts.most} servers start at a time")
        try:
            await starts.enter(self._urgency)
        finally:
            condition.queued = False
        condition.move("starting")

    def _urgency(self) -> int:
        """Return how soon the server is needed: a call waits for it, it is required, or neither."""
        condition = self._condition
        return 2 if condition.wanted else int(condition.entry.settings.required)

    async def _connect_now(self) -> tuple[Client, Offering]:
        """Connect and list, within the start timeout."""
        condition = self._condition
        # At each start: a secret may have changed.
        await self._unseal()
        logins = self._around.logins
        self._kept = await logins.kept(condition.launch)
        self.auth = await logins.find(condition.launch)
        self._loss = None
        condition.forget_stderr()
        client = await self._meet()
        try:
            offering = await list_offering(
                client,
                condition.offering,
                listed_at=time.time(),
                bounds=Bounds(seconds=start_seconds(condition.entry)),
                timekeeper=self._timekeeper,
            )
            if client.state is not State.ACTIVE:
                raise client.reason or ConnectionLost("the connection ended at once")
            return client, offering
        except BaseException:
            await client.aclose()
            raise

    async def _meet(self) -> Client:
        """Connect to the server; one that used the handshake in an earlier run is not probed.

        Should it be another server by now, which refuses the handshake, it is connected once more as an unknown one.
        """
        condition, eras = self._condition, self._eras
        asked_at = await eras.shook_hands()
        if asked_at is not None:
            client = self._make_client(revision="handshake")
            try:
                await client.__aenter__()
            except BaseException as error:
                await client.aclose()
                if not _may_be_another(error, condition.entry):
                    raise await eras.doubted(client, error) from error
                log.info(
                    "%s refused the handshake that it used before: %s", condition.entry.name, self._said(str(error))
                )
                self._loss = None
            else:
                condition.probed_at = asked_at if shakes_hands(client) else time.time()
                eras.agreed(client)
                return client
        client = self._make_client()
        await eras.expect(client)
        try:
            await client.__aenter__()
        except BaseException as error:
            await client.aclose()
            if isinstance(error, RequestTimeout) and client._core.was_known:
                raise await eras.doubted(client, error) from error
            raise
        condition.probed_at = condition.probed_at or time.time()
        eras.agreed(client)
        return client

    def _make_client(self, **more: Any) -> Client:
        condition, around = self._condition, self._around
        given = {} if around.client_options is None else dict(around.client_options(condition.launch))
        options = {
            **more,
            **given,
            "on_state": _both(self._client_moved, given.get("on_state")),
            "on_stderr": _both(condition.take_stderr, given.get("on_stderr")),
        }
        return make_client(
            condition.launch,
            options,
            auth=self.auth,
            clock=self._timekeeper.clock,
            eras=around.eras,
            sandboxed=around.sandboxed,
            on_remark=condition.note,
        )

    def _client_moved(self, state: State, reason: Exception | None) -> None:
        """Called when the state of the client changes; a client for a URL reconnects by itself."""
        if self._condition.entry.url is not None:
            if state is State.ACTIVE and self._serving is not None:
                self._serving.renewed()
        elif state is State.FAILED:
            self._condition.client = None
            self._loss = reason or ConnectionLost("the connection ended")
            if self._serving is not None:
                self._serving.conclude(Ending("lost", self._loss))


def _may_be_another(error: BaseException, entry: ServerEntry) -> bool:
    """Return True if a server may have refused just the handshake; failures to connect or timeouts do not count."""
    if isinstance(error, RequestFailed | RemoteProtocolError):
        return not wants_login(error)
    return isinstance(error, ConnectionLost) and entry.command is not None


def _both(ours: Callable[..., None], theirs: Callable[..., Any] | None) -> Callable[..., None]:
    """Combine two callbacks; ours is called first."""
    if theirs is None:
        return ours

    def tell(*news: Any) -> None:
        ours(*news)
        theirs(*news)

    return tell
