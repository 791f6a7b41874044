"""The git server: twelve tools for the configured repositories, or for those in the client's roots."""

from __future__ import annotations

import asyncio
import os
import shutil
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from trunkline import ConfigError, Context, Server, ToolError, __version__
from trunkline_servers.git import commands
from trunkline_servers.git.process import GitProgram
from trunkline_servers.git.repository import Repository, RepositoryOpener
from trunkline_servers.roots import AllowedFolders

__all__ = ["make_server"]

_INSTRUCTIONS = (
    "Works on local Git repositories. repo_path is the top folder of a working tree. Nothing is fetched or pushed, and "
    "no hook, filter or other program of a repository is run."
)
_SECONDS = 30.0
_MOST_BYTES = 1024 * 1024
#: Enough for an id or a name.
_LEAST_BYTES = 1000

_RepoPath = Annotated[str, Meta(description="The top folder of the repository's working tree.")]
_Lines = Annotated[int, Meta(description="How many unchanged lines are shown around a change.")]
_DATES = "in ISO 8601, with or without the time, or in words such as 'Jan 15 2024', 'yesterday' or '2 weeks ago'"


def make_server(
    *,
    repositories: Sequence[str | os.PathLike[str]] = (),
    any_repository: bool = False,
    timeout: float = _SECONDS,
    max_output: int = _MOST_BYTES,
    run_hooks: bool = False,
) -> Server:
    """Make the server.

    ``repositories`` are the allowed repositories, or folders of repositories; without any, the client's roots are
    allowed; ``any_repository`` allows all. A git command may take ``timeout`` seconds and write ``max_output`` bytes.

    Raises:
        ConfigError: git is not installed, or a repository does not exist.
    """
    found = shutil.which("git")
    if found is None:
        raise ConfigError("There is no git on this machine's PATH: install it.")
    if not timeout > 0 or max_output < _LEAST_BYTES:
        raise ConfigError(f"The timeout must be more than 0, and the most output at least {_LEAST_BYTES} bytes.")
    server = Server("mcp-git", _INSTRUCTIONS, title="Git", version=__version__)
    allowed = AllowedFolders([_checked(each) for each in repositories])
    allowed.attach(server)
    access = _RepositoryAccess(
        GitProgram(os.path.abspath(found), seconds=timeout, most=max_output), allowed, anywhere=any_repository
    )
    _add_reading(server, access)
    _add_writing(server, access, run_hooks=run_hooks)
    return server


def _checked(given: str | os.PathLike[str]) -> str | os.PathLike[str]:
    if not os.path.isdir(os.path.expanduser(given)):
        raise ConfigError(f"There is no folder at {os.fspath(given)}: give --repository one that exists.")
    return given


class _RepositoryAccess:
    """Opens the repository of a call, and serializes calls that write to it."""

    def __init__(self, program: GitProgram, allowed: AllowedFolders, *, anywhere: bool) -> None:
        self._opener = RepositoryOpener(program)
        self._allowed = allowed
        self._anywhere = anywhere
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def open(self, ctx: Context, repo_path: str) -> Repository:
        with _decodable_errors():
            return await self._opener.open(repo_path, await self._folders(ctx))

    async def write(
        self, ctx: Context, repo_path: str, work: Callable[..., Awaitable[str]], *args: Any, **options: Any
    ) -> str:
        """Run work that changes a repository under its lock, and to its end even if the caller is cancelled."""
        repository = await self.open(ctx, repo_path)
        lock = self._locks.setdefault(repository.common_dir, asyncio.Lock())

        async def alone() -> str:
            async with lock:
                with _decodable_errors():
                    return await work(repository, *args, **options)

        task = asyncio.ensure_future(alone())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            raise

    async def _folders(self, ctx: Context) -> Sequence[Path] | None:
        if self._anywhere:
            return None
        # The configured repositories are a boundary that a client's roots do not change.
        if self._allowed.configured:
            return [each.real for each in self._allowed.configured]
        if not ctx.client.supports("roots"):
            raise ToolError(
                "No repository is allowed: the server was started without --repository, and the client shares no "
                "roots. Start it with --repository PATH (or, at your own risk, with --any-repository)."
            )
        try:
            return await self._allowed.folders(ctx)
        except ToolError as error:
            raise ToolError(f"{error} This server takes such a folder as --repository PATH.") from error


@contextmanager
def _decodable_errors() -> Iterator[None]:
    """Make errors sendable that contain names which are not valid UTF-8."""
    try:
        yield
    except ToolError as error:
        raise ToolError(str(error).encode("utf-8", "surrogateescape").decode("utf-8", "replace")) from error


def _hints(*, reads: bool, destroys: bool = False, repeatable: bool = True) -> dict[str, bool]:
    return {
        "readOnlyHint": reads,
        "destructiveHint": destroys,
        "idempotentHint": repeatable,
        "openWorldHint": False,
    }


def _add_reading(server: Server, access: _RepositoryAccess) -> None:
    looks: dict[str, Any] = {"annotations": _hints(reads=True), "output_schema": None}

    @server.tool(**looks)
    async def git_status(repo_path: _RepoPath, ctx: Context) -> str:
        """Show the current branch, and which files are staged, changed or untracked."""
        return await commands.status(await access.open(ctx, repo_path))

    @server.tool(**looks)
    async def git_diff_unstaged(repo_path: _RepoPath, ctx: Context, context_lines: _Lines = 3) -> str:
        """Show the changes in the working tree that are not staged."""
        return await commands.diff_unstaged(await access.open(ctx, repo_path), context_lines)

    @server.tool(**looks)
    async def git_diff_staged(repo_path: _RepoPath, ctx: Context, context_lines: _Lines = 3) -> str:
        """Show the changes that the next commit would record."""
        return await commands.diff_staged(await access.open(ctx, repo_path), context_lines)

    @server.tool(**looks)
    async def git_diff(
        repo_path: _RepoPath,
        target: Annotated[str, Meta(description="A branch, tag or commit.")],
        ctx: Context,
        context_lines: _Lines = 3,
    ) -> str:
        """Show how the working tree differs from a branch, tag or commit."""
        return await commands.diff(await access.open(ctx, repo_path), target, context_lines)

    @server.tool(**looks)
    async def git_log(
        repo_path: _RepoPath,
        ctx: Context,
        max_count: Annotated[int, Meta(description="How many commits are shown.")] = 10,
        start_timestamp: Annotated[str | None, Meta(description=f"Only commits after this date, {_DATES}.")] = None,
        end_timestamp: Annotated[str | None, Meta(description=f"Only commits before this date, {_DATES}.")] = None,
    ) -> str:
        """Show the history of the current branch, the newest commit first."""
        repository = await access.open(ctx, repo_path)
        return await commands.log(repository, max_count, start=start_timestamp, end=end_timestamp)

    @server.tool(**looks)
    async def git_show(
        repo_path: _RepoPath,
        revision: Annotated[str, Meta(description="A branch, tag or commit, or <revision>:<path>.")],
        ctx: Context,
    ) -> str:
        """Show a commit with its changes; with <revision>:<path>, a file or a folder as it was then."""
        return await commands.show(await access.open(ctx, repo_path), revision)

    @server.tool(**looks)
    async def git_branch(
        repo_path: _RepoPath,
        branch_type: Annotated[str, Meta(description="Which branches: 'local', 'remote' or 'all'.")],
        ctx: Context,
        contains: Annotated[str | None, Meta(description="Only branches that hold this commit.")] = None,
        not_contains: Annotated[str | None, Meta(description="Only branches that do not hold this commit.")] = None,
    ) -> str:
        """List branches."""
        repository = await access.open(ctx, repo_path)
        return await commands.branch(repository, branch_type, contains=contains, not_contains=not_contains)


def _add_writing(server: Server, access: _RepositoryAccess, *, run_hooks: bool) -> None:
    @server.tool(annotations=_hints(reads=False, repeatable=False), output_schema=None)
    async def git_commit(
        repo_path: _RepoPath, message: Annotated[str, Meta(description="The commit message.")], ctx: Context
    ) -> str:
        """Commit the staged changes."""
        return await access.write(ctx, repo_path, commands.commit, message, hooks=run_hooks)

    @server.tool(annotations=_hints(reads=False), output_schema=None)
    async def git_add(
        repo_path: _RepoPath,
        files: Annotated[
            list[str],
            Meta(min_length=1, description="Files and folders, from the repository's top; '.' is everything."),
        ],
        ctx: Context,
    ) -> str:
        """Stage the changes of files for the next commit."""
        return await access.write(ctx, repo_path, commands.add, files)

    @server.tool(annotations=_hints(reads=False, destroys=True), output_schema=None)
    async def git_reset(repo_path: _RepoPath, ctx: Context) -> str:
        """Unstage everything that is staged; files in the working tree stay as they are."""
        return await access.write(ctx, repo_path, commands.reset)

    @server.tool(annotations=_hints(reads=False, repeatable=False), output_schema=None)
    async def git_create_branch(
        repo_path: _RepoPath,
        branch_name: Annotated[str, Meta(description="The name of the new branch.")],
        ctx: Context,
        base_branch: Annotated[
            str | None, Meta(description="The starting point; by default the current branch.")
        ] = None,
    ) -> str:
        """Create a branch without switching to it."""
        return await access.write(ctx, repo_path, commands.create_branch, branch_name, base_branch)

    @server.tool(annotations=_hints(reads=False, repeatable=False), output_schema=None)
    async def git_checkout(
        repo_path: _RepoPath, branch_name: Annotated[str, Meta(description="A branch, tag or commit.")], ctx: Context
    ) -> str:
        """Switch to a branch, or to the files of a tag or commit."""
        return await access.write(ctx, repo_path, commands.checkout, branch_name)
