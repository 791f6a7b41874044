"""What a server says about itself: capabilities from what is registered, and the two ways of meeting a client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trunkline.types as t
from trunkline.protocol.caller import Caller
from trunkline.protocol.fields import hidden
from trunkline.protocol.revisions import Revision
from trunkline.protocol.shaping import shape_params

if TYPE_CHECKING:
    from trunkline.server.server import Server

__all__ = ["capabilities", "discovered", "initialized"]


def capabilities(server: Server, revision: Revision) -> dict[str, Any]:
    """Say what the server can do now: a kind of thing is declared if there is one, or if it was announced."""
    registry, announced = server.registry, server.announced
    declared: dict[str, Any] = {"logging": {}}
    if registry.tools or "tools" in announced:
        declared["tools"] = {"listChanged": True}
    if registry.prompts or "prompts" in announced:
        declared["prompts"] = {"listChanged": True}
    if registry.resources or registry.templates or "resources" in announced:
        declared["resources"] = {"subscribe": True, "listChanged": True}
    if registry.completions or server.complete_any is not None or "completions" in announced:
        declared["completions"] = {}
    if server.experimental:
        declared["experimental"] = dict(server.experimental)
    absent = hidden(t.ServerCapabilities, revision)
    return {name: value for name, value in declared.items() if name not in absent}


def initialized(server: Server, caller: Caller) -> t.InitializeResult:
    """Answer ``initialize``: the revision was chosen by admission."""
    return t.InitializeResult(
        protocol_version=caller.revision.name,
        capabilities=capabilities(server, caller.revision),
        server_info=shape_params(server.info, caller.revision),
        instructions=server.instructions,
    )


def discovered(server: Server, caller: Caller) -> t.DiscoverResult:
    """Answer ``server/discover``; who the server is stands in the stamp on every result."""
    return t.DiscoverResult(
        supported_versions=list(server.offer.revisions),
        capabilities=capabilities(server, caller.revision),
        instructions=server.instructions,
        ttl_ms=server.cache_ttl_ms,
        cache_scope="private",
    )
