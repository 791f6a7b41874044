"""The sessions of the gateway's clients: one per handshake session, and one per principal for stateless clients.

A stateless client identifies itself with each request; what outlives a request (session grants, connections to servers)
then belongs to its principal. Opening more sessions does not increase a budget: it belongs to the principal.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.connection import Connection, Exchange
from trunkline.host.authorization.approval import ApprovalMode
from trunkline.host.config.model import NO_FILTERS, Filters
from trunkline.host.core import HostCore
from trunkline.host.session import CallBudget, HostSession
from trunkline.host.upstreams.routing.channels import log_wanted
from trunkline.host.upstreams.routing.connection_pool import OnLog
from trunkline.host.upstreams.routing.credentials import user_credentials
from trunkline.protocol.caller import Caller, Session
from trunkline.protocol.extension_definition import Extension
from trunkline.server.task_options import SlowCalls, TaskSettings

__all__ = ["GatewayOptions", "GatewaySessions"]

_USUAL_POLL = 5.0  # Advised poll interval: a gateway polls the server's task itself, and has many clients.


class GatewayOptions(Struct, frozen=True, kw_only=True):
    """The options of a gateway or of one of its profiles."""

    name: str = "trunkline"
    #: The profile: a virtual server with some of the servers, its own filters and its own policy.
    profile: str | None = None
    servers: frozenset[str] | None = None
    tools: Filters = NO_FILTERS
    #: Who asks the user before a call: the client, the gateway, or no one (``authorization/approval.py``).
    approval: ApprovalMode = "ask"
    #: Limits of one principal: calls per minute, and concurrent calls.
    per_minute: float | None = None
    concurrent: int = 256
    #: Whether a large catalog is replaced by tools to search it.
    search: str = "auto"
    #: For ``auto``: the size of the model's context window, and the share of it above which tools are searched.
    window_tokens: int = 200_000
    share: float = 0.25
    #: All callers are the user's own (loopback and one token), so that answers may outlive the session. Over stdio
    #: this is known without it.
    own_user: bool = False
    #: How slow calls of clients without tasks are served: held open, or as a job to poll.
    slow_calls: SlowCalls = "hold"
    #: Seconds after which a client of the tasks extension gets a task instead of waiting; 0 for at once.
    task_after: float = 5.0
    #: Extensions whose methods have acts, so that the gateway can forward them.
    extensions: tuple[Extension, ...] = ()
    #: The path of an SQLite file, or the URL of the store; None keeps everything in memory.
    store: str | None = None

    @property
    def task_settings(self) -> TaskSettings:
        """How the gateway runs tasks."""
        return TaskSettings(slow_calls=self.slow_calls, poll_after=self.task_after, usual_poll=_USUAL_POLL)


class GatewaySessions:
    """The host sessions and budgets of the gateway's clients."""

    def __init__(self, core: HostCore, options: GatewayOptions, *, notify: Callable[[Session, str, Any], None]) -> None:
        """Start without sessions; ``notify`` sends a handshake session a notification outside of any request."""
        self._core = core
        self._options = options
        self._notify = notify
        self._sessions: OrderedDict[Any, HostSession] = OrderedDict()
        self._budgets: OrderedDict[Any, CallBudget] = OrderedDict()
        self._leaving: set[asyncio.Task[None]] = set()
        #: Whether other workers serve the same sessions.
        self.is_shared = False

    def _shared_key(self, caller: Caller, who: Any) -> str:
        """Return what names a session at every worker."""
        name = caller.session.id if caller.session is not None else ["principal", who]
        return hashlib.sha256(msgspec.json.encode([self._options.profile, name])).hexdigest()

    def session(self, exchange: Exchange) -> HostSession:
        """Return the session that a request belongs to."""
        return self.of_caller(exchange.admitted.caller, exchange.connection)

    def of_caller(self, caller: Caller, connection: Connection | None = None) -> HostSession:
        """Return the session of a caller; without its connection, all anonymous stateless callers share one."""
        who = None if caller.principal is None else caller.principal.identity
        key: Any = caller.session
        if key is None:
            # Anonymous callers are told apart by connection; over HTTP all anonymous callers share one session.
            key = (who, None if caller.origin.transport == "http" or who is not None else connection)
        found = self._sessions.get(key)
        if found is None:
            found = self._sessions[key] = self._core.open_session(
                HostSession(
                    now=time.monotonic,
                    principal=caller.principal,
                    profile=self._options.profile,
                    budget=self._budget(who if who is not None or caller.session is None else key),
                    credentials=user_credentials(self._core.folder, caller.principal),
                    # Without a session there may be many conversations: text in one would taint acts of another.
                    conversation=caller.session is not None,
                    covers=_covers(caller),
                )
            )
            found.connections.on_log = self._logger(found, caller.session)
            if self.is_shared:
                found.share(self._shared_key(caller, who), is_session=caller.session is not None)
            if len(self._sessions) > self._core.limits.sessions:
                _, oldest = self._sessions.popitem(last=False)
                self._end(oldest)
        else:
            self._sessions.move_to_end(key)
        return found

    def find(self, caller: Caller) -> HostSession | None:
        """Return the session of a caller, found without its connection; None if there is none."""
        if caller.session is not None:
            return self._sessions.get(caller.session)
        return self._sessions.get((None if caller.principal is None else caller.principal.identity, None))

    def _logger(self, own: HostSession, session: Session | None) -> OnLog:
        """Return the callback for log messages that belong to no call; it sends nothing to a stateless client."""

        def log(message: t.LoggingMessageNotificationParams) -> None:
            if session is not None and log_wanted(message.level, own.log_level, unasked=True):
                self._notify(session, "notifications/message", message)

        return log

    def session_ended(self, session: Session | None, *, goes_on: bool = False) -> None:
        """Called when a handshake session ends; ``goes_on`` is True if tasks of the session outlive it."""
        found = None if session is None else self._sessions.pop(session, None)
        if found is not None and goes_on:
            self._spawn(self._core.abandon_session(found))
        elif found is not None:
            self._end(found)

    def disconnected(self, connection: Connection) -> None:
        """End the session of an anonymous stateless client that had this connection to itself."""
        found = self._sessions.pop((None, connection), None)
        if found is not None:
            self._spawn(self._core.abandon_session(found))

    async def aclose(self) -> None:
        """Close all sessions."""
        sessions, self._sessions = list(self._sessions.values()), OrderedDict()
        await asyncio.gather(*map(self._core.close_session, sessions))
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _budget(self, who: Any) -> CallBudget:
        budget = self._budgets.get(who)
        if budget is None:
            budget = self._budgets[who] = CallBudget(
                time.monotonic, per_minute=self._options.per_minute, concurrent=self._options.concurrent
            )
            if len(self._budgets) > self._core.limits.sessions:
                self._budgets.popitem(last=False)
        return budget

    def _end(self, session: HostSession) -> None:
        self._spawn(self._core.close_session(session))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)


def _covers(caller: Caller) -> str | None:
    """Return which clients share the session of a stateless caller; None if it is one client.

    The name that a client gives itself in ``_meta`` tells no clients apart: it is the same in two windows of one
    application, and any client can send it.
    """
    if caller.session is not None:
        return None
    if caller.principal is not None:
        return "all clients with the same token or login"
    return "all clients, since none has to authenticate" if caller.origin.transport == "http" else None
