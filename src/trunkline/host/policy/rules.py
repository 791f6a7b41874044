"""Rules as data: what a policy is made of once it has been read, whoever wrote it.

Nothing here decides; ``matching`` makes functions of rules, ``policy`` asks them in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from trunkline.host.policy.acts import Act, ActKind, Annotations, Effect
from trunkline.host.policy.globs import Matcher, any_glob
from trunkline.host.policy.pointers import parse_pointer
from trunkline.host.policy.predicates import Predicate

__all__ = ["KINDS", "TIERS", "WITH_ARGUMENTS", "Redact", "Rule"]

KINDS: tuple[ActKind, ...] = ("tool", "resource", "prompt", "sampling", "elicitation", "roots")
#: What has arguments, or params that a rule may look into.
WITH_ARGUMENTS: frozenset[ActKind] = frozenset({"tool", "prompt", "sampling", "elicitation"})
#: The tiers that have names; any whole number is one too.
TIERS: Mapping[str, int] = MappingProxyType({"managed": 1000, "user": 0, "default": -1000})


class Rule(Struct, frozen=True, kw_only=True):
    """One rule: what it is about, under which conditions, and what it says then; an empty tuple means any."""

    #: The name it was given, or where it is written.
    name: str
    where: str
    effect: Effect
    tier: int = 0
    kinds: tuple[ActKind, ...] = ("tool",)
    servers: tuple[str, ...] = ()
    #: Globs over the names of tools or prompts, or over URIs.
    names: tuple[str, ...] = ()
    when: tuple[Predicate, ...] = ()
    annotations: Annotations = Annotations()
    callers: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    #: On a rule that allows, ``True`` is a permission: also in a tainted session. Everywhere else it is a condition.
    tainted: bool | None = None
    trusted: bool | None = None
    #: What whoever is denied may read.
    message: str | None = None
    #: Seconds since the epoch from which on it holds no more.
    expires: float | None = None

    def __str__(self) -> str:
        """Name it, for people, with the place it is written at."""
        return self.where if self.name == self.where else f"{self.name!r} ({self.where})"

    @property
    def allows_taint(self) -> bool:
        """Whether it allows its acts in a tainted session too, by an explicit ``tainted = true``."""
        return self.effect == "allow" and self.tainted is True


class Redact:
    """Arguments that the audit trail must not show."""

    __slots__ = ("_name_fits", "_server_fits", "kinds", "names", "pointers", "servers", "where")

    def __init__(
        self,
        pointers: tuple[str, ...],
        *,
        servers: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
        kinds: tuple[ActKind, ...] = ("tool",),
        where: str = "",
    ) -> None:
        """Take JSON pointers, ``*`` standing for every element, and globs over what they are about.

        Raises:
            ValueError: a pointer or a glob is none.
        """
        for pointer in pointers:
            parse_pointer(pointer)
        self.pointers = pointers
        self.servers, self.names, self.kinds, self.where = servers, names, kinds, where
        self._server_fits: Matcher = any_glob(servers or ("*",))
        self._name_fits: Matcher = any_glob(names or ("*",))

    def matches(self, act: Act) -> bool:
        """Tell whether it is about the arguments of an act."""
        return act.kind in self.kinds and bool(self._server_fits(act.server) and self._name_fits(act.name))
