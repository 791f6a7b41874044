"""Writing whole files, creating folders and moving, and the tools for that.

A name holds the old or the new content, never a part of either: files are written beside their destination and
renamed over it; a move never replaces.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Annotated, Any

from msgspec import Meta

from trunkline.errors import ToolError
from trunkline.server import Context, Server, ToolResult
from trunkline_servers.filesystem.editing import Edit, apply_edits, in_code_fence, line_end, unified_diff
from trunkline_servers.filesystem.path_resolver import Location, PathChanged, PathResolver
from trunkline_servers.filesystem.reading import read_bytes
from trunkline_servers.filesystem.syscalls import rename_new
from trunkline_servers.filesystem.worker import (
    CONTENT_SCHEMA,
    CallBudget,
    FileWorker,
    OutOfTime,
    format_size,
    text_result,
)

__all__ = ["add_writing_tools", "make_folders", "move", "replace_file", "same_file"]

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Errors that mean the system cannot rename without replacing here.
_NO_SUCH_RENAME = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def replace_file(location: Location, data: bytes, *, most: int, seen: os.stat_result | None = None) -> None:
    """Write a file at a location, keeping the mode of an existing one.

    Args:
        location: The destination.
        data: The whole content.
        most: Most bytes that are allowed.
        seen: The status of the file that the content is based on; if it has changed, nothing is written.

    Raises:
        ToolError: the entry is not a regular file, or has changed, or the content is too large.
    """
    if len(data) > most:
        raise ToolError(
            f"{format_size(len(data))} are more than {format_size(most)}, the most that is written at once: write "
            "less, or start the server with a larger --max-file-bytes."
        )
    before = location.status()
    if before is not None and not stat.S_ISREG(before.st_mode):
        what = "folder" if stat.S_ISDIR(before.st_mode) else "link, device, pipe or socket"
        raise ToolError(f"{location.path} is a {what}, and no file that can be written.")
    name = f".{os.urandom(12).hex()}.tmp"
    try:
        _write_new(location.directory, name, data, before)
        if seen is not None and not same_file(seen, location.status()):
            raise ToolError(
                f"{location.path} was changed by another program meanwhile; nothing was written. Read it again."
            )
        os.rename(name, location.name, src_dir_fd=location.directory, dst_dir_fd=location.directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=location.directory)
        raise
    _sync_directory(location.directory)


def same_file(one: os.stat_result, other: os.stat_result | None) -> bool:
    """Return True if both describe the same file, unchanged as far as can be seen."""
    return other is not None and _signature(one) == _signature(other)


def make_folders(resolver: PathResolver, path: str) -> None:
    """Create a folder and its missing parents, all or none.

    Raises:
        ToolError: an entry other than a folder exists there.
    """
    absolute = resolver.absolute(path)
    folder, rest = resolver.below([each for each in absolute.split("/") if each], f"{absolute} is")
    made: list[str] = []
    here = str(folder.given if absolute.startswith(f"{folder.given}/") else folder.real)
    try:
        for name in rest:
            here = os.path.join(here, name)
            if resolver.use(here, _make_folder):
                made.append(here)
    except BaseException:
        for each in reversed(made):
            with suppress(OSError):
                resolver.use(each, lambda location: os.rmdir(location.name, dir_fd=location.directory))
        raise


def move(source: Location, destination: Location) -> None:
    """Move an entry to a free name; a link itself is moved, not its target.

    Raises:
        ToolError: the name is taken, or one of the two is an allowed folder itself.
    """
    found = source.status()
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source.path)
    if "." in (source.name, destination.name):
        raise ToolError("An allowed folder itself is not moved, and nothing is moved in its place.")
    try:
        _rename(source, destination, stat.S_ISDIR(found.st_mode))
    except FileExistsError:
        raise ToolError(f"{destination.path} exists already; nothing was moved. Choose another name.") from None
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise ToolError(f"{source.path} is not moved into itself: choose a folder outside of it.") from error
    _sync_directory(destination.directory)
    _sync_directory(source.directory)


def _rename(source: Location, destination: Location, is_folder: bool) -> None:
    try:
        rename_new((source.directory, source.name), (destination.directory, destination.name))
    except OSError as error:
        if error.errno not in _NO_SUCH_RENAME:
            raise
        _rename_by_steps(source, destination, is_folder)


def _rename_by_steps(source: Location, destination: Location, is_folder: bool) -> None:
    """Rename without replacing where the system lacks the call: create the new name, then remove the old one."""
    fds = {"src_dir_fd": source.directory, "dst_dir_fd": destination.directory}
    if not is_folder:
        os.link(source.name, destination.name, follow_symlinks=False, **fds)
        try:
            os.unlink(source.name, dir_fd=source.directory)
        except OSError:
            with suppress(OSError):
                os.unlink(destination.name, dir_fd=destination.directory)
            raise
        return
    os.mkdir(destination.name, dir_fd=destination.directory)
    try:
        # This replaces only an empty folder: it fails if an entry appeared in it meanwhile.
        os.rename(source.name, destination.name, **fds)
    except OSError:
        with suppress(OSError):
            os.rmdir(destination.name, dir_fd=destination.directory)
        raise


def _make_folder(location: Location) -> bool:
    """Create one folder; return True if it did not exist before."""
    if location.status() is None:
        # Another process may create it at the same time.
        with suppress(FileExistsError):
            os.mkdir(location.name, dir_fd=location.directory)
            _sync_directory(location.directory)
            return True
    found = location.status()
    if found is not None and stat.S_ISLNK(found.st_mode):
        raise PathChanged(errno.ELOOP, os.strerror(errno.ELOOP))
    if found is not None and not stat.S_ISDIR(found.st_mode):
        raise ToolError(f"{location.path} exists already and is not a folder.")
    return False


def _write_new(directory: int, name: str, data: bytes, like: os.stat_result | None) -> None:
    descriptor = os.open(name, _NEW, 0o666 if like is None else 0o600, dir_fd=directory)
    try:
        if like is not None:
            _copy_ownership(descriptor, like)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _copy_ownership(descriptor: int, like: os.stat_result) -> None:
    """Copy owner, group and mode of the old file to the new one, as far as the system permits."""
    now, mode = os.fstat(descriptor), stat.S_IMODE(like.st_mode) & 0o777
    if (like.st_uid, like.st_gid) != (now.st_uid, now.st_gid):
        try:
            os.fchown(descriptor, like.st_uid, like.st_gid)
        except PermissionError:
            # A process that may not change the owner may still be allowed to change the group.
            with suppress(PermissionError):
                os.fchown(descriptor, -1, like.st_gid)
    if os.fstat(descriptor).st_gid != like.st_gid:
        # The permissions of the old group do not apply to the new one.
        mode &= ~0o070 | (mode & 0o007) << 3
    # Some file systems have no modes.
    with suppress(PermissionError):
        os.fchmod(descriptor, mode)


def _sync_directory(directory: int) -> None:
    """Flush a directory to disk so that its entries survive a crash; some file systems cannot, and need not."""
    with suppress(OSError):
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _signature(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


DryRun = Annotated[bool, Meta(description="Show what would change, and change nothing")]


def add_writing_tools(server: Server, worker: FileWorker) -> None:
    """Add the tools that change files and folders."""
    output: dict[str, Any] = {"output_schema": dict(CONTENT_SCHEMA)}

    @server.tool(title="Write File", annotations=_hints(destructive=True, idempotent=True), **output)
    async def write_file(ctx: Context, path: str, content: str) -> ToolResult:
        """Write a file: a new one, or over all of an old one, which is lost."""
        data = content.encode()
        await worker.do(ctx, path, lambda resolver: _write(resolver, path, data, worker), changes=True)
        return text_result(f"Successfully wrote to {path}")

    @server.tool(title="Edit File", annotations=_hints(destructive=True, idempotent=False), **output)
    async def edit_file(ctx: Context, path: str, edits: list[Edit], dryRun: DryRun = False) -> ToolResult:
        """Replace texts in a file, each at the first place where it is; gives what changed as a diff.

        A text that is not there as it is given is looked for line by line, whatever white space the lines begin and
        end with. If one is not found, nothing is changed.
        """
        budget = CallBudget(worker.limits)

        def work(location: Location) -> str:
            with worker.exclusive(location):
                return _edit(location, edits, dry=dryRun, budget=budget, most=worker.limits.file_bytes)

        return text_result(
            await worker.do(ctx, path, lambda resolver: resolver.use(path, work), budget=budget, changes=True)
        )

    @server.tool(title="Create Directory", annotations=_hints(destructive=False, idempotent=True), **output)
    async def create_directory(ctx: Context, path: str) -> ToolResult:
        """Make a folder, and those it lies in as far as they are missing; one that is there already is fine."""
        await worker.do(ctx, path, lambda resolver: make_folders(resolver, path), changes=True)
        return text_result(f"Successfully created directory {path}")

    @server.tool(title="Move File", annotations=_hints(destructive=True, idempotent=False), **output)
    async def move_file(ctx: Context, source: str, destination: str) -> ToolResult:
        """Move or rename a file or folder to a name that is free: what exists is never replaced."""
        await worker.do(ctx, source, lambda resolver: _move(resolver, source, destination), changes=True)
        return text_result(f"Successfully moved {source} to {destination}")


def _hints(*, destructive: bool, idempotent: bool) -> dict[str, bool]:
    return {
        "readOnlyHint": False,
        "destructiveHint": destructive,
        "idempotentHint": idempotent,
        "openWorldHint": False,
    }


def _write(resolver: PathResolver, path: str, data: bytes, worker: FileWorker) -> None:
    def work(location: Location) -> None:
        with worker.exclusive(location):
            replace_file(location, data, most=worker.limits.file_bytes)

    try:
        resolver.use(path, work)
    except FileNotFoundError as error:
        folder = os.path.dirname(resolver.absolute(path))
        raise ToolError(f"There is no folder {folder} to write to. Make it with create_directory first.") from error


def _edit(location: Location, edits: list[Edit], *, dry: bool, budget: CallBudget, most: int) -> str:
    seen = location.status()
    try:
        text = read_bytes(location, most).decode()
    except UnicodeDecodeError:
        raise ToolError(
            f"{location.path} is not UTF-8 text, so editing would damage it; nothing was changed."
        ) from None
    plain = text.replace("\r\n", "\n")
    try:
        changed = apply_edits(plain, edits, before_each=budget.check_time)
    except OutOfTime as error:
        raise ToolError(f"{error}; nothing was changed. Make fewer edits at once.") from None
    diff = in_code_fence(unified_diff(plain, changed, location.path))
    if not dry:
        data = changed.replace("\n", line_end(text)).encode()
        replace_file(location, data, most=most, seen=seen)
    return diff


def _move(resolver: PathResolver, source: str, destination: str) -> None:
    wanted = resolver.absolute(destination)

    def work(location: Location) -> None:
        try:
            resolver.use(wanted, lambda target: move(location, target), follow=False)
        except FileNotFoundError as error:
            # Only the destination folder can be missing here: the source folder is open.
            if location.status() is None:
                raise
            raise ToolError(f"There is no folder {os.path.dirname(wanted)} to move it to.") from error

    resolver.use(source, work, follow=False)
