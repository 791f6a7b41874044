"""Trees and searches, the glob patterns that select paths, and the tools that look at folders.

Folders are walked by open descriptors, through no link, within a budget.

Glob patterns know ``*``, ``?``, ``[a-z]``, ``{a,b}`` and ``**`` over folders, and are matched in polynomial time: they
are not turned into regular expressions, since one with many stars can run for hours. ``*`` also matches names that
begin with a dot. A pattern that begins with ``!`` matches what the rest does not.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from trunkline.errors import ToolError
from trunkline.server import Context, Server, ToolResult
from trunkline_servers.filesystem.path_resolver import Location, PathDenied, PathResolver, displayable
from trunkline_servers.filesystem.reading import FolderEntry, entries_of, file_info, list_folder, list_folder_with_sizes
from trunkline_servers.filesystem.worker import CONTENT_SCHEMA, READ_HINTS, FileBudget, FileWorker, text_result

__all__ = ["GlobPattern", "add_folder_tools", "exclude_filter", "search", "tree"]

_LONGEST = 2000
#: How many patterns one with braces may expand to, and the total length of these or of all exclude patterns.
_MOST_VARIANTS = 500
_LONGEST_TOGETHER = 20_000
_BRACES = re.compile(r"(?<!\\)\{([^{}]*)\}")
_NUMBERS = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})\Z")
_EITHER = re.compile(r"(?<!\\)[@?]\(([^()]*)\)")
_SPECIAL = re.compile(r"[?\[\\]")
_UNSUPPORTED = re.compile(r"(?<!\\)[*+!]\([^()]*\)")

#: One step of matching: a test of one item, or None for any number of items.
_Test = Callable[[str], bool]
_Steps = Sequence[_Test | None]
T = TypeVar("T")


class GlobPattern:
    """A pattern for paths relative to the start of a search."""

    __slots__ = ("_negated", "_variants", "length")

    def __init__(self, text: str) -> None:
        """Parse a pattern.

        Raises:
            ToolError: it is too long, or uses unsupported syntax.
        """
        if len(text) > _LONGEST:
            raise ToolError(f"A pattern has at most {_LONGEST} characters.")
        bare = text.lstrip("!") if not text.startswith("!(") else text
        if _UNSUPPORTED.search(bare):
            raise ToolError("Patterns support *, ?, [a-z], {a,b} and **, but not +(...), *(...) and !(...).")
        self._negated = (len(text) - len(bare)) % 2 == 1
        # A pattern that begins with # is a comment.
        written_out = [] if bare.startswith("#") else _variants(_alternatives(bare))
        #: Its length with braces expanded.
        self.length = sum(map(len, written_out))
        self._variants = [_folders(each) for each in written_out]

    def matches(self, path: str) -> bool:
        """Return True if a relative path matches."""
        names = path.split("/")
        return any(_matches(variant, names) for variant in self._variants) != self._negated


def exclude_filter(texts: Sequence[str], *, anywhere: bool) -> Callable[[str], bool]:
    """Return a test for excluded paths; with ``anywhere``, patterns without stars match at any depth."""
    _check_together(texts)
    wanted = list(texts)
    if anywhere:
        plain = [each for each in texts if "*" not in each]
        wanted += [deep for each in plain for deep in (f"**/{each}", f"**/{each}/**")]
    patterns: list[GlobPattern] = []
    written_out = 0
    for each in wanted:
        pattern = GlobPattern(each)
        written_out += pattern.length
        _check_length(written_out)
        patterns.append(pattern)
    return lambda path: any(pattern.matches(path) for pattern in patterns)


def _alternatives(text: str) -> str:
    """Rewrite ``@(a|b)`` as ``{a,b}`` and ``?(a|b)`` as ``{,a,b}``."""

    def braced(found: re.Match[str]) -> str:
        inner = found[1].replace("|", ",")
        return f"{{,{inner}}}" if found[0].startswith("?") else f"{{{inner},}}" if "," not in inner else f"{{{inner}}}"

    # A single alternative needs no braces; they would be taken literally.
    text = re.sub(r"(?<!\\)@\(([^()|]*)\)", r"\1", text)
    return _EITHER.sub(braced, text)


def _variants(text: str) -> list[str]:
    """Expand every ``{a,b}`` and ``{1..3}``, innermost first."""
    done: list[str] = []
    open_ones = [text]
    while open_ones:
        each = open_ones.pop()
        found = next((found for found in _BRACES.finditer(each) if _choices(found[1])), None)
        if found is None:
            done.append(each)
        else:
            open_ones += [each[: found.start()] + choice + each[found.end() :] for choice in _choices(found[1])]
        if len(done) + len(open_ones) > _MOST_VARIANTS:
            raise ToolError(f"A pattern with braces stands for at most {_MOST_VARIANTS} patterns.")
    _check_together(done)
    return done


def _check_together(texts: Sequence[str]) -> None:
    _check_length(sum(map(len, texts)))


def _check_length(length: int) -> None:
    if length > _LONGEST_TOGETHER:
        raise ToolError(f"Patterns have at most {_LONGEST_TOGETHER} characters together, braces written out.")


def _choices(inner: str) -> list[str]:
    if (numbers := _NUMBERS.match(inner)) is not None:
        first, last = int(numbers[1]), int(numbers[2])
        step = 1 if last >= first else -1
        return [str(each) for each in range(first, last + step, step)[: _MOST_VARIANTS + 1]]
    return inner.split(",") if "," in inner else []


def _folders(text: str) -> _Steps:
    """Return the steps of a path: one per folder, None for ``**``."""
    names = re.sub("/+", "/", text).split("/")
    steps = [None if name == "**" else _name_test(name) for name in names]
    if names[-1] == "**" and len(names) > 1:
        # ``folder/**`` needs at least one name below the folder.
        steps.insert(len(steps) - 1, lambda _: True)
    return steps


def _name_test(text: str) -> _Test:
    if not _SPECIAL.search(text):
        return _starred(text) if "*" in text else text.__eq__
    steps = _characters(text)
    return lambda name: _matches(steps, name)


def _starred(text: str) -> _Test:
    """Return a test for names with stars only: each piece matches at its first occurrence, as in ``_matches``."""
    first, *middle, last = text.split("*")
    # A star alone matches at least one character.
    least = max(len(first) + len(last), 1 if text.strip("*") == "" else 0)

    def test(name: str) -> bool:
        if len(name) < least or not name.startswith(first) or not name.endswith(last):
            return False
        place, end = len(first), len(name) - len(last)
        for piece in middle:
            place = name.find(piece, place, end)
            if place < 0:
                return False
            place += len(piece)
        return True

    return test


def _characters(text: str) -> _Steps:
    """Return the steps of a name: one per character, None for ``*``."""
    steps: list[_Test | None] = []
    place = 0
    while place < len(text):
        sign = text[place]
        end = _class_end(text, place) if sign == "[" else None
        if end is not None:
            steps.append(_class(text[place + 1 : end]))
            place = end
        elif sign == "*":
            steps += [] if steps and steps[-1] is None else [None]
        elif sign == "?":
            steps.append(lambda _: True)
        else:
            place += sign == "\\" and place + 1 < len(text)
            steps.append(text[place].__eq__)
        place += 1
    if text and not text.strip("*"):
        # A star alone matches at least one character.
        steps.insert(0, lambda _: True)
    return steps


def _class_end(text: str, start: int) -> int | None:
    """Return the end of a character class; its first character may be a closing bracket."""
    first = start + 1 + (text[start + 1 : start + 2] in ("!", "^"))
    end = text.find("]", first + 1)
    return None if end < 0 else end


def _class(inner: str) -> _Test:
    negated = inner[0] in "!^"
    chars = inner[1:] if negated else inner
    ranges: list[tuple[str, str]] = []
    place = 0
    while place < len(chars):
        place += chars[place] == "\\" and place + 1 < len(chars)
        has_end = chars[place + 1 : place + 2] == "-" and place + 2 < len(chars)
        ranges.append((chars[place], chars[place + 2] if has_end else chars[place]))
        place += 3 if has_end else 1
    return lambda each: any(low <= each <= high for low, high in ranges) != negated


def _matches(steps: _Steps, things: Sequence[str]) -> bool:
    """Match greedily and backtrack to the last star only: what an earlier star could match changes nothing."""
    step = thing = 0
    star, taken = -1, 0
    while thing < len(things):
        test = steps[step] if step < len(steps) else _never
        if test is None:
            star, taken, step = step, thing, step + 1
        elif test(things[thing]):
            step, thing = step + 1, thing + 1
        elif star >= 0:
            taken += 1
            step, thing = star + 1, taken
        else:
            return False
    return all(test is None for test in steps[step:])


def _never(_: str) -> bool:
    return False


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def tree(location: Location, exclude: list[str], *, budget: FileBudget) -> list[dict[str, Any]]:
    """Return everything below a folder: names, types, and the children of folders.

    Raises:
        ToolError: the budget is exceeded.
    """
    leave_out = exclude_filter(exclude, anywhere=True)

    def branches(directory: int, above: str, depth: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for entry in _entries(directory, budget):
            name = displayable(entry.name)
            path = f"{above}{name}"
            if exclude and leave_out(path):
                continue
            shown: dict[str, Any] = {"name": name, "type": "directory" if entry.is_folder else "file"}
            if entry.is_folder:
                budget.check_depth(depth + 1)
                shown["children"] = _inside(directory, entry, partial(branches, above=f"{path}/", depth=depth + 1))
            found.append(shown)
        return found

    try:
        return _start(location, lambda directory: branches(directory, "", 0))
    except ToolError as error:
        raise ToolError(f"{error}: ask for a folder further down, or leave some out with excludePatterns.") from None


def search(
    resolver: PathResolver, location: Location, pattern: str, *, exclude: list[str], budget: FileBudget
) -> list[str]:
    """Return all matching paths below a folder; if the budget runs out, the matches so far and a note."""
    wanted, leave_out = GlobPattern(pattern), exclude_filter(exclude, anywhere=False)
    results: list[str] = []

    def look(directory: int, above: str, depth: int) -> list[Any]:
        for entry in _entries(directory, budget):
            path = f"{above}{entry.name}"
            shown = displayable(path)
            if exclude and leave_out(shown):
                continue
            if entry.is_link and not _link_is_allowed(resolver, os.path.join(location.path, path)):
                continue
            if wanted.matches(shown):
                results.append(displayable(os.path.join(location.path, path)))
            if entry.is_folder:
                budget.check_depth(depth + 1)
                _inside(directory, entry, partial(look, above=f"{path}/", depth=depth + 1))
        return []

    try:
        _start(location, lambda directory: look(directory, "", 0))
    except ToolError as error:
        results.append(f"({error}: these are only some of the matches. Narrow the path or exclude folders.)")
    return results


def _start(location: Location, work: Callable[[int], list[Any]]) -> list[Any]:
    directory = location.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        return work(directory)
    finally:
        os.close(directory)


def _inside(directory: int, entry: FolderEntry, work: Callable[[int], list[Any]]) -> list[Any]:
    """Run work in a subfolder of an open folder; skip it if it cannot be opened or has become a link."""
    try:
        inner = os.open(entry.name, _FOLDER, dir_fd=directory)
    except OSError:
        return []
    try:
        return work(inner)
    finally:
        os.close(inner)


def _entries(directory: int, budget: FileBudget) -> Iterator[FolderEntry]:
    found, _ = entries_of(directory, budget.left + 1)
    for entry in found:
        budget.spend()
        yield entry


def _link_is_allowed(resolver: PathResolver, path: str) -> bool:
    """Return True if the target of a link is allowed."""
    try:
        return resolver.use(path, lambda found: not stat.S_ISLNK(getattr(found.status(), "st_mode", 0)))
    except (PathDenied, OSError):
        return False


SortBy = Annotated[
    Literal["name", "size"], Meta(description="The sort order: by name, or by size with the largest first")
]


def add_folder_tools(server: Server, worker: FileWorker) -> None:
    """Add the tools that read folders."""
    options: dict[str, Any] = {"annotations": READ_HINTS, "output_schema": dict(CONTENT_SCHEMA)}

    @server.tool(title="List Directory", **options)
    async def list_directory(ctx: Context, path: str) -> ToolResult:
        """List the entries of a folder, one per line: [DIR] marks folders, [FILE] everything else."""
        return text_result(await worker.at(ctx, path, lambda location: list_folder(location, worker.limits)))

    @server.tool(title="List Directory with Sizes", **options)
    async def list_directory_with_sizes(ctx: Context, path: str, sortBy: SortBy = "name") -> ToolResult:
        """List the entries of a folder with file sizes, followed by the number of entries and their total size."""

        def work(resolver: PathResolver) -> str:
            return resolver.use(
                path, lambda at: list_folder_with_sizes(resolver, at, by_size=sortBy == "size", limits=worker.limits)
            )

        return text_result(await worker.do(ctx, path, work))

    @server.tool(title="Directory Tree", **options)
    async def directory_tree(ctx: Context, path: str, excludePatterns: list[str] = []) -> ToolResult:  # noqa: B006
        """Return everything below a folder as JSON: each entry has a name and a type, and a folder has its children.

        A pattern without a star excludes entries with that name, at any depth.
        """
        budget = FileBudget(worker.limits)

        def work(resolver: PathResolver) -> str:
            found = resolver.use(path, lambda at: tree(at, excludePatterns, budget=budget))
            return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()

        return text_result(await worker.do(ctx, path, work, budget=budget))

    @server.tool(title="Search Files", **options)
    async def search_files(ctx: Context, path: str, pattern: str, excludePatterns: list[str] = []) -> ToolResult:  # noqa: B006
        """Find files and folders below a folder by a glob pattern for their relative path; return absolute paths.

        ``*.ext`` matches in the folder itself, ``**/*.ext`` at any depth; ``?``, ``[a-z]`` and ``{a,b}`` work too.
        """
        budget = FileBudget(worker.limits)

        def work(resolver: PathResolver) -> list[str]:
            return resolver.use(path, lambda at: search(resolver, at, pattern, exclude=excludePatterns, budget=budget))

        found = await worker.do(ctx, path, work, budget=budget)
        return text_result("\n".join(found) if found else "No matches found")

    @server.tool(title="Get File Info", **options)
    async def get_file_info(ctx: Context, path: str) -> ToolResult:
        """Return the size, times, type and permissions of a file or folder, without reading it."""
        return text_result(await worker.at(ctx, path, file_info))

    @server.tool(title="List Allowed Directories", **options)
    async def list_allowed_directories(ctx: Context) -> ToolResult:
        """List the allowed folders; everything in them is allowed too. Paths may be relative to them."""
        named = await worker.allowed.folder_records(ctx)
        # If a folder was given by a path with links, both paths work.
        paths = dict.fromkeys(str(path) for folder in named for path in (folder.given, folder.real))
        return text_result("\n".join(["Allowed directories:", *paths]))
