"""From an entry of the configuration to a client that can be connected: target, era, limits, and who asks.

A server at a URL is shown a login only if one is kept for that URL, and nobody is ever asked for one from here. A
header of the entry's own that says who asks is never replaced: what the user wrote counts.
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
    # Most servers need no login, and what one takes is loaded when it is needed.
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

#: Says how a server with a sandbox is started, given variables instead of its entry's.
Sandboxed: TypeAlias = "Callable[[ServerEntry, Mapping[str, str] | None], Launch]"

log = logging.getLogger("trunkline.host")

# What an authorization server says when it may well agree later.
_PASSING = frozenset({"server_error", "slow_down", "temporarily_unavailable"})
_REFUSALS = frozenset({401, 403})


def start_seconds(entry: ServerEntry) -> float:
    """Say how long a server may take to start."""
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
    """Make a client for an entry; ``options`` are those of ``Client`` and count before what the entry says.

    ``sandboxed`` says how one with a sandbox is started, and ``on_remark`` hears what there is to say of that.

    Raises:
        ConfigError: the entry or an option makes no sense, or its secrets are not filled in yet.
    """
    if entry.sealed:
        raise ConfigError(f"{entry.name}: its secrets are not filled in yet, so it is not started")
    settings = entry.settings
    own: dict[str, Any] = {
        "revision": _revision(settings.era),
        "limits": _limits(entry),
        "clock": clock,
        "era_memory": eras,
        # What a host answers from is its catalog; whatever else it asks a server for, it asks for somebody.
        "cache": False,
    }
    target: Any = entry.target
    if entry.url is not None:
        target = {"url": entry.url, "type": entry.type}
        own |= {"headers": entry.headers or None, "auth": auth}
    elif entry.command is not None:
        target = list(entry.command)
        # Whoever supervises a process starts it again; nobody else does.
        own |= {"env": entry.env, "cwd": entry.cwd, "restart": False}
        if entry.settings.sandbox is not None:
            launch = (sandboxed or _sandboxed)(entry, options.get("env"))
            target = list(launch.command)
            # What goes into the sandbox is in these variables, so no others may take their place.
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
    """Give the id of the process that a client talks to, if it is one."""
    contact = None if client is None else client._core.contact
    return None if contact is None else contact.link.pid


def may_ask(client: Client) -> bool:
    """Return True if the server can send requests on this connection: it was opened with a handshake, and lasts.

    Over HTTP a server that gives no session id has no place to which an answer could be sent.
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
    """Tell whether a server failed only because it wants to know who asks, or does not allow it to this one."""
    if isinstance(error, HttpError | RequestFailed) and error.status in _REFUSALS:
        return True
    return isinstance(error, AuthError) and getattr(error, "code", None) not in _PASSING


class Logins:
    """The logins that the user has, looked up without asking anybody."""

    def __init__(self, store: Store | None = None) -> None:
        """Take a store, or find the user's when it is first needed."""
        self._store = store

    async def find(self, entry: ServerEntry) -> OAuth | None:
        """Give the login for a server, to be used and renewed in silence; None if there is none.

        Raises:
            ConfigError: what the entry says about logging in makes no sense.
        """
        from trunkline.auth.addresses import may_carry_secrets

        if entry.url is None or says_who_asks(entry) or not may_carry_secrets(entry.url):
            return None
        from trunkline.auth.keeping import find_login
        from trunkline.auth.oauth import OAuth

        store, said = await self._found(), _members(entry.auth)
        if said.get("grant", "authorization_code") != "authorization_code":
            # A program that logs in as itself has nobody to ask.
            return OAuth(**{**said, "store": store, "open_browser": False})
        try:
            return await find_login(store, entry.url, said)
        except AuthError as error:
            _tell_unread(entry, error)
            return None

    async def kept(self, entry: ServerEntry) -> list[Any]:
        """Describe the logins that are kept for a server's URL: whoever compares sees when that changes."""
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
    # No more than a word: the server may well not ask for a login.
    log.warning("the logins for %s cannot be read: %s", entry.name, error)


def says_who_asks(entry: ServerEntry) -> bool:
    """Tell whether a header of the entry says who asks: then nothing else does."""
    return any(name.lower() == "authorization" for name in entry.headers)


def _members(auth: Any) -> dict[str, Any]:
    """Read an ``oauth`` object: its members are those of ``OAuth``, in either way of writing names."""
    from trunkline.auth.oauth import OAuth

    if not isinstance(auth, Mapping):
        return {}
    written = {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(name)).lower(): value for name, value in auth.items()}
    return {name: value for name, value in written.items() if name in OAuth.__struct_fields__}
