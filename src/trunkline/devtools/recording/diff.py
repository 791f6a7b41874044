"""Comparison of two recordings, or of a recording with a server's current responses to the same requests.

Pure. Requests are paired by what they ask for; then params, server requests, results and errors are compared member by
member, lists of named items by name. Values that differ in every run (ids, cursors, sealed states, times) are masked on
both sides first.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct

from trunkline.devtools.recording.exchanges import RecordedExchange, comparable_params, digest, label, read_exchanges
from trunkline.devtools.recording.format import Recording
from trunkline.host.authorization.policy.patterns import parse_pointer
from trunkline.types import META_SUBSCRIPTION_ID

__all__ = ["MASK", "Comparison", "Difference", "compare", "compare_answers", "mask_varying"]

#: The replacement of a value that differs in every run.
MASK = "(varies)"

Path: TypeAlias = tuple[str, ...]
DifferenceKind: TypeAlias = Literal["changed", "added", "removed", "only in the first", "only in the second"]

_VARYING = frozenset(
    {
        "createdAt",
        "cursor",
        "elicitationId",
        "lastUpdatedAt",
        "nextCursor",
        "progressToken",
        "requestId",
        "requestState",
        "taskId",
        "timestamp",
        "traceparent",
        META_SUBSCRIPTION_ID,
    }
)
_VARYING_TEXT = re.compile(
    r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
)
_NAMES = ("name", "uri", "uriTemplate")


class Difference(Struct, frozen=True, kw_only=True):
    """One difference."""

    #: The label of the request, and its number among requests with the same label.
    request: str
    number: int
    kind: DifferenceKind
    #: A JSON pointer into the response (``/result/...``, ``/error/...``), the server's requests or the params.
    path: str = ""
    first: Any = UNSET
    second: Any = UNSET


class Comparison(Struct, frozen=True):
    """The result of comparing two recordings."""

    differences: tuple[Difference, ...]
    #: How many requests are in both, and how many of those differ.
    compared: int
    differing: int

    @property
    def same(self) -> bool:
        """Whether there are no differences."""
        return not self.differences


def compare(first: Recording, second: Recording, *, ignore: Iterable[str] = ()) -> Comparison:
    """Compare two recordings request by request; ``ignore`` contains JSON pointers, with ``*`` for any one step.

    Raises:
        PointerError: a pointer is not valid.
    """
    ignored = [parse_pointer(each) for each in ignore]
    ours = [each for each in read_exchanges(first) if each.id is not None]
    theirs = [each for each in read_exchanges(second) if each.id is not None]
    numbers: dict[str, int] = defaultdict(int)
    found: list[Difference] = []
    pairs = _pair(ours, theirs)
    differing = 0
    for one, two in pairs:
        about = label((one or two).message)  # type: ignore[union-attr]
        numbers[about] += 1
        if one is None or two is None:
            kind: DifferenceKind = "only in the first" if two is None else "only in the second"
            found.append(Difference(request=about, number=numbers[about], kind=kind))
            continue
        between = list(_between(_facts(one), _facts(two), ignored))
        differing += bool(between)
        found += [_difference(about, numbers[about], *each) for each in between]
    return Comparison(tuple(found), sum(one is not None and two is not None for one, two in pairs), differing)


def compare_answers(
    request: dict[str, Any],
    recorded: dict[str, Any] | None,
    actual: dict[str, Any] | None,
    *,
    number: int = 1,
    ignore: Iterable[str] = (),
) -> list[Difference]:
    """Compare two responses to one request."""
    ignored = [parse_pointer(each) for each in ignore]
    between = _between(_answer(recorded), _answer(actual), ignored)
    return [_difference(label(request), number, *each) for each in between]


def mask_varying(value: Any) -> Any:
    """Return a copy of a JSON value with the values masked that differ in every run."""
    if isinstance(value, str):
        return _VARYING_TEXT.sub(MASK, value)
    if isinstance(value, list):
        return [mask_varying(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: MASK if name in _VARYING else mask_varying(each) for name, each in value.items()}


# --- pairing ----------------------------------------------------------------------------------------------------------


def _pair(
    ours: Sequence[RecordedExchange], theirs: Sequence[RecordedExchange]
) -> list[tuple[RecordedExchange | None, RecordedExchange | None]]:
    """Pair requests: first those with equal params, then those with the same label."""
    partner: dict[int, RecordedExchange] = {}
    left, others = list(ours), list(theirs)
    for way in (_exactly, _roughly):
        left, others = _match(left, others, way, partner)
    pairs: list[tuple[RecordedExchange | None, RecordedExchange | None]] = [
        (each, partner.get(id(each))) for each in ours
    ]
    return [*pairs, *((None, each) for each in others)]


def _match(
    ours: list[RecordedExchange],
    theirs: list[RecordedExchange],
    way: Callable[[RecordedExchange], Hashable],
    partner: dict[int, RecordedExchange],
) -> tuple[list[RecordedExchange], list[RecordedExchange]]:
    """Pair each of ours with the first equal one of theirs; return the unpaired ones."""
    waiting: dict[Hashable, list[RecordedExchange]] = defaultdict(list)
    for each in theirs:
        waiting[way(each)].append(each)
    left = []
    for each in ours:
        alike = waiting[way(each)]
        if alike:
            partner[id(each)] = alike.pop(0)
        else:
            left.append(each)
    taken = {id(each) for each in partner.values()}
    return left, [each for each in theirs if id(each) not in taken]


def _exactly(exchange: RecordedExchange) -> Hashable:
    return exchange.method, digest(mask_varying(comparable_params(exchange.method, exchange.params)))


def _roughly(exchange: RecordedExchange) -> Hashable:
    return label(exchange.message)


def _facts(exchange: RecordedExchange) -> dict[str, Any]:
    """Return the parts of an exchange that are compared."""
    questions = [
        {"method": each.request["method"], "params": comparable_params("", each.request.get("params"))}
        for each in exchange.questions
    ]
    facts = {"params": comparable_params(exchange.method, exchange.params), **_answer(exchange.answer)}
    return facts | ({"questions": questions} if questions else {})


def _answer(answer: dict[str, Any] | None) -> dict[str, Any]:
    return {} if answer is None else {name: answer[name] for name in ("result", "error") if name in answer}


# --- member by member -------------------------------------------------------------------------------------------------


def _between(first: Any, second: Any, ignored: Sequence[Path]) -> Iterator[tuple[Path, Any, Any]]:
    for path, one, two in _walk(mask_varying(first), mask_varying(second), ()):
        if not any(_covers(pattern, path) for pattern in ignored):
            yield path, one, two


def _walk(one: Any, two: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(one, list) and isinstance(two, list):
        one, two = _keyed(one, two)
    if isinstance(one, dict) and isinstance(two, dict):
        for name in {**one, **two}:
            yield from _walk(one.get(name, UNSET), two.get(name, UNSET), (*path, name))
    elif not _equal(one, two):
        yield path, one, two


def _keyed(one: list[Any], two: list[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two lists as objects: keyed by the names of their items if these are unique, else by index."""
    for name in _NAMES:
        first, second = _by_name(one, name), _by_name(two, name)
        if first is not None and second is not None:
            return first, second
    return _by_place(one), _by_place(two)


def _by_name(items: list[Any], name: str) -> dict[str, Any] | None:
    if not all(isinstance(each, dict) and isinstance(each.get(name), str) for each in items):
        return None
    found = {each[name]: each for each in items}
    return found if len(found) == len(items) else None


def _by_place(items: list[Any]) -> dict[str, Any]:
    return {str(at): each for at, each in enumerate(items)}


def _equal(one: Any, two: Any) -> bool:
    # In Python, True == 1.
    return bool(one == two) and isinstance(one, bool) is isinstance(two, bool)


def _covers(pattern: Path, path: Path) -> bool:
    """Return True if a path equals a pointer or is below it."""
    if len(pattern) > len(path):
        return False
    return all(step in ("*", name) for step, name in zip(pattern, path, strict=False))


def _difference(about: str, number: int, path: Path, first: Any, second: Any) -> Difference:
    kind: DifferenceKind = "added" if first is UNSET else "removed" if second is UNSET else "changed"
    pointer = "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in path)
    return Difference(request=about, number=number, kind=kind, path=pointer, first=first, second=second)
