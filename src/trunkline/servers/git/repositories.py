"""Opens a repository for a call: it is allowed, all of it is there, and what it could make git run is known and off.

Everything is looked at anew for each call. What it gives, a ``Repository``, runs git in one working tree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from trunkline.errors import ToolError
from trunkline.servers.git.configuration import read_own, read_user, user_settings
from trunkline.servers.git.environment import environment, filter_settings, with_hooks
from trunkline.servers.git.places import check_links, own_files, own_folders, real_worktree, same_folders
from trunkline.servers.git.running import Program, Ran, one_line

__all__ = ["Repository", "open_repository", "refuse_option"]

_LONGEST_NAME = 1000
#: Two paths are never longer.
_MOST_PATHS = 64 * 1024


class Repository(NamedTuple):
    """A repository that may be worked on, and how git is to be run in it."""

    worktree: str
    git_dir: str
    #: Shared by all working trees of the repository; whoever writes holds the lock of this path.
    common_dir: str
    #: The filter drivers that anybody has configured, none of which is run.
    filters: frozenset[str]
    program: Program
    env: dict[str, str]

    async def run(self, *arguments: str, stdin: bytes = b"", most: int | None = None) -> Ran:
        """Run git and give what it said, whatever its exit status is."""
        return await self.program.run(arguments, cwd=self.worktree, env=self.env, stdin=stdin, most=most)

    async def git(self, *arguments: str, stdin: bytes = b"", hooks: bool = False, most: int | None = None) -> Ran:
        """Run git to a good end, with all of its output; ``hooks`` lets it run the repository's hooks.

        Raises:
            ToolError: it failed, or said too much.
        """
        env = with_hooks(self.env) if hooks else self.env
        ran = await self.program.run(arguments, cwd=self.worktree, env=env, stdin=stdin, most=most)
        if ran.cut:
            raise ToolError(
                f"git {arguments[0]} says more than {most or self.program.most} bytes; ask for less at once."
            )
        if ran.status:
            raise ToolError(_failure(arguments[0], ran))
        return ran

    async def shown(self, *arguments: str) -> str:
        """Run git for its output, which is cut with a note where it is too long.

        Raises:
            ToolError: it failed.
        """
        ran = await self.run(*arguments)
        if ran.status:
            raise ToolError(_failure(arguments[0], ran))
        return ran.text + self.note(ran)

    def note(self, ran: Ran) -> str:
        """Give the note that belongs under an output: none, unless it was cut."""
        return f"\n[cut: there is more than the {self.program.most} bytes that are shown]" if ran.cut else ""

    async def resolve(self, given: str, what: str = "revision", *, kind: str = "object") -> str:
        """Give the id of the object that a caller named, so that git never sees the name as an argument of its own.

        Raises:
            ToolError: there is none, or none of that kind.
        """
        refuse_option(given, what)
        suffix = "" if kind == "object" else f"^{{{kind}}}"
        ran = await self.run("rev-parse", "--verify", "--quiet", "--end-of-options", given + suffix)
        found = ran.text
        if ran.status or not found or not all(each in "0123456789abcdef" for each in found):
            raise ToolError(f"Invalid {what}: there is no '{given}' in this repository, or it is no {kind}.")
        return found


async def open_repository(program: Program, given: str, allowed: Sequence[Path] | None) -> Repository:
    """Open the repository at a path that a caller gave.

    Raises:
        ToolError: it is not allowed, is no repository, or leads git to somewhere else.
    """
    await program.check()
    worktree = await asyncio.to_thread(real_worktree, given, allowed)
    folders = await asyncio.to_thread(own_folders, worktree)
    await asyncio.to_thread(check_links, worktree, folders, allowed)
    git_dir, common_dir = folders
    user = await read_user(program, worktree)
    env = environment(worktree, user_settings(user, {}))
    own, filters = await read_own(program, own_files(folders), env)
    env = environment(worktree, [*user_settings(user, own), *filter_settings(filters)])
    # Git has the last word on whether this is a repository, and whether its owner is to be trusted.
    ran = await program.run(
        ["rev-parse", "--absolute-git-dir", "--git-common-dir"], cwd=worktree, env=env, most=_MOST_PATHS
    )
    if ran.status:
        raise ToolError(_failure("rev-parse", ran))
    if not same_folders(worktree, ran.text.splitlines(), folders):
        raise ToolError(f"'{given}' is not the top folder of a Git repository.")
    return Repository(worktree, git_dir, common_dir, filters | user.filters, program, env)


def refuse_option(given: str, what: str) -> None:
    """Make sure that a caller's word cannot be taken for an option.

    Raises:
        ToolError: it could, or is no word at all.
    """
    if given.startswith("-"):
        raise ToolError(f"Invalid {what}: '{given[:200]}' starts with '-'.")
    if not given or len(given) > _LONGEST_NAME or any(ord(each) < 32 for each in given):
        raise ToolError(f"Invalid {what}: it must be 1 to {_LONGEST_NAME} characters without control characters.")


def _failure(command: str, ran: Ran) -> str:
    return f"git {command} failed: {one_line(ran.complaint) or f'exit status {ran.status}'}"
