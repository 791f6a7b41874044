"""``trunkline diff``: compares two recordings.

Prints differences for people in 80 columns or as one JSON document (``trunkline replay`` prints with the same
functions).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
from msgspec import UNSET

from trunkline.cli.exit_codes import Exit
from trunkline.cli.options import json_option, with_json_errors
from trunkline.cli.ui.output import clip, one_line, print_json, print_text, wire_json
from trunkline.devtools.recording.diff import Comparison, Difference

__all__ = ["check_pointers", "command", "print_comparison"]

_EPILOG = """\
\b
Examples:
  trunkline diff before.jsonl after.jsonl
  trunkline diff before.jsonl after.jsonl --ignore /result/content/*/text
  trunkline diff before.jsonl after.jsonl --json

Requests are matched by method and parameters; lists are compared by the names of their items. IDs, cursors, sealed
states and times are ignored. The exit code is 0 if nothing differs, otherwise 5.
"""
_IGNORE_HELP = "JSON pointer to ignore, such as /result/tools/*/description; repeatable."


@click.command(epilog=_EPILOG)
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--ignore", multiple=True, metavar="POINTER", help=_IGNORE_HELP)
@json_option
def command(first: str, second: str, *, ignore: tuple[str, ...], as_json: bool) -> int:
    """Compare recordings A and B, request by request.

    Parameters, server requests, results, errors, lists and schemas are compared.
    """
    from trunkline.devtools.recording.diff import compare
    from trunkline.devtools.recording.format import Recording

    check_pointers(ignore)
    recordings = with_json_errors(lambda: (Recording.load(first), Recording.load(second)), as_json)
    return print_comparison(compare(*recordings, ignore=ignore), names=(first, second), as_json=as_json)


_WIDTH = 80  # The usual width of a terminal.
# How many equal characters are shown before the first difference of two long texts.
_BEFORE = 16


def print_comparison(comparison: Comparison, *, names: tuple[str, str], as_json: bool) -> Exit:
    """Print a comparison; return the exit code, which is 5 if there is a difference."""
    if as_json:
        print_json(_document(comparison, names))
    else:
        for line in _lines(comparison, names):
            print_text(line)
    return Exit.OK if comparison.same else Exit.FAILED


def check_pointers(pointers: Sequence[str]) -> None:
    """Check the values of ``--ignore``: each must be a JSON pointer."""
    import click

    from trunkline.host.authorization.policy.patterns import InvalidPointer, parse_pointer

    for pointer in pointers:
        try:
            parse_pointer(pointer)
        except InvalidPointer as error:
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
