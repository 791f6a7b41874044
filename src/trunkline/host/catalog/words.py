"""Splits texts, names and queries into the terms that search counts.

Names are split where their authors joined them (``camelCase``, ``snake_case``, ``kebab-case``, ``v2``), texts at
everything that is not a letter or digit, in any script; in scripts without spaces, each pair of neighbouring characters
is a term. English endings of verbs and nouns are removed on both sides, so a term need not be a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import MappingProxyType

__all__ = ["alike", "query_terms", "terms"]

_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces between words: Thai, Lao, Khmer, Kana, Han.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_LONGEST_WORD = 64

# Stop words of a query.
_STOP_WORDS = (
    "a about all an and any are as at be by can could do does for from get give has have how i in into is it its "
    "last let like long me much my need now of on one or our out over please should so some than that the their them "
    "then there these this those to two up us use using want was we were what when where which who will with would "
    "you your"
)

# Irregular forms.
_IRREGULAR = MappingProxyType(
    {"bought": "buy", "built": "build", "found": "find", "made": "make", "ran": "run", "said": "say", "sent": "send"}
    | {"spent": "spend", "told": "tell", "took": "take", "wrote": "write", "written": "write", "people": "person"}
)

# Synonyms; each matches the others with a lower weight.
_GROUPS = (
    "add create make new insert open register",
    "append add",
    "announce tell notify inform message post send",
    "assign owner give",
    "attach upload",
    "book schedule reserve create",
    "branch ref",
    "build check ci pipeline status workflow",
    "bug issue ticket defect",
    "calendar event meeting appointment",
    "cancel delete abort stop",
    "change update edit modify set alter rename",
    "channel room conversation",
    "chat message channel",
    "column field",
    "comment reply note respond answer",
    "commit history log",
    "copy duplicate clone",
    "cost spend price bill invoice money usage",
    "database db sql postgres table",
    "delete remove drop erase destroy clear unset",
    "directory folder dir",
    "directions route travel drive distance way",
    "document doc page",
    "download fetch retrieve get",
    "email mail message gmail inbox",
    "execute run query invoke",
    "file document path",
    "find search lookup locate query",
    "image picture photo",
    "list show display browse enumerate all view",
    "merge combine join",
    "message dm post text send",
    "move transfer rename relocate",
    "open read view",
    "pay charge payment",
    "person user member people contact profile",
    "pr pull",
    "read show view get fetch content print",
    "repo repository project",
    "size large big length",
    "send post publish deliver write",
    "sprint iteration",
    "status state transition done finish close resolve",
    "store save write put",
    "team group",
    "time date when clock",
    "url web page website link site",
    "weather forecast temperature rain snow wind sun",
    "write save create",
)


def terms(text: str) -> Iterator[str]:
    """Return the terms of a text in order, case-folded."""
    for found in _WORD.finditer(_JOINT.sub(" ", text)):
        word = found.group().casefold()[:_LONGEST_WORD]
        if word.isascii():
            yield _stem(word)
        else:
            yield from _spread(word)


def query_terms(text: str, *, most: int) -> list[str]:
    """Return the first distinct terms of a query, without stop words unless there is nothing else."""
    found = list(dict.fromkeys(terms(text)))
    return [term for term in found if term not in _STOPS][:most] or found[:most]


def alike(term: str) -> frozenset[str]:
    """Return the synonyms of a term."""
    return _ALIKE.get(term, frozenset())


def _spread(word: str) -> Iterator[str]:
    """Return a word as it is, or pairs of neighbouring characters where its script has no spaces."""
    at = 0
    for found in _UNSPACED.finditer(word):
        run = found.group()
        if word[at : found.start()]:
            yield word[at : found.start()]
        yield from (run[index : index + 2] for index in range(max(1, len(run) - 1)))
        at = found.end()
    if word[at:]:
        yield word[at:]


def _stem(word: str) -> str:
    """Remove the endings of plurals and verb forms; short words are left alone."""
    word = _IRREGULAR.get(word, word)
    if len(word) <= 3 or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            # "running" was "run", "calling" was "call".
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _tabulate() -> dict[str, frozenset[str]]:
    table: dict[str, set[str]] = {}
    for group in _GROUPS:
        stems = [_stem(word) for word in group.split()]
        for stem in stems:
            table.setdefault(stem, set()).update(stems)
    return {stem: frozenset(others - {stem}) for stem, others in table.items()}


_STOPS = frozenset(map(_stem, _STOP_WORDS.split()))
_ALIKE = MappingProxyType(_tabulate())
