"""Builds a client from a configuration entry: target, era, limits, stored login, sandbox and environment.

A server at a URL is shown a login only if one is stored for that URL, and no one is ever prompted for a login from
here. An ``Authorization`` header in the entry is never replaced. All Python servers of an installation start with one
stored hash seed, so that a server that writes a set into a description lists the same definition at every start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.client import Client
from trunkline.client.request_handlers import all_pages
from trunkline.client.targets import Target
from trunkline.errors import (
    AuthError,
    ConfigError,
    HttpError,
    MethodNotFound,
    RemoteProtocolError,
    RequestFailed,
    RequestTimeout,
    ServerExited,
    TrunklineError,
)
from trunkline.host.config.model import ServerEntry
from trunkline.host.state_files import locked, read_private, write_private
from trunkline.host.upstreams.catalog.items import Offering
from trunkline.pending_requests import PendingRequests
from trunkline.protocol.caller import supports
from trunkline.protocol.limits import Limits
from trunkline.protocol.revisions import NEWEST
from trunkline.timers import Clock, Timers, wait_within

__all__ = [
    "ALL_LISTS",
    "HASH_SEED_VARIABLE",
    "Debounce",
    "HashSeed",
    "ListBounds",
    "SandboxLauncher",
    "StoredLogins",
    "can_send_requests",
    "doctor_hint",
    "failed_kinds",
    "has_authorization_header",
    "in_flight",
    "is_first_client",
    "list_offering",
    "make_client",
    "offerings_differ",
    "process_id",
    "progress_at",
    "requires_login",
    "start_timeout",
]

#: What Python reads its seed from.
HASH_SEED_VARIABLE = "PYTHONHASHSEED"
# 0 would switch the protection off.
_LARGEST = 4_294_967_295
_DIGITS = re.compile(r"[0-9]{1,10}")

log = logging.getLogger("trunkline.host")


class HashSeed:
    """The seed of one installation, in a file."""

    def __init__(self, path: Path) -> None:
        """Set the path of the file, which is read or created when the first server starts."""
        self._path = path
        self._value: str | None = None
        self._failed = False

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return what to add to the environment of a server; empty if the seed cannot be stored."""
        given = environ.get(HASH_SEED_VARIABLE)
        if given:
            return {HASH_SEED_VARIABLE: given}
        if self._value is None and not self._failed:
            try:
                self._value = self._drawn()
            except (OSError, ConfigError) as error:
                self._failed = True
                log.warning("servers start without a fixed hash seed (%s): %s", HASH_SEED_VARIABLE, error)
        return {} if self._value is None else {HASH_SEED_VARIABLE: self._value}

    def _drawn(self) -> str:
        path = str(self._path)
        with locked(path):
            found = (read_private(path, what="the hash seed") or b"").decode("ascii", "replace").strip()
            if _DIGITS.fullmatch(found) and 0 < int(found) <= _LARGEST:
                return found
            value = str(1 + secrets.randbelow(_LARGEST))
            write_private(path, f"{value}\n".encode())
            return value


if TYPE_CHECKING:
    # Most servers need no login; the modules for one are loaded on demand.
    from trunkline.auth.credential_store import CredentialStore
    from trunkline.auth.oauth import OAuth
    from trunkline.host.sandbox.launch import LaunchPlan
    from trunkline.transports.link import Link


#: Returns how to launch a sandboxed server, given an environment that replaces that of its entry.
SandboxLauncher: TypeAlias = "Callable[[ServerEntry, Mapping[str, str] | None], LaunchPlan]"


# Errors of an authorization server that may be transient.
_TRANSIENT_CODES = frozenset({"server_error", "slow_down", "temporarily_unavailable"})
_REFUSALS = frozenset({401, 403})


def start_timeout(entry: ServerEntry) -> float:
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
    sandboxed: SandboxLauncher | None = None,
    on_launch: Callable[[LaunchPlan], None] | None = None,
    elsewhere: Target | None = None,
) -> Client:
    """Create a client for an entry; ``options`` are those of ``Client`` and override the entry.

    ``sandboxed`` returns how to launch a sandboxed server; ``on_launch`` is called with that launch;
    ``elsewhere`` connects to a server that another process launches.

    Raises:
        ConfigError: the entry or an option is invalid, or its secrets are not filled in yet.
    """
    if entry.sealed and elsewhere is None:
        raise ConfigError(f"{entry.name}: its secrets are not filled in yet, so it is not started")
    settings = entry.settings
    own: dict[str, Any] = {
        "revision": _revision(settings.era),
        "limits": _limits(entry),
        "clock": clock,
        "era_memory": eras,
        # A host answers lists from its catalog; every other request is made for a particular caller.
        "cache": False,
        "extensions": {id: {} for id in settings.extensions},
    }
    target: Any = entry.target
    launch: LaunchPlan | None = None
    if elsewhere is not None:
        target = elsewhere
        own["restart"] = False
    elif entry.url is not None:
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
            if on_launch is not None:
                on_launch(launch)
    # Questions are linked to the call in which they are asked; as separate tasks they would not be.
    client = Client(target, received_tasks=False, **(own | dict(options)))
    if launch is not None and launch.describe is not None:
        client._core.target = _describing_target(client._core.target, entry, launch.describe)
    return client


def _describing_target(target: Target, entry: ServerEntry, describe: Callable[[str], str]) -> Target:
    """Return a target whose errors name the server, not the launcher, and what its sandbox hides."""
    from trunkline.transports.process import ProcessLink

    links: list[ProcessLink] = []

    async def start() -> Link:
        link = await target.open()
        assert isinstance(link, ProcessLink)
        link.name, link.describe_sandbox = entry.name, describe
        links[:] = [link]
        return link

    def timeout_hint() -> str:
        stderr = links[0].stderr_tail() if links else ""
        return f" in {describe(stderr)}{target.timeout_hint()}"

    return replace(target, name=entry.name, open=start, timeout_hint=timeout_hint)


def doctor_hint(entry: ServerEntry, error: ServerExited) -> str:
    """Return how to find out why a server exited in its sandbox, if the error does not say it."""
    if not error.sandbox or "allow it" in error.sandbox:
        return ""
    import shlex

    source = entry.source
    files = f"-c {shlex.quote(source.file)} " if source.scope == "given" and source.file is not None else ""
    return f"; to see what it can reach, run: trunkline doctor {files}{shlex.quote(entry.name)}"


def _sandboxed(entry: ServerEntry, env: Mapping[str, str] | None) -> LaunchPlan:
    from trunkline.host.sandbox.launch import prepare_launch

    return prepare_launch(entry, env=env)


def _revision(era: str) -> str:
    return {"stateless": NEWEST.name}.get(era, era)


def _limits(entry: ServerEntry) -> Limits:
    settings, usual = entry.settings, Limits()
    return Limits(
        message_bytes=usual.message_bytes if settings.message_bytes is None else settings.message_bytes,
        connect_seconds=start_timeout(entry),
        idle_seconds=usual.idle_seconds if settings.timeout is None else settings.timeout,
        total_seconds=usual.total_seconds if settings.total_timeout is None else settings.total_timeout,
    )


def process_id(client: Client | None) -> int | None:
    """Return the id of the process that a client is connected to, if there is one."""
    contact = None if client is None else client._core.session
    return None if contact is None else contact.link.pid


def can_send_requests(client: Client) -> bool:
    """Return True if the server can send requests on this connection: it was opened with a handshake, and lasts.

    Over HTTP, a server without a session id cannot receive an answer.
    """
    contact = client._core.session
    if contact is None or not contact.revision.handshake:
        return False
    return contact.link.can_receive_requests


def is_first_client(client: Client) -> bool:
    """Return True if the server process was started for this client; other workers may use it too."""
    contact = client._core.session
    return contact is None or contact.link.fresh


def in_flight(client: Client) -> int:
    """Return how many requests on the connection of a client are within their deadlines."""
    pending = _waiters(client)
    return 0 if pending is None else pending.count_bounded()


def progress_at(client: Client) -> float:
    """Return when a request on the connection of a client last made progress, by the client's clock."""
    pending = _waiters(client)
    return float("-inf") if pending is None else pending.progress_at


def _waiters(client: Client) -> PendingRequests | None:
    contact = client._core.session
    return None if contact is None else contact.connection._pending


def requires_login(error: BaseException | None) -> bool:
    """Return True if a server failed only for lack of a login, or because it rejects this one."""
    if isinstance(error, HttpError | RequestFailed) and error.status in _REFUSALS:
        return True
    return isinstance(error, AuthError) and getattr(error, "code", None) not in _TRANSIENT_CODES


class StoredLogins:
    """The stored logins of the user, looked up without prompting."""

    def __init__(self, store: CredentialStore | None = None) -> None:
        """Set a store; by default the user's is opened on first use."""
        self._store = store

    async def find(self, entry: ServerEntry) -> OAuth | None:
        """Return the login for a server, to be used and renewed without prompting; None if there is none.

        Raises:
            ConfigError: the login settings of the entry are invalid.
        """
        from trunkline.auth.oauth import may_carry_secrets

        if entry.url is None or has_authorization_header(entry) or not may_carry_secrets(entry.url):
            return None
        from trunkline.auth.oauth import OAuth
        from trunkline.auth.token_store import find_login

        store, said = await self._found(), _members(entry.auth)
        if said.get("grant", "authorization_code") != "authorization_code":
            # A program that logs in as itself needs no user.
            return OAuth(**{**said, "store": store, "open_browser": False})
        try:
            return await find_login(store, entry.url, said)
        except AuthError as error:
            _log_unreadable(entry, error)
            return None

    async def stored(self, entry: ServerEntry) -> list[Any]:
        """Return descriptions of the logins stored for a server's URL, to be compared for changes."""
        from trunkline.auth.token_store import stored_logins_for

        if entry.url is None or has_authorization_header(entry):
            return []
        try:
            return list(await stored_logins_for(await self._found(), entry.url))
        except AuthError as error:
            _log_unreadable(entry, error)
            return []

    async def _found(self) -> CredentialStore:
        if self._store is None:
            # Finding the system's keyring may take a while.
            self._store = await asyncio.to_thread(_find_logins)
        return self._store


def _find_logins() -> CredentialStore:
    if os.environ.get("TRUNKLINE_LOGINS"):
        from trunkline.host.shared_logins import find_logins

        return find_logins()
    from trunkline.auth.credential_store import find_store

    return find_store(None)


def _log_unreadable(entry: ServerEntry, error: AuthError) -> None:
    # Only logged: the server may well not require a login.
    log.warning("the logins for %s cannot be read: %s", entry.name, error)


def has_authorization_header(entry: ServerEntry) -> bool:
    """Return True if the entry has an ``Authorization`` header, which takes the place of any login."""
    return any(name.lower() == "authorization" for name in entry.headers)


def _members(auth: Any) -> dict[str, Any]:
    """Parse an ``oauth`` object: its members are those of ``OAuth``, in either spelling."""
    from trunkline.auth.oauth import OAuth

    if not isinstance(auth, Mapping):
        return {}
    written = {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", str(name)).lower(): value for name, value in auth.items()}
    return {name: value for name, value in written.items() if name in OAuth.__struct_fields__}


#: The kinds of lists whose changes are announced.
ALL_LISTS = frozenset({"tools", "prompts", "resources"})
_NOTHING = Offering(revision="", capabilities={})


class ListBounds(Struct, frozen=True, kw_only=True):
    """The limits of each list: pages, items, bytes and seconds."""

    pages: int = Limits().pages
    items: int = 20_000
    bytes: int = 64 * 1024 * 1024
    seconds: float | None = None


_BOUNDS = ListBounds()


class _List(Struct, frozen=True):
    #: The kind whose changes affect it, which is also the capability it needs.
    kind: str
    #: The member of a page that contains the items.
    member: str
    #: The member of an offering.
    part: str
    #: The type of each item.
    type: type


_LISTS = MappingProxyType(
    {
        "tools/list": _List("tools", "tools", "tools", t.Tool),
        "prompts/list": _List("prompts", "prompts", "prompts", t.Prompt),
        "resources/list": _List("resources", "resources", "resources", t.Resource),
        "resources/templates/list": _List("resources", "resource_templates", "templates", t.ResourceTemplate),
    }
)


async def list_offering(
    client: Client,
    before: Offering | None = None,
    *,
    kinds: Collection[str] = ALL_LISTS,
    listed_at: float = 0.0,
    bounds: ListBounds = _BOUNDS,
    timers: Timers | None = None,
) -> Offering:
    """List what a connected server offers; lists of other kinds, and lists that fail, keep their previous items."""
    declared = client.server_capabilities
    before = before or _NOTHING
    parts: dict[str, Any] = {row.part: () for row in _LISTS.values() if not supports(declared, row.kind)}
    wanted = [method for method, row in _LISTS.items() if row.part not in parts and row.kind in kinds]
    kept = {method for method, row in _LISTS.items() if row.part not in parts and method not in wanted}
    failures = {method: reason for method, reason in before.failures.items() if method in kept}
    unreadable = [note for note in before.unreadable if note.partition(":")[0] in kept]
    work = (_read_list(client, method, bounds=bounds, timers=timers) for method in wanted)
    for method, outcome in zip(wanted, await asyncio.gather(*work), strict=True):
        if isinstance(outcome, str):
            failures[method] = outcome
        else:
            parts[_LISTS[method].part] = outcome.items
            unreadable += outcome.unreadable
    return replace(
        before,
        revision=client.revision or "",
        capabilities=declared,
        server_info=client.server_info,
        instructions=client.instructions,
        listed_at=listed_at,
        failures=failures,
        unreadable=tuple(unreadable),
        # A list that failed still has the cached items of an earlier run.
        recalled=before.recalled and bool(failures),
        **parts,
    )


async def _read_list(client: Client, method: str, *, bounds: ListBounds, timers: Timers | None) -> _Listed | str:
    """Read one list, or return why it failed."""
    try:
        reading = _ListReader(client, method, bounds).all()
        return await (reading if timers is None else wait_within(timers, bounds.seconds, reading))
    except RequestTimeout as late:
        return f"not listed after {late.seconds:g} s"
    except MethodNotFound as error:
        # Some servers declare resources without supporting templates, or capabilities they do not implement yet.
        return str(error) if method == "tools/list" else _Listed((), ())
    except TrunklineError as error:
        return str(error)


class _Listed(Struct, frozen=True):
    items: tuple[Any, ...]
    unreadable: tuple[str, ...]


class _Page(Struct, frozen=True):
    items: list[Any]
    next_cursor: str | None


class _ListReader:
    """Reads one list, page by page."""

    def __init__(self, client: Client, method: str, bounds: ListBounds) -> None:
        self._client = client
        self._method = method
        self._row = _LISTS[method]
        self._bounds = bounds
        self._items = 0
        self._size = 0
        self._unreadable: list[str] = []

    async def all(self) -> _Listed:
        items = await all_pages(self._fetch, "items", limit=self._bounds.pages)
        return _Listed(tuple(items), tuple(self._unreadable))

    async def _fetch(self, cursor: str | None) -> _Page:
        try:
            page = await self._client.list_page(self._method, cursor)
            found = _Page(getattr(page, self._row.member), page.next_cursor)
        except RemoteProtocolError:
            found = await self._fetch_loosely(cursor)
        self._items += len(found.items)
        self._size += len(msgspec.json.encode(found.items))
        most = self._bounds
        if self._items > most.items or self._size > most.bytes:
            raise RemoteProtocolError(f"The list has more than {most.items} items or {most.bytes} bytes.")
        return found

    async def _fetch_loosely(self, cursor: str | None) -> _Page:
        """Decode a page item by item, so that one invalid item does not cost the others."""
        params = {} if cursor is None else {"cursor": cursor}
        page = await self._client.request(self._method, params, result=dict[str, Any])
        items, following = page.get(_camel(self._row.member)), page.get("nextCursor")
        if not isinstance(items, list) or not isinstance(following, str | None):
            raise RemoteProtocolError(f"The answer to {self._method} has no list of {self._row.kind}.")
        good: list[Any] = []
        for number, item in enumerate(items, self._items + len(self._unreadable)):
            try:
                good.append(msgspec.convert(item, self._row.type))
            except (msgspec.ValidationError, RecursionError) as error:
                name = item.get("name") if isinstance(item, dict) else None
                self._unreadable.append(f"{self._method}: item {number} ({str(name)[:100]!r}): {error}")
        return _Page(good, following)


def _camel(member: str) -> str:
    first, *others = member.split("_")
    return first + "".join(map(str.title, others))


def offerings_differ(before: Offering | None, after: Offering | None) -> bool:
    """Return True if two offerings differ in more than the time of listing."""
    if before is None or after is None:
        return before is not after
    return replace(before, listed_at=0.0) != replace(after, listed_at=0.0)


def failed_kinds(offering: Offering | None) -> frozenset[str]:
    """Return the kinds of lists that failed."""
    return frozenset(_LISTS[method].kind for method in ([] if offering is None else offering.failures))


class Debounce:
    """Debounces change notifications, and determines when to list again."""

    __slots__ = ("_apart", "_first", "_kinds", "_last", "_longest", "_quiet", "_taken")

    def __init__(self, *, quiet: float = 0.1, longest: float = 1.0, apart: float = 1.0) -> None:
        """Set the quiet time, the longest delay after the first change, and the least time between two lists."""
        self._quiet = quiet
        self._longest = longest
        self._apart = apart
        self._kinds: set[str] = set()
        self._first = self._last = 0.0
        self._taken: float | None = None

    def note(self, kinds: Collection[str], now: float) -> None:
        """Record a notification."""
        if not self._kinds:
            self._first = now
        self._last = now
        self._kinds.update(kinds)

    def due_at(self) -> float | None:
        """Return when to list again; None while nothing changed."""
        if not self._kinds:
            return None
        due = min(self._last + self._quiet, self._first + self._longest)
        return due if self._taken is None else max(due, self._taken + self._apart)

    def take(self, now: float) -> frozenset[str]:
        """Return the kinds that changed, and reset."""
        kinds = frozenset(self._kinds)
        self._kinds.clear()
        self._taken = now
        return kinds
