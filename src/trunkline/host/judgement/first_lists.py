"""Deferred grants: they become grants for the read-only tools of a server when it is first listed.

``trunkline import`` writes such grants when the user allows the read-only tools of servers that never ran here. Once
resolved, the grant covers the tools of the first list, each with its pin. Tools added or changed later need approval.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.host.catalog.catalog import Catalog, Item
from trunkline.host.entries import ServerEntry
from trunkline.host.judgement.grants import Grant, GrantBook, ServerTool, make_server_grant, make_waiting_grant
from trunkline.host.pins.book import reach_of
from trunkline.host.pins.records import ServerPins
from trunkline.host.pins.views import tools_of, views_of
from trunkline.host.policy.acts import Act

__all__ = ["FirstLists", "grantable_tools", "grants_for_reading"]

log = logging.getLogger("trunkline.host")


def grantable_tools(
    catalog: Catalog, server: str, is_usable: Callable[[Item], bool] = lambda item: True
) -> tuple[ServerTool, ...]:
    """Return the tools that a grant for a whole server covers: usable, not flagged and not changed."""
    part = catalog.parts.get(server)
    items = [item for item in (() if part is None else part.items) if item.kind == "tool" and item.id in catalog.tools]
    return tuple(
        ServerTool(item.name, item.pin, item.annotations.read_only is True)
        for item in items
        if not item.flagged and not item.changed and is_usable(item)
    )


def grants_for_reading(entries: Iterable[ServerEntry], pinned: Iterable[ServerPins], *, now: float) -> list[Grant]:
    """Return a grant without an expiry for the read-only tools of each server.

    For a server that was listed before, it covers the pinned tools; for any other it is deferred to the first list.
    """
    views = views_of(pinned)
    made = []
    for entry in entries:
        reach = reach_of(entry)[0]
        tools = tools_of(views, entry.name, key=reach)
        if not tools:
            made.append(make_waiting_grant(entry.name, reach, now=now))
            continue
        known = [
            ServerTool(each.pin.name, each.pin.pin, each.is_read_only) for each in tools.values() if each.is_usable
        ]
        # A server without read-only tools gets no grant.
        with suppress(ValueError):
            act = Act(kind="tool", server=entry.name, name="")
            grant = make_server_grant(act, "always", known, now=now, read_only=True)
            made.append(replace(grant, expires=None))
    return made


class FirstLists:
    """Resolves deferred grants with each catalog of a host; passed as ``HostCore(on_catalog=...)``."""

    def __init__(self, grants: GrantBook, entry_of: Callable[[str], ServerEntry | None]) -> None:
        """Resolve grants of this store; ``entry_of`` returns the entry of a server."""
        self._grants = grants
        self._entry_of = entry_of
        self._told: str | None = None

    def __call__(self, catalog: Catalog) -> None:
        """Resolve the grants whose servers are listed in this catalog."""
        try:
            for grant in self._grants.waiting():
                if self._is_listed(catalog, grant.server, grant.awaits):
                    self._grants.settle(grant, grantable_tools(catalog, grant.server))
        except ConfigError as problem:
            # Without its grants a host asks, which is safe; the denial of the first call names the problem too.
            if str(problem) != self._told:
                self._told = str(problem)
                log.warning("%s", problem)

    def _is_listed(self, catalog: Catalog, server: str, reach: str | None) -> bool:
        part, entry = catalog.parts.get(server), self._entry_of(server)
        if part is None or entry is None or "tools/list" in part.offering.failures:
            return False
        return reach_of(entry)[0] == reach
