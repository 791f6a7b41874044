"""Where a repository is allowed to be, and whether all of it is there.

It runs no git. A path is compared without links. A repository's own folder may be elsewhere (a linked working tree, a
submodule), may hold links, and may borrow objects; whatever of that leads out of the allowed folders is refused,
because git follows it, and writes its logs through it too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trunkline.errors import ToolError
from trunkline.servers.git.files import read_plain

__all__ = ["Place", "look", "same_folders"]

_MOST_ENTRIES = 100_000
_MOST_BYTES = 64 * 1024
_DEEPEST_ALTERNATE = 5
#: The folders in a repository's own folder that git writes names into, or shows what is in them (an unfinished rebase
#: is part of the status); they are looked through to the bottom.
_DEEP = frozenset({"refs", "reftable", "logs", "info", "rebase-apply", "rebase-merge", "sequencer", "worktrees"})
_TOP = _DEEP | {"objects"}
_OBJECTS = frozenset({"info", "pack"})
_MOST_CONFIGURATION = 1024 * 1024
#: What git makes of a longer configuration is not remembered.
_MOST_MARKED = 64 * 1024
_HEAD = re.compile(rb"ref: refs/heads/[A-Za-z0-9_][A-Za-z0-9_./-]*\n|[0-9a-f]{40}\n|[0-9a-f]{64}\n")


class Place(NamedTuple):
    """A working tree, its repository's own folders, and all that git goes by when it looks for them."""

    worktree: str
    git_dir: str
    #: What the repository shares with its other working trees.
    common_dir: str
    #: The paths of the configuration files that the repository has, and what is in them.
    files: tuple[tuple[str, bytes], ...]
    #: Equal for two looks at a place only if git finds, and trusts, the same in both; None is equal to nothing.
    marks: tuple[Any, ...] | None


def look(given: str, allowed: Sequence[Path] | None) -> Place:
    """Look at the repository at a path that a caller gave; ``allowed`` None is everywhere.

    Raises:
        ToolError: it is outside, not there, not the top of a working tree, or something in it leads out.
    """
    within = None if allowed is None else [str(each) for each in allowed]
    worktree = _real_worktree(given, within)
    folders = _own_folders(worktree)
    _check_links(worktree, folders, within)
    paths = (os.path.join(folders[1], "config"), os.path.join(folders[0], "config.worktree"))
    files = tuple((each, _said(each, _MOST_CONFIGURATION)) for each in paths if os.path.lexists(each))
    return Place(worktree, *folders, files, _marks(worktree, folders, files))


def _real_worktree(given: str, allowed: Sequence[str] | None) -> str:
    """Give the path without links of the working tree that a caller named."""
    if "\0" in given or not given:
        raise ToolError("repo_path must be the path of a folder.")
    real = os.path.realpath(given)
    if allowed is not None and not _inside(real, allowed):
        raise ToolError(
            f"Repository path '{given}' is outside of what is allowed: {', '.join(allowed)}. "
            "Start the server with another --repository, or share another root."
        )
    if not os.path.isdir(real):
        raise ToolError(f"There is no folder at '{given}'.")
    if not os.path.lexists(os.path.join(real, ".git")):
        if os.path.isfile(os.path.join(real, "HEAD")) and os.path.isdir(os.path.join(real, "objects")):
            raise ToolError(f"'{given}' is a bare repository or the inside of one; give the top of a working tree.")
        raise ToolError(f"'{given}' is not the top folder of a Git repository.")
    return real


def _own_folders(worktree: str) -> tuple[str, str]:
    """Give the paths without links of the repository's own folder, and of what it shares with other working trees."""
    path = os.path.join(worktree, ".git")
    if os.path.isfile(path):
        path = os.path.join(worktree, _lead(path).removeprefix("gitdir:").strip())
    git_dir = os.path.realpath(path)
    shared = os.path.join(git_dir, "commondir")
    common_dir = git_dir
    if os.path.exists(shared):
        common_dir = os.path.realpath(os.path.join(git_dir, _lead(shared).strip()))
    if not all(os.path.isdir(each) for each in {git_dir, common_dir}):
        raise ToolError(f"'{worktree}' is not the top folder of a Git repository.")
    return git_dir, common_dir


def same_folders(worktree: str, said: Sequence[str], folders: tuple[str, str]) -> bool:
    """Tell whether git, in a working tree, means the same folders."""
    return tuple(os.path.realpath(os.path.join(worktree, each)) for each in said) == folders


def _marks(
    worktree: str, folders: tuple[str, str], configuration: Sequence[tuple[str, bytes]]
) -> tuple[Any, ...] | None:
    """Give all that git goes by: who owns what, which entries there are, and what the files say that lead to others.

    Times are not part of it: a file that is written twice in one tick of the clock has the same. Nor is which file it
    is: git itself replaces ``HEAD`` by a new one with the same words.
    """
    if sum(len(each) for _, each in configuration) > _MOST_MARKED:
        return None
    git_dir, common_dir = folders
    entry = os.path.join(worktree, ".git")
    head, shared = (os.path.join(git_dir, each) for each in ("HEAD", "commondir"))
    inner = [os.path.join(common_dir, each) for each in ("objects", "refs")]
    # What is no plain file is refused here: git would wait for a pipe.
    files = (*([entry] if os.path.isfile(entry) else ()), head, shared)
    said = tuple((each, _form(_said(each))) for each in files if os.path.exists(each))
    try:
        kinds = tuple(_kind(each) for each in (worktree, entry, head, *folders, *inner))
        links = tuple(os.path.realpath(each) for each in (entry, head, *inner))
        # Git goes by the words of this link, not by where it leads.
        link = os.readlink(head) if os.path.islink(head) else ""
    except OSError:
        return None
    return (*folders, kinds, links, link, said, os.path.lexists(shared), tuple(configuration))


def _form(said: bytes) -> bytes:
    """Give what a file says, or what it is if git takes it for a good ``HEAD`` whatever the branch or commit is."""
    return b"HEAD" if _HEAD.fullmatch(said) else said


def _kind(path: str) -> tuple[int, ...]:
    about, behind = os.lstat(path), os.stat(path)
    return about.st_mode, about.st_uid, about.st_gid, behind.st_mode, behind.st_uid, behind.st_gid


def _check_links(worktree: str, folders: Sequence[str], allowed: Sequence[str] | None) -> None:
    """Make sure that the repository's own folders, and what they link to or borrow, are in the allowed ones."""
    if allowed is not None:
        for folder in folders:
            if not _inside(folder, allowed):
                raise ToolError(
                    f"The repository keeps its data in '{folder}', which is outside of the allowed folders. "
                    "Start the server with a --repository that holds it as well."
                )
    within = allowed if allowed is not None else (worktree, *folders)
    for folder in dict.fromkeys(folders):
        _check_inner(folder, _TOP, within)
        _check_alternates(os.path.join(folder, "objects"), within, _DEEPEST_ALTERNATE)


def _check_inner(folder: str, entered: frozenset[str], within: Sequence[str]) -> None:
    for path in _links(folder, entered):
        if not _inside(os.path.realpath(path), within):
            raise ToolError(f"'{path}' is a link that leads out of the allowed folders; git is not run on it.")


def _inside(real: str, folders: Sequence[str]) -> bool:
    return any(real == folder or real.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


def _links(folder: str, top: frozenset[str]) -> Iterator[str]:
    """Give the links at the top of a folder, in those in it that are in ``top``, and in all of ``_DEEP``."""
    seen = 0
    # Beside each folder, which folders in it are entered; None is all.
    todo: list[tuple[str, frozenset[str] | None]] = [(folder, top)]
    while todo:
        here, entered = todo.pop()
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
                    elif (entered is None or entry.name in entered) and entry.is_dir():
                        todo.append((entry.path, _below(entry.name, entered)))
        except OSError as error:
            raise ToolError(f"'{here}' cannot be read: {error.strerror}.") from error


def _below(name: str, entered: frozenset[str] | None) -> frozenset[str] | None:
    """Tell what is entered in a folder that is entered itself."""
    if entered is _TOP:
        return _OBJECTS if name == "objects" else None
    return None if entered is None else frozenset()


def _check_alternates(objects: str, within: Sequence[str], deepest: int) -> None:
    path = os.path.join(objects, "info", "alternates")
    if not os.path.lexists(path):
        return
    if deepest == 0:
        raise ToolError(f"The repository borrows objects from others that borrow in turn, too often: {path}.")
    # Git knows no other end of a line than this.
    for line in _lead(path).split("\n"):
        if not line or line.startswith("#"):
            continue
        said = os.path.join(os.path.realpath(objects), line)
        lender = os.path.realpath(said)
        # Some versions of git go up before they follow a link.
        if line.startswith('"') or not all(_inside(each, within) for each in (lender, _read_as_text(said))):
            raise ToolError(
                f"The repository borrows objects from '{line}', which is outside of the allowed folders. "
                "Start the server with a --repository that holds it as well, or run git repack -a -d there."
            )
        for each in {lender, _read_as_text(said)}:
            if os.path.isdir(each):
                _check_inner(each, _OBJECTS, within)
            _check_alternates(each, within, deepest - 1)


def _read_as_text(path: str) -> str:
    return os.path.realpath(os.path.normpath(path))


def _lead(path: str) -> str:
    """Read a file that names other places."""
    said = _said(path)
    if b"\0" in said:
        raise ToolError(f"'{path}' cannot be read: it holds a zero byte.")
    return os.fsdecode(said)


def _said(path: str, most: int = _MOST_BYTES) -> bytes:
    try:
        return read_plain(path, most)
    except OSError as error:
        raise ToolError(f"'{path}' cannot be read: {error.strerror}.") from error
