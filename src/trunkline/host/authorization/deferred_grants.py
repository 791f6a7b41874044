"""Grants for the read-only tools of servers, some of which were never listed.

``trunkline import`` writes deferred grants when the user allows the read-only tools of servers that never ran here.
When such a server is first listed, the grant covers the read-only tools of that list, each with its pin. Tools added or
changed later need approval.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress

from msgspec.structs import replace

from trunkline.errors import ConfigError
from trunkline.host.authorization.authorizer import grantable_tools
from trunkline.host.authorization.grants import Grant, GrantStore, ServerTool, make_deferred_grant, make_server_grant
from trunkline.host.authorization.policy.decisions import Act
from trunkline.host.config.model import ServerEntry
from trunkline.host.integrity.pins.records import ServerPins
from trunkline.host.integrity.pins.store import endpoint_identity
from trunkline.host.integrity.pins.views import pin_views, tool_views
from trunkline.host.upstreams.catalog.catalog import Catalog

__all__ = ["DeferredGrants", "read_only_grants"]

log = logging.getLogger("trunkline.host")


def read_only_grants(entries: Iterable[ServerEntry], pinned: Iterable[ServerPins], *, now: float) -> list[Grant]:
    """Return a grant without an expiry for the read-only tools of each server.

    For a server that was listed before, it covers the pinned tools; for any other it is deferred to the first list.
    """
    views = pin_views(pinned)
    made = []
    for entry in entries:
        reach = endpoint_identity(entry)[0]
        tools = tool_views(views, entry.name, key=reach)
        if not tools:
            made.append(make_deferred_grant(entry.name, reach, now=now))
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


class DeferredGrants:
    """Resolves deferred grants with each catalog of a host; passed as ``HostCore(on_catalog=...)``."""

    def __init__(self, grants: GrantStore, entry_of: Callable[[str], ServerEntry | None]) -> None:
        """Resolve grants of this store; ``entry_of`` returns the entry of a server."""
        self._grants = grants
        self._entry_of = entry_of
        self._last_reported: str | None = None

    def __call__(self, catalog: Catalog) -> None:
        """Resolve the grants whose servers are listed in this catalog."""
        try:
            for grant in self._grants.deferred():
                if self._is_listed(catalog, grant.server, grant.awaits):
                    self._grants.resolve(grant, grantable_tools(catalog, grant.server))
        except ConfigError as problem:
            # Without its grants a host asks, which is safe; the denial of the first call names the problem too.
            if str(problem) != self._last_reported:
                self._last_reported = str(problem)
                log.warning("%s", problem)

    def _is_listed(self, catalog: Catalog, server: str, reach: str | None) -> bool:
        part, entry = catalog.parts.get(server), self._entry_of(server)
        if part is None or entry is None or "tools/list" in part.offering.failures:
            return False
        return endpoint_identity(entry)[0] == reach
