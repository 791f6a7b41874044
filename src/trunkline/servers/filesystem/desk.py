"""What all tools share: the allowed folders of a caller, work in a thread, and errors in words."""

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

#: As many changes of different files are made at once, at most.
_LOCKS = 64
#: Seconds; the system does not take every number.
_LONGEST_WAIT = 3600.0

#: The hints of tools that only look.
READS: Mapping[str, bool] = MappingProxyType({"readOnlyHint": True, "openWorldHint": False})
#: What every tool answers with, but the one for media.
CONTENT: Mapping[str, Any] = MappingProxyType(
    {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]}
)


class Desk:
    """Where tools get their folders and have their work done."""

    def __init__(
        self,
        allowed: Allowed,
        *,
        limits: FileLimits,
        submit: Callable[[Callable[[], Any]], Awaitable[Any]],
        kernel_walk: bool = True,
    ) -> None:
        """Take what is allowed and how much of it, and what runs a function in a thread."""
        self.allowed = allowed
        self.limits = limits
        self._submit = submit
        #: That of the last call: the next one often has the same folders.
        self._ground = Ground((), kernel_walk=kernel_walk)
        self._kernel_walk = kernel_walk
        self._locks = tuple(Lock() for _ in range(_LOCKS))

    async def ground(self, ctx: Context) -> Ground:
        """Give the folders that are allowed for this caller."""
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
        """Do something with the allowed folders in a thread; what changes files keeps the process until it is done.

        Raises:
            ToolError: it failed; the sentence says why.
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
            # A caller who has gone does not wait for the end of a search.
            if budget is not None:
                budget.stop()

    async def at(self, ctx: Context, path: str, work: Callable[[Place], T]) -> T:
        """Do something with what a path names, in a thread.

        Raises:
            ToolError: it failed; the sentence says why.
        """
        return await self.do(ctx, path, lambda ground: ground.use(path, work))

    @contextmanager
    def alone(self, place: Place) -> Iterator[None]:
        """Change a file while no other call changes it: models edit one file with several calls at once.

        Raises:
            ToolError: others take too long.
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
    """Answer with a text, in both ways in which a client may read it."""
    text = visible(text)
    return ToolResult([TextContent(text=text)], {"content": text})


def in_words(error: OSError, path: str) -> str:
    """Say what the system has against a path."""
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
            return f"{path} is no regular file: devices, pipes and sockets are not read."
        case errno.ENAMETOOLONG:
            return f"The path is too long, or goes through too many folders: {path[:200]}."
        case errno.EMFILE | errno.ENFILE:
            return f"Too many files are open just now: {path} was not touched. Try again later."
        case errno.EXDEV:
            return f"{path} is on another disk; moving does not copy. Write the file there and remove this one."
    return f"{path}: {error.strerror or error}."
