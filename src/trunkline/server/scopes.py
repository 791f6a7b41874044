"""Scopes that a caller's token must have, for single definitions and for a whole server.

Lists leave out what a caller may not use. A call to it is rejected with all the scopes that it needs, so that the
client can obtain a token that has them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

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
    """The scopes required for reading, and those required for everything else."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()

    def scopes(self, kind: Kind, definition: Listed) -> tuple[str, ...]:
        """Return the scopes that a definition needs."""
        annotations = getattr(definition.options, "annotations", None)
        return self.write if kind == "tools" and not _is_read_only(annotations) else self.read


def make_scope_policy(read: str | Sequence[str], write: str | Sequence[str]) -> ScopePolicy:
    """Parse the arguments of ``require_scopes``; without ``write``, the scopes of ``read`` apply to everything.

    Raises:
        TypeError: neither was given, or a value is not a scope.
    """
    read_scopes, write_scopes = parse_scopes(read, "read"), parse_scopes(write, "write")
    if not (read_scopes or write_scopes):
        raise TypeError("require_scopes needs read=, write= or both")
    return ScopePolicy(read_scopes, write_scopes or read_scopes)


def apply_scope_policies(registry: RegistrySnapshot, policies: Iterable[ScopePolicy]) -> RegistrySnapshot:
    """Add the policies' scopes to every definition, which belongs to the server or is a copy made for it."""
    for policy in policies:
        for kind in _KINDS:
            for definition in getattr(registry, kind).values():
                definition.scopes = tuple(dict.fromkeys((*definition.scopes, *policy.scopes(kind, definition))))
    return replace(registry, needs_scopes=True)


def write_scopes(policies: Iterable[ScopePolicy]) -> tuple[str, ...]:
    """Return the scopes for custom methods and notifications: what they do is unknown, so it may change something."""
    return tuple(dict.fromkeys(scope for policy in policies for scope in policy.write))


def notification_allowed(
    policies: Iterable[ScopePolicy], method: str, origin: Origin, hierarchy: ScopeHierarchy
) -> bool:
    """Return whether the sender may send a notification; those of the protocol itself need no scope."""
    if any(row.name == method for row in METHODS) or origin_has_scopes(origin, write_scopes(policies), hierarchy):
        return True
    log.warning("the notification %.100r was ignored: its sender lacks a scope", method)
    return False


def _is_read_only(annotations: ToolAnnotations | None) -> bool:
    return annotations is not None and annotations.read_only_hint is True


def check_scopes(exchange: Exchange, scopes: Iterable[str], hierarchy: ScopeHierarchy) -> None:
    """Check that the caller of a request has the given scopes.

    Raises:
        InsufficientScope: at least one is missing; the error names all of them.
    """
    if not has_scopes(exchange.admitted.caller, scopes, hierarchy):
        raise InsufficientScope(f"Insufficient scope: this needs {' '.join(scopes)}", scopes=scopes)


def scopes_in_use(registry: RegistrySnapshot) -> list[str]:
    """Return the scopes that any definition of a registry needs."""
    definitions: list[Listed] = [each for kind in _KINDS for each in getattr(registry, kind).values()]
    return list(dict.fromkeys(scope for each in definitions for scope in each.scopes))
