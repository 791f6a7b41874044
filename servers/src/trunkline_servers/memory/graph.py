"""A graph of entities and relations: its content, its changes, its text format, and the search in it.

An entity has a name, a type and observations; a relation leads from one name to another. The text format is one JSON
object per line, entities first, as the official server writes it. Unknown members, and lines of an unknown type, are
preserved. Records are never modified, only replaced: so a copy of a graph shares them, and a graph that is no longer
changed can be read by many threads. Nothing here touches a file.

A search finds what the official server finds, all entities that contain the query, ignoring case; and for a query of
several words also those with words that begin with each of them. It takes one pass over the graph.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.errors import ToolError

__all__ = [
    "Graph",
    "GraphLimits",
    "Record",
    "graph_lines",
    "read_graph",
    "search_entities",
    "searchable_text",
    "shown_entity",
    "shown_relation",
]

#: An entity or a relation as in its line.
Record = dict[str, Any]

_KNOWN = frozenset({"entityType", "from", "name", "observations", "relationType", "to", "type"})
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class GraphLimits(Struct, frozen=True):
    """How much a graph may hold."""

    entities: int = 50_000
    relations: int = 100_000
    #: Per entity.
    observations: int = 5_000
    #: Characters of a name, a type or an observation.
    text: int = 100_000
    #: Bytes of the whole file.
    file_bytes: int = 32 * 1024 * 1024


class Graph:
    """Entities and relations in the order in which they were made."""

    __slots__ = ("_folded", "_places", "entities", "others", "rejected", "relations")

    def __init__(self) -> None:
        """Create an empty graph."""
        self.entities: list[Record] = []
        self.relations: list[Record] = []
        #: Lines of an unknown type.
        self.others: list[bytes] = []
        #: Lines that cannot be read.
        self.rejected: list[bytes] = []
        #: Index of the entity by name.
        self._places: dict[str, int] = {}
        self._folded: list[str] | None = None

    def add(self, entity: Record) -> None:
        """Append an entity; of two with the same name the first one counts."""
        self._places.setdefault(entity["name"], len(self.entities))
        self.entities.append(entity)

    def copy(self) -> Graph:
        """Return an independent copy."""
        made = Graph()
        made.entities, made.relations = self.entities.copy(), self.relations.copy()
        made.others, made.rejected = self.others, self.rejected
        made._places = self._places.copy()
        return made

    def equals(self, other: Graph) -> bool:
        """Return True if another graph has the same entities and relations; fast for a copy, which shares them."""
        return self.entities == other.entities and self.relations == other.relations

    def folded(self) -> list[str]:
        """Return the searchable text of each entity; cached, so only for a graph that is no longer changed."""
        if self._folded is None:
            self._folded = [searchable_text(entity) for entity in self.entities]
        return self._folded

    # --- changes; each returns whether or what it changed, and changes nothing if it fails ----------------------------

    def create_entities(self, given: Sequence[Record], limits: GraphLimits) -> list[Record]:
        """Add the entities whose names are new, and return them."""
        made: list[Record] = []
        names: set[str] = set()
        for each in given:
            if each["name"] in self._places or each["name"] in names:
                continue
            names.add(each["name"])
            _check_texts((each["name"], each["entityType"], *each["observations"]), limits)
            _check_count(len(each["observations"]), limits.observations, f"observations of {each['name'][:100]!r}")
            made.append({key: each[key] for key in ("name", "entityType", "observations")})
        _check_count(len(self.entities) + len(made), limits.entities, "entities")
        for entity in made:
            # A separate list: the returned one belongs to the caller.
            self.add({"type": "entity", **entity, "observations": list(entity["observations"])})
        return made

    def create_relations(self, given: Sequence[Record], limits: GraphLimits) -> list[Record]:
        """Add the relations that are new, and return them."""
        known = {_ends(relation) for relation in self.relations}
        made: list[Record] = []
        for each in given:
            if _ends(each) in known:
                continue
            known.add(_ends(each))
            _check_texts(_ends(each), limits)
            made.append(shown_relation(each))
        _check_count(len(self.relations) + len(made), limits.relations, "relations")
        self.relations.extend({"type": "relation", **relation} for relation in made)
        return made

    def add_observations(self, given: Sequence[Record], limits: GraphLimits) -> list[Record]:
        """Add new observations to entities, and return those that were added.

        Raises:
            ToolError: there is no such entity.
        """
        added: list[Record] = []
        lists: dict[str, list[str]] = {}
        for each in given:
            name = each["entityName"]
            place = self._places.get(name)
            if place is None:
                raise ToolError(f"There is no entity named {name[:200]!r}: create it with create_entities first.")
            _check_texts(each["contents"], limits)
            have = lists.setdefault(name, list(self.entities[place]["observations"]))
            known = set(have)
            # Removes duplicates and keeps the order.
            new = [text for text in dict.fromkeys(each["contents"]) if text not in known]
            have.extend(new)
            _check_count(len(have), limits.observations, f"observations of {name[:100]!r}")
            added.append({"entityName": name, "addedObservations": new})
        for name, observations in lists.items():
            self._observe(name, observations)
        return added

    def delete_entities(self, names: Iterable[str]) -> bool:
        """Delete entities and the relations from or to them."""
        gone = set(names)
        entities = [entity for entity in self.entities if entity["name"] not in gone]
        relations = [each for each in self.relations if each["from"] not in gone and each["to"] not in gone]
        changed = len(entities) < len(self.entities) or len(relations) < len(self.relations)
        self.entities, self.relations, self._places = [], relations, {}
        for entity in entities:
            self.add(entity)
        return changed

    def delete_observations(self, given: Iterable[Record]) -> bool:
        """Delete observations of entities; unknown names are ignored."""
        changed = False
        for each in given:
            place = self._places.get(each["entityName"])
            if place is not None:
                gone, have = set(each["observations"]), self.entities[place]["observations"]
                left = [text for text in have if text not in gone]
                changed = changed or len(left) < len(have)
                self._observe(each["entityName"], left)
        return changed

    def delete_relations(self, given: Iterable[Record]) -> bool:
        """Delete relations; unknown ones are ignored."""
        gone = {_ends(each) for each in given}
        left = [relation for relation in self.relations if _ends(relation) not in gone]
        changed = len(left) < len(self.relations)
        self.relations = left
        return changed

    def _observe(self, name: str, observations: list[str]) -> None:
        """Replace an entity by one with other observations."""
        place = self._places[name]
        self.entities[place] = {**self.entities[place], "observations": observations}

    # --- views -------------------------------------------------------------------------------------------------------

    def shown(self, entities: Iterable[Record] | None = None) -> Record:
        """Return the given entities, by default all, and the relations from or to them."""
        if entities is None:
            return {
                "entities": [shown_entity(each) for each in self.entities],
                "relations": [shown_relation(each) for each in self.relations],
            }
        chosen = list(entities)
        names = {each["name"] for each in chosen}
        touching = (each for each in self.relations if each["from"] in names or each["to"] in names)
        return {
            "entities": [shown_entity(each) for each in chosen],
            "relations": [shown_relation(each) for each in touching],
        }


def searchable_text(entity: Mapping[str, Any]) -> str:
    """Return the lower-case text of an entity: a line for its name, its type and each observation."""
    return "\n".join(text.lower() for text in (entity["name"], entity["entityType"], *entity["observations"]))


def shown_entity(record: Mapping[str, Any]) -> Record:
    """Return an entity as shown to callers."""
    return {"name": record["name"], "entityType": record["entityType"], "observations": record["observations"]}


def shown_relation(record: Mapping[str, Any]) -> Record:
    """Return a relation as shown to callers."""
    return {"from": record["from"], "to": record["to"], "relationType": record["relationType"]}


# --- lines -----------------------------------------------------------------------------------------------------------


def read_graph(data: bytes) -> Graph:
    """Parse the content of a file; an unreadable line affects only itself."""
    graph, read = Graph(), _LineReader()
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if not line.strip():
            continue
        record = read.record(line)
        kind = None if record is None else record.get("type")
        if record is not None and kind == "entity" and _is_entity(record):
            graph.add(record)
        elif record is not None and kind == "relation" and _is_text(record, "from", "to", "relationType"):
            graph.relations.append(record)
        elif isinstance(kind, str) and kind not in ("entity", "relation"):
            graph.others.append(line)
        else:
            graph.rejected.append(line)
    return graph


def graph_lines(graph: Graph) -> bytes:
    """Return the file content of a graph, without unreadable lines."""
    lines = msgspec.json.Encoder().encode_lines([*graph.entities, *graph.relations])
    return b"\n".join([lines.removesuffix(b"\n"), *graph.others] if lines else graph.others)


class _LineReader:
    """Parses lines that are JSON objects."""

    def __init__(self) -> None:
        self._whole = msgspec.json.Decoder(dict[str, Any])
        self._members = msgspec.json.Decoder(dict[str, msgspec.Raw])

    def record(self, line: bytes) -> Record | None:
        """Parse a line; return None if it is not a JSON object.

        Unknown members stay raw so that they are written back unchanged, including number formatting.
        """
        with suppress(*_UNREADABLE):
            record: Record = self._whole.decode(line)
            if record.keys() <= _KNOWN:
                return record
        with suppress(*_UNREADABLE):
            raw = self._members.decode(line)
            return {key: msgspec.json.decode(value) if key in _KNOWN else value for key, value in raw.items()}
        return None


def _is_entity(record: Record) -> bool:
    observations = record.get("observations")
    return (
        isinstance(record.get("name"), str)
        and isinstance(record.get("entityType"), str)
        and isinstance(observations, list)
        and all(isinstance(each, str) for each in observations)
    )


def _is_text(record: Record, *keys: str) -> bool:
    return all(isinstance(record.get(key), str) for key in keys)


def _ends(relation: Mapping[str, Any]) -> tuple[str, str, str]:
    return relation["from"], relation["to"], relation["relationType"]


def _check_texts(texts: Iterable[str], limits: GraphLimits) -> None:
    for text in texts:
        if len(text) > limits.text:
            raise ToolError(f"A text of {len(text)} characters is too long: at most {limits.text} are kept.")


def _check_count(count: int, most: int, what: str) -> None:
    if count > most:
        raise ToolError(f"That would make {count} {what}, and at most {most} are kept. Delete some first.")


_WORD = re.compile(r"\w+")
_MAX_WORDS = 32
_NAME, _PREFIX, _IN_NAME, _TYPE, _IN_OBSERVATION, _WORDS_ONLY = range(6)


def search_entities(entities: Sequence[Record], query: str, texts: Sequence[str] | None = None) -> list[Record]:
    """Return the matches of a query: exact name first, then name prefix, name, type, observations.

    Among equals the entity with more of the query's words comes first, then the older one. ``texts`` are the searchable
    texts of the entities, if already known.
    """
    wanted = query.lower()
    if not wanted:
        # An empty query matches everything, in order.
        return list(entities)
    words = frozenset(_WORD.findall(wanted)[:_MAX_WORDS])
    texts = [searchable_text(each) for each in entities] if texts is None else texts
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
