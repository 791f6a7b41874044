"""Reads configuration as data: what a repository's own files say, and what the user has set for all repositories.

Git itself reads them, so that nothing is understood in another way than git does; but nothing is run, and no include of
a repository is followed: a repository that has one is refused. From the user's configuration come a name, an address
and a few settings that are data; there includes are followed, as git does. What git made of a file is remembered with
the file's bytes, and holds for as long as these are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from trunkline.errors import ToolError
from trunkline.servers.git.files import contents
from trunkline.servers.git.places import Place
from trunkline.servers.git.remembered import Remembered
from trunkline.servers.git.running import Program
from trunkline.servers.wording import one_line

__all__ = ["Configuration", "Own", "User", "user_settings"]

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
_PLACES = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "SYSTEMROOT")
_MOST_BYTES = 1024 * 1024
_MOST_NAMES = 256
#: How many repositories are remembered.
_MOST_REMEMBERED = 64
#: A longer configuration is read anew each time.
_LONGEST_REMEMBERED = 64 * 1024
#: Equal to nothing that a file can hold.
_UNSEEN = object()


class User(NamedTuple):
    """What the user has set for all repositories."""

    settings: Mapping[str, str]
    excludes: str
    safe: tuple[str, ...]
    filters: frozenset[str]


class Own(NamedTuple):
    """What a repository's own files set, and the names of the filters and hooks in them."""

    settings: Mapping[str, str]
    filters: frozenset[str]
    hooks: frozenset[str]


class _Entry(NamedTuple):
    origin: str
    key: str
    value: str


class _Global(NamedTuple):
    """The user's settings for a working tree, as they are while the files that they come from stay the same."""

    #: What git goes by when it looks for the repository, which an include may hang on.
    marks: tuple[Any, ...]
    variables: Mapping[str, str]
    files: Mapping[str, object]
    entries: Sequence[_Entry]


class Configuration:
    """Reads configuration by means of git, and not again while it is the same."""

    def __init__(self, program: Program) -> None:
        """Let ``program`` read."""
        self._program = program
        self._own: Remembered[tuple[bytes, ...], Own] = Remembered(_MOST_REMEMBERED)
        self._global: Remembered[str, _Global] = Remembered(_MOST_REMEMBERED)
        self._system: list[_Entry] | None = None

    async def read_user(self, place: Place, seen: Mapping[str, bytes | None]) -> User:
        """Read the user's and the system's settings, as they are for this working tree; ``seen`` is from ``look``."""
        # The system's file is the same for every repository, and is not expected to change under a running server.
        if self._system is None:
            self._system = await self._listed(os.sep, "--system")
        listed = [*self._system, *(await self._read_global(place, seen))]
        settings = {each.key: each.value for each in listed if each.key in _KEPT}
        excludes = [each.value for each in listed if each.key == "core.excludesfile" and each.value]
        safe = [each.value for each in listed if each.key == "safe.directory"]
        return User(settings, _excludes(excludes), _expanded(safe), _names("filter", (each.key for each in listed)))

    async def read_own(self, files: Sequence[tuple[str, bytes]], env: Mapping[str, str]) -> Own:
        """Read a repository's configuration files, given with what is in them.

        Raises:
            ToolError: one cannot be read, leads to another place, or has too many filters or hooks.
        """
        said = tuple(each for _, each in files)
        known = self._own.get(said)
        if known is not None:
            return known
        settings: dict[str, str] = {}
        for path, data in files:
            words = ["config", "--file", "-", "--no-includes", "--list", "-z"]
            ran = await self._program.run(words, cwd=os.sep, env=env, stdin=data, most=2 * _MOST_BYTES)
            if ran.status or ran.cut:
                complaint = one_line(ran.complaint) or "it is too long"
                raise ToolError(f"The configuration {path} cannot be read: {complaint}")
            entries = _entries(ran.out)
            _check(entries)
            settings |= {each.key: each.value for each in entries}
        own = Own(settings, _names("filter", settings), _names("hook", settings))
        _check_count(own)
        if sum(len(each) for each in said) <= _LONGEST_REMEMBERED:
            self._own.put(said, own)
        return own

    def look(self, worktree: str) -> Mapping[str, bytes | None]:
        """Give the user's files for this working tree with what is in them, as far as they are known."""
        known = self._global.get(worktree)
        tops = _global_files()
        return contents(tops if known is None else {*tops, *known.files})

    async def _read_global(self, place: Place, seen: Mapping[str, bytes | None]) -> Sequence[_Entry]:
        if not any(seen.values()):
            return ()
        variables, worktree = _variables(), place.worktree
        known = self._global.get(worktree)
        if known is not None and known[:3] == (place.marks, variables, seen):
            return known.entries
        entries = await self._listed(worktree, "--global")
        paths = _sources(worktree, entries)
        if paths is not None and place.marks is not None:
            # A file that was not seen before git saw it may have changed since, so it is taken for one that did.
            files = {each: seen.get(each, _UNSEEN) for each in {*_global_files(), *paths}}
            self._global.put(worktree, _Global(place.marks, variables, files, entries))
        return entries

    async def _listed(self, worktree: str, scope: str) -> list[_Entry]:
        # Reading a configuration runs nothing, and these files are the user's own.
        env = {**_variables(), "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": os.path.dirname(worktree)}
        words = ["config", scope, "--includes", "--list", "-z", "--show-origin"]
        ran = await self._program.run(words, cwd=worktree, env=env, most=_MOST_BYTES)
        return [] if ran.status or ran.cut else _with_origins(ran.out)


def user_settings(user: User, own: Mapping[str, str]) -> list[tuple[str, str]]:
    """Give what is to be said for the user: not what the repository's configuration says itself."""
    made = [(key, value) for key, value in user.settings.items() if key not in own]
    return [*made, ("core.excludesfile", user.excludes), *(("safe.directory", each) for each in user.safe)]


def _check(entries: Sequence[_Entry]) -> None:
    if any(each.key.startswith(("include.", "includeif.")) for each in entries):
        raise ToolError(
            "The repository's own configuration includes other files, which this server does not follow. "
            "Remove include.path and includeIf from it, and put the settings into it instead."
        )
    if not all(each.value.isalnum() for each in entries if each.key == "extensions.refstorage"):
        raise ToolError(
            "The repository keeps its branches where extensions.refStorage says, which this server does not follow: "
            "it may name a format, and no place."
        )


def _check_count(own: Own) -> None:
    if len(own.filters) + len(own.hooks) > _MOST_NAMES:
        raise ToolError(f"The repository's configuration has more than {_MOST_NAMES} filters and hooks; remove some.")


def _variables() -> dict[str, str]:
    # A path is meant as it is for the server: git runs elsewhere, where a repository could bring such a file.
    made = {each: said and os.path.abspath(said) for each in _PLACES if (said := os.environ.get(each)) is not None}
    if (said := os.environ.get("GIT_CONFIG_NOSYSTEM")) is not None:
        made["GIT_CONFIG_NOSYSTEM"] = said
    return made


def _global_files() -> tuple[str, ...]:
    said = os.environ.get("GIT_CONFIG_GLOBAL")
    if said is not None:
        return (said and os.path.abspath(said),)
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return (os.path.expanduser("~/.gitconfig"), os.path.join(folder, "git", "config"))


def _sources(worktree: str, entries: Sequence[_Entry]) -> list[str] | None:
    """Give the files that entries come from, and those that would be included if they were there.

    None if it is not for the files alone to say what is included: a branch or a remote may.
    """
    paths = {each.origin for each in entries}
    for origin, key, value in entries:
        if key != "include.path" and not (key.startswith("includeif.") and key.endswith(".path")):
            continue
        if value.startswith("%(") or not key.startswith(("include.path", "includeif.gitdir")):
            return None
        paths.add(os.path.join(os.path.dirname(origin), os.path.expanduser(value)))
    return [os.path.join(worktree, each) for each in sorted(paths)]


def _text(said: bytes) -> list[str]:
    # What git said is told to it again, so it must become the same bytes.
    return [os.fsdecode(each) for each in said.split(b"\0")[:-1]]


def _entries(listed: bytes) -> list[_Entry]:
    return [_Entry("", key, value) for key, _, value in (each.partition("\n") for each in _text(listed))]


def _with_origins(listed: bytes) -> list[_Entry]:
    fields = _text(listed)
    pairs = zip(fields[::2], (each.partition("\n") for each in fields[1::2]), strict=False)
    return [_Entry(origin.removeprefix("file:"), key, value) for origin, (key, _, value) in pairs]


def _names(section: str, keys: Iterable[str]) -> frozenset[str]:
    """Give the names in keys of the form ``section.name.key``."""
    parts = (key.split(".", 1) for key in keys)
    return frozenset(rest[0].rpartition(".")[0] for first, *rest in parts if first == section and "." in rest[0])


def _expanded(paths: Iterable[str]) -> tuple[str, ...]:
    # Git is not told where the user's own folder is.
    return tuple(os.path.expanduser(each) for each in paths)


def _excludes(said: Sequence[str]) -> str:
    if said:
        return os.path.expanduser(said[-1])
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = os.path.join(folder, "git", "ignore")
    return path if os.path.isfile(path) else os.devnull
