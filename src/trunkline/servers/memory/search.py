"""Which entities a search finds, best first.

Found is what the official server finds, all that hold the query anywhere, whatever the case of letters; and with a
query of several words also what has, somewhere, a word that begins with each of them. It is one walk over the graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from trunkline.servers.memory.graph import Record

__all__ = ["ranked"]

_WORD = re.compile(r"\w+")
_MAX_WORDS = 32
_NAME, _PREFIX, _IN_NAME, _TYPE, _IN_OBSERVATION, _WORDS_ONLY = range(6)


def ranked(entities: Iterable[Record], query: str) -> list[Record]:
    """Give what a query finds: its very name first, then names that begin with it, that have it, types, observations.

    Among those that are alike the one with more of the query's words comes first, then the older one.
    """
    wanted = query.lower()
    words = frozenset(_WORD.findall(wanted)[:_MAX_WORDS])
    found: list[tuple[int, int, int, Record]] = []
    for place, entity in enumerate(entities):
        rank = _rank(entity, wanted, words)
        if rank is not None:
            # A search for nothing finds all, in their order.
            found.append((*(rank if wanted else (0, 0)), place, entity))
    found.sort(key=lambda each: each[:3])
    return [entity for *_, entity in found]


def _rank(entity: Record, wanted: str, words: frozenset[str]) -> tuple[int, int] | None:
    """Say how well an entity fits, less being better: where the query is, then the words it lacks."""
    name, kind = entity["name"].lower(), entity["entityType"].lower()
    observations = [text.lower() for text in entity["observations"]]
    where = _where(wanted, name, kind, observations)
    text = "\n".join((name, kind, *observations))
    if where is None and (len(words) < 2 or not all(word in text for word in words)):
        return None
    there = frozenset(_WORD.findall(text))
    if where is None:
        if not all(any(word.startswith(begin) for word in there) for begin in words):
            return None
        where = _WORDS_ONLY
    return where, -len(words & there)


def _where(wanted: str, name: str, kind: str, observations: list[str]) -> int | None:
    if wanted == name:
        return _NAME
    if name.startswith(wanted):
        return _PREFIX
    if wanted in name:
        return _IN_NAME
    if wanted in kind:
        return _TYPE
    return _IN_OBSERVATION if any(wanted in text for text in observations) else None
