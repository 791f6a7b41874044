"""What a caller's token must allow: seen to before anything that needs scopes is used.

Lists leave out what a caller may not use (``listing``); a use of it all the same is refused here, with all the scopes
that it needs, so that a client can get a token that has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trunkline.connection import Exchange
from trunkline.errors import InsufficientScope
from trunkline.protocol.access import may
from trunkline.server.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trunkline.protocol.access import Hierarchy

__all__ = ["demand", "scopes_in_use"]


def demand(exchange: Exchange, scopes: Iterable[str], hierarchy: Hierarchy) -> None:
    """See that the caller of a request has scopes.

    Raises:
        InsufficientScope: one is missing; all of them are named.
    """
    if not may(exchange.admitted.caller, scopes, hierarchy):
        raise InsufficientScope(f"Insufficient scope: this needs {' '.join(scopes)}", scopes=scopes)


def scopes_in_use(registry: Registry) -> list[str]:
    """List the scopes that something offered needs."""
    shelves: tuple[Any, ...] = (registry.tools, registry.prompts, registry.resources, registry.templates)
    return list(dict.fromkeys(scope for shelf in shelves for each in shelf.values() for scope in each.scopes))
