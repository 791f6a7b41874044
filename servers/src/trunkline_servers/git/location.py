"""Where a repository is, and whether all of it lies in the allowed folders.

The small files that decide this are read within limits. Runs no git.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trunkline.errors import ToolError

__all__ = ["RepositoryLocation", "is_same_repository", "locate_repository", "read_files", "read_regular_file"]

_MOST_CONTENT_BYTES = 1024 * 1024


def read_regular_file(path: str, most: int) -> bytes:
    """Read a file of at most ``most`` bytes.

    Raises:
        OSError: it does not exist, is not a regular file, or is longer.
    """
    # Opening a pipe would otherwise block until it has a writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", path)
        parts, left = [], most + 1
        while left and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
    finally:
        os.close(descriptor)
    if not left:
        raise OSError(errno.EFBIG, f"it is longer than {most} bytes", path)
    return b"".join(parts)


def read_files(paths: Iterable[str]) -> dict[str, bytes | None]:
    """Return the contents of files, None for one that cannot be read."""
    return {path: _content(path) for path in paths}


def _content(path: str) -> bytes | None:
    try:
        return read_regular_file(path, _MOST_CONTENT_BYTES)
    except (OSError, ValueError):
        return None


_MOST_ENTRIES = 100_000
_MOST_POINTER_BYTES = 64 * 1024
_DEEPEST_ALTERNATE = 5
#: Subfolders of the git folder that git writes names into, or whose content it shows (an unfinished rebase is part of
#: the status); they are checked recursively.
_DEEP = frozenset({"refs", "reftable", "logs", "info", "rebase-apply", "rebase-merge", "sequencer", "worktrees"})
_TOP = _DEEP | {"objects"}
_OBJECTS = frozenset({"info", "pack"})
_MOST_CONFIGURATION = 1024 * 1024
#: Results for a longer configuration are not cached.
_MOST_MARKED = 64 * 1024
_HEAD = re.compile(rb"ref: refs/heads/[A-Za-z0-9_][A-Za-z0-9_./-]*\n|[0-9a-f]{40}\n|[0-9a-f]{64}\n")


class RepositoryLocation(NamedTuple):
    """A working tree, its git folders, and everything that git considers when it locates them."""

    worktree: str
    git_dir: str
    #: The folder shared with the other working trees of the repository.
    common_dir: str
    #: The paths and contents of the repository's configuration files.
    files: tuple[tuple[str, bytes], ...]
    #: Two fingerprints are equal only if git finds and trusts the same; None equals nothing.
    fingerprint: tuple[Any, ...] | None


def locate_repository(given: str, allowed: Sequence[Path] | None) -> RepositoryLocation:
    """Locate the repository at a path from a caller; ``allowed`` None allows every folder.

    Raises:
        ToolError: it is not allowed, does not exist, is not the top of a working tree, or leads outside.
    """
    within = None if allowed is None else [str(each) for each in allowed]
    worktree = _real_worktree(given, within)
    folders = _own_folders(worktree)
    _check_links(worktree, folders, within)
    paths = (os.path.join(folders[1], "config"), os.path.join(folders[0], "config.worktree"))
    files = tuple((each, _read(each, _MOST_CONFIGURATION)) for each in paths if os.path.lexists(each))
    return RepositoryLocation(worktree, *folders, files, _fingerprint(worktree, folders, files))


def _real_worktree(given: str, allowed: Sequence[str] | None) -> str:
    """Return the real path of the working tree that a caller named."""
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
    """Return the real paths of the git folder and of the folder shared with other working trees."""
    path = os.path.join(worktree, ".git")
    if os.path.isfile(path):
        path = os.path.join(worktree, _read_pointer_file(path).removeprefix("gitdir:").strip())
    git_dir = os.path.realpath(path)
    shared = os.path.join(git_dir, "commondir")
    common_dir = git_dir
    if os.path.exists(shared):
        common_dir = os.path.realpath(os.path.join(git_dir, _read_pointer_file(shared).strip()))
    if not all(os.path.isdir(each) for each in {git_dir, common_dir}):
        raise ToolError(f"'{worktree}' is not the top folder of a Git repository.")
    return git_dir, common_dir


def is_same_repository(worktree: str, said: Sequence[str], folders: tuple[str, str]) -> bool:
    """Return True if git, run in a working tree, reports the same folders."""
    return tuple(os.path.realpath(os.path.join(worktree, each)) for each in said) == folders


def _fingerprint(
    worktree: str, folders: tuple[str, str], configuration: Sequence[tuple[str, bytes]]
) -> tuple[Any, ...] | None:
    """Return everything that git considers: owners, existing entries, and the contents of files that point to others.

    Times are not part of it: a file written twice within one clock tick has the same time. Nor are inode numbers: git
    itself replaces ``HEAD`` by a new file with the same content.
    """
    if sum(len(each) for _, each in configuration) > _MOST_MARKED:
        return None
    git_dir, common_dir = folders
    entry = os.path.join(worktree, ".git")
    head, shared = (os.path.join(git_dir, each) for each in ("HEAD", "commondir"))
    inner = [os.path.join(common_dir, each) for each in ("objects", "refs")]
    # Anything but a regular file is rejected here: git would block on a pipe.
    files = (*([entry] if os.path.isfile(entry) else ()), head, shared)
    said = tuple((each, _form(_read(each))) for each in files if os.path.exists(each))
    try:
        kinds = tuple(_kind(each) for each in (worktree, entry, head, *folders, *inner))
        links = tuple(os.path.realpath(each) for each in (entry, head, *inner))
        # Git uses the text of this link, not its target.
        link = os.readlink(head) if os.path.islink(head) else ""
    except OSError:
        return None
    return (*folders, kinds, links, link, said, os.path.lexists(shared), tuple(configuration))


def _form(said: bytes) -> bytes:
    """Return the content of a file; every valid ``HEAD`` counts as equal, whatever the branch or commit."""
    return b"HEAD" if _HEAD.fullmatch(said) else said


def _kind(path: str) -> tuple[int, ...]:
    about, behind = os.lstat(path), os.stat(path)
    return about.st_mode, about.st_uid, about.st_gid, behind.st_mode, behind.st_uid, behind.st_gid


def _check_links(worktree: str, folders: Sequence[str], allowed: Sequence[str] | None) -> None:
    """Check that the git folders, their links and their alternates are in the allowed folders."""
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
    """Yield the links at the top of a folder, in its subfolders listed in ``top``, and anywhere below ``_DEEP``."""
    seen = 0
    # Pairs of a folder and the subfolders to enter; None means all.
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
    """Return which subfolders of an entered folder are entered; None means all."""
    if entered is _TOP:
        return _OBJECTS if name == "objects" else None
    return None if entered is None else frozenset()


def _check_alternates(objects: str, within: Sequence[str], deepest: int) -> None:
    path = os.path.join(objects, "info", "alternates")
    if not os.path.lexists(path):
        return
    if deepest == 0:
        raise ToolError(f"The chain of repositories that this one borrows objects from is too long: {path}.")
    # Git recognizes no other line ending.
    for line in _read_pointer_file(path).split("\n"):
        if not line or line.startswith("#"):
            continue
        said = os.path.join(os.path.realpath(objects), line)
        lender = os.path.realpath(said)
        # Some versions of git apply ".." before they follow a link.
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


def _read_pointer_file(path: str) -> str:
    """Read a file that points to other paths."""
    said = _read(path)
    if b"\0" in said:
        raise ToolError(f"'{path}' cannot be read: it holds a zero byte.")
    return os.fsdecode(said)


def _read(path: str, most: int = _MOST_POINTER_BYTES) -> bytes:
    try:
        return read_regular_file(path, most)
    except OSError as error:
        raise ToolError(f"'{path}' cannot be read: {error.strerror}.") from error
