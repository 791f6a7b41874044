"""Paginated lists of definitions, filtered for the caller, encoded once and cached.

A page is cached by the registry's counter, the revision, the cursor and the view: the set of names that the caller may
see, or None if nothing is filtered.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgspec
from msgspec import Raw
from msgspec.structs import replace

import trunkline.types as t
from trunkline.errors import InvalidParams
from trunkline.protocol.caller import Caller, ScopeHierarchy, has_scopes
from trunkline.protocol.downgrade import adapt_result
from trunkline.protocol.revisions import Revision
from trunkline.server.registry import Listed, RegistrySnapshot

__all__ = ["CallerVariants", "Listing", "VisibilityFilter", "make_cursor", "position_after"]

VisibilityFilter = Callable[[Caller, Any], bool]
View = frozenset[str] | None
#: The cache key of a page: method, registry counter, revision, view, cursor, whether it is public, whether the caller
#: shows pages of apps, and which variant it gets.
Key = tuple[str, int, Revision, View, str | None, bool, bool, bool]


class CallerVariants(Protocol):
    """The difference between the lists of two kinds of callers."""

    def kind(self, caller: Caller) -> bool:
        """Return the kind of a caller."""

    def is_visible(self, kind: bool, definition: Any) -> bool:
        """Return True if callers of a kind see a definition."""

    def listed(self, kind: bool, definition: Any) -> Any:
        """Return a definition as callers of a kind see it."""


#: The list methods: the table of the registry, the result type, and the member that holds the items.
_LISTS: Mapping[str, tuple[str, Any, str]] = MappingProxyType(
    {
        "tools/list": ("tools", t.ListToolsResult, "tools"),
        "prompts/list": ("prompts", t.ListPromptsResult, "prompts"),
        "resources/list": ("resources", t.ListResourcesResult, "resources"),
        "resources/templates/list": ("templates", t.ListResourceTemplatesResult, "resource_templates"),
    }
)
# Each view has its own pages; beyond this number the oldest are dropped.
_MAX_PAGES = 256


class Listing:
    """The lists of one server."""

    __slots__ = ("_hierarchy", "_page_size", "_pages", "_public", "_ttl_ms", "_visible", "has_hidden", "variants")

    def __init__(
        self, *, page_size: int, ttl_ms: int, public: bool, visible: VisibilityFilter | None, hierarchy: ScopeHierarchy
    ) -> None:
        """Create the lists; ``ttl_ms`` and ``public`` are sent as cache hints, ``visible`` filters by caller."""
        self._page_size = page_size
        self._ttl_ms = ttl_ms
        self._visible = visible
        self._hierarchy = hierarchy
        self._public = public
        #: Whether anything may be hidden from a caller; set by the server, since mounted servers may filter too.
        self.has_hidden: bool = visible is not None
        #: The difference between the lists of two kinds of callers; None if there is none.
        self.variants: CallerVariants | None = None
        self._pages: dict[Key, Raw] = {}

    @property
    def has_filter(self) -> bool:
        """Whether this server has a visibility filter."""
        return self._visible is not None or self.variants is not None

    def page(
        self,
        method: str,
        registry: RegistrySnapshot,
        caller: Caller,
        *,
        cursor: str | None,
        stamp: Raw | None,
        encoded: bool = True,
    ) -> Any:
        """Return one page, encoded for the caller's revision, or as the result of its method.

        Raises:
            InvalidParams: the cursor is not valid, or its item no longer exists.
        """
        kind, result, member = _LISTS[method]
        table: Mapping[str, Any] = getattr(registry, kind)
        apps = registry.has_apps and _declares_apps(caller)
        view = self._view(table, caller, pages=apps or not registry.has_apps)
        # A response to an authenticated caller must not be cached for anonymous ones, even if they would see the same.
        public = self._public and view is None and caller.origin.principal is None
        variant = self.variants is not None and self.variants.kind(caller)
        key = (method, registry.counter, caller.revision, view, cursor, public, apps, variant)
        page = self._pages.get(key) if encoded else None
        if page is None:
            names = [name for name in table if view is None or name in view]
            start = 0 if cursor is None else position_after(names, kind, cursor)
            shown = names[start : start + self._page_size]
            more = start + self._page_size < len(names)
            page = result(
                **{member: self.listed(registry, caller, (table[name] for name in shown))},
                next_cursor=make_cursor(kind, shown[-1]) if more else None,
                ttl_ms=self._ttl_ms,
                cache_scope="public" if public else "private",
            )
            if encoded:
                page = Raw(msgspec.json.encode(adapt_result(page, caller.revision, server_info=stamp)))
                self._store(key, page)
        return page

    def listed(self, registry: RegistrySnapshot, caller: Caller, definitions: Iterable[Any]) -> list[Any]:
        """Return definitions as listed to a caller; MCP Apps metadata is included only if the caller shows pages."""
        variants = self.variants
        if variants is None:
            items = [each.listed() for each in definitions]
        else:
            kind = variants.kind(caller)
            items = [variants.listed(kind, each) for each in definitions]
        if not registry.has_apps or _declares_apps(caller):
            return items
        from trunkline.protocol.apps import has_ui, without_ui

        return [replace(each, meta=without_ui(each.meta)) if has_ui(each.meta) else each for each in items]

    def is_visible(self, caller: Caller, definition: Listed) -> bool:
        """Return whether a caller may see a definition; calls of hidden definitions are rejected as unknown.

        A mounted definition must also pass the filter of its own server, under the name that it has there.
        """
        if self._visible is not None and not self._visible(caller, definition):
            return False
        if self.variants is not None and not self.variants.is_visible(self.variants.kind(caller), definition):
            return False
        # Only tools have this attribute.
        app = getattr(definition, "app", None)
        if app is not None and not app.for_model and not _declares_apps(caller):
            return False
        if definition.source is None:
            return True
        inner: Listing = definition.mounted_by[0].table.listing
        return inner.is_visible(caller, definition.source)

    def _view(self, table: Mapping[str, Listed], caller: Caller, *, pages: bool) -> View:
        if not self.has_hidden:
            return None
        return frozenset(
            name
            for name, each in table.items()
            if self.is_visible(caller, each)
            and (pages or getattr(each, "page", None) is None)
            and (not each.scopes or has_scopes(caller, each.scopes, self._hierarchy))
        )

    def _store(self, key: Key, page: Raw) -> None:
        stale = [each for each in self._pages if each[0] == key[0] and each[1] != key[1]]
        for each in stale:
            del self._pages[each]
        while len(self._pages) >= _MAX_PAGES:
            del self._pages[next(iter(self._pages))]
        self._pages[key] = page


def _declares_apps(caller: Caller) -> bool:
    from trunkline.protocol.apps import declares_apps

    return declares_apps(caller.capabilities)


def make_cursor(kind: str, name: str) -> str:
    """Return the cursor of the page that starts after an item."""
    return base64.urlsafe_b64encode(f"{kind}\0{name}".encode()).decode().rstrip("=")


def position_after(names: Iterable[str], kind: str, cursor: str) -> int:
    """Return the index at which the page after a cursor starts.

    Raises:
        InvalidParams: the cursor is not valid, or its item no longer exists.
    """
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        cursor_kind, _, name = base64.b64decode(padded, altchars=b"-_", validate=True).decode().partition("\0")
        if cursor_kind != kind:
            raise ValueError(cursor_kind)
        return list(names).index(name) + 1
    except (ValueError, binascii.Error) as error:
        raise InvalidParams("Invalid params: the cursor is not valid (any more); list from the beginning") from error
