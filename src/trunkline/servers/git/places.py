"""Where a repository is allowed to be, and whether all of it is there.

It runs no git. A path is compared without links. A repository's own folder may be elsewhere (a linked working tree, a
submodule), may hold links, and may borrow objects; whatever of that leads out of the allowed folders is refused,
because git follows it, and writes its logs through it too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from trunkline.errors import ToolError

__all__ = ["check_links", "own_files", "own_folders", "real_worktree", "same_folders"]

_MOST_ENTRIES = 100_000
_MOST_BYTES = 64 * 1024
_DEEPEST_ALTERNATE = 5
#: The folders in a repository's own folder that git writes names into, or shows what is in them (an unfinished rebase
#: is part of the status); they are looked through to the bottom.
_DEEP = ("refs", "logs", "info", "rebase-apply", "rebase-merge", "sequencer", "worktrees")


def real_worktree(given: str, allowed: Sequence[Path] | None) -> str:
    """Give the path without links of the working tree that a caller named; ``allowed`` None is everywhere.

    Raises:
        ToolError: it is outside, not there, or not the top of a working tree.
    """
    if "\0" in given or not given:
        raise ToolError("repo_path must be the path of a folder.")
    real = os.path.realpath(given)
    if allowed is not None and not _inside(real, allowed):
        raise ToolError(
            f"Repository path '{given}' is outside of what is allowed: {', '.join(str(each) for each in allowed)}. "
            "Start the server with another --repository, or share another root."
        )
    if not os.path.isdir(real):
        raise ToolError(f"There is no folder at '{given}'.")
    if not os.path.lexists(os.path.join(real, ".git")):
        if os.path.isfile(os.path.join(real, "HEAD")) and os.path.isdir(os.path.join(real, "objects")):
            raise ToolError(f"'{given}' is a bare repository or the inside of one; give the top of a working tree.")
        raise ToolError(f"'{given}' is not the top folder of a Git repository.")
    return real


def own_folders(worktree: str) -> tuple[str, str]:
    """Give the paths without links of the repository's own folder, and of what it shares with other working trees.

    Raises:
        ToolError: they cannot be found.
    """
    path = os.path.join(worktree, ".git")
    if os.path.isfile(path):
        path = os.path.join(worktree, _said(path).removeprefix("gitdir:").strip())
    git_dir = os.path.realpath(path)
    shared = os.path.join(git_dir, "commondir")
    common_dir = os.path.realpath(os.path.join(git_dir, _said(shared).strip())) if os.path.isfile(shared) else git_dir
    if not all(os.path.isdir(each) for each in (git_dir, common_dir)):
        raise ToolError(f"'{worktree}' is not the top folder of a Git repository.")
    return git_dir, common_dir


def own_files(folders: tuple[str, str]) -> list[str]:
    """Give the paths of the configuration files that the repository has."""
    git_dir, common_dir = folders
    paths = [os.path.join(common_dir, "config"), os.path.join(git_dir, "config.worktree")]
    return [each for each in paths if os.path.lexists(each)]


def same_folders(worktree: str, said: Sequence[str], folders: tuple[str, str]) -> bool:
    """Tell whether git, in a working tree, means the same folders."""
    return tuple(os.path.realpath(os.path.join(worktree, each)) for each in said) == folders


def check_links(worktree: str, folders: Sequence[str], allowed: Sequence[Path] | None) -> None:
    """Make sure that the repository's own folders, and what they link to or borrow, are in the allowed ones.

    Raises:
        ToolError: something leads out.
    """
    if allowed is not None:
        for folder in folders:
            if not _inside(folder, allowed):
                raise ToolError(
                    f"The repository keeps its data in '{folder}', which is outside of the allowed folders. "
                    "Start the server with a --repository that holds it as well."
                )
    within = allowed if allowed is not None else [Path(each) for each in (worktree, *folders)]
    for folder in dict.fromkeys(folders):
        for path in _links(folder):
            if not _inside(os.path.realpath(path), within):
                raise ToolError(f"'{path}' is a link that leads out of the allowed folders; git is not run on it.")
        _check_alternates(os.path.join(folder, "objects"), within, _DEEPEST_ALTERNATE)


def _inside(real: str, folders: Sequence[Path]) -> bool:
    return any(Path(real).is_relative_to(folder) for folder in folders)


def _links(folder: str) -> Iterator[str]:
    """Give the links in a repository's own folder: at its top, among its objects' folders, and in all of ``_DEEP``."""
    seen = 0
    todo = [(folder, True)]
    while todo:
        here, top = todo.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    seen += 1
                    if seen > _MOST_ENTRIES:
                        raise ToolError(
                            f"'{folder}' has more than {_MOST_ENTRIES} names to check; run git pack-refs --all there."
                        )
                    if entry.is_symlink():
                        yield entry.path
                    elif entry.is_dir() and _enters(entry.name, os.path.relpath(here, folder), top=top):
                        todo.append((entry.path, False))
        except OSError as error:
            raise ToolError(f"'{here}' cannot be read: {error.strerror}.") from error


def _enters(name: str, parent: str, *, top: bool) -> bool:
    first = parent.split(os.sep, 1)[0]
    return name in (*_DEEP, "objects") if top else first in _DEEP or (parent == "objects" and name in ("info", "pack"))


def _check_alternates(objects: str, within: Sequence[Path], deepest: int) -> None:
    path = os.path.join(objects, "info", "alternates")
    if not os.path.lexists(path):
        return
    if deepest == 0:
        raise ToolError(f"The repository borrows objects from others that borrow in turn, too often: {path}.")
    for line in _said(path).splitlines():
        if not line or line.startswith("#"):
            continue
        lender = os.path.realpath(os.path.join(objects, line))
        if line.startswith('"') or not _inside(lender, within):
            raise ToolError(
                f"The repository borrows objects from '{line}', which is outside of the allowed folders. "
                "Start the server with a --repository that holds it as well, or run git repack -a -d there."
            )
        _check_alternates(lender, within, deepest - 1)


def _said(path: str) -> str:
    """Read a small file of the repository; one that is not plain would make us wait for ever."""
    try:
        if not os.path.isfile(path):
            raise ToolError(f"'{path}' is not a plain file.")
        with open(path, "rb") as file:
            said = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ToolError(f"'{path}' cannot be read: {error.strerror}.") from error
    if len(said) > _MOST_BYTES:
        raise ToolError(f"'{path}' is longer than {_MOST_BYTES} bytes.")
    return said.decode("utf-8", "surrogateescape")
