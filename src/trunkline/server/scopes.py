"""Scopes.

What a caller's token must allow, checked before anything that needs scopes is used, and scopes required for a whole
server. Lists leave out what a caller may not use; a call to it is refused with all the scopes it needs, so that a
client can obtain a token that has them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from trunkline.connection import Exchange
from trunkline.errors import InsufficientScope
from trunkline.protocol.caller import Origin, ScopeHierarchy, has_scopes, origin_has_scopes, parse_scopes
from trunkline.protocol.methods import METHODS
from trunkline.server.registry import Kind, Listed, RegistrySnapshot
from trunkline.types import ToolAnnotations

__all__ = [
    "ScopePolicy",
    "apply_scope_policies",
    "check_scopes",
    "make_scope_policy",
    "notification_allowed",
    "scopes_in_use",
    "write_scopes",
]

log = logging.getLogger("trunkline")

_KINDS: tuple[Kind, ...] = ("tools", "prompts", "resources", "templates")


class ScopePolicy(Struct, frozen=True):
    """What reading needs, and what everything else needs."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()

    def scopes(self, kind: Kind, definition: Listed) -> tuple[str, ...]:
        """Give what a definition needs."""
        annotations = getattr(definition.options, "annotations", None)
        return self.write if kind == "tools" and not _is_read_only(annotations) else self.read


def make_scope_policy(read: str | Sequence[str], write: str | Sequence[str]) -> ScopePolicy:
    """Read what was said; without a scope for writing, that for reading is needed for it too.

    Raises:
        TypeError: nothing was said, or what was is no scope.
    """
    reading, writing = parse_scopes(read, "read"), parse_scopes(write, "write")
    if not (reading or writing):
        raise TypeError("require_scopes needs read=, write= or both")
    return ScopePolicy(reading, writing or reading)


def apply_scope_policies(registry: RegistrySnapshot, guards: Iterable[ScopePolicy]) -> RegistrySnapshot:
    """Put the scopes on everything in a registry: its definitions are its server's own, or copies made for it."""
    for guard in guards:
        for kind in _KINDS:
            for definition in getattr(registry, kind).values():
                definition.scopes = tuple(dict.fromkeys((*definition.scopes, *guard.scopes(kind, definition))))
    return replace(registry, guarded=True)


def write_scopes(guards: Iterable[ScopePolicy]) -> tuple[str, ...]:
    """Give what is needed for that which does not say what it does: it may change something."""
    return tuple(dict.fromkeys(scope for guard in guards for scope in guard.write))


def notification_allowed(guards: Iterable[ScopePolicy], method: str, origin: Origin, hierarchy: ScopeHierarchy) -> bool:
    """Tell whether a notification is heard from here: the protocol's own are, whoever sends them."""
    if any(row.name == method for row in METHODS) or origin_has_scopes(origin, write_scopes(guards), hierarchy):
        return True
    log.warning("the notification %.100r was not heard: whoever sent it lacks a scope", method)
    return False


def _is_read_only(annotations: ToolAnnotations | None) -> bool:
    return annotations is not None and annotations.read_only_hint is True


if TYPE_CHECKING:
    from collections.abc import Iterable

    from trunkline.protocol.caller import ScopeHierarchy


def check_scopes(exchange: Exchange, scopes: Iterable[str], hierarchy: ScopeHierarchy) -> None:
    """See that the caller of a request has scopes.

    Raises:
        InsufficientScope: one is missing; all of them are named.
    """
    if not has_scopes(exchange.admitted.caller, scopes, hierarchy):
        raise InsufficientScope(f"Insufficient scope: this needs {' '.join(scopes)}", scopes=scopes)


def scopes_in_use(registry: RegistrySnapshot) -> list[str]:
    """List the scopes that something offered needs."""
    shelves: tuple[Any, ...] = (registry.tools, registry.prompts, registry.resources, registry.templates)
    return list(dict.fromkeys(scope for shelf in shelves for each in shelf.values() for scope in each.scopes))
