"""The tools that change files and folders."""

from __future__ import annotations

import os
from typing import Annotated, Any

from msgspec import Meta

from trunkline.errors import ToolError
from trunkline.server import Context, Server, ToolResult
from trunkline.servers.filesystem.desk import CONTENT, Desk, answer
from trunkline.servers.filesystem.editing import Edit, edited, fenced, line_end, unified_diff
from trunkline.servers.filesystem.limits import Budget, OutOfTime
from trunkline.servers.filesystem.reading import read_bytes
from trunkline.servers.filesystem.walking import Ground, Place
from trunkline.servers.filesystem.writing import make_folders, move, replace_file

__all__ = ["add_writing_tools"]

DryRun = Annotated[bool, Meta(description="Show what would change, and change nothing")]


def add_writing_tools(server: Server, desk: Desk) -> None:
    """Add the tools that change files and folders."""
    output: dict[str, Any] = {"output_schema": dict(CONTENT)}

    @server.tool(title="Write File", annotations=_hints(destructive=True, idempotent=True), **output)
    async def write_file(ctx: Context, path: str, content: str) -> ToolResult:
        """Write a file: a new one, or over all of an old one, which is lost."""
        data = content.encode()
        await desk.do(ctx, path, lambda ground: _write(ground, path, data, desk), changes=True)
        return answer(f"Successfully wrote to {path}")

    @server.tool(title="Edit File", annotations=_hints(destructive=True, idempotent=False), **output)
    async def edit_file(ctx: Context, path: str, edits: list[Edit], dryRun: DryRun = False) -> ToolResult:
        """Replace texts in a file, each at the first place where it is; gives what changed as a diff.

        A text that is not there as it is given is looked for line by line, whatever white space the lines begin and
        end with. If one is not found, nothing is changed.
        """
        budget = Budget(desk.limits)

        def work(place: Place) -> str:
            with desk.alone(place):
                return _edit(place, edits, dry=dryRun, budget=budget, most=desk.limits.file_bytes)

        return answer(await desk.do(ctx, path, lambda ground: ground.use(path, work), budget=budget, changes=True))

    @server.tool(title="Create Directory", annotations=_hints(destructive=False, idempotent=True), **output)
    async def create_directory(ctx: Context, path: str) -> ToolResult:
        """Make a folder, and those it lies in as far as they are missing; one that is there already is fine."""
        await desk.do(ctx, path, lambda ground: make_folders(ground, path), changes=True)
        return answer(f"Successfully created directory {path}")

    @server.tool(title="Move File", annotations=_hints(destructive=True, idempotent=False), **output)
    async def move_file(ctx: Context, source: str, destination: str) -> ToolResult:
        """Move or rename a file or folder to a name that is free: what exists is never replaced."""
        await desk.do(ctx, source, lambda ground: _move(ground, source, destination), changes=True)
        return answer(f"Successfully moved {source} to {destination}")


def _hints(*, destructive: bool, idempotent: bool) -> dict[str, bool]:
    return {
        "readOnlyHint": False,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": False,
    }


def _write(ground: Ground, path: str, data: bytes, desk: Desk) -> None:
    def work(place: Place) -> None:
        with desk.alone(place):
            replace_file(place, data, most=desk.limits.file_bytes)

    try:
        ground.use(path, work)
    except FileNotFoundError as error:
        folder = os.path.dirname(ground.absolute(path))
        raise ToolError(f"There is no folder {folder} to write to. Make it with create_directory first.") from error


def _edit(place: Place, edits: list[Edit], *, dry: bool, budget: Budget, most: int) -> str:
    seen = place.status()
    try:
        text = read_bytes(place, most).decode()
    except UnicodeDecodeError:
        raise ToolError(f"{place.path} is not UTF-8 text, so editing would damage it; nothing was changed.") from None
    plain = text.replace("\r\n", "\n")
    try:
        changed = edited(plain, edits, before_each=budget.check_time)
    except OutOfTime as error:
        raise ToolError(f"{error}; nothing was changed. Make fewer edits at once.") from None
    diff = fenced(unified_diff(plain, changed, place.path))
    if not dry:
        data = changed.replace("\n", line_end(text)).encode()
        replace_file(place, data, most=most, seen=seen)
    return diff


def _move(ground: Ground, source: str, destination: str) -> None:
    wanted = ground.absolute(destination)

    def work(place: Place) -> None:
        try:
            ground.use(wanted, lambda target: move(place, target), follow=False)
        except FileNotFoundError as error:
            # Only the destination folder can be missing here: the source folder is open.
            if place.status() is None:
                raise
            raise ToolError(f"There is no folder {os.path.dirname(wanted)} to move it to.") from error

    ground.use(source, work, follow=False)
