"""Definitions of tools, prompts and resource templates, compared.

The pin (a digest that changes whenever the definition says something else), the normal form that it is taken of,
definitions that differ in nothing but order, and the differences between two definitions in a form for people. What a
user approves is a definition, not a name, so approvals, grants and the audit trail name a pin: the SHA-256 of the
canonical JSON of the normal form, with every member that the protocol knows (name, title, description, schemas,
annotations, icons, _meta). Pure; it knows JSON and nothing about servers, and its work is bounded, since definitions
come from untrusted servers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

import trunkline.types as t
from trunkline.protocol.apps import has_ui, tool_visibility, without_ui
from trunkline.protocol.downgrade import WRAP_MARK, needs_wrapping, wrap_schema
from trunkline.protocol.printable import escape_invisible

__all__ = [
    "NO_ORDERS",
    "ChangeKind",
    "DefinitionChange",
    "Orders",
    "canonical",
    "compare_definitions",
    "exact_pin",
    "is_accepted_order",
    "is_renamed",
    "matches_pin",
    "normal_form",
    "only_listings_differ",
    "only_order_differs",
    "pin_of",
    "pin_without_page",
    "reorderable_places",
    "summarize_changes",
]

_encoder = msgspec.json.Encoder(order="sorted")
# How the encoder writes a float with an integer value; a match inside a string costs time only.
_WHOLE_FLOAT = re.compile(rb"\d\.0(?!\d)|\de\d")

# JSON Schema keywords whose order means nothing, and those that hold a schema, a list of schemas, or schemas by name.
_SET_KEYWORDS = frozenset({"enum", "required", "type"})
_SCHEMA_KEYWORDS = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "allOf",
        "anyOf",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "oneOf",
        "prefixItems",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_NAMED_SCHEMA_KEYWORDS = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
# The dialect of a schema that names none (specification, basic, JSON Schema usage).
_USUAL_DIALECTS = frozenset(
    {"https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#"}
)
# Twice what a schema may have and more, since each of its levels takes two ("properties" and the property), and few
# enough that the functions here, which call themselves, stay far from the interpreter's limit.
_MOST_LEVELS = 256


def pin_of(definition: t.Tool | t.Prompt | t.Resource | t.ResourceTemplate, *, most_bytes: int | None = None) -> str:
    """Return the pin of a definition: 64 hexadecimal digits.

    Raises:
        ValueError: it has a string that is not valid Unicode, or takes more bytes than ``most_bytes``.
        RecursionError: it is nested too deeply.
        TypeError: it has a value that JSON cannot hold.
    """
    _check_depth(definition)
    written = canonical(_normal_tool(definition) if isinstance(definition, t.Tool) else definition)
    if most_bytes is not None and len(written) > most_bytes:
        raise ValueError(f"the definition takes {len(written)} bytes; {most_bytes} are allowed")
    return sha256(written).hexdigest()


def _check_depth(definition: t.Tool | t.Prompt | t.Resource | t.ResourceTemplate) -> None:
    """Raise RecursionError if a definition has more than ``_MOST_LEVELS`` levels.

    The interpreter cannot be relied on for this: how deep C code may recurse differs between versions of Python (an
    encoder reaches 1,000 levels in 3.11 and 10,000 in 3.13), and a definition must not be dropped in one of them only.
    """
    level: list[Any] = [getattr(definition, name) for name in definition.__struct_fields__]
    for _ in range(_MOST_LEVELS):
        level = [
            part
            for each in level
            if isinstance(each, Mapping | list)
            for part in (each.values() if isinstance(each, Mapping) else each)
        ]
        if not level:
            return
    raise RecursionError(f"the definition is nested deeper than {_MOST_LEVELS} levels")


def exact_pin(definition: Any) -> str:
    """Return the digest of a definition as it is, which was its pin before there was a normal form."""
    return sha256(canonical(definition)).hexdigest()


def matches_pin(digest: str, pin: str, definition: Any) -> bool:
    """Return True if a digest is a definition's pin, or was its pin before there was a normal form.

    The second is the stricter of the two: it is equal only for the identical definition. ``definition`` is None if it
    is not known.
    """
    return digest == pin or (definition is not None and digest == exact_pin(definition))


def pin_without_page(definition: Any) -> str | None:
    """Return the pin of a tool for clients that show no pages; None if it is the same, or hidden from them.

    Servers name the page of a tool only to clients that declared MCP Apps, so one definition has two forms.
    """
    if not isinstance(definition, t.Tool) or not has_ui(definition.meta):
        return None
    if "model" not in tool_visibility(definition.meta):
        return None
    return pin_of(msgspec.structs.replace(definition, meta=without_ui(definition.meta)))


def normal_form(document: Any) -> Any:
    """Return the normal form of a definition that is given as JSON; only tools have one."""
    if not isinstance(document, dict) or not isinstance(document.get("inputSchema"), dict):
        return document
    normal = {name: value for name, value in document.items() if name != "execution"}
    normal["inputSchema"] = _normal_root(document["inputSchema"])
    if isinstance(document.get("outputSchema"), dict):
        normal["outputSchema"] = _normal_output(document["outputSchema"])
    return normal


def canonical(value: Any) -> bytes:
    """Encode a value so that equal JSON gives equal bytes; raises as ``pin_of``."""
    written = _encoder.encode(value)
    if _WHOLE_FLOAT.search(written):
        # Decoding keeps integers of any size; only the encoder's own output is decoded.
        written = _encoder.encode(_with_integers(msgspec.json.decode(written)))
    return written


def _with_integers(value: Any) -> Any:
    """Convert every float with an integer value to an integer."""
    if isinstance(value, dict):
        return {name: _with_integers(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_integers(member) for member in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


# --- the normal form -------------------------------------------------------------------------------------------------


def _normal_tool(tool: t.Tool) -> t.Tool:
    output = tool.output_schema
    return msgspec.structs.replace(
        tool,
        input_schema=_normal_root(tool.input_schema),
        output_schema=None if output is None else _normal_output(output),
        execution=None,
    )


def _normal_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    normal: dict[str, Any] = _normal_schema(schema)
    if normal.get("$schema") in _USUAL_DIALECTS:
        del normal["$schema"]
    return normal


def _normal_output(schema: Mapping[str, Any]) -> dict[str, Any]:
    normal = _normal_root(wrap_schema(schema) if needs_wrapping(schema) else schema)
    wrapped = normal.get("properties")
    if normal.get(WRAP_MARK) is True and isinstance(wrapped, dict) and set(wrapped) == {"result"}:
        del normal[WRAP_MARK]
    return normal


def _normal_schema(schema: Any) -> Any:
    """Return a schema with its sets sorted, at every depth; anything that is not a schema is returned unchanged."""
    if isinstance(schema, list):
        return [_normal_schema(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {word: _normal_part(word, part) for word, part in schema.items()}


def _normal_part(word: str, part: Any) -> Any:
    if word in _SET_KEYWORDS:
        return _sorted(part) if isinstance(part, list) else part
    if word in _SCHEMA_KEYWORDS:
        return _normal_schema(part)
    if word in _NAMED_SCHEMA_KEYWORDS and isinstance(part, Mapping):
        # A list here holds names ("dependencies" of older drafts), not schemas.
        return {name: each if isinstance(each, list) else _normal_schema(each) for name, each in part.items()}
    return part


def _sorted(values: list[Any]) -> list[Any]:
    if all(type(each) is str for each in values):
        return sorted(values)
    return sorted(values, key=canonical)


#: The places where any order is accepted, by JSON pointer: how many characters at the start and at the end of a text
#: stay as they are. Both are 0 for a list.
Orders: TypeAlias = Mapping[str, tuple[int, int]]
NO_ORDERS: Orders = MappingProxyType({})

# A word ends at white space and at what separates the items of a list, so that "a,b", "{'a', 'b'}" and "a | b" are two
# words each; paths, options and names with dashes are one.
_PIECES = re.compile(r"[^\s,;:|(){}\[\]\"'`<>]+|[\s,;:|(){}\[\]\"'`<>]")
# Three or more single words after a colon, an opening bracket or the start of a line, up to a full stop, a closing
# bracket or the end of a line. An item of several words is no listing: "never delete, always ask, …".
_ITEM = r"(['\"`]?)[^\s,;:|(){}\[\]\"'`<>=]+(?<![.!?])\%d"
_LISTING = re.compile(rf"(?:^|(?<=[:{{\[(=\n]))([ \t]*)({_ITEM % 3}(?:[ ]?[,;|][ ]?{_ITEM % 4}){{2,}})(?=[.)}}\]\n]|$)")
_LISTING_ITEM = re.compile(r"[^ ,;|]+")
_SENTENCE_ENDS = re.compile(r"(?<=[.!?:])\s|\n\s*\n")
_FULL_STOPS = ".!?"


class _Move(NamedTuple):
    """A place where the order differs."""

    #: How many characters at the start and at the end of a text are the same; 0 for a list.
    start: int = 0
    end: int = 0
    #: The text as it is now; None for a list.
    text: str | None = None


def only_order_differs(before: Any, after: Any) -> bool:
    """Return True if two definitions have the same words and elements, in another order."""
    return bool(_moves(before, after))


def only_listings_differ(before: Any, after: Any) -> bool:
    """Return True if two definitions differ only in the order of listings: three or more single words.

    The words of such a listing form no sentence, whatever their order, and some servers list them in another order at
    every start.
    """
    return canonical(_with_sorted_listings(normal_form(before))) == canonical(_with_sorted_listings(normal_form(after)))


def _with_sorted_listings(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_sorted_listings(member) for name, member in value.items()}
    if isinstance(value, list):
        is_listing = len(value) > 2 and all(type(item) is str and _LISTING_ITEM.fullmatch(item) for item in value)
        return sorted(value) if is_listing else [_with_sorted_listings(item) for item in value]
    return _LISTING.sub(_sorted_listing, value) if isinstance(value, str) else value


def _sorted_listing(listing: re.Match[str]) -> str:
    items = iter(sorted(_LISTING_ITEM.findall(listing[2])))
    return listing[1] + _LISTING_ITEM.sub(lambda _: next(items), listing[2])


def reorderable_places(before: Any, after: Any, known: Orders = NO_ORDERS) -> dict[str, tuple[int, int]]:
    """Return where any order is accepted once ``after`` replaces ``before``; empty if more than the order differs.

    ``known`` are the places where any order was accepted already. A text is free from the beginning of the sentence in
    which the first word moved to the end of the sentence of the last: with a single pair of orders, the first items of
    a list may be at the same place by chance.
    """
    moves = _moves(before, after)
    if moves is None:
        return {}
    free = {pointer: _widened(move) for pointer, move in moves.items()}
    for pointer, (start, end) in known.items():
        other_start, other_end = free.get(pointer, (start, end))
        free[pointer] = min(start, other_start), min(end, other_end)
    return free


def is_accepted_order(orders: Orders, before: Any, after: Any) -> bool:
    """Return True if a definition differs from an accepted one only in order, and only where any order is accepted."""
    moves = _moves(before, after) if orders else None
    if moves is None:
        return False
    return all(
        pointer in orders and move.start >= orders[pointer][0] and move.end >= orders[pointer][1]
        for pointer, move in moves.items()
    )


def _moves(before: Any, after: Any) -> dict[str, _Move] | None:
    """Return the places where two definitions differ in order; None if they also differ in anything else."""
    found: dict[str, _Move] = {}
    return found if _differ_in_order("", normal_form(before), normal_form(after), found) else None


def _differ_in_order(pointer: str, before: Any, after: Any, found: dict[str, _Move]) -> bool:
    """Add the places where the order differs to ``found``; return False if anything else differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        return before.keys() == after.keys() and all(
            _differ_in_order(f"{pointer}/{_escaped(name)}", before[name], after[name], found) for name in before
        )
    if isinstance(before, list) and isinstance(after, list):
        return _lists_differ_in_order(pointer, before, after, found)
    if isinstance(before, str) and isinstance(after, str):
        if before != after:
            if Counter(_split_words(before)) != Counter(_split_words(after)):
                return False
            found[pointer] = _Move(*_fixed_ends(before, after), after)
        return True
    # Compared in canonical form: in Python, True equals 1.
    return canonical(before) == canonical(after)


def _lists_differ_in_order(pointer: str, before: list[Any], after: list[Any], found: dict[str, _Move]) -> bool:
    one, other = [*map(canonical, before)], [*map(canonical, after)]
    if one == other:
        return True
    if sorted(one) == sorted(other):
        found[pointer] = _Move()
        return True
    return len(before) == len(after) and all(
        _differ_in_order(f"{pointer}/{number}", *pair, found)
        for number, pair in enumerate(zip(before, after, strict=True))
    )


def _split_words(text: str) -> Iterator[str]:
    """Split a text into words, separators and full stops; together they are the whole text."""
    for piece in _PIECES.findall(text):
        word = piece.rstrip(_FULL_STOPS)
        if word:
            yield word
        yield from piece[len(word) :]


def _fixed_ends(before: str, after: str) -> tuple[int, int]:
    """Return how many characters two texts of the same length share at the start and at the end."""
    start = _shared_characters(before, after)
    return start, _shared_characters(before[start:][::-1], after[start:][::-1])


def _shared_characters(one: str, other: str) -> int:
    return next((number for number, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]), len(one))


def _widened(move: _Move) -> tuple[int, int]:
    """Return the fixed ends of a text, moved outwards to whole sentences; (0, 0) for a list."""
    if move.text is None:
        return 0, 0
    first = max((found.end() for found in _SENTENCE_ENDS.finditer(move.text, 0, move.start)), default=0)
    last = _SENTENCE_ENDS.search(move.text, len(move.text) - move.end)
    return first, 0 if last is None else len(move.text) - last.start()


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


ChangeKind: TypeAlias = Literal["added", "removed", "changed"]

_MOST_CHANGES = 200  # A person does not read more; the definition is shown as a whole then.
_MOST_WORDS = 3000  # The comparison takes quadratic time: some tens of milliseconds for this many.
_LONGEST_VALUE = 4000  # Some screens of text.
_AROUND = 4  # Words shown around each change.
_MOST_BRIEF = 3  # Changes named in one line of a prompt.
_LONGEST_BRIEF = 160  # Two lines of a terminal.
_SIGNS: Mapping[ChangeKind, str] = MappingProxyType({"added": "+", "removed": "-", "changed": "~"})
_WORD_OR_SPACE = re.compile(r"\s+|[^\s]+")


class DefinitionChange(Struct, frozen=True):
    """One difference."""

    #: The JSON pointer of the place; empty for the whole definition.
    pointer: str
    what: ChangeKind
    #: The added value, the removed value, or both with ``[-…-]`` around the old text and ``{+…+}`` around the new.
    text: str

    def __str__(self) -> str:
        """Format it as a line, or as many as the text has."""
        return f"{_SIGNS[self.what]} {escape_invisible(self.pointer) or '(all of it)'}: {self.text}"


def compare_definitions(before: Any, after: Any) -> tuple[DefinitionChange, ...]:
    """Return the differences between two JSON values; none if they are equal."""
    found: list[DefinitionChange] = []
    for change in _differences("", before, after):
        if len(found) == _MOST_CHANGES:
            found.append(
                DefinitionChange("", "changed", f"more than {_MOST_CHANGES} differences; the rest is not shown")
            )
            break
        found.append(change)
    return tuple(found)


def summarize_changes(changes: Sequence[DefinitionChange | str]) -> str:
    """Format changes as one line for a message: the first few, each shortened."""
    told = [" ".join(str(change).split()) for change in changes[:_MOST_BRIEF]]
    cut = [text if len(text) <= _LONGEST_BRIEF else f"{text[:_LONGEST_BRIEF]}..." for text in told]
    more = len(changes) - len(told)
    return "; ".join([*cut, f"and {more} more"] if more else cut)


def is_renamed(one: Any, other: Any) -> bool:
    """Return True if two definitions have the same text and arguments under different names: one was renamed."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    kept = ("description", "inputSchema", "arguments", "uriTemplate")
    said = [{key: each[key] for key in kept if each.get(key)} for each in (one, other)]
    return "description" in said[0] and said[0] == said[1] and one.get("name") != other.get("name")


def _differences(pointer: str, before: Any, after: Any) -> Iterator[DefinitionChange]:
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _members(pointer, before, after)
        return
    if isinstance(before, list) and isinstance(after, list):
        one, other = _elements_by_name(before), _elements_by_name(after)
        if one is not None and other is not None:
            yield from _members(pointer, one, other)
            if list(one) != list(other) and set(one) == set(other):
                yield DefinitionChange(pointer, "changed", f"the order is now {escape_invisible(', '.join(other))}")
            return
    if isinstance(before, str) and isinstance(after, str):
        if before != after:
            yield DefinitionChange(pointer, "changed", _word_diff(before, after))
    # Compared in canonical form: in Python, True equals 1.
    elif canonical(before) != canonical(after):
        yield DefinitionChange(pointer, "changed", f"[-{_json(before)}-] {{+{_json(after)}+}}")


def _members(pointer: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[DefinitionChange]:
    for name in sorted({*before, *after}):
        below = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
        if name not in after:
            yield DefinitionChange(below, "removed", _value(before[name]))
        elif name not in before:
            yield DefinitionChange(below, "added", _value(after[name]))
        else:
            yield from _differences(below, before[name], after[name])


def _elements_by_name(values: list[Any]) -> dict[str, Any] | None:
    """Return the elements of a list by name; None unless all have a unique one."""
    names = [each.get("name") if isinstance(each, dict) else None for each in values]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return None
    return {str(name): each for name, each in zip(names, values, strict=True)}


def _value(value: Any) -> str:
    return escape_invisible(_cut(value)) if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return escape_invisible(_cut(msgspec.json.encode(value).decode()))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}... ({len(text)} characters)"


# --- words -----------------------------------------------------------------------------------------------------------


def _word_diff(before: str, after: str) -> str:
    """Return the changes of a text, with removed and added words marked."""
    one, other = _WORD_OR_SPACE.findall(before), _WORD_OR_SPACE.findall(after)
    start = _shared_words(one, other)
    end = _shared_words(one[start:][::-1], other[start:][::-1])
    middle = one[start : len(one) - end], other[start : len(other) - end]
    pieces = [_context(one[:start], last=False)]
    if max(map(len, middle)) > _MOST_WORDS:
        pieces += _replaced(*middle)
    else:
        for what, left, right, below, above in SequenceMatcher(None, *middle, autojunk=False).get_opcodes():
            gone, come = middle[0][left:right], middle[1][below:above]
            pieces += [_context(gone, last=None)] if what == "equal" else _replaced(gone, come)
    pieces.append(_context(one[len(one) - end :], last=True))
    return escape_invisible("".join(pieces))


def _shared_words(one: list[str], other: list[str]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _replaced(gone: list[str], come: list[str]) -> list[str]:
    return [f"[-{_cut(''.join(gone))}-]" if gone else "", f"{{+{_cut(''.join(come))}+}}" if come else ""]


def _context(words: list[str], *, last: bool | None) -> str:
    """Return some words of unchanged text as context: its end, its start, or both."""
    most = 2 * _AROUND
    if len(words) <= 2 * most:
        return "".join(words)
    head, tail = "".join(words[:most]), "".join(words[-most:])
    return {False: f"...{tail}", True: f"{head}...", None: f"{head}...{tail}"}[last]
