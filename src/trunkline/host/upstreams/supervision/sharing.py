"""Whether the server processes of a host are its own, or shared with the other workers of a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trunkline.client.targets import Target
from trunkline.host.config.model import ServerEntry

if TYPE_CHECKING:
    from trunkline.host.upstreams.supervision.server_task import ServerTask, SupervisionContext
    from trunkline.host.upstreams.supervision.state import UpstreamState

__all__ = ["ProcessSharing"]


class ProcessSharing:
    """How the server processes of a host are shared with other processes; these defaults share nothing."""

    def has_server(self, entry: ServerEntry) -> bool:
        """Return whether the host has this server."""
        return True

    def make_task(
        self, state: UpstreamState, context: SupervisionContext, after: asyncio.Future[Any] | None
    ) -> ServerTask | None:
        """Return the task for a server that another process owns; None for one of this host."""
        return None

    def share(self, state: UpstreamState, target: Target) -> Target:
        """Return the target of the shared client of a server that this process launches."""
        return target

    def dedicated_target(self, entry: ServerEntry, key: str | None, env: Mapping[str, str] | None) -> Target | None:
        """Return the target of a dedicated client of a server that another process launches; None for one of this host.

        Clients with one key share a process; without a key it is the client's own. ``env`` replaces the entry's.
        """
        return None

    def session_ended(self, entry: ServerEntry, key: str) -> None:
        """Called when the process with this key is no longer needed, by any worker."""
