"""Trees and searches: from folder to folder by open descriptors, without following links, within a budget."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from trunkline.errors import ToolError
from trunkline.servers.filesystem.limits import Budget
from trunkline.servers.filesystem.patterns import Pattern, excludes
from trunkline.servers.filesystem.reading import Entry, entries_of
from trunkline.servers.filesystem.walking import Denied, Ground, Place, visible

__all__ = ["search", "tree"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def tree(place: Place, exclude: list[str], *, budget: Budget) -> list[dict[str, Any]]:
    """Return everything below a folder: names, types, and the children of folders.

    Raises:
        ToolError: the budget is exceeded.
    """
    leave_out = excludes(exclude, anywhere=True)

    def branches(directory: int, above: str, depth: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for entry in _entries(directory, budget):
            name = visible(entry.name)
            path = f"{above}{name}"
            if exclude and leave_out(path):
                continue
            shown: dict[str, Any] = {"name": name, "type": "directory" if entry.is_folder else "file"}
            if entry.is_folder:
                budget.check_depth(depth + 1)
                shown["children"] = _inside(directory, entry, partial(branches, above=f"{path}/", depth=depth + 1))
            found.append(shown)
        return found

    try:
        return _start(place, lambda directory: branches(directory, "", 0))
    except ToolError as error:
        raise ToolError(f"{error}: ask for a folder further down, or leave some out with excludePatterns.") from None


def search(ground: Ground, place: Place, pattern: str, *, exclude: list[str], budget: Budget) -> list[str]:
    """Return all matching paths below a folder; if the budget runs out, the matches so far and a note."""
    wanted, leave_out = Pattern(pattern), excludes(exclude, anywhere=False)
    results: list[str] = []

    def look(directory: int, above: str, depth: int) -> list[Any]:
        for entry in _entries(directory, budget):
            path = f"{above}{entry.name}"
            shown = visible(path)
            if exclude and leave_out(shown):
                continue
            if entry.is_link and not _stays(ground, os.path.join(place.path, path)):
                continue
            if wanted.matches(shown):
                results.append(visible(os.path.join(place.path, path)))
            if entry.is_folder:
                budget.check_depth(depth + 1)
                _inside(directory, entry, partial(look, above=f"{path}/", depth=depth + 1))
        return []

    try:
        _start(place, lambda directory: look(directory, "", 0))
    except ToolError as error:
        results.append(f"({error}: these are only some of the matches. Narrow the path or exclude folders.)")
    return results


def _start(place: Place, work: Callable[[int], list[Any]]) -> list[Any]:
    directory = place.open(os.O_RDONLY | os.O_DIRECTORY)
    try:
        return work(directory)
    finally:
        os.close(directory)


def _inside(directory: int, entry: Entry, work: Callable[[int], list[Any]]) -> list[Any]:
    """Run work in a subfolder of an open folder; skip it if it cannot be opened or has become a link."""
    try:
        inner = os.open(entry.name, _FOLDER, dir_fd=directory)
    except OSError:
        return []
    try:
        return work(inner)
    finally:
        os.close(inner)


def _entries(directory: int, budget: Budget) -> Iterator[Entry]:
    found, _ = entries_of(directory, budget.left + 1)
    for entry in found:
        budget.spend()
        yield entry


def _stays(ground: Ground, path: str) -> bool:
    """Return True if the target of a link is allowed."""
    try:
        return ground.use(path, lambda found: not stat.S_ISLNK(getattr(found.status(), "st_mode", 0)))
    except (Denied, OSError):
        return False
