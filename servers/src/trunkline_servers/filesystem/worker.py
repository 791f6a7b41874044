"""The parts that all tools share.

The limits and the budget of a call, the allowed folders of the caller, work in a thread, and operating system errors
as sentences.
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct

from trunkline.errors import ConfigError, ToolError
from trunkline.server import Context, ToolResult
from trunkline.types import TextContent
from trunkline_servers.filesystem.path_resolver import Location, PathResolver, displayable
from trunkline_servers.roots import AllowedFolders

__all__ = [
    "CONTENT_SCHEMA",
    "READ_HINTS",
    "FileBudget",
    "FileLimits",
    "FileWorker",
    "OutOfTime",
    "describe_os_error",
    "format_size",
    "text_result",
]

_UNITS = ("B", "KB", "MB", "GB", "TB")


class FileLimits(Struct, frozen=True, kw_only=True):
    """How much one call may read, write and visit; sizes in bytes, times in seconds."""

    #: Most bytes read from or written to a file.
    file_bytes: int = 10 * 1024 * 1024
    #: Most folder entries that a listing, tree or search visits.
    entries: int = 50_000
    #: Deepest folder level of a tree or search.
    depth: int = 64
    #: Time limit for a tree, a search, the edits of a file, or reading several files.
    seconds: float = 30.0
    #: Most files that are watched at once.
    watches: int = 1024
    #: Polling interval where the system does not report changes.
    poll_seconds: float = 1.0

    def __post_init__(self) -> None:
        """Check that every limit is positive."""
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} of the filesystem server must be more than zero, not {getattr(self, name)}.")


class OutOfTime(ToolError):
    """A call has used up its time, or its caller is gone."""


class FileBudget:
    """The remaining entries and time of one call."""

    __slots__ = ("_deadline", "_left", "_limits", "_stopped")

    def __init__(self, limits: FileLimits) -> None:
        """Start with the full budget."""
        self._limits = limits
        self._left = limits.entries
        self._deadline = time.monotonic() + limits.seconds
        self._stopped = False

    @property
    def left(self) -> int:
        """The number of entries left."""
        return max(self._left, 0)

    def spend(self) -> None:
        """Count one entry.

        Raises:
            ToolError: no entries are left.
        """
        self._left -= 1
        if self._left < 0:
            raise ToolError(f"There are more than {self._limits.entries} entries")
        # Called for each of many thousands of entries: the condition is repeated here to save the call.
        if self._stopped or time.monotonic() > self._deadline:
            self.check_time()

    def check_time(self) -> None:
        """Check that there is time left.

        Raises:
            OutOfTime: there is none left.
        """
        if self._stopped or time.monotonic() > self._deadline:
            raise OutOfTime(f"It takes longer than {self._limits.seconds:g} seconds")

    def check_depth(self, depth: int) -> None:
        """Check that a folder may be entered.

        Raises:
            ToolError: it is too deep.
        """
        if depth > self._limits.depth:
            raise ToolError(f"There are folders more than {self._limits.depth} deep")

    def stop(self) -> None:
        """Make the work end at its next step; may be called from any thread."""
        self._stopped = True


def format_size(size: int) -> str:
    """Format a number of bytes in the largest unit of which there is at least one."""
    unit = min(max(size.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    return f"{size} B" if unit == 0 else f"{size / 1024**unit:.2f} {_UNITS[unit]}"


T = TypeVar("T")

#: Most changes of different files that run at once.
_LOCKS = 64
#: In seconds; the system does not accept every number.
_LONGEST_WAIT = 3600.0

#: Annotations of tools that only read.
READ_HINTS: Mapping[str, bool] = MappingProxyType({"readOnlyHint": True, "openWorldHint": False})
#: Output schema of every tool but the one for media.
CONTENT_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]}
)


class FileWorker:
    """Resolves the caller's allowed folders and runs the work of tools in threads."""

    def __init__(
        self,
        allowed: AllowedFolders,
        *,
        limits: FileLimits,
        submit: Callable[[Callable[[], Any]], Awaitable[Any]],
        kernel_walk: bool = True,
    ) -> None:
        """Initialize with the allowed folders, the limits, and ``submit``, which runs a function in a thread."""
        self.allowed = allowed
        self.limits = limits
        self._submit = submit
        #: From the last call: the next one often has the same folders.
        self._resolver = PathResolver((), kernel_walk=kernel_walk)
        self._kernel_walk = kernel_walk
        self._locks = tuple(Lock() for _ in range(_LOCKS))

    async def resolver(self, ctx: Context) -> PathResolver:
        """Return the path resolver for the folders that this caller may use."""
        folders = await self.allowed.folder_records(ctx)
        resolver = self._resolver
        if resolver.folders is not folders:
            resolver = self._resolver = PathResolver(folders, kernel_walk=self._kernel_walk)
        return resolver

    async def do(
        self,
        ctx: Context,
        path: str,
        work: Callable[[PathResolver], T],
        *,
        budget: FileBudget | None = None,
        changes: bool = False,
    ) -> T:
        """Run work on the allowed folders in a thread; the process does not exit during work that changes files.

        Raises:
            ToolError: it failed; the message says why.
        """
        resolver = await self.resolver(ctx)
        try:
            if changes:
                return await asyncio.to_thread(work, resolver)
            result: T = await self._submit(partial(work, resolver))
            return result
        except ToolError as error:
            raise ToolError(displayable(str(error))) from error
        except OSError as error:
            raise ToolError(describe_os_error(error, path)) from error
        finally:
            # If the caller is gone, its search need not finish.
            if budget is not None:
                budget.stop()

    async def at(self, ctx: Context, path: str, work: Callable[[Location], T]) -> T:
        """Run work on the location that a path names, in a thread.

        Raises:
            ToolError: it failed; the message says why.
        """
        return await self.do(ctx, path, lambda resolver: resolver.use(path, work))

    @contextmanager
    def exclusive(self, location: Location) -> Iterator[None]:
        """Lock a file against changes by other calls: models edit one file with several calls at once.

        Raises:
            ToolError: another call holds the lock for too long.
        """
        found = os.fstat(location.directory)
        lock = self._locks[hash((found.st_dev, found.st_ino, location.name)) % _LOCKS]
        if not lock.acquire(timeout=min(self.limits.seconds, _LONGEST_WAIT)):
            raise ToolError(f"Other changes of {location.path} take too long; nothing was changed. Try again later.")
        try:
            yield
        finally:
            lock.release()


def text_result(text: str) -> ToolResult:
    """Return a text as a tool result, both as a content block and as structured content."""
    text = displayable(text)
    return ToolResult([TextContent(text=text)], {"content": text})


def describe_os_error(error: OSError, path: str) -> str:
    """Return the message for an operating system error about a path."""
    match error.errno:
        case errno.ENOENT:
            return f"There is no file or folder {path}."
        case errno.EISDIR:
            return f"{path} is a folder, not a file."
        case errno.ENOTDIR:
            return f"{path} is not a folder, or one of its parents is not."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return f"The system does not permit this for {path}: {os.strerror(error.errno)}."
        case errno.ELOOP:
            return f"{path} goes through too many links."
        case errno.ENOTSUP:
            return f"{path} is not a regular file: devices, pipes and sockets are not read."
        case errno.ENAMETOOLONG:
            return f"The path is too long, or goes through too many folders: {path[:200]}."
        case errno.EMFILE | errno.ENFILE:
            return f"Too many files are open just now: {path} was not touched. Try again later."
        case errno.EXDEV:
            return f"{path} is on another disk; moving does not copy. Write the file there and remove this one."
    return f"{path}: {error.strerror or error}."
