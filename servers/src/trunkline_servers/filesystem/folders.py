"""Trees and searches, and the tools that look at folders.

Folders are walked by open descriptors, through no link, within a budget.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trunkline.errors import ToolError
from trunkline.server import Context, Server, ToolResult
from trunkline_servers.filesystem.glob_patterns import GlobPattern, exclude_filter
from trunkline_servers.filesystem.path_resolver import Location, PathDenied, PathResolver, displayable
from trunkline_servers.filesystem.reading import FolderEntry, entries_of, file_info, list_folder, list_folder_with_sizes
from trunkline_servers.filesystem.worker import CONTENT_SCHEMA, READ_HINTS, CallBudget, FileWorker, text_result

__all__ = ["add_folder_tools", "search", "tree"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def tree(location: Location, exclude: list[str], *, budget: CallBudget) -> list[dict[str, Any]]:
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
    resolver: PathResolver, location: Location, pattern: str, *, exclude: list[str], budget: CallBudget
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


def _entries(directory: int, budget: CallBudget) -> Iterator[FolderEntry]:
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


SortBy = Annotated[Literal["name", "size"], Meta(description="What comes first: the first name, or the largest size")]


def add_folder_tools(server: Server, worker: FileWorker) -> None:
    """Add the tools that read folders."""
    options: dict[str, Any] = {"annotations": READ_HINTS, "output_schema": dict(CONTENT_SCHEMA)}

    @server.tool(title="List Directory", **options)
    async def list_directory(ctx: Context, path: str) -> ToolResult:
        """List what is in a folder, a line an entry: [DIR] marks folders, [FILE] everything else."""
        return text_result(await worker.at(ctx, path, lambda location: list_folder(location, worker.limits)))

    @server.tool(title="List Directory with Sizes", **options)
    async def list_directory_with_sizes(ctx: Context, path: str, sortBy: SortBy = "name") -> ToolResult:
        """List what is in a folder with the sizes of files, then how many there are and their size together."""

        def work(resolver: PathResolver) -> str:
            return resolver.use(
                path, lambda at: list_folder_with_sizes(resolver, at, by_size=sortBy == "size", limits=worker.limits)
            )

        return text_result(await worker.do(ctx, path, work))

    @server.tool(title="Directory Tree", **options)
    async def directory_tree(ctx: Context, path: str, excludePatterns: list[str] = []) -> ToolResult:  # noqa: B006
        """Give everything below a folder as JSON: each entry has a name and a type, and a folder has its children.

        A pattern without a star leaves out what has that name, at any depth.
        """
        budget = CallBudget(worker.limits)

        def work(resolver: PathResolver) -> str:
            found = resolver.use(path, lambda at: tree(at, excludePatterns, budget=budget))
            return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()

        return text_result(await worker.do(ctx, path, work, budget=budget))

    @server.tool(title="Search Files", **options)
    async def search_files(ctx: Context, path: str, pattern: str, excludePatterns: list[str] = []) -> ToolResult:  # noqa: B006
        """Find files and folders below a folder by a pattern for their path from there; gives whole paths.

        ``*.ext`` matches in the folder itself, ``**/*.ext`` at any depth; ``?``, ``[a-z]`` and ``{a,b}`` work too.
        """
        budget = CallBudget(worker.limits)

        def work(resolver: PathResolver) -> list[str]:
            return resolver.use(path, lambda at: search(resolver, at, pattern, exclude=excludePatterns, budget=budget))

        found = await worker.do(ctx, path, work, budget=budget)
        return text_result("\n".join(found) if found else "No matches found")

    @server.tool(title="Get File Info", **options)
    async def get_file_info(ctx: Context, path: str) -> ToolResult:
        """Tell size, times, kind and permissions of a file or folder, without reading it."""
        return text_result(await worker.at(ctx, path, file_info))

    @server.tool(title="List Allowed Directories", **options)
    async def list_allowed_directories(ctx: Context) -> ToolResult:
        """Name the folders that may be touched, with all that is in them. Paths may be relative to them."""
        named = await worker.allowed.folder_records(ctx)
        # If a folder was given by a path with links, both paths work.
        paths = dict.fromkeys(str(path) for folder in named for path in (folder.given, folder.real))
        return text_result("\n".join(["Allowed directories:", *paths]))
