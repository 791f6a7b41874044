"""Git configuration as data: what a repository's own files set, and what the user has set for all repositories.

Git itself parses the files, so that they are understood exactly as git does; but nothing is run, and includes of a
repository are not followed: a repository that has one is rejected. The user's configuration contributes a name, an
email address and a few settings that are data; there includes are followed, as git does. Parsed results are cached by
the content of the files.
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

#: User settings that are forwarded where the repository does not set them itself.
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
#: How many repositories are cached.
_MOST_REMEMBERED = 64
#: A longer configuration is parsed anew each time.
_LONGEST_REMEMBERED = 64 * 1024
#: Equal to no file content.
_UNSEEN = object()


class User(NamedTuple):
    """The user's settings for all repositories."""

    settings: Mapping[str, str]
    excludes: str
    safe: tuple[str, ...]
    filters: frozenset[str]


class Own(NamedTuple):
    """The settings of a repository's own files, and the names of the filters and hooks in them."""

    settings: Mapping[str, str]
    filters: frozenset[str]
    hooks: frozenset[str]


class _Entry(NamedTuple):
    origin: str
    key: str
    value: str


class _Global(NamedTuple):
    """The user's settings for a working tree, valid while the files they come from are unchanged."""

    #: What git considers when it locates the repository; a conditional include may depend on it.
    marks: tuple[Any, ...]
    variables: Mapping[str, str]
    files: Mapping[str, object]
    entries: Sequence[_Entry]


class Configuration:
    """Reads configuration through git, and caches it while the files are unchanged."""

    def __init__(self, program: Program) -> None:
        """Use ``program`` to read."""
        self._program = program
        self._own: Remembered[tuple[bytes, ...], Own] = Remembered(_MOST_REMEMBERED)
        self._global: Remembered[str, _Global] = Remembered(_MOST_REMEMBERED)
        self._system: list[_Entry] | None = None

    async def read_user(self, place: Place, seen: Mapping[str, bytes | None]) -> User:
        """Return the user and system settings for this working tree; ``seen`` comes from ``look``."""
        # The system file is the same for every repository, and is not expected to change while the server runs.
        if self._system is None:
            self._system = await self._listed(os.sep, "--system")
        listed = [*self._system, *(await self._read_global(place, seen))]
        settings = {each.key: each.value for each in listed if each.key in _KEPT}
        excludes = [each.value for each in listed if each.key == "core.excludesfile" and each.value]
        safe = [each.value for each in listed if each.key == "safe.directory"]
        return User(settings, _excludes(excludes), _expanded(safe), _names("filter", (each.key for each in listed)))

    async def read_own(self, files: Sequence[tuple[str, bytes]], env: Mapping[str, str]) -> Own:
        """Parse a repository's configuration files, given with their contents.

        Raises:
            ToolError: one cannot be read, refers to another location, or has too many filters or hooks.
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
        """Return the known user configuration files for this working tree with their contents."""
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
            # A file that was not read before git read it may have changed since, so it counts as changed.
            files = {each: seen.get(each, _UNSEEN) for each in {*_global_files(), *paths}}
            self._global.put(worktree, _Global(place.marks, variables, files, entries))
        return entries

    async def _listed(self, worktree: str, scope: str) -> list[_Entry]:
        # Reading configuration runs nothing, and these files belong to the user.
        env = {**_variables(), "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": os.path.dirname(worktree)}
        words = ["config", scope, "--includes", "--list", "-z", "--show-origin"]
        ran = await self._program.run(words, cwd=worktree, env=env, most=_MOST_BYTES)
        return [] if ran.status or ran.cut else _with_origins(ran.out)


def user_settings(user: User, own: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the user settings to forward: those that the repository does not set itself."""
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
    # Paths are resolved in the server's folder: git runs in another one, where a repository could provide such a file.
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
    """Return the files that entries come from, and those that would be included if they existed.

    None if includes depend on more than files, such as a branch or a remote.
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
    # This text is passed back to git, so it must round-trip to the same bytes.
    return [os.fsdecode(each) for each in said.split(b"\0")[:-1]]


def _entries(listed: bytes) -> list[_Entry]:
    return [_Entry("", key, value) for key, _, value in (each.partition("\n") for each in _text(listed))]


def _with_origins(listed: bytes) -> list[_Entry]:
    fields = _text(listed)
    pairs = zip(fields[::2], (each.partition("\n") for each in fields[1::2]), strict=False)
    return [_Entry(origin.removeprefix("file:"), key, value) for origin, (key, _, value) in pairs]


def _names(section: str, keys: Iterable[str]) -> frozenset[str]:
    """Return the names in keys of the form ``section.name.key``."""
    parts = (key.split(".", 1) for key in keys)
    return frozenset(rest[0].rpartition(".")[0] for first, *rest in parts if first == section and "." in rest[0])


def _expanded(paths: Iterable[str]) -> tuple[str, ...]:
    # Git runs without knowing the user's home folder.
    return tuple(os.path.expanduser(each) for each in paths)


def _excludes(said: Sequence[str]) -> str:
    if said:
        return os.path.expanduser(said[-1])
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    path = os.path.join(folder, "git", "ignore")
    return path if os.path.isfile(path) else os.devnull
