"""What servers list on connections other than the shared one, and which session sees it.

The shared connection declares no more than the host itself can answer, so a server that registers tools only for
clients with a capability does not list them there. A session whose client has that capability gets a dedicated
connection, which declares it. Two things are known about such connections:

- for each set of declared capabilities, what a server lists beyond the shared connection (its *extras*). They are
  listed once, on the first connection that declares the set or with a request that does, and cached between runs;
- for each single connection, what it lists after it announced a change. A process may add tools for its session alone.

The catalog has all of it. A session sees what its own connection lists, else what the shared connection lists and the
extras of its capabilities. Nothing is authorized here: that is up to the policy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.client import Client
from trunkline.errors import TrunklineError
from trunkline.host.config.model import ServerEntry
from trunkline.host.session import HostSession
from trunkline.host.upstreams.catalog.catalog import CatalogCache
from trunkline.host.upstreams.catalog.items import CatalogItem, Offering, definition_name
from trunkline.host.upstreams.routing.channels import ConnectionNeeds, shared_needs
from trunkline.host.upstreams.routing.connection_pool import ConnectionPool, DedicatedConnection
from trunkline.host.upstreams.routing.router import Router
from trunkline.host.upstreams.supervision.upstream import Upstream
from trunkline.protocol.apps import has_ui, without_ui
from trunkline.protocol.revisions import NEWEST, find_revision

__all__ = ["PARTS", "SessionViews", "extras_of", "merged"]

log = logging.getLogger("trunkline.host")

#: The parts of an offering, with the kind of list whose changes affect each.
PARTS: Mapping[str, str] = MappingProxyType(
    {"tools": "tools", "prompts": "prompts", "resources": "resources", "templates": "resources"}
)
#: How many connections are opened at once only to list what a server offers a client with certain capabilities.
_AT_ONCE = 4
_Names = frozenset[tuple[str, str]]


class SessionViews:
    """What each session sees of the servers of a host."""

    def __init__(
        self,
        *,
        router: Router,
        sessions: Callable[[], Collection[HostSession]],
        upstreams: Callable[[], Mapping[str, Upstream]],
        changed: Callable[[Collection[str]], None],
        updated: Callable[[Upstream, str], None],
        list_seconds: float,
        cache: CatalogCache | None = None,
        holds_secret: Callable[[str], bool] | None = None,
    ) -> None:
        """Set the sources of sessions and servers, and the callbacks.

        ``changed`` is called with the kinds of lists that differ, ``updated`` with each resource that a server reports
        as changed on the connection of a session. A list waits up to ``list_seconds`` for a server that is starting.
        """
        self._router = router
        self._sessions = sessions
        self._upstreams = upstreams
        self._changed = changed
        self._updated = updated
        self._list_seconds = list_seconds
        self._cache = cache
        self._holds_secret = holds_secret
        #: What a server lists beyond the shared connection, by the capabilities that were declared.
        self._extras: dict[Upstream, dict[ConnectionNeeds, Offering]] = {}
        #: Which of them were listed in this run.
        self._fresh: set[tuple[Upstream, ConnectionNeeds]] = set()
        self._learning: dict[tuple[Upstream, ConnectionNeeds], asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)
        #: The catalog's offering of each server, with what it was merged from.
        self._merged: dict[Upstream, tuple[tuple[Offering, ...], Offering]] = {}
        self._names: dict[int, tuple[Offering, _Names]] = {}
        #: The names of the servers that list something else on a connection other than the shared one.
        self.varied: frozenset[str] = frozenset()

    # --- for the catalog ---------------------------------------------------------------------------------------------

    def offering(self, upstream: Upstream) -> Offering | None:
        """Return all that a server lists on any connection; the same object as before if nothing changed."""
        shared = upstream.offering
        if shared is None:
            return None
        connections = (
            connection for session in self._sessions() for connection in session.connections.connections_to(upstream)
        )
        own = [connection.offering for connection in connections if connection.offering is not None]
        extras = [each for each in self._extras.get(upstream, {}).values() if _items(each)]
        sources = (shared, *extras, *own)
        before = self._merged.get(upstream)
        if before is not None and _same(before[0], sources):
            return before[1]
        # With one principal the latest definition counts. With several, no principal may change what others see.
        found = merged(shared, (*extras, *own), override=own if self._is_for_one() else ())
        self._merged[upstream] = (sources, found)
        self._names = {id(each): (each, _names(each)) for kept, _ in self._merged.values() for each in kept}
        self.varied = frozenset(each.entry.name for each, (kept, _) in self._merged.items() if len(kept) > 1)
        return found

    def forget(self, upstream: Upstream) -> None:
        """Forget a server that was removed."""
        self._extras.pop(upstream, None)
        self._merged.pop(upstream, None)
        self._fresh = {pair for pair in self._fresh if pair[0] is not upstream}

    async def aclose(self) -> None:
        """Stop listing."""
        tasks = list(self._learning.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # --- who sees what -----------------------------------------------------------------------------------------------

    def shows(self, item: CatalogItem, session: HostSession | None, capabilities: Mapping[str, Any]) -> bool:
        """Return True if the connection that a session's calls use lists an item.

        Without a session, what any connection of an anonymous session lists is shown.
        """
        upstream = self._upstreams().get(item.server)
        sources = () if upstream is None else self._merged.get(upstream, ((),))[0]
        if upstream is None or len(sources) < 2:
            return True
        key = (f"{item.kind}s", item.name)
        owners = [session] if session is not None else [each for each in self._sessions() if each.principal is None]
        connections = [connection for each in owners for connection in each.connections.connections_to(upstream)]
        needs = self._router.declares(upstream, ConnectionNeeds.of(capabilities, logs=False))
        if session is not None and session.covers is not None:
            # Of several clients; the calls of this one use a connection that declares its capabilities.
            connections = [each for each in connections if self._router.declares(upstream, each.needs) == needs]
        own = [connection.offering for connection in connections if connection.offering is not None]
        if own and session is not None:
            return any(key in self._named(each) for each in own)
        extras = self._extras.get(upstream, {})
        shown = [sources[0], *own, *(each for declared, each in extras.items() if _covers(needs, declared))]
        return any(key in self._named(each) for each in shown)

    def _named(self, offering: Offering) -> _Names:
        found = self._names.get(id(offering))
        return _names(offering) if found is None or found[0] is not offering else found[1]

    def _is_for_one(self) -> bool:
        who = {
            None if each.principal is None else each.principal.identity for each in self._sessions() if each.connections
        }
        return len(who) <= 1

    def all(self) -> list[ConnectionPool]:
        """Return the connection pools of all sessions."""
        return [session.connections for session in self._sessions()]

    def updated(self, connection: DedicatedConnection, uri: str) -> None:
        """Called when a server announces on a dedicated connection that a resource changed."""
        self._updated(connection.upstream, uri)

    # --- listing -----------------------------------------------------------------------------------------------------

    def relisted(self, connection: DedicatedConnection, before: Offering | None) -> None:
        """Called when a connection was listed again after a change; compares the lists with what its session saw."""
        after = connection.offering
        if after is None:
            return
        if before is None:
            extras = self._extras.get(connection.upstream, {}).get(
                self._router.declares(connection.upstream, connection.needs)
            )
            shared = connection.upstream.offering
            before = shared if shared is None or extras is None else merged(shared, (extras,))
        kinds = {
            kind for part, kind in PARTS.items() if before is None or _by_name(before, part) != _by_name(after, part)
        }
        if kinds:
            self._changed(kinds)

    def closed(self, connection: DedicatedConnection) -> None:
        """Called when a connection was closed: what it alone listed is gone."""
        if connection.offering is not None:
            connection.offering = None
            self._changed(())

    async def list_extras(self, session: HostSession, capabilities: Mapping[str, Any], seconds: float) -> None:
        """List what servers offer to a client with these capabilities, where that is unknown; wait ``seconds`` at most.

        Lists that take longer continue in the background and are announced as a change.
        """
        needs = ConnectionNeeds.of(capabilities, logs=False)
        if not needs.shows_more:
            return
        wanted = [(each, self._router.declares(each, needs)) for each in self._upstreams().values()]
        tasks = {self._start(session, *pair): pair[0] for pair in wanted if self._is_unknown(*pair)}
        waits = (asyncio.wait([task], timeout=self._list_timeout(each, seconds)) for task, each in tasks.items())
        await asyncio.gather(*waits)

    def _list_timeout(self, upstream: Upstream, seconds: float) -> float:
        """Return how long a list waits for the extras of a server; for a starting one no longer than a first list."""
        if upstream.running:
            return seconds
        own = upstream.entry.settings.wait
        return min(seconds, self._list_seconds if own is None else own)

    def _is_unknown(self, upstream: Upstream, needs: ConnectionNeeds) -> bool:
        """Return True if it is not known what a server lists to clients with these capabilities.

        The server need not run for that: its extras may be cached from an earlier run, like its other lists.
        """
        settings = upstream.entry.settings
        # With credentials of its own each principal sees a list of its own, which is not for others.
        if upstream.offering is None or not needs.shows_more or settings.share == "shared" or settings.per_user:
            return False
        return needs != shared_needs(upstream) and needs not in self._extras.get(upstream, {})

    def _start(self, session: HostSession, upstream: Upstream, needs: ConnectionNeeds) -> asyncio.Task[None]:
        pair = (upstream, needs)
        task = self._learning.get(pair)
        if task is None:
            task = self._learning[pair] = asyncio.get_running_loop().create_task(self._learn(session, *pair))
            task.add_done_callback(lambda _: self._learning.pop(pair, None))
        return task

    async def _learn(self, session: HostSession, upstream: Upstream, needs: ConnectionNeeds) -> None:
        kept = await self._recall(upstream.entry, needs)
        if kept is not None:
            self._note(upstream, needs, kept)
            return
        if not upstream.running and not upstream.busy:
            # It is started when it is called, not just to list it.
            return
        try:
            client = await upstream.connected_client()
        except TrunklineError as error:
            log.debug("what %s offers to clients that can be asked is not known: %s", upstream.entry.name, error)
            return
        if needs == shared_needs(upstream):
            return
        try:
            async with self._slots:
                if (find_revision(client.revision or "") or NEWEST).handshake:
                    with upstream.track_call():
                        await self._router.open_dedicated(session, upstream, needs)
                else:
                    found = await upstream.list_on(_DeclaringClient(client, needs))  # type: ignore[arg-type]
                    await self.record_listing(upstream, needs, found)
        except TrunklineError as error:
            log.debug("what %s offers to clients that can be asked is not known: %s", upstream.entry.name, error)
            if not session.connections.ended:
                # Tried again with the next connection, not with every list.
                self._extras.setdefault(upstream, {}).setdefault(needs, _nothing())

    def needs_listing(self, connection: DedicatedConnection) -> bool:
        """Return True if a new connection should be listed: none with its capabilities was in this run."""
        needs = self._router.declares(connection.upstream, connection.needs)
        settings = connection.upstream.entry.settings
        known = (connection.upstream, needs) in self._fresh or needs == shared_needs(connection.upstream)
        return not known and needs.shows_more and not settings.per_user

    async def record_listing(self, upstream: Upstream, needs: ConnectionNeeds, listed: Offering) -> None:
        """Record what a server lists to clients with these capabilities, and cache it for the next run."""
        shared = upstream.offering
        needs = self._router.declares(upstream, needs)
        if shared is None or listed.failures:
            return
        extras = extras_of(listed, shared)
        self._fresh.add((upstream, needs))
        self._note(upstream, needs, extras)
        await self._keep(upstream.entry, needs, extras)

    def _note(self, upstream: Upstream, needs: ConnectionNeeds, extras: Offering) -> None:
        before = self._extras.setdefault(upstream, {}).get(needs)
        self._extras[upstream][needs] = extras
        if (() if before is None else _items(before)) != _items(extras):
            self._changed(())

    async def _recall(self, entry: ServerEntry, needs: ConnectionNeeds) -> Offering | None:
        if self._cache is None or entry.target is not None:
            return None
        return await asyncio.to_thread(self._cache.get, _cache_entry(entry, needs))

    async def _keep(self, entry: ServerEntry, needs: ConnectionNeeds, extras: Offering) -> None:
        if self._cache is None or entry.target is not None:
            return
        try:
            put = partial(self._cache.put, holds_secret=self._holds_secret)
            await asyncio.to_thread(put, _cache_entry(entry, needs), extras)
        except OSError as error:
            log.warning("the lists of %s for clients with other capabilities cannot be cached: %s", entry.name, error)


class _DeclaringClient:
    """A client that lists with other capabilities than it declares; stateless servers take them from each request."""

    def __init__(self, client: Client, needs: ConnectionNeeds) -> None:
        self._client = client
        self._meta = {t.META_CLIENT_CAPABILITIES: needs.capabilities}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def list_page(self, method: str, cursor: str | None = None) -> Any:
        page, _ = await self._client.forward(method, t.PaginatedRequestParams(cursor=cursor), meta=self._meta)
        return page


def _covers(needs: ConnectionNeeds, declared: ConnectionNeeds) -> bool:
    """Return True if ``needs`` include everything that was declared."""
    return all(getattr(needs, name) or not getattr(declared, name) for name in _FLAGS)


_FLAGS = ("sampling", "sampling_tools", "elicitation", "elicitation_urls", "roots", "apps")


def _cache_entry(entry: ServerEntry, needs: ConnectionNeeds) -> ServerEntry:
    """Return an entry with the name under which the extras for these capabilities are cached."""
    flags = "+".join(name for name in _FLAGS if getattr(needs, name))
    return replace(entry, name=f"{entry.name}/{flags}")


def _nothing() -> Offering:
    return Offering(revision="", capabilities={})


def _items(offering: Offering) -> tuple[Any, ...]:
    return tuple(each for part in PARTS for each in getattr(offering, part))


def _names(offering: Offering) -> _Names:
    return frozenset((part, definition_name(each)) for part in PARTS for each in getattr(offering, part))


def _by_name(offering: Offering, part: str) -> dict[str, Any]:
    return {definition_name(each): each for each in getattr(offering, part)}


def _same(one: tuple[Offering, ...], other: tuple[Offering, ...]) -> bool:
    return len(one) == len(other) and all(each is another for each, another in zip(one, other, strict=True))


def _with_page(tool: Any, other: Any) -> Any:
    """Return a tool with the page that another list names; the same object if there is none."""
    if not isinstance(tool, t.Tool) or has_ui(tool.meta) or not has_ui(other.meta):
        return tool
    bare = without_ui(other.meta) or {}
    return replace(tool, meta={**(tool.meta or {}), **{name: other.meta[name] for name in other.meta.keys() - bare}})


def extras_of(listed: Offering, shared: Offering) -> Offering:
    """Return the items that the shared connection's list lacks, including tools whose page only this list names."""
    known = {(part, name): each for part in PARTS for name, each in _by_name(shared, part).items()}
    parts = {
        part: tuple(
            each
            for each in getattr(listed, part)
            if (before := known.get((part, definition_name(each)))) is None or _with_page(before, each) is not before
        )
        for part in PARTS
    }
    return replace(_nothing(), revision=listed.revision, **parts)


def merged(shared: Offering, others: Iterable[Offering], *, override: Iterable[Offering] = ()) -> Offering:
    """Return an offering with the items of others; where names are equal, only ``override`` replaces a definition.

    A tool's page is added to its definition: servers name it only to clients that declared that they show pages.
    """
    replacing = {id(each) for each in override}
    others, parts = tuple(others), dict[str, tuple[Any, ...]]()
    for part in PARTS:
        # Duplicate names within a list are handled by the catalog, so they stay as they are.
        listed = list(getattr(shared, part))
        places = {definition_name(each): place for place, each in enumerate(listed)}
        for other in others:
            for each in getattr(other, part):
                place = places.setdefault(definition_name(each), len(listed))
                if place == len(listed):
                    listed.append(each)
                elif id(other) in replacing:
                    listed[place] = _with_page(each, listed[place])
                else:
                    listed[place] = _with_page(listed[place], each)
        if listed != list(getattr(shared, part)):
            parts[part] = tuple(listed)
    return replace(shared, **parts) if parts else shared
