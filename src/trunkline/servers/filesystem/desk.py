"""What all tools share: the allowed folders of the caller, work in a thread, and system errors as sentences."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Lock
from types import MappingProxyType
from typing import Any, TypeVar

from trunkline.errors import ToolError
from trunkline.server import Context, ToolResult
from trunkline.servers.filesystem.limits import Budget, FileLimits
from trunkline.servers.filesystem.walking import Ground, Place, visible
from trunkline.servers.roots import Allowed
from trunkline.types import TextContent

__all__ = ["CONTENT", "READS", "Desk", "answer", "in_words"]

T = TypeVar("T")

#: Most changes of different files that run at once.
_LOCKS = 64
#: In seconds; the system does not accept every number.
_LONGEST_WAIT = 3600.0

#: Annotations of tools that only read.
READS: Mapping[str, bool] = MappingProxyType({"readOnlyHint": True, "openWorldHint": False})
#: Output schema of every tool but the one for media.
CONTENT: Mapping[str, Any] = MappingProxyType(
    {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]}
)


class Desk:
    """Resolves the caller's allowed folders and runs the work of tools in threads."""

    def __init__(
        self,
        allowed: Allowed,
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
        self._ground = Ground((), kernel_walk=kernel_walk)
        self._kernel_walk = kernel_walk
        self._locks = tuple(Lock() for _ in range(_LOCKS))

    async def ground(self, ctx: Context) -> Ground:
        """Return the path resolver for the folders that this caller may use."""
        folders = await self.allowed.named(ctx)
        ground = self._ground
        if ground.folders is not folders:
            ground = self._ground = Ground(folders, kernel_walk=self._kernel_walk)
        return ground

    async def do(
        self,
        ctx: Context,
        path: str,
        work: Callable[[Ground], T],
        *,
        budget: Budget | None = None,
        changes: bool = False,
    ) -> T:
        """Run work on the allowed folders in a thread; the process does not exit during work that changes files.

        Raises:
            ToolError: it failed; the message says why.
        """
        ground = await self.ground(ctx)
        try:
            if changes:
                return await asyncio.to_thread(work, ground)
            result: T = await self._submit(partial(work, ground))
            return result
        except ToolError as error:
            raise ToolError(visible(str(error))) from error
        except OSError as error:
            raise ToolError(in_words(error, path)) from error
        finally:
            # If the caller is gone, its search need not finish.
            if budget is not None:
                budget.stop()

    async def at(self, ctx: Context, path: str, work: Callable[[Place], T]) -> T:
        """Run work on the location that a path names, in a thread.

        Raises:
            ToolError: it failed; the message says why.
        """
        return await self.do(ctx, path, lambda ground: ground.use(path, work))

    @contextmanager
    def alone(self, place: Place) -> Iterator[None]:
        """Lock a file against changes by other calls: models edit one file with several calls at once.

        Raises:
            ToolError: another call holds the lock for too long.
        """
        found = os.fstat(place.directory)
        lock = self._locks[hash((found.st_dev, found.st_ino, place.name)) % _LOCKS]
        if not lock.acquire(timeout=min(self.limits.seconds, _LONGEST_WAIT)):
            raise ToolError(f"Other changes of {place.path} take too long; nothing was changed. Try again later.")
        try:
            yield
        finally:
            lock.release()


def answer(text: str) -> ToolResult:
    """Return a text as a tool result, both as a content block and as structured content."""
    text = visible(text)
    return ToolResult([TextContent(text=text)], {"content": text})


def in_words(error: OSError, path: str) -> str:
    """Return the message for an operating system error about a path."""
    match error.errno:
        case errno.ENOENT:
            return f"There is no file or folder {path}."
        case errno.EISDIR:
            return f"{path} is a folder, not a file."
        case errno.ENOTDIR:
            return f"{path} is not a folder, or a part of it is none."
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
