"""The kinds of servers in the fault test, and what must hold of each.

``always``: every call is answered, rightly. ``perhaps``: a call is answered rightly or fails, in time. ``never``: it
cannot be used. States are those in which a server of the kind may be once everything has settled.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

__all__ = ["DOOMED", "KINDS", "Answers", "Kind", "Trouble"]

Answers: TypeAlias = Literal["always", "perhaps", "never"]
#: What is done to a server from outside.
Trouble: TypeAlias = Literal["kill", "terminate", "stop", "pause", "restart", "replace"]

_UP = frozenset({"ready"})
_FAILING = frozenset({"broken", "starting", "waiting"})
_BOTH = _UP | _FAILING


class Kind(Struct, frozen=True, kw_only=True):
    """What a server does, and what that may lead to."""

    name: str
    answers: Answers
    states: frozenset[str] = _UP
    #: The program it is: ``faulty`` takes the name of the fault, ``packaged`` is made with the package.
    program: Literal["faulty", "packaged", "web"] = "faulty"
    fault: str = "honest"
    troubles: tuple[Trouble, ...] = ()
    #: The share of its HTTP requests that are answered by a lie.
    lies: float = 0.0


def _fault(fault: str, answers: Answers, states: frozenset[str] = _UP) -> Kind:
    return Kind(name=fault, fault=fault, answers=answers, states=states)


_ALL: tuple[Kind, ...] = (
    Kind(name="honest", answers="always"),
    Kind(name="packaged", answers="always", program="packaged"),
    Kind(name="web", answers="always", program="web"),
    # Honest by themselves; it is what is done to them.
    Kind(name="killed", answers="perhaps", states=_BOTH, troubles=("kill",) * 4),
    Kind(name="terminated", answers="perhaps", states=_BOTH, troubles=("terminate",) * 3),
    Kind(name="stopped", answers="perhaps", states=_BOTH, troubles=("stop",)),
    Kind(name="paused", answers="perhaps", troubles=("pause",)),
    Kind(name="restarted", answers="perhaps", troubles=("restart", "restart")),
    Kind(name="replaced", answers="perhaps", troubles=("replace", "replace")),
    Kind(name="web-killed", answers="perhaps", states=_BOTH, program="web", troubles=("kill", "kill")),
    Kind(name="web-paused", answers="perhaps", states=_BOTH, program="web", troubles=("pause",)),
    Kind(name="web-lying", answers="perhaps", states=_BOTH | {"partial"}, program="web", lies=0.3),
    # What they do themselves.
    _fault("hangs-in-call", "perhaps"),
    _fault("turns-deaf", "perhaps", _BOTH | {"partial"}),
    _fault("reads-slowly", "perhaps"),
    _fault("hangs-at-start", "never", _FAILING),
    _fault("hangs-in-list", "never", frozenset({"partial"})),
    _fault("crashes-at-start", "never", _FAILING),
    _fault("crashes-in-call", "perhaps", _BOTH),
    _fault("ends-in-answer", "perhaps", _BOTH | {"partial"}),
    _fault("will-not-end", "always"),
    _fault("has-children", "always"),
    _fault("has-runaways", "always"),
    _fault("prints-junk", "always"),
    _fault("breaks-lines", "perhaps", _BOTH | {"partial"}),
    _fault("torrent", "always"),
    _fault("endless-line", "perhaps", _BOTH),
    _fault("floods-stderr", "always"),
    _fault("answers-at-length", "always"),
    _fault("changes-list", "always"),
    _fault("repeats-cursor", "never", frozenset({"partial"})),
    _fault("bad-schemas", "always"),
    _fault("duplicates", "perhaps"),
    _fault("vanishes", "perhaps"),
    _fault("wrong-types", "perhaps"),
    _fault("wrong-ids", "always"),
    _fault("answers-twice", "always"),
    _fault("storms", "always"),
    _fault("meddles", "always"),
)

KINDS = MappingProxyType({kind.name: kind for kind in _ALL})

#: The servers of a host that is killed: those that could outlive it.
DOOMED = ("honest", "packaged", "has-children", "has-runaways", "will-not-end", "torrent", "hangs-at-start", "honest")
