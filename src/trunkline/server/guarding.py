"""Scopes for a whole server: what may change something needs one, what only reads another.

A tool that says of itself that it only reads (``readOnlyHint``) reads; so do resources, prompts and their completions.
Every other tool may change something, and so may a method or a notification of one's own, which cannot say so. What is
offered later is guarded like what is there, and what asks for scopes itself needs those as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from trunkline.protocol.access import Hierarchy, origin_may, read_scopes
from trunkline.protocol.caller import Origin
from trunkline.protocol.methods import METHODS
from trunkline.server.registry import Kind, Listed, Registry
from trunkline.types import ToolAnnotations

__all__ = ["Guard", "guarded", "make_guard", "may_tell", "unsaid_scopes"]

log = logging.getLogger("trunkline")

_KINDS: tuple[Kind, ...] = ("tools", "prompts", "resources", "templates")


class Guard(Struct, frozen=True):
    """What reading needs, and what everything else needs."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()

    def scopes(self, kind: Kind, definition: Listed) -> tuple[str, ...]:
        """Give what a definition needs."""
        annotations = getattr(definition.options, "annotations", None)
        return self.write if kind == "tools" and not _only_reads(annotations) else self.read


def make_guard(read: str | Sequence[str], write: str | Sequence[str]) -> Guard:
    """Read what was said; without a scope for writing, that for reading is needed for it too.

    Raises:
        TypeError: nothing was said, or what was is no scope.
    """
    reading, writing = read_scopes(read, "read"), read_scopes(write, "write")
    if not (reading or writing):
        raise TypeError("require_scopes needs read=, write= or both")
    return Guard(reading, writing or reading)


def guarded(registry: Registry, guards: Iterable[Guard]) -> Registry:
    """Put the scopes on everything in a registry: its definitions are its server's own, or copies made for it."""
    for guard in guards:
        for kind in _KINDS:
            for definition in getattr(registry, kind).values():
                definition.scopes = tuple(dict.fromkeys((*definition.scopes, *guard.scopes(kind, definition))))
    return replace(registry, guarded=True)


def unsaid_scopes(guards: Iterable[Guard]) -> tuple[str, ...]:
    """Give what is needed for that which does not say what it does: it may change something."""
    return tuple(dict.fromkeys(scope for guard in guards for scope in guard.write))


def may_tell(guards: Iterable[Guard], method: str, origin: Origin, hierarchy: Hierarchy) -> bool:
    """Tell whether a notification is heard from here: the protocol's own are, whoever sends them."""
    if any(row.name == method for row in METHODS) or origin_may(origin, unsaid_scopes(guards), hierarchy):
        return True
    log.warning("the notification %.100r was not heard: whoever sent it lacks a scope", method)
    return False


def _only_reads(annotations: ToolAnnotations | None) -> bool:
    return annotations is not None and annotations.read_only_hint is True
