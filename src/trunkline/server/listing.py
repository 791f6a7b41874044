"""Lists, page by page: what is shown to whom, in which revision, encoded once and kept.

A page is kept under the registry's counter, the revision, the cursor and the view: the set of names this caller may
see, or None where nothing filters.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw

import trunkline.types as t
from trunkline.errors import InvalidParams
from trunkline.protocol.caller import Caller, ScopeHierarchy, has_scopes
from trunkline.protocol.downgrade import adapt_result
from trunkline.protocol.revisions import Revision
from trunkline.server.registry import Listed, RegistrySnapshot

__all__ = ["Listing", "VisibilityFilter"]

VisibilityFilter = Callable[[Caller, Any], bool]
View = frozenset[str] | None
#: What a kept page is of: the method, the registry's counter, the revision, the view, the cursor, whether it is public.
Key = tuple[str, int, Revision, View, str | None, bool]

#: The list methods: which shelf they show, the result type, and the member that holds the items.
_LISTS: Mapping[str, tuple[str, Any, str]] = MappingProxyType(
    {
        "tools/list": ("tools", t.ListToolsResult, "tools"),
        "prompts/list": ("prompts", t.ListPromptsResult, "prompts"),
        "resources/list": ("resources", t.ListResourcesResult, "resources"),
        "resources/templates/list": ("templates", t.ListResourceTemplatesResult, "resource_templates"),
    }
)
# Views multiply the pages; past this many the oldest go.
_MAX_PAGES = 256


class Listing:
    """The pages of one server."""

    __slots__ = ("_hierarchy", "_kept", "_page_size", "_public", "_ttl_ms", "_visible", "has_hidden")

    def __init__(
        self, *, page_size: int, ttl_ms: int, public: bool, visible: VisibilityFilter | None, hierarchy: ScopeHierarchy
    ) -> None:
        """Say how long a page is, how long it may be kept by others, and who sees what."""
        self._page_size = page_size
        self._ttl_ms = ttl_ms
        self._visible = visible
        self._hierarchy = hierarchy
        self._public = public
        #: Whether somebody may not see something; the server knows, since what is mounted may filter too.
        self.has_hidden: bool = visible is not None
        self._kept: dict[Key, Raw] = {}

    @property
    def has_filter(self) -> bool:
        """Whether there is a filter of its own."""
        return self._visible is not None

    def page(
        self, method: str, registry: RegistrySnapshot, caller: Caller, *, cursor: str | None, stamp: Raw | None
    ) -> Raw:
        """Give one page, encoded for the caller's revision.

        Raises:
            InvalidParams: the cursor is none of ours, or what it pointed to is gone.
        """
        kind, result, member = _LISTS[method]
        shelf: Mapping[str, Any] = getattr(registry, kind)
        view = self._view(shelf, caller)
        # What was asked for by name is not for those who did not say theirs, whatever they would be shown.
        public = self._public and view is None and caller.origin.principal is None
        key = (method, registry.counter, caller.revision, view, cursor, public)
        kept = self._kept.get(key)
        if kept is None:
            names = [name for name in shelf if view is None or name in view]
            start = 0 if cursor is None else _position_after(names, kind, cursor)
            shown = names[start : start + self._page_size]
            more = start + self._page_size < len(names)
            page = result(
                **{member: [shelf[name].listed() for name in shown]},
                next_cursor=_cursor(kind, shown[-1]) if more else None,
                ttl_ms=self._ttl_ms,
                cache_scope="public" if public else "private",
            )
            kept = Raw(msgspec.json.encode(adapt_result(page, caller.revision, server_info=stamp)))
            self._keep(key, kept)
        return kept

    def is_visible(self, caller: Caller, definition: Listed) -> bool:
        """Tell whether a caller may see a definition; what is hidden is refused in calls too.

        What is mounted must be seen by its own server's filter as well, under the name it has there.
        """
        if self._visible is not None and not self._visible(caller, definition):
            return False
        if definition.source is None:
            return True
        inner: Listing = definition.mounted_by[0].listing
        return inner.is_visible(caller, definition.source)

    def _view(self, shelf: Mapping[str, Listed], caller: Caller) -> View:
        if not self.has_hidden:
            return None
        return frozenset(
            name
            for name, each in shelf.items()
            if self.is_visible(caller, each) and (not each.scopes or has_scopes(caller, each.scopes, self._hierarchy))
        )

    def _keep(self, key: Key, page: Raw) -> None:
        stale = [each for each in self._kept if each[0] == key[0] and each[1] != key[1]]
        for each in stale:
            del self._kept[each]
        while len(self._kept) >= _MAX_PAGES:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = page


def _cursor(kind: str, name: str) -> str:
    return base64.urlsafe_b64encode(f"{kind}\0{name}".encode()).decode().rstrip("=")


def _position_after(names: Iterable[str], kind: str, cursor: str) -> int:
    """Find where the page after a cursor starts."""
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        told, _, name = base64.b64decode(padded, altchars=b"-_", validate=True).decode().partition("\0")
        if told != kind:
            raise ValueError(told)
        return list(names).index(name) + 1
    except (ValueError, binascii.Error) as error:
        raise InvalidParams("Invalid params: the cursor is not valid (any more); list from the beginning") from error
