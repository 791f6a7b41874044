"""Prints the differences between two recordings: for people in 80 columns, for programs as one JSON document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET

from trunkline.cli.exits import Exit
from trunkline.cli.output import clip, one_line, say, say_json, wire_json
from trunkline.host.record.diff import Comparison, Difference

__all__ = ["check_pointers", "show"]

_WIDTH = 80
# How many equal characters are shown before the first difference of two long texts.
_BEFORE = 16


def show(comparison: Comparison, *, names: tuple[str, str], as_json: bool) -> Exit:
    """Print a comparison; return the exit code, which is 5 if there is a difference."""
    if as_json:
        say_json(_document(comparison, names))
    else:
        for line in _lines(comparison, names):
            say(line)
    return Exit.OK if comparison.same else Exit.FAILED


def check_pointers(pointers: Sequence[str]) -> None:
    """Check the values of ``--ignore``: each must be a JSON pointer."""
    import click

    from trunkline.host.policy.pointers import PointerError, parse_pointer

    for pointer in pointers:
        try:
            parse_pointer(pointer)
        except PointerError as error:
            raise click.UsageError(f"--ignore: {error}.") from error


# --- for people -------------------------------------------------------------------------------------------------------


def _lines(comparison: Comparison, names: tuple[str, str]) -> Iterator[str]:
    heading = ""
    for each in comparison.differences:
        if _heading(each) != heading:
            heading = _heading(each)
            yield clip(heading, _WIDTH)
        yield from _described(each, names)
    count, differing = comparison.compared, comparison.differing
    alone = sum(each.kind.startswith("only") for each in comparison.differences)
    rest = f", {alone} in only one of the two" if alone else ""
    yield f"{count} {'request' if count == 1 else 'requests'} compared, {differing or 'none'} different{rest}"


def _heading(difference: Difference) -> str:
    which = f" (number {difference.number})" if difference.number > 1 else ""
    return f"{one_line(difference.request)}{which}"


def _described(difference: Difference, names: tuple[str, str]) -> Iterator[str]:
    if difference.kind == "only in the first":
        yield f"  only in {clip(one_line(names[0]), _WIDTH - 10)}"
    elif difference.kind == "only in the second":
        yield f"  only in {clip(one_line(names[1]), _WIDTH - 10)}"
    else:
        yield f"  {clip(one_line(difference.path) or '(whole)', _WIDTH - 2)}"
        first, second = _shown(difference.first, difference.second)
        if first is not None:
            yield f"    - {first}"
        if second is not None:
            yield f"    + {second}"


def _shown(first: Any, second: Any) -> tuple[str | None, str | None]:
    """Return two values as JSON, each on one line, starting shortly before the first difference."""
    texts = [None if value is UNSET else one_line(wire_json(value).decode()) for value in (first, second)]
    room = _WIDTH - 6
    one, two = texts
    start = 0
    if one is not None and two is not None and max(len(one), len(two)) > room:
        same = next((at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]), 0)
        start = max(same - _BEFORE, 0)
    cut = [None if text is None else clip(f"...{text[start:]}" if start else text, room) for text in texts]
    return cut[0], cut[1]


# --- for programs -----------------------------------------------------------------------------------------------------


def _document(comparison: Comparison, names: tuple[str, str]) -> dict[str, Any]:
    return {
        "same": comparison.same,
        "first": names[0],
        "second": names[1],
        "compared": comparison.compared,
        "differing": comparison.differing,
        "differences": [_difference(each) for each in comparison.differences],
    }


def _difference(difference: Difference) -> dict[str, Any]:
    found: dict[str, Any] = {"request": difference.request, "number": difference.number, "kind": difference.kind}
    if difference.path:
        found["path"] = difference.path
    for name in ("first", "second"):
        value = getattr(difference, name)
        if value is not UNSET:
            found[name] = value
    return found
