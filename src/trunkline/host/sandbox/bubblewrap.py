"""The options of bubblewrap: a file system with what the server may reach, and nothing else.

They are passed in a memory file, not on a command line. Later options cover earlier ones, so a folder comes before what
it contains, and the host's own folders are hidden last, except for the server's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from trunkline.host.sandbox.reach import Reach, beneath

__all__ = ["bubblewrap_words"]

_ALONE = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")


def bubblewrap_words(reach: Reach, *, home: str, cwd: str, network: bool) -> list[str]:
    """Return the options, without the server's environment and command."""
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
    """Bind a part of the system; a top-level symbolic link (``/lib``) is recreated as a link."""
    if os.path.islink(path) and path.count("/") == 1:
        yield from ("--symlink", os.readlink(path), path)
        return
    yield from ("--ro-bind-try", path, path)
    real = os.path.realpath(path)
    if real != path:
        # The target of a bound link, such as resolv.conf, may be looked up by its own name too.
        yield from ("--ro-bind-try", real, real)


def _binds(reach: Reach) -> Iterator[str]:
    """Bind the granted paths; a path inside a bound one is there already, unless it is also writable."""
    shown: list[str] = []
    for path in sorted({*reach.read, *reach.write}, key=len):
        write = path in reach.write
        if not any(beneath(path, each) for each in (reach.write if write else shown) if each != path):
            yield from ("--bind" if write else "--ro-bind-try", path, path)
            shown.append(path)
