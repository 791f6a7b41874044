"""Offline tool search.

A catalog that is too large for a model's context is replaced by the names of its tools and two tools that find and
call the rest. ``SearchIndex`` ranks tools by BM25 over weighted fields (name, then title, server name, parameter
names, description, and last the server's instructions); words of a query also match their synonyms, with a lower
weight. The order is deterministic; equal scores keep the catalog's order. Names are split where their authors joined
them (``camelCase``, ``snake_case``, ``kebab-case``, ``v2``), texts at everything that is not a letter or digit, in
any script; in scripts without spaces each pair of neighbouring characters is a term. English verb and noun endings
are removed on both sides, so a term need not be a word. Works on the items it is given, which are those the caller
may see; knows no policy and does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import log
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.host.upstreams.catalog.items import CatalogItem, estimate_tokens

__all__ = [
    "CALL_TOOL",
    "MOST_TOOLS",
    "SEARCH_TOOL",
    "CatalogExposure",
    "SearchHit",
    "SearchIndex",
    "SearchMode",
    "choose_exposure",
    "estimate_tokens",
    "meta_tools",
    "query_terms",
    "render_hits",
    "synonyms",
    "terms",
]

_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
_WORD = re.compile(r"[^\W_]+")
# Scripts without spaces between words: Thai, Lao, Khmer, Kana, Han.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_LONGEST_WORD = 64  # Longer words are data, not language.

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


def synonyms(term: str) -> frozenset[str]:
    """Return the synonyms of a term."""
    return _SYNONYMS.get(term, frozenset())


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


def _build_synonyms() -> dict[str, frozenset[str]]:
    table: dict[str, set[str]] = {}
    for group in _GROUPS:
        stems = [_stem(word) for word in group.split()]
        for stem in stems:
            table.setdefault(stem, set()).update(stems)
    return {stem: frozenset(others - {stem}) for stem, others in table.items()}


_STOPS = frozenset(map(_stem, _STOP_WORDS.split()))
_SYNONYMS = MappingProxyType(_build_synonyms())


#: The names of the two tools; no wire name can equal them, since each contains the joiner or a digest.
SEARCH_TOOL = "search_tools"
CALL_TOOL = "call_tool"
#: The most tools that ordinary clients handle: the limit of a request to OpenAI's API, and of VS Code.
MOST_TOOLS = 128
#: Whether a catalog is searched: depending on its size, always, never.
SearchMode: TypeAlias = Literal["auto", "on", "off"]

# The usual constants of BM25: term saturation and length normalization.
_SATURATION = 1.2
_LENGTH = 0.6  # How much long texts are discounted (the b of BM25, usually 0.75; descriptions differ less in length).
_WEIGHTS = MappingProxyType(
    {"name": 4.0, "title": 2.0, "server": 2.5, "parameters": 1.0, "description": 1.0, "instructions": 0.2}
)
_SYNONYM_WEIGHT = 0.45  # Below half, so that a synonym never beats the word itself.
_EXACT = 1000.0  # Above any sum of term scores: an exact name always comes first.
_LONGEST_QUERY = 1000  # Queries have a few words.
_MOST_TERMS = 32  # Each term is looked up in the index.
_MOST_HITS = 50  # More do not help a model; it asks more precisely instead.
_LONGEST_TEXT = 4000  # Descriptions beyond this say nothing new about the purpose.
_MOST_PARAMETERS = 100  # More parameters than any sensible tool has.
# Limits in characters: the description of the search tool, and the definitions in one search result.
_MOST_OVERVIEW = 12_000
_MOST_FOUND = 64 * 1024  # Bytes of one search result: about 18,000 tokens.
_LONGEST_LINE = 160  # Two lines of a terminal.


class SearchHit(Struct, frozen=True):
    """A tool that a query found."""

    item: CatalogItem
    score: float


class _Entry(Struct, frozen=True):
    """The weighted terms of one item."""

    weights: Mapping[str, float]
    length: float


class SearchIndex:
    """An index of tools; entries of ``before`` for the same definitions are reused."""

    __slots__ = ("_average", "_entries", "_items", "_postings")

    def __init__(
        self,
        items: Iterable[CatalogItem],
        *,
        instructions: Mapping[str, str] = MappingProxyType({}),
        before: SearchIndex | None = None,
    ) -> None:
        """Index these items, with the instructions of their servers."""
        self._items = list(items)
        known = {} if before is None else before._entries
        self._entries: dict[tuple[str, str], _Entry] = {
            _key(item): known.get(_key(item)) or _entry(item) for item in self._items
        }
        about = {server: _count({"instructions": text}) for server, text in instructions.items()}
        self._postings: dict[str, list[tuple[int, float]]] = {}
        total = 0.0
        for number, item in enumerate(self._items):
            entry = self._entries[_key(item)]
            extra = about.get(item.server, {})
            total += entry.length
            for term in entry.weights.keys() | extra.keys():
                weight = entry.weights.get(term, 0.0) + extra.get(term, 0.0)
                self._postings.setdefault(term, []).append((number, weight))
        self._average = total / len(self._items) if self._items else 1.0

    def search(self, query: str, limit: int = 10) -> list[SearchHit]:
        """Return the best matching tools, best first; none if no word of the query occurs."""
        query = query[:_LONGEST_QUERY]
        scores: dict[int, float] = {}
        for term in query_terms(query, most=_MOST_TERMS):
            for number, score in self._best(term).items():
                scores[number] = scores.get(number, 0.0) + score
        wanted = query.strip().casefold()
        for number, item in enumerate(self._items):
            if wanted and wanted in (item.wire.casefold(), item.id.casefold(), item.name.casefold()):
                scores[number] = scores.get(number, 0.0) + _EXACT
        order = sorted(scores, key=lambda number: (-scores[number], number))
        return [SearchHit(self._items[number], scores[number]) for number in order[: max(1, min(limit, _MOST_HITS))]]

    def _best(self, term: str) -> dict[int, float]:
        """Score a term and its synonyms: each item gets the better score, not the sum."""
        best = self._scores(term)
        for other in sorted(synonyms(term)):
            for number, score in self._scores(other).items():
                best[number] = max(best.get(number, 0.0), score * _SYNONYM_WEIGHT)
        return best

    def _scores(self, term: str) -> dict[int, float]:
        postings = self._postings.get(term, ())
        rarity = log(1 + (len(self._items) - len(postings) + 0.5) / (len(postings) + 0.5))
        scores = {}
        for number, weight in postings:
            length = self._entries[_key(self._items[number])].length
            held_back = _SATURATION * (1 - _LENGTH + _LENGTH * length / self._average)
            scores[number] = rarity * weight * (_SATURATION + 1) / (weight + held_back)
        return scores


def _key(item: CatalogItem) -> tuple[str, str]:
    return item.id, item.pin


def _entry(item: CatalogItem) -> _Entry:
    definition = item.definition
    schema = definition.input_schema if isinstance(definition, t.Tool) else {}
    properties = schema.get("properties")
    parameters = list(properties)[:_MOST_PARAMETERS] if isinstance(properties, dict) else []
    weights = _count(
        {
            "name": item.name,
            "title": definition.title or "",
            "server": item.server,
            "parameters": " ".join(parameters),
            "description": item.description,
        }
    )
    return _Entry(weights, sum(weights.values()))


def _count(fields: Mapping[str, str]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for field, text in fields.items():
        for term in terms(text[:_LONGEST_TEXT]):
            weights[term] = weights.get(term, 0.0) + _WEIGHTS[field]
    return weights


# --- listing or searching --------------------------------------------------------------------------------------------


class CatalogExposure(Struct, frozen=True):
    """How a catalog is shown to a model."""

    #: Whether the two search tools replace it.
    searched: bool
    #: The estimated tokens of all tools.
    tokens: int
    #: The tools that are listed in full.
    listed: tuple[CatalogItem, ...]
    #: Why it is searched; empty if it is listed.
    reason: str = ""


def choose_exposure(
    items: Iterable[CatalogItem],
    *,
    mode: SearchMode = "auto",
    window_tokens: int = 200_000,
    share: float = 0.10,
    most_tools: int = MOST_TOOLS,
    always: Collection[str] = frozenset(),
) -> CatalogExposure:
    """Choose whether tools are listed or searched.

    In mode ``auto`` they are searched if they are more than ``most_tools``, or more than a share of the model's window.
    Tools of the servers in ``always`` are listed in any case.
    """
    everything = tuple(items)
    tokens, most_tokens = sum(item.tokens for item in everything), int(window_tokens * share)
    if mode == "off":
        return CatalogExposure(False, tokens, everything)
    if mode == "on":
        reason = "search is on"
    elif len(everything) > most_tools:
        reason = f"more than {most_tools} tools"
    elif tokens > most_tokens:
        reason = f"more than {most_tokens:,} tokens"
    else:
        return CatalogExposure(False, tokens, everything)
    return CatalogExposure(True, tokens, tuple(item for item in everything if item.server in always), reason)


def meta_tools(
    items: Iterable[CatalogItem],
    *,
    instructions: Mapping[str, str] = MappingProxyType({}),
    notes: Mapping[str, str] = MappingProxyType({}),
    by_name: bool = False,
) -> list[t.Tool]:
    """Return the two tools that replace a catalog: one finds tools, the other calls them.

    ``notes`` are remarks on servers for the model, such as that one is unavailable. ``by_name`` means that found tools
    are listed from then on, and are to be called by their own names.
    """
    way = f"{CALL_TOOL}, which works only for tools that are allowed beforehand"
    after = (
        f"Tools that were found are listed from then on: call them by name, or with {way}."
        if by_name
        else (f"Call the tools that were found with {CALL_TOOL}.")
    )
    overview = _overview(list(items), instructions, notes)
    search = t.Tool(
        name=SEARCH_TOOL,
        title="Search tools",
        description=f"Find tools by what they do, or by name, and get their definitions. {after}\n\n{overview}",
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What the tool should do, in a few words, or its name."},
                "limit": {"type": "integer", "minimum": 1, "maximum": _MOST_HITS, "default": 10},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
        annotations=t.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )
    call = t.Tool(
        name=CALL_TOOL,
        title="Call a tool",
        description=f"Call a tool by its name, with arguments that fit the inputSchema {SEARCH_TOOL} gave for it.",
        input_schema={
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": f"The tool's name, as {SEARCH_TOOL} gives it."},
                "arguments": {"type": "object", "description": "The tool's own arguments."},
            },
            "required": ["name"],
            "additionalProperties": False,
        },
    )
    return [search, call]


def render_hits(hits: Sequence[SearchHit]) -> t.CallToolResult:
    """Render the hits of a search as a tool result: the definitions, under the names by which they are called.

    Definitions that would make the result too long are given without their schema; a search for the name returns it.
    """
    found: list[dict[str, Any]] = []
    room = _MOST_FOUND
    for hit in hits:
        shown: dict[str, Any] = {"name": hit.item.wire, "server": hit.item.server, "description": hit.item.description}
        definition = hit.item.definition
        whole = {**shown, "inputSchema": definition.input_schema} if isinstance(definition, t.Tool) else shown
        size = len(msgspec.json.encode(whole))
        if found and size > room:
            shown["description"] = _first_line(hit.item.description)
            found.append({**shown, "note": f"search for {hit.item.wire} to get its inputSchema"})
        else:
            found.append(whole)
            room -= size
    if not found:
        text = "No tool was found. Try other words, or the name of a server."
        return t.CallToolResult(content=[t.TextContent(text=text)], structured_content={"tools": []})
    text = msgspec.json.encode(found).decode()
    return t.CallToolResult(content=[t.TextContent(text=text)], structured_content={"tools": found})


def _overview(items: list[CatalogItem], instructions: Mapping[str, str], notes: Mapping[str, str]) -> str:
    """List every server and, as far as there is room, its tools; each server has the same room."""
    names: dict[str, list[str]] = {server: [] for server in notes}
    for item in items:
        names.setdefault(item.server, []).append(item.wire)
    room = _MOST_OVERVIEW // max(1, len(names))
    lines = ["Servers:"]
    for server, wires in names.items():
        about = "; ".join(_first_line(text) for text in (notes.get(server), instructions.get(server)) if text)
        head = f"- {_first_line(server)} ({len(wires)} tools)" + (f": {about}" if about else "")
        lines.append(f"{head}\n  {_some(wires, room - len(head))}" if wires else head)
    return "\n".join(lines)


def _some(names: list[str], room: int) -> str:
    shown: list[str] = []
    for name in names:
        room -= len(name) + 2
        if room < 0:
            return ", ".join([*shown, f"and {len(names) - len(shown)} more"])
        shown.append(name)
    return ", ".join(shown)


def _first_line(text: str) -> str:
    """Return the first non-empty line of an untrusted text, shortened, without unprintable characters."""
    line = next((line for line in text[:_LONGEST_TEXT].splitlines() if line.strip()), "")
    return "".join(character for character in line.strip()[:_LONGEST_LINE] if character.isprintable())
