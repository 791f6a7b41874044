"""Reads configuration as data: what a repository's own files say, and what the user has set for all repositories.

Nothing is run and no include of a repository is followed; a repository that has one is refused. From the user's
configuration come a name, an address and a few settings that are data; there includes are followed, as git does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trunkline.errors import ToolError
from trunkline.servers.git.running import Program, one_line

__all__ = ["User", "read_own", "read_user", "user_settings"]

#: The settings of the user that are passed on where the repository has none of its own.
_KEPT = frozenset(
    {
        "user.name",
        "user.email",
        "author.name",
        "author.email",
        "committer.name",
        "committer.email",
        "core.autocrlf",
        "core.eol",
    }
)
_MOST_BYTES = 1024 * 1024
_MOST_FILTERS = 256


class User(NamedTuple):
    """What the user has set for all repositories."""

    settings: Mapping[str, str]
    excludes: str
    safe: tuple[str, ...]
    filters: frozenset[str]


async def read_user(program: Program, worktree: str) -> User:
    """Read the user's and the system's settings, as they are for this working tree."""
    # The system's file is the same for every repository, and is not expected to change under a running server.
    if program.system is None:
        program.system = await _listed(program, os.sep, "--system")
    listed = [*program.system, *(await _listed(program, worktree, "--global") if _has_global() else ())]
    settings = {key: value for key, value in listed if key in _KEPT}
    excludes = [value for key, value in listed if key == "core.excludesfile" and value]
    safe = tuple(value for key, value in listed if key == "safe.directory")
    return User(settings, _excludes(excludes), safe, _filters(key for key, _ in listed))


def user_settings(user: User, own: Mapping[str, str]) -> list[tuple[str, str]]:
    """Give what is to be said for the user: not what the repository's configuration says itself."""
    made = [(key, value) for key, value in user.settings.items() if key not in own]
    return [*made, ("core.excludesfile", user.excludes), *(("safe.directory", each) for each in user.safe)]


async def read_own(program: Program, files: list[str], env: Mapping[str, str]) -> tuple[dict[str, str], frozenset[str]]:
    """Read a repository's configuration files; give the settings and the names of the filters in them.

    Raises:
        ToolError: a file cannot be read, includes another, or has too many filters.
    """
    own: dict[str, str] = {}
    for path in files:
        ran = await program.run(
            ["config", "--file", path, "--no-includes", "--list", "-z"], cwd=os.sep, env=env, most=_MOST_BYTES
        )
        if ran.status or ran.cut:
            raise ToolError(f"The configuration {path} cannot be read: {one_line(ran.complaint) or 'it is too long'}")
        own |= dict(_entries(ran.out))
    if any(key.startswith(("include.", "includeif.")) for key in own):
        raise ToolError(
            "The repository's own configuration includes other files, which this server does not follow. "
            "Remove include.path and includeIf from it, and put the settings into it instead."
        )
    filters = _filters(own)
    if len(filters) > _MOST_FILTERS:
        raise ToolError(f"The repository's configuration has more than {_MOST_FILTERS} filters; remove some.")
    return own, filters


async def _listed(program: Program, worktree: str, scope: str) -> list[tuple[str, str]]:
    # Reading a configuration runs nothing, and these files are the user's own.
    names = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "SYSTEMROOT")
    env = {name: value for name in names if (value := os.environ.get(name)) is not None}
    env |= {"LC_ALL": "C", "GIT_CEILING_DIRECTORIES": os.path.dirname(worktree)}
    ran = await program.run(["config", scope, "--includes", "--list", "-z"], cwd=worktree, env=env, most=_MOST_BYTES)
    return [] if ran.status or ran.cut else _entries(ran.out)


def _has_global() -> bool:
    """Tell whether the user has any configuration, so that git is not started to read nothing."""
    said = os.environ.get("GIT_CONFIG_GLOBAL")
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    paths = (os.path.expanduser("~/.gitconfig"), os.path.join(folder, "git", "config")) if said is None else (said,)
    return any(os.path.isfile(each) for each in paths)


def _entries(listed: bytes) -> list[tuple[str, str]]:
    entries = [each.decode("utf-8", "surrogateescape") for each in listed.split(b"\0") if each]
    return [(key, value) for key, _, value in (each.partition("\n") for each in entries)]


def _filters(keys: Iterable[str]) -> frozenset[str]:
    parts = (key.split(".", 1) for key in keys)
    return frozenset(rest[0].rpartition(".")[0] for section, *rest in parts if section == "filter" and "." in rest[0])


def _excludes(said: Sequence[str]) -> str:
    if said:
        return os.path.expanduser(said[-1])
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = os.path.join(folder, "git", "ignore")
    return path if os.path.isfile(path) else os.devnull
