"""Which entities a search finds, best first.

Found is what the official server finds, all that hold the query anywhere, whatever the case of letters; and with a
query of several words also what has, somewhere, a word that begins with each of them. It is one walk over the graph.
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
    """Give what a query finds: its very name first, then names that begin with it, that have it, types, observations.

    Among those that are alike the one with more of the query's words comes first, then the older one. ``texts`` is what
    each entity says, as ``folded`` gives it, where it is known already.
    """
    wanted = query.lower()
    if not wanted:
        # A search for nothing finds all, in their order.
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
    """Say where the query is, or all of its words are; nothing else is looked at more closely."""
    if len(words) < 2:
        return [place for place, text in enumerate(texts) if wanted in text]
    # The longest word is the rarest: few texts are searched for the others.
    longest = max(words, key=len)
    some = [place for place, text in enumerate(texts) if longest in text]
    return [place for place in some if all(word in texts[place] for word in words)]


def _rank(entity: Record, text: str, wanted: str, words: frozenset[str]) -> tuple[int, int] | None:
    """Say how well an entity fits, less being better: where the query is, then the words it lacks."""
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
