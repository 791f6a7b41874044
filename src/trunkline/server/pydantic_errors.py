"""What a caller is told of pydantic's errors: where, what was expected, and the value; without links.

pydantic tries every branch of a union and reports the errors of all. Only those of the branch are told that the value
was meant for: the one whose literals match, or which has most of the members that were sent. What pydantic does not say
(the members of a branch, whether null is allowed) is read from the JSON Schema of the type.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from trunkline.server.validation_errors import KINDS, join_path, json_kind, quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["explain_errors", "explain_pydantic_error", "steps_and_branches"]

_FORMS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("date_type", "date_parsing"), KINDS["date"]),
        **dict.fromkeys(("date_from_datetime_parsing", "date_from_datetime_inexact"), KINDS["date"]),
        **dict.fromkeys(("datetime_type", "datetime_parsing"), KINDS["datetime"]),
        **dict.fromkeys(("datetime_from_date_parsing", "datetime_object_invalid"), KINDS["datetime"]),
        **dict.fromkeys(("time_type", "time_parsing"), KINDS["time"]),
        **dict.fromkeys(("time_delta_type", "time_delta_parsing"), KINDS["timedelta"]),
        **dict.fromkeys(("uuid_type", "uuid_parsing"), KINDS["uuid"]),
        **dict.fromkeys(("decimal_type", "decimal_parsing"), KINDS["decimal"]),
        **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), KINDS["array"]),
        **dict.fromkeys(("url_type", "url_parsing"), "a URL"),
        "path_type": KINDS["Path"],
        "none_required": KINDS["null"],
    }
)
#: What pydantic says of the length or pattern of something, and our words for it.
_SIZED = (
    r"(String|List|Set|Frozenset|Tuple|Dictionary|Data|Bytes) should (have|match) (.*?)(?: after validation, not \d+)?$"
)
_WORDS = MappingProxyType(
    {
        "String": "a string",
        "Dictionary": "an object",
        **dict.fromkeys(("List", "Set", "Frozenset", "Tuple"), "an array"),
    }
)
_VERBS = MappingProxyType({"have": "with", "match": "that matches"})
#: Errors whose message is complete; for the others the JSON type of the value is added.
_CONSTRAINTS = ("greater_than", "less_than", "multiple_of", "too_short", "too_long", "pattern_mismatch")
_BRANCHES_SHOWN = 20  # More do not help a model to correct an argument.


def explain_pydantic_error(refusal: Any) -> tuple[str, str]:
    """Return the path and the message for the first error of pydantic; the message has no value."""
    error = refusal.errors(include_url=False)[0]
    return join_path(error["loc"]), _sentence(error, json_kind)


def explain_errors(
    errors: list[dict[str, Any]], value: Any, schema: dict[str, Any], *, shows_values: bool
) -> list[tuple[str, str]]:
    """Return the path and the message of each error of pydantic that concerns the value; it has the given schema."""
    located = [_Located(error, *steps_and_branches(error, value)) for error in errors]
    shape = _Shape(schema)
    messages: dict[tuple[str | int, ...], list[str]] = {}
    for error in _relevant(located, 0, value, shape):
        name = error.path[-1] if error.path else None
        sentence = _sentence(error.error, quote if shows_values else json_kind, name)
        if shape.allows_null(error.path) and _is_about_type(error.error["type"]):
            expected, _, rejected = sentence.rpartition(", got ")
            sentence = f"{expected} or null, got {rejected}"
        messages.setdefault(tuple(error.path), []).append(sentence)
    return [(join_path(path), _joined(sentences)) for path, sentences in messages.items()]


class _Located(NamedTuple):
    """An error, where it is in the value, and the branches of unions on the way: their position and name."""

    error: dict[str, Any]
    path: list[str | int]
    branches: list[tuple[int, str]]


class _Shape:
    """What the JSON Schema of a type says about the places of a value."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._definitions = schema.get("$defs", {})

    def allows_null(self, path: Iterable[str | int]) -> bool:
        """Return whether null is valid at a path."""
        return any(branch.get("type") == "null" for _, branch in self._at(path))

    def members(self, path: Iterable[str | int], name: str) -> frozenset[str] | None:
        """Return the members of the branch of a union, by the branch's name; None if it is not known."""
        for definition, branch in self._at(path):
            if name in (definition, branch.get("title")) and "properties" in branch:
                return frozenset(branch["properties"])
        return None

    def _at(self, path: Iterable[str | int]) -> list[tuple[str, dict[str, Any]]]:
        """Return the schemas that a value at a path may match, and the names of their definitions."""
        branches = list(self._branches(self._schema))
        for step in path:
            branches = [inner for _, branch in branches for inner in self._inside(branch, step)]
        return branches

    def _branches(self, schema: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
        if not isinstance(schema, dict):
            return
        if (reference := schema.get("$ref")) is not None:
            name = reference.rpartition("/")[2]
            yield from self._branches(self._definitions.get(name), name)
        elif (inner := schema.get("anyOf") or schema.get("oneOf")) is not None:
            for branch in inner:
                yield from self._branches(branch)
        else:
            yield name, schema

    def _inside(self, branch: dict[str, Any], step: str | int) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(step, str):
            yield from self._branches(branch.get("properties", {}).get(step, branch.get("additionalProperties")))
        else:
            first = branch.get("prefixItems", [])
            yield from self._branches(first[step] if step < len(first) else branch.get("items"))


def steps_and_branches(error: dict[str, Any], value: Any) -> tuple[list[str | int], list[tuple[int, str]]]:
    """Separate the steps of an error's location that are in the value from those that name a branch of a union."""
    steps: list[str | int] = []
    branches: list[tuple[int, str]] = []
    location, here = error["loc"], value
    for number, step in enumerate(location):
        is_index = isinstance(here, list) and isinstance(step, int) and step < len(here)
        if is_index or (isinstance(here, dict) and step in here):
            here = here[step]
        elif error["type"] != "missing" or number < len(location) - 1:
            branches.append((len(steps), str(step)))
            continue
        steps.append(step)
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        steps.append(error["ctx"]["discriminator"].strip("'"))
    return steps, branches


def _relevant(errors: list[_Located], depth: int, value: Any, shape: _Shape) -> list[_Located]:
    """Return the errors of the branches that the value was meant for; the first ``depth`` branches are decided."""
    chosen: list[_Located] = []
    unions: dict[tuple[str | int, ...], dict[str, list[_Located]]] = {}
    for error in errors:
        if len(error.branches) <= depth:
            chosen.append(error)
            continue
        position, name = error.branches[depth]
        unions.setdefault(tuple(error.path[:position]), {}).setdefault(name, []).append(error)
    for place, branches in unions.items():
        chosen += _relevant(_best_branch(branches, place, value, shape), depth + 1, value, shape)
    return chosen


def _best_branch(
    branches: dict[str, list[_Located]], place: tuple[str | int, ...], value: Any, shape: _Shape
) -> list[_Located]:
    """Return the errors of the branch of a union that the value at a place was meant for."""
    position = len(place)
    inside = {
        name: failures for name, failures in branches.items() if any(len(error.path) > position for error in failures)
    }
    if not inside:
        return [error for failures in branches.values() for error in failures]
    if len(inside) == 1:
        return next(iter(inside.values()))
    members = {name: shape.members(place, name) for name in inside}
    mismatches = {name: _literal_mismatches(failures, position) for name, failures in inside.items()}
    literals = Counter(
        literal
        for rejected in mismatches.values()
        for literal in rejected
        if all(known is None or literal in known for known in members.values())
    )
    if literals:
        # The member whose literal most branches reject is the one that tells them apart.
        discriminator = literals.most_common(1)[0][0]
        named = [failures for name, failures in inside.items() if discriminator not in mismatches[name]]
        # If no branch has the value's literal, the choices of all are what the caller needs.
        return min(named, key=len) if named else [rejected[discriminator] for rejected in mismatches.values()]
    for step in place:
        value = value[step]
    sent = frozenset(value) if isinstance(value, dict) else frozenset()
    shared = {name: len(sent & (members[name] or frozenset())) for name in inside}
    most = max(shared.values())
    if not most and None not in members.values() and (needed := _required_members(inside.values(), position)):
        sentence = f"expected an object with {', or with '.join(needed)}"
        return [_Located({"type": "no_branch", "msg": sentence, "input": value}, list(place), [])]
    return min((failures for name, failures in inside.items() if shared[name] == most), key=len)


def _required_members(branches: Iterable[list[_Located]], position: int) -> list[str]:
    """Return the members that each branch of a union lacks, as text; empty if one lacks none."""
    missing = [
        [repr(error.path[position]) for error in failures if error.error["type"] == "missing"][:_BRANCHES_SHOWN]
        for failures in branches
    ]
    return [" and ".join(names) for names in missing][:_BRANCHES_SHOWN] if all(missing) else []


def _literal_mismatches(errors: Sequence[_Located], position: int) -> dict[Any, _Located]:
    """Return the errors of a branch that are about a literal of one of its members, by the member's name."""
    return {
        error.path[position]: error
        for error in errors
        if error.error["type"] == "literal_error" and len(error.path) == position + 1
    }


def _joined(sentences: list[str]) -> str:
    """Return one sentence for the errors at one place: what each branch expects, and the value once."""
    if len(sentences) == 1 or not all(sentence.startswith("expected ") for sentence in sentences):
        return sentences[0]
    parts = [sentence.removeprefix("expected ").rpartition(", got ")[0] for sentence in sentences]
    has_null = any(part.endswith(" or null") for part in parts)
    expected = dict.fromkeys(filter(None, (part.removesuffix(" or null") for part in parts)))
    rejected = sentences[0].rpartition(", got ")[2]
    return f"expected {' or '.join(expected)}{' or null' if has_null else ''}, got {rejected}"


def _is_about_type(kind: str) -> bool:
    return kind in _FORMS or kind.endswith(("_type", "_parsing")) or kind == "int_from_float"


def _sentence(error: dict[str, Any], describe: Callable[[Any, Any], str], name: object = None) -> str:
    kind, message = error["type"], error["msg"]
    if kind == "json_invalid":
        return "not JSON"
    if kind in ("missing", "union_tag_not_found"):
        return "missing"
    if kind == "extra_forbidden":
        return "unknown member"
    if kind == "union_tag_invalid":
        return f"expected one of {error['ctx']['expected_tags']}, got {describe(error['ctx']['tag'], name)}"
    if kind in _FORMS:
        return f"expected {_FORMS[kind]}, got {describe(error['input'], name)}"
    if sized := re.match(_SIZED, message):
        word, verb, rest = sized.groups()
        return f"expected {_WORDS.get(word, 'bytes')} {_VERBS[verb]} {rest}, got {describe(error['input'], name)}"
    if not message.startswith("Input should "):
        return str(message.removeprefix("Value error, ").removeprefix("Assertion failed, "))
    wanted = message.removeprefix("Input should be ").removeprefix("Input should ").replace("a valid ", "a ")
    wanted = wanted.replace("a integer", "an integer").replace("a array", "an array").replace("a object", "an object")
    if any(part in kind for part in _CONSTRAINTS):
        wanted = f"a value {wanted}"
    if _is_about_type(kind):
        wanted = wanted.partition(", ")[0]
    return f"expected {wanted}, got {describe(error['input'], name)}"
