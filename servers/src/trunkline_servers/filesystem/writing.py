"""Writing and editing files, creating folders and moving, and the tools for that.

A name holds the old or the new content, never a part of either: files are written beside their destination and
renamed over it; a move never replaces. Edits and diffs are pure functions from text to text.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any

from msgspec import Meta, Struct

from trunkline.errors import ToolError
from trunkline.server import Context, Server, ToolResult
from trunkline_servers.filesystem.path_resolver import Location, PathChanged, PathResolver, rename_new
from trunkline_servers.filesystem.reading import read_bytes
from trunkline_servers.filesystem.worker import (
    CONTENT_SCHEMA,
    FileBudget,
    FileWorker,
    OutOfTime,
    format_size,
    text_result,
)

__all__ = [
    "Edit",
    "add_writing_tools",
    "apply_edits",
    "in_code_fence",
    "line_end",
    "make_folders",
    "move",
    "replace_file",
    "same_file",
    "unified_diff",
]

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


DryRun = Annotated[bool, Meta(description="Show the changes without applying them")]


def add_writing_tools(server: Server, worker: FileWorker) -> None:
    """Add the tools that change files and folders."""
    output: dict[str, Any] = {"output_schema": dict(CONTENT_SCHEMA)}

    @server.tool(title="Write File", annotations=_hints(destructive=True, idempotent=True), **output)
    async def write_file(ctx: Context, path: str, content: str) -> ToolResult:
        """Create a file, or overwrite an existing one completely."""
        data = content.encode()
        await worker.do(ctx, path, lambda resolver: _write(resolver, path, data, worker), changes=True)
        return text_result(f"Successfully wrote to {path}")

    @server.tool(title="Edit File", annotations=_hints(destructive=True, idempotent=False), **output)
    async def edit_file(ctx: Context, path: str, edits: list[Edit], dryRun: DryRun = False) -> ToolResult:
        """Replace texts in a file, each at its first occurrence; return the changes as a diff.

        A text without an exact match is searched line by line, ignoring white space at the beginning and end of lines.
        If a text is not found, nothing is changed.
        """
        budget = FileBudget(worker.limits)

        def work(location: Location) -> str:
            with worker.exclusive(location):
                return _edit(location, edits, dry=dryRun, budget=budget, most=worker.limits.file_bytes)

        return text_result(
            await worker.do(ctx, path, lambda resolver: resolver.use(path, work), budget=budget, changes=True)
        )

    @server.tool(title="Create Directory", annotations=_hints(destructive=False, idempotent=True), **output)
    async def create_directory(ctx: Context, path: str) -> ToolResult:
        """Create a folder and its missing parents; an existing folder is not an error."""
        await worker.do(ctx, path, lambda resolver: make_folders(resolver, path), changes=True)
        return text_result(f"Successfully created directory {path}")

    @server.tool(title="Move File", annotations=_hints(destructive=True, idempotent=False), **output)
    async def move_file(ctx: Context, source: str, destination: str) -> ToolResult:
        """Move or rename a file or folder to an unused name; an existing entry is never replaced."""
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


def _edit(location: Location, edits: list[Edit], *, dry: bool, budget: FileBudget, most: int) -> str:
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
