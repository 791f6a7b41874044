"""Which entities a search finds, best first.

It finds what the official server finds, all entities that contain the query, ignoring case; and for a query of several
words also those with words that begin with each of them. One pass over the graph.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trunkline.servers.memory.graph import Record, folded

__all__ = ["ranked"]

_WORD = re.compile(r"\w+")
_MAX_WORDS = 32
_NAME, _PREFIX, _IN_NAME, _TYPE, _IN_OBSERVATION, _WORDS_ONLY = range(6)


def ranked(entities: Sequence[Record], query: str, texts: Sequence[str] | None = None) -> list[Record]:
    """Return the matches of a query: exact name first, then name prefix, name, type, observations.

    Among equals the entity with more of the query's words comes first, then the older one. ``texts`` are the searchable
    texts of the entities, if already known.
    """
    wanted = query.lower()
    if not wanted:
        # An empty query matches everything, in order.
        return list(entities)
    words = frozenset(_WORD.findall(wanted)[:_MAX_WORDS])
    texts = [folded(each) for each in entities] if texts is None else texts
    found: list[tuple[int, int, int]] = []
    for place in _candidates(texts, wanted, words):
        rank = _rank(entities[place], texts[place], wanted, words)
        if rank is not None:
            found.append((*rank, place))
    return [entities[place] for *_, place in sorted(found)]


def _candidates(texts: Sequence[str], wanted: str, words: frozenset[str]) -> list[int]:
    """Return the indexes of entities that contain the query or all of its words."""
    if len(words) < 2:
        return [place for place, text in enumerate(texts) if wanted in text]
    # The longest word is likely the rarest, so few texts are searched for the others.
    longest = max(words, key=len)
    some = [place for place, text in enumerate(texts) if longest in text]
    return [place for place in some if all(word in texts[place] for word in words)]


def _rank(entity: Record, text: str, wanted: str, words: frozenset[str]) -> tuple[int, int] | None:
    """Return the rank of an entity, lower is better: where the query occurs, then the number of matching words."""
    name, kind = entity["name"].lower(), entity["entityType"].lower()
    where = _where(wanted, name, kind, [each.lower() for each in entity["observations"]])
    there = frozenset(_WORD.findall(text))
    if where is None:
        if len(words) < 2 or not all(any(word.startswith(begin) for word in there) for begin in words):
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
