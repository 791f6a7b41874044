"""Builds a client from a configuration entry: target, era, limits and login.

A server at a URL is shown a login only if one is stored for that URL; no one is ever prompted for a login from here. An
``Authorization`` header of the entry is never replaced: what the user wrote counts.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from trunkline.client.client import Client
from trunkline.errors import AuthError, ConfigError, HttpError, RequestFailed
from trunkline.host.entries import ServerEntry
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST
from trunkline.timekeeper import Clock
from trunkline.waiting import Waiters

if TYPE_CHECKING:
    # Most servers need no login; the modules for one are loaded on demand.
    from trunkline.auth.oauth import OAuth
    from trunkline.auth.store import Store
    from trunkline.host.sandbox.planning import Launch

__all__ = [
    "Logins",
    "Sandboxed",
    "in_flight",
    "make_client",
    "may_ask",
    "process_id",
    "progress_at",
    "says_who_asks",
    "start_seconds",
    "wants_login",
]

#: Returns how to launch a sandboxed server, given an environment that replaces that of its entry.
Sandboxed: TypeAlias = "Callable[[ServerEntry, Mapping[str, str] | None], Launch]"

log = logging.getLogger("trunkline.host")

# Errors of an authorization server that may be transient.
_PASSING = frozenset({"server_error", "slow_down", "temporarily_unavailable"})
_REFUSALS = frozenset({401, 403})


def start_seconds(entry: ServerEntry) -> float:
    """Return how long a server may take to start."""
    given = entry.settings.start_timeout
    return Limits().connect_seconds if given is None else given


def make_client(
    entry: ServerEntry,
    options: Mapping[str, Any],
    *,
    auth: OAuth | None = None,
    clock: Clock | None = None,
    eras: dict[str, str] | None = None,
    sandboxed: Sandboxed | None = None,
    on_remark: Callable[[str | None], None] | None = None,
) -> Client:
    """Create a client for an entry; ``options`` are those of ``Client`` and override the entry.

    ``sandboxed`` returns how to launch a sandboxed server; ``on_remark`` is called with a remark on that launch.

    Raises:
        ConfigError: the entry or an option is invalid, or its secrets are not filled in yet.
    """
    if entry.sealed:
        raise ConfigError(f"{entry.name}: its secrets are not filled in yet, so it is not started")
    settings = entry.settings
    own: dict[str, Any] = {
        "revision": _revision(settings.era),
        "limits": _limits(entry),
        "clock": clock,
        "era_memory": eras,
        # A host answers lists from its catalog; every other request is made for a particular caller.
        "cache": False,
    }
    target: Any = entry.target
    if entry.url is not None:
        target = {"url": entry.url, "type": entry.type}
        own |= {"headers": entry.headers or None, "auth": auth}
    elif entry.command is not None:
        target = list(entry.command)
        # The supervisor restarts a process; the client must not.
        own |= {"env": entry.env, "cwd": entry.cwd, "restart": False}
        if entry.settings.sandbox is not None:
            launch = (sandboxed or _sandboxed)(entry, options.get("env"))
            target = list(launch.command)
            # The sandbox is configured by these variables, so no others may replace them.
            options = {**options, "env": launch.env, "cwd": launch.cwd}
            if on_remark is not None:
                on_remark(launch.remark)
    return Client(target, **(own | dict(options)))


def _sandboxed(entry: ServerEntry, env: Mapping[str, str] | None) -> Launch:
    from trunkline.host.sandbox.planning import prepare

    return prepare(entry, env=env)


def _revision(era: str) -> str:
    return {"stateless": NEWEST.name}.get(era, era)


def _limits(entry: ServerEntry) -> Limits:
    settings, usual = entry.settings, Limits()
    return Limits(
        message_bytes=usual.message_bytes if settings.message_bytes is None else settings.message_bytes,
        connect_seconds=start_seconds(entry),
        idle_seconds=usual.idle_seconds if settings.timeout is None else settings.timeout,
        total_seconds=usual.total_seconds if settings.total_timeout is None else settings.total_timeout,
    )


def process_id(client: Client | None) -> int | None:
    """Return the id of the process that a client is connected to, if there is one."""
    contact = None if client is None else client._core.contact
    return None if contact is None else contact.link.pid


def may_ask(client: Client) -> bool:
    """Return True if the server can send requests on this connection: it was opened with a handshake, and lasts.

    Over HTTP, a server without a session id cannot receive an answer.
    """
    contact = client._core.contact
    if contact is None or not contact.revision.handshake:
        return False
    return contact.link.can_receive_requests


def in_flight(client: Client) -> int:
    """Return how many requests on the connection of a client are within their deadlines."""
    waiters = _waiters(client)
    return 0 if waiters is None else waiters.with_deadline()


def progress_at(client: Client) -> float:
    """Return when a request on the connection of a client last made progress, by the client's clock."""
    waiters = _waiters(client)
    return float("-inf") if waiters is None else waiters.progress_at


def _waiters(client: Client) -> Waiters | None:
    contact = client._core.contact
    return None if contact is None else contact.connection._waiters


def wants_login(error: BaseException | None) -> bool:
    """Return True if a server failed only for lack of a login, or because it rejects this one."""
    if isinstance(error, HttpError | RequestFailed) and error.status in _REFUSALS:
        return True
    return isinstance(error, AuthError) and getattr(error, "code", None) not in _PASSING


class Logins:
    """The stored logins of the user, looked up without prompting."""

    def __init__(self, store: Store | None = None) -> None:
        """Set a store; by default the user's is opened on first use."""
        self._store = store

    async def find(self, entry: ServerEntry) -> OAuth | None:
        """Return the login for a server, to be used and renewed without prompting; None if there is none.

        Raises:
            ConfigError: the login settings of the entry are invalid.
        """
        from trunkline.auth.addresses import may_carry_secrets

        if entry.url is None or says_who_asks(entry) or not may_carry_secrets(entry.url):
            return None
        from trunkline.auth.keeping import find_login
        from trunkline.auth.oauth import OAuth

        store, said = await self._found(), _members(entry.auth)
        if said.get("grant", "authorization_code") != "authorization_code":
            # A program that logs in as itself needs no user.
            return OAuth(**{**said, "store": store, "open_browser": False})
        try:
            return await find_login(store, entry.url, said)
        except AuthError as error:
            _tell_unread(entry, error)
            return None

    async def kept(self, entry: ServerEntry) -> list[Any]:
        """Return descriptions of the logins stored for a server's URL, to be compared for changes."""
        from trunkline.auth.keeping import kept_for

        if entry.url is None or says_who_asks(entry):
            return []
        try:
            return list(await kept_for(await self._found(), entry.url))
        except AuthError as error:
            _tell_unread(entry, error)
            return []

    async def _found(self) -> Store:
        if self._store is None:
            from trunkline.auth.store import find_store

            # Finding the system's keyring may take a while.
            self._store = await asyncio.to_thread(find_store, None)
        return self._store


def _tell_unread(entry: ServerEntry, error: AuthError) -> None:
    # Only logged: the server may well not require a login.
    log.warning("the logins for %s cannot be read: %s", entry.name, error)


def says_who_asks(entry: ServerEntry) -> bool:
    """Return True if the entry has an ``Authorization`` header, which takes the place of any login."""
    return any(name.lower() == "authorization" for name in entry.headers)


def _members(auth: Any) -> dict[str, Any]:
    """Parse an ``oauth`` object: its members are those of ``OAuth``, in either spelling."""
    from trunkline.auth.oauth import OAuth

    if not isinstance(auth, Mapping):
        return {}
    written = {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(name)).lower(): value for name, value in auth.items()}
    return {name: value for name, value in written.items() if name in OAuth.__struct_fields__}
