"""The tools that change something: stage, commit, unstage, make a branch, switch. Whoever calls them holds the lock."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from trunkline.errors import ToolError
from trunkline.servers.git.repositories import Repository, refuse_option

__all__ = ["add", "checkout", "commit", "create_branch", "reset"]

_MOST_FILES = 2000
_MOST_NAMES = 100_000
#: How many bytes the names of all files that are staged at once may have; nobody is shown them.
_MOST_LISTED = 32 * 1024 * 1024
_MOST_MESSAGE = 1024 * 1024
#: Names that some file systems take for ``.git``.
_OWN = re.compile(r"\.git[\s.]*|git~\d+", re.IGNORECASE)
_UNMATCHED = re.compile("pathspec '(.*)' did not match")


async def add(repository: Repository, files: Sequence[str]) -> str:
    """Stage what changed in files and folders, named from the top of the working tree or absolutely."""
    if len(files) > _MOST_FILES or sum(len(each) for each in files) > _MOST_NAMES:
        raise ToolError(f"Too many names at once: give at most {_MOST_FILES}, or the folders that hold the files.")
    specs = [_inside(repository, each) for each in files]
    await _check_known(repository, dict(zip(specs, files, strict=True)))
    ran = await repository.git(
        "ls-files", "-z", "-o", "-m", "-d", "--exclude-standard", "--", *specs, most=_MOST_LISTED
    )
    # A folder among them is a repository of its own, which is not taken in.
    names = [each for each in dict.fromkeys(ran.out.split(b"\0")) if each and not each.endswith(b"/")]
    if not names:
        return "No changes were staged: nothing under the given paths differs from the staging area (see git_status)."
    listed = b"".join(each + b"\0" for each in names)
    await _check_filters(repository, listed)
    await repository.git("update-index", "--add", "--remove", "-z", "--stdin", stdin=listed)
    return "Files staged successfully"


def _inside(repository: Repository, given: str) -> str:
    """Give a path as git is to be told it, from the top of the working tree."""
    if not given or "\0" in given or given.startswith(":"):
        raise ToolError(f"Invalid path: '{given[:200]}'. Give a path from the top of the repository.")
    top = repository.worktree
    path = os.path.normpath(os.path.join(top, given))
    # A link is staged as a link, so only what leads to it is followed.
    real = path if path == top else os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    if real != top and not real.startswith(top.rstrip(os.sep) + os.sep):
        raise ToolError(f"Path '{given[:200]}' is outside the repository '{top}'.")
    inner = os.path.relpath(real, top)
    if any(_OWN.fullmatch(part) for part in inner.split(os.sep)):
        raise ToolError(f"Path '{given[:200]}' is inside of the repository's own folder, which is never staged.")
    return f"./{inner}"


async def _check_known(repository: Repository, specs: dict[str, str]) -> None:
    """Make sure that every path means something, so that a typing error is not taken for nothing to do."""
    asked = [each for each in specs if each != "./."]
    if not asked:
        return
    ran = await repository.run(
        "ls-files", "-z", "-c", "-o", "--exclude-standard", "--error-unmatch", "--", *asked, most=_MOST_LISTED
    )
    unmatched = _UNMATCHED.findall(ran.complaint) if ran.status else []
    missing = [each for each in unmatched if not _is_folder(repository, each)]
    if missing:
        raise ToolError(f"Nothing was staged: '{specs.get(missing[0], missing[0])[:200]}' is no file, or is ignored.")


def _is_folder(repository: Repository, spec: str) -> bool:
    """Tell whether a path is a folder, in which git may well see nothing."""
    return os.path.isdir(os.path.join(repository.worktree, spec))


async def _check_filters(repository: Repository, listed: bytes) -> None:
    if not repository.filters:
        return
    ran = await repository.git("check-attr", "-z", "--stdin", "filter", stdin=listed, most=_MOST_LISTED * 2)
    fields = ran.out.decode("utf-8", "surrogateescape").split("\0")
    for name, driver in zip(fields[::3], fields[2::3], strict=False):
        if driver in repository.filters:
            raise ToolError(
                f"Nothing was staged: '{name}' is stored through the filter '{driver}', and this server runs no "
                "filters. Stage it with git itself."
            )


async def commit(repository: Repository, message: str, *, hooks: bool) -> str:
    """Record what is staged; ``hooks`` lets the repository's hooks run."""
    said = message.encode("utf-8", "replace")
    if len(said) > _MOST_MESSAGE:
        raise ToolError(f"The message is longer than {_MOST_MESSAGE} bytes.")
    staged = await repository.run("diff", "--cached", "--quiet", "--no-ext-diff", "--ignore-submodules=dirty", "--")
    if staged.status == 0 and (await repository.run("rev-parse", "--verify", "--quiet", "MERGE_HEAD")).status:
        raise ToolError("Nothing is staged, so there is nothing to commit: stage files with git_add first.")
    checks = () if hooks else ("--no-verify",)
    plain = ("--quiet", "--no-gpg-sign", "--no-status", "--cleanup=verbatim", "--allow-empty-message", "--file=-")
    try:
        await repository.git("commit", *plain, *checks, stdin=said, hooks=hooks)
    except ToolError as error:
        if "auto-detection" in str(error) or "tell me who you are" in str(error):
            raise ToolError(
                "Nothing was committed: git knows no author. Set user.name and user.email with git config, or the "
                "variables GIT_AUTHOR_NAME, GIT_AUTHOR_EMAIL, GIT_COMMITTER_NAME and GIT_COMMITTER_EMAIL."
            ) from error
        raise
    return f"Changes committed successfully with hash {await repository.resolve('HEAD', kind='commit')}"


async def reset(repository: Repository) -> str:
    """Unstage everything; the working tree, and a merge that is under way, stay as they are."""
    await repository.git("reset", "--quiet", "--", ".")
    return "All staged changes reset"


async def create_branch(repository: Repository, name: str, base: str | None) -> str:
    """Make a branch at another branch, tag or commit, or at the current branch."""
    refuse_option(name, "branch name")
    full = f"refs/heads/{name}"
    if name == "HEAD" or (await repository.run("check-ref-format", full)).status:
        raise ToolError(f"'{name}' cannot be the name of a branch.")
    if base:
        start = base
    else:
        start = (await repository.run("symbolic-ref", "--quiet", "--short", "HEAD")).text
        if not start:
            raise ToolError("HEAD is detached: no branch is the current one, so say base_branch.")
    found = await repository.resolve(start if base else "HEAD", "base branch", kind="commit")
    if not (await repository.run("rev-parse", "--verify", "--quiet", full)).status:
        raise ToolError(f"There is a branch '{name}' already.")
    # The empty last word lets git refuse if the branch came to be in the meantime.
    await repository.git("update-ref", "-m", f"branch: Created from {start}", full, found, "")
    return f"Created branch '{name}' from '{start}'"


async def checkout(repository: Repository, name: str) -> str:
    """Switch to a branch, or to the commit behind any other revision."""
    found = await repository.resolve(name, "branch name", kind="commit")
    ran = await repository.run("rev-parse", "--symbolic-full-name", "--verify", "--quiet", "--end-of-options", name)
    full = "" if ran.status else ran.text
    if not full.startswith(("refs/heads/", "refs/remotes/")) and name != "HEAD":
        # A branch comes before a tag of the same name, as in git's own checkout.
        branch = await repository.run("rev-parse", "--verify", "--quiet", "--end-of-options", f"refs/heads/{name}")
        full = full if branch.status else f"refs/heads/{name}"
    short = full.removeprefix("refs/heads/")
    plain = ("--quiet", "--no-recurse-submodules", "--no-guess")
    if short == full:
        # By its name, where it has one, git remembers what HEAD was set to.
        await repository.git("checkout", *plain, "--detach", full if full.startswith("refs/") else found, "--")
        return f"HEAD is now detached at {found[:7]}"
    refuse_option(short, "branch name")
    await repository.git("checkout", *plain, short, "--")
    return f"Switched to branch '{short}'"
