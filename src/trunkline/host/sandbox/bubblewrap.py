"""The words that bubblewrap is told: a file system of what the server can reach, and nothing else.

They travel in a file in memory, not on a command line. Later words cover earlier ones, so a folder comes before what
lies in it, and the host's own folders are hidden last but for the server's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from trunkline.host.sandbox.reach import Reach, beneath

__all__ = ["bubblewrap_words"]

_ALONE = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")


def bubblewrap_words(reach: Reach, *, home: str, cwd: str, network: bool) -> list[str]:
    """Give the options, without the server's variables and command."""
    words = [*_ALONE, *(("--share-net",) if network else ())]
    for path in reach.system:
        words += _system(path)
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    words += _binds(reach)
    for place in reach.covered:
        words += ["--tmpfs", place]
    for name, real in reach.aliases:
        if not reach.mounts(os.path.dirname(name)):
            words += ["--symlink", real, name]
    return [*words, "--bind", home, home, "--chdir", cwd]


def _system(path: str) -> Iterator[str]:
    """Show a part of the system; a link of the system's top level (``/lib``) stays the link it is."""
    if os.path.islink(path) and path.count("/") == 1:
        yield from ("--symlink", os.readlink(path), path)
        return
    yield from ("--ro-bind-try", path, path)
    real = os.path.realpath(path)
    if real != path:
        # A link that is shown by what it leads to, such as resolv.conf, is looked up by that name too.
        yield from ("--ro-bind-try", real, real)


def _binds(reach: Reach) -> Iterator[str]:
    """Show what was given; what lies in something shown is there already, unless it may be written as well."""
    shown: list[str] = []
    for path in sorted({*reach.read, *reach.write}, key=len):
        write = path in reach.write
        if not any(beneath(path, each) for each in (reach.write if write else shown) if each != path):
            yield from ("--bind" if write else "--ro-bind-try", path, path)
            shown.append(path)
