"""Lists everything that a server offers; each list is independent, so that a failure affects only that list.

Only lists whose capability the server declared are requested. A list that fails keeps its previous items, and the
reason is recorded. Items, bytes and time are bounded. Change notifications are debounced before a list is requested
again, and a server that announces changes endlessly is listed at most once a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

import trunkline.types as t
from trunkline.client.client import Client
from trunkline.client.paging import all_pages
from trunkline.errors import MethodNotFound, RemoteProtocolError, RequestTimeout, TrunklineError
from trunkline.host.catalog.offerings import Offering
from trunkline.host.clocks import within
from trunkline.protocol.caller import supports
from trunkline.timekeeper import Timekeeper

__all__ = ["EVERYTHING", "Bounds", "Debounce", "differs", "failed_kinds", "list_offering"]

#: The kinds of lists whose changes are announced.
EVERYTHING = frozenset({"tools", "prompts", "resources"})
_MOST_PAGES = 1000
_NOTHING = Offering(revision="", capabilities={})


class Bounds(Struct, frozen=True, kw_only=True):
    """The limits of each list: items, bytes and seconds."""

    items: int = 20_000
    bytes: int = 64 * 1024 * 1024
    seconds: float | None = None


_BOUNDS = Bounds()


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
    kinds: Collection[str] = EVERYTHING,
    listed_at: float = 0.0,
    bounds: Bounds = _BOUNDS,
    timekeeper: Timekeeper | None = None,
) -> Offering:
    """List what a connected server offers; lists of other kinds, and lists that fail, keep their previous items."""
    declared = client.server_capabilities
    before = before or _NOTHING
    parts: dict[str, Any] = {row.part: () for row in _LISTS.values() if not supports(declared, row.kind)}
    wanted = [method for method, row in _LISTS.items() if row.part not in parts and row.kind in kinds]
    kept = {method for method, row in _LISTS.items() if row.part not in parts and method not in wanted}
    failures = {method: reason for method, reason in before.failures.items() if method in kept}
    unreadable = [note for note in before.unreadable if note.partition(":")[0] in kept]
    work = (_one(client, method, bounds=bounds, timekeeper=timekeeper) for method in wanted)
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


async def _one(client: Client, method: str, *, bounds: Bounds, timekeeper: Timekeeper | None) -> _Listed | str:
    """Read one list, or return why it failed."""
    try:
        reading = _Reading(client, method, bounds).all()
        return await (reading if timekeeper is None else within(timekeeper, bounds.seconds, reading))
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


class _Reading:
    """Reads one list, page by page."""

    def __init__(self, client: Client, method: str, bounds: Bounds) -> None:
        self._client = client
        self._method = method
        self._row = _LISTS[method]
        self._bounds = bounds
        self._items = 0
        self._size = 0
        self._unreadable: list[str] = []

    async def all(self) -> _Listed:
        items = await all_pages(self._fetch, "items", limit=_MOST_PAGES)
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


def differs(before: Offering | None, after: Offering | None) -> bool:
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
