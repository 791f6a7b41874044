"""Text edits and the diffs they make: pure functions from text to text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from trunkline.errors import ToolError

__all__ = ["Edit", "apply_edits", "in_code_fence", "line_end", "unified_diff"]

#: Characters that count as white space at the ends of a line.
_SPACE = " \t\n\v\f\r\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f"
_SPACE += "\u205f\u3000\ufeff"
#: Unchanged lines shown around a change.
_CONTEXT = 4
#: More changed lines than this are shown as one block, since comparing them takes too long.
_MOST_COMPARED = 4000
#: The same for pairs of equal lines.
_MOST_PAIRS = 200_000
_NO_LINE_END = "\\ No newline at end of file"


class Edit(Struct, frozen=True, rename="camel"):
    """One replacement."""

    old_text: Annotated[str, Meta(description="The text to replace, as it is in the file")]
    new_text: Annotated[str, Meta(description="The text to put in its place")]


def apply_edits(text: str, edits: Sequence[Edit], *, before_each: Callable[[], None] = lambda: None) -> str:
    """Apply edits in order, each to the first match; ``before_each`` may raise.

    Raises:
        ToolError: an edit matches nothing.
    """
    for edit in edits:
        before_each()
        old, new = edit.old_text.replace("\r\n", "\n"), edit.new_text.replace("\r\n", "\n")
        text = text.replace(old, new, 1) if old in text else _by_lines(text, old, new)
    return text


def line_end(text: str) -> str:
    """Return the line ending that most lines of a text have."""
    pairs = text.count("\r\n")
    return "\r\n" if pairs * 2 > text.count("\n") else "\n"


def unified_diff(before: str, after: str, path: str) -> str:
    """Return the changes as ``git diff`` shows them, with a header."""
    heading = [f"Index: {path}", "=" * 67, f"--- {path}\toriginal", f"+++ {path}\tmodified"]
    old, new = before.split("\n"), after.split("\n")
    old_open, new_open = old.pop() if old[-1] == "" else None, new.pop() if new[-1] == "" else None
    # A last line without a newline differs from the same line with one.
    if old_open is None:
        old[-1] += f"\n{_NO_LINE_END}"
    if new_open is None:
        new[-1] += f"\n{_NO_LINE_END}"
    lines = [line for group in _groups(old, new) for line in _hunk(group, old, new)]
    return "\n".join([*heading, *lines]) + "\n"


def in_code_fence(diff: str) -> str:
    """Return a diff in a code fence that is longer than any fence in it."""
    ticks = "```"
    while ticks in diff:
        ticks += "`"
    return f"{ticks}diff\n{diff}{ticks}\n\n"


def _by_lines(text: str, old: str, new: str) -> str:
    """Replace the first lines that equal the old ones up to surrounding white space; indentation is kept."""
    wanted, lines = old.split("\n"), text.split("\n")
    # Searched as one text, since comparing line by line takes too long in a file of equal lines.
    bare = _stripped(lines)
    place = bare.find(_stripped(wanted))
    if place < 0:
        raise ToolError(f"This text is not in the file, not even with other white space:\n{old}")
    start = bare.count("\n", 0, place)
    lines[start : start + len(wanted)] = _indented(lines[start], wanted, new.split("\n"))
    return "\n".join(lines)


def _stripped(lines: list[str]) -> str:
    """Return the lines without surrounding white space, each between two newlines."""
    return "".join(["\n", *(f"{line.strip(_SPACE)}\n" for line in lines)])


def _indented(first: str, old: list[str], new: list[str]) -> list[str]:
    """Indent the new lines like the first old line in the file; later lines keep their additional indentation."""
    indent = _indent(first)
    made = [indent + new[0].lstrip(_SPACE)]
    for place, line in enumerate(new[1:], start=1):
        was, now = _indent(old[place]) if place < len(old) else "", _indent(line)
        more = " " * max(0, len(now) - len(was))
        made.append(indent + more + line.lstrip(_SPACE) if was and now else line)
    return made


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_SPACE))]


_Change = tuple[str, int, int, int, int]


def _groups(old: list[str], new: list[str]) -> list[list[_Change]]:
    """Return the changes in groups, with the lines around them."""
    from difflib import SequenceMatcher

    first = 0
    while first < min(len(old), len(new)) and old[first] == new[first]:
        first += 1
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    middle = old[first : len(old) - last], new[first : len(new) - last]
    if max(map(len, middle)) > _MOST_COMPARED or _pairs(*middle) > _MOST_PAIRS:
        changes: list[_Change] = [("replace", 0, len(middle[0]), 0, len(middle[1]))]
    else:
        changes = list(SequenceMatcher(None, *middle, autojunk=False).get_opcodes())
    moved = [(kind, a + first, b + first, c + first, d + first) for kind, a, b, c, d in changes]
    around = _with_context(moved, len(old), len(new), first, last)
    return [group for group in _split(around) if any(kind != "equal" for kind, *_ in group)]


def _pairs(old: list[str], new: list[str]) -> int:
    times = Counter(new)
    return sum(times[line] for line in old)


def _with_context(changes: list[_Change], olds: int, news: int, first: int, last: int) -> list[_Change]:
    """Add the equal lines before and after the compared part."""
    whole = [("equal", 0, first, 0, first)] if first else []
    end = [("equal", olds - last, olds, news - last, news)] if last else []
    return [*whole, *changes, *end]


def _split(changes: list[_Change]) -> list[list[_Change]]:
    """Split where there are too many equal lines between two changes to show them."""
    groups: list[list[_Change]] = [[]]
    for place, (kind, a, b, c, d) in enumerate(changes):
        if kind != "equal":
            groups[-1].append((kind, a, b, c, d))
            continue
        is_first, is_last = place == 0, place == len(changes) - 1
        if b - a <= 2 * _CONTEXT and not is_first and not is_last:
            groups[-1].append((kind, a, b, c, d))
            continue
        if not is_first:
            after = min(b - a, _CONTEXT)
            groups[-1].append((kind, a, a + after, c, c + after))
        if not is_last:
            before = min(b - a, _CONTEXT)
            groups.append([(kind, b - before, b, d - before, d)])
    return groups


def _hunk(group: list[_Change], old: list[str], new: list[str]) -> list[str]:
    (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
    olds, news = b - a, d - c
    lines = [f"@@ -{a + 1 if olds else a},{olds} +{c + 1 if news else c},{news} @@"]
    for kind, one, two, three, four in group:
        if kind == "equal":
            lines += [f" {line}" for line in old[one:two]]
        else:
            lines += [f"-{line}" for line in old[one:two]] + [f"+{line}" for line in new[three:four]]
    return lines
