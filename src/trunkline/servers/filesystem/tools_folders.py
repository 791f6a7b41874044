"""The tools that read folders: listings, trees, searches and file metadata."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trunkline.server import Context, Server, ToolResult
from trunkline.servers.filesystem.desk import CONTENT, READS, Desk, answer
from trunkline.servers.filesystem.limits import Budget
from trunkline.servers.filesystem.reading import describe, listing, sizes
from trunkline.servers.filesystem.searching import search, tree
from trunkline.servers.filesystem.walking import Ground

__all__ = ["add_folder_tools"]

SortBy = Annotated[Literal["name", "size"], Meta(description="What comes first: the first name, or the largest size")]


def add_folder_tools(server: Server, desk: Desk) -> None:
    """Add the tools that read folders."""
    options: dict[str, Any] = {"annotations": READS, "output_schema": dict(CONTENT)}

    @server.tool(title="List Directory", **options)
    async def list_directory(ctx: Context, path: str) -> ToolResult:
        """List what is in a folder, a line an entry: [DIR] marks folders, [FILE] everything else."""
        return answer(await desk.at(ctx, path, lambda place: listing(place, desk.limits)))

    @server.tool(title="List Directory with Sizes", **options)
    async def list_directory_with_sizes(ctx: Context, path: str, sortBy: SortBy = "name") -> ToolResult:
        """List what is in a folder with the sizes of files, then how many there are and their size together."""

        def work(ground: Ground) -> str:
            return ground.use(path, lambda at: sizes(ground, at, by_size=sortBy == "size", limits=desk.limits))

        return answer(await desk.do(ctx, path, work))

    @server.tool(title="Directory Tree", **options)
    async def directory_tree(ctx: Context, path: str, excludePatterns: list[str] = []) -> ToolResult:  # noqa: B006
        """Give everything below a folder as JSON: each entry has a name and a type, and a folder has its children.

        A pattern without a star leaves out what has that name, at any depth.
        """
        budget = Budget(desk.limits)

        def work(ground: Ground) -> str:
            found = ground.use(path, lambda at: tree(at, excludePatterns, budget=budget))
            return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()

        return answer(await desk.do(ctx, path, work, budget=budget))

    @server.tool(title="Search Files", **options)
    async def search_files(ctx: Context, path: str, pattern: str, excludePatterns: list[str] = []) -> ToolResult:  # noqa: B006
        """Find files and folders below a folder by a pattern for their path from there; gives whole paths.

        ``*.ext`` matches in the folder itself, ``**/*.ext`` at any depth; ``?``, ``[a-z]`` and ``{a,b}`` work too.
        """
        budget = Budget(desk.limits)

        def work(ground: Ground) -> list[str]:
            return ground.use(path, lambda at: search(ground, at, pattern, exclude=excludePatterns, budget=budget))

        found = await desk.do(ctx, path, work, budget=budget)
        return answer("\n".join(found) if found else "No matches found")

    @server.tool(title="Get File Info", **options)
    async def get_file_info(ctx: Context, path: str) -> ToolResult:
        """Tell size, times, kind and permissions of a file or folder, without reading it."""
        return answer(await desk.at(ctx, path, describe))

    @server.tool(title="List Allowed Directories", **options)
    async def list_allowed_directories(ctx: Context) -> ToolResult:
        """Name the folders that may be touched, with all that is in them. Paths may be relative to them."""
        named = await desk.allowed.named(ctx)
        # If a folder was given by a path with links, both paths work.
        paths = dict.fromkeys(str(path) for folder in named for path in (folder.given, folder.real))
        return answer("\n".join(["Allowed directories:", *paths]))
