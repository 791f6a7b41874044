"""Rules as data, as they are after parsing.

Nothing here decides: rules are compiled to functions, and ``policy`` evaluates them in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from trunkline.host.policy.acts import Act, ActKind, Annotations, Effect
from trunkline.host.policy.addresses import uri_matcher
from trunkline.host.policy.globs import Matcher, any_glob
from trunkline.host.policy.pointers import parse_pointer
from trunkline.host.policy.predicates import Predicate

__all__ = ["KINDS", "TIERS", "WITH_ARGUMENTS", "Redact", "Rule"]

KINDS: tuple[ActKind, ...] = ("tool", "resource", "prompt", "sampling", "elicitation", "roots")
#: The kinds with arguments, or with params that a rule can test.
WITH_ARGUMENTS: frozenset[ActKind] = frozenset({"tool", "prompt", "sampling", "elicitation"})
#: The tiers that have names; any integer is a tier too.
TIERS: Mapping[str, int] = MappingProxyType({"managed": 1000, "user": 0, "default": -1000})


class Rule(Struct, frozen=True, kw_only=True):
    """One rule: what it is about, its conditions, and its effect; an empty tuple matches anything."""

    #: Its name, or its position in the file.
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
    #: On a rule that allows, ``True`` extends it to tainted sessions. Everywhere else it is a condition.
    tainted: bool | None = None
    trusted: bool | None = None
    #: The message for a denied caller.
    message: str | None = None
    #: When it expires, in seconds since the epoch.
    expires: float | None = None

    def __str__(self) -> str:
        """Name the rule and its position, for people."""
        return self.where if self.name == self.where else f"{self.name!r} ({self.where})"

    @property
    def allows_taint(self) -> bool:
        """Whether it also allows acts in a tainted session, by an explicit ``tainted = true``."""
        return self.effect == "allow" and self.tainted is True


class Redact:
    """A ``[[redact]]`` table: arguments that the audit trail must not show."""

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
        """Redact what these JSON pointers lead to, ``*`` for every element, for acts that match the globs.

        Raises:
            ValueError: a pointer or a glob is invalid.
        """
        for pointer in pointers:
            parse_pointer(pointer)
        self.pointers = pointers
        self.servers, self.names, self.kinds, self.where = servers, names, kinds, where
        self._server_fits: Matcher = any_glob(servers or ("*",))
        self._name_fits: Matcher = (
            uri_matcher(names, opens=False) if names and "resource" in kinds else any_glob(names or ("*",))
        )

    def matches(self, act: Act) -> bool:
        """Return True if it applies to the arguments of an act."""
        return act.kind in self.kinds and bool(self._server_fits(act.server) and self._name_fits(act.name))
