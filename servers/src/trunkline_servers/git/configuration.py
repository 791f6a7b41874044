"""Git's configuration.

Read as data from the user and the repository, cached by content, and overridden through the environment so that
nothing a repository names is ever run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from trunkline.errors import ToolError
from trunkline_servers.git.location import RepositoryLocation, read_files
from trunkline_servers.git.process import GitProgram
from trunkline_servers.untrusted import one_line

__all__ = [
    "BoundedCache",
    "ConfigReader",
    "RepositoryConfig",
    "UserConfig",
    "filter_settings",
    "forwarded_settings",
    "git_environment",
    "hook_settings",
    "with_hooks",
]

#: A path where nothing exists, for files and folders alike.
_NOWHERE = os.devnull
_HOOKS_PATH = "core.hookspath"

#: Set on every run. Programs are disabled, output has git's default format, nothing is fetched. The index is read
#: sequentially: its offset table and its untracked cache could lead to other names than those that were checked.
_FORCED_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        _HOOKS_PATH: _NOWHERE,
        "core.fsmonitor": "false",
        "core.sshcommand": "false",
        "core.askpass": "",
        "core.pager": "cat",
        "core.editor": "false",
        "sequence.editor": "false",
        "core.attributesfile": _NOWHERE,
        "core.protecthfs": "true",
        "core.protectntfs": "true",
        "core.quotepath": "true",
        "core.untrackedcache": "false",
        "index.threads": "1",
        "credential.helper": "",
        "commit.gpgsign": "false",
        "tag.gpgsign": "false",
        "log.showsignature": "false",
        "gpg.program": "false",
        "gpg.openpgp.program": "false",
        "gpg.x509.program": "false",
        "gpg.ssh.program": "false",
        "gpg.ssh.defaultkeycommand": "false",
        "protocol.allow": "never",
        "protocol.ext.allow": "never",
        "protocol.file.allow": "never",
        "submodule.recurse": "false",
        "diff.ignoresubmodules": "dirty",
        "diff.submodule": "short",
        "diff.orderfile": _NOWHERE,
        "diff.autorefreshindex": "false",
        "diff.noprefix": "false",
        "diff.mnemonicprefix": "false",
        "diff.srcprefix": "a/",
        "diff.dstprefix": "b/",
        "diff.relative": "false",
        "diff.renames": "true",
        "status.short": "false",
        "status.branch": "false",
        "status.showstash": "false",
        "status.relativepaths": "true",
        "status.submodulesummary": "false",
        "status.showuntrackedfiles": "normal",
        "status.displaycommentprefix": "false",
        "status.aheadbehind": "true",
        "status.renames": "true",
        "advice.statushints": "true",
        "color.ui": "false",
        "color.status": "false",
        "color.diff": "false",
        "color.branch": "false",
        "column.ui": "never",
        "column.status": "never",
        "column.branch": "never",
        "log.mailmap": "false",
        "i18n.commitencoding": "UTF-8",
        "i18n.logoutputencoding": "UTF-8",
        "gc.auto": "0",
        "maintenance.auto": "false",
        "checkout.workers": "1",
        "rerere.enabled": "false",
        "user.useconfigonly": "true",
        "safe.barerepository": "explicit",
    }
)

#: Variables for git. Without an exec path it cannot start another git either: not in a submodule, whose configuration
#: was not checked, and not to fetch a missing object.
_FORCED_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "LC_ALL": "C",
        "LANGUAGE": "C",
        "PATH": _NOWHERE,
        "GIT_EXEC_PATH": _NOWHERE,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": _NOWHERE,
        "GIT_CONFIG_GLOBAL": _NOWHERE,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "false",
        "SSH_ASKPASS": "false",
        "GIT_SSH_COMMAND": "false",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "false",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
    }
)


def _as_config_variables(settings: Iterable[tuple[str, str]], first: int) -> dict[str, str]:
    """Return settings as numbered ``GIT_CONFIG_*`` variables, starting at ``first``."""
    made: dict[str, str] = {}
    for number, (key, value) in enumerate(settings, first):
        made[f"GIT_CONFIG_KEY_{number}"] = key
        made[f"GIT_CONFIG_VALUE_{number}"] = value
    return made


_FORCED_SETTING_VARIABLES: Mapping[str, str] = MappingProxyType(_as_config_variables(_FORCED_SETTINGS.items(), 0))
#: Passed on from the server's environment: data about the user, the clock and the system.
_PASSED_VARIABLES = (
    "EMAIL",
    "GIT_AUTHOR_DATE",
    "GIT_AUTHOR_EMAIL",
    "GIT_AUTHOR_NAME",
    "GIT_COMMITTER_DATE",
    "GIT_COMMITTER_EMAIL",
    "GIT_COMMITTER_NAME",
    "SYSTEMROOT",
    "TMPDIR",
    "TZ",
)


def git_environment(worktree: str, settings: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """Return the environment for git in a working tree, with ``settings`` in addition to the forced ones."""
    made = {name: value for name in _PASSED_VARIABLES if (value := os.environ.get(name)) is not None}
    made |= _FORCED_VARIABLES
    made |= _FORCED_SETTING_VARIABLES
    made["GIT_WORK_TREE"] = worktree
    made["GIT_CEILING_DIRECTORIES"] = os.path.dirname(worktree)
    made["GIT_CONFIG_COUNT"] = str(len(_FORCED_SETTINGS) + len(settings))
    return made | _as_config_variables(settings, len(_FORCED_SETTINGS))


def with_hooks(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a command that may run the repository's hooks, which need programs."""
    made = dict(env)
    del made["GIT_EXEC_PATH"]
    for name in ("PATH", "HOME", "USER", "LOGNAME", "SHELL"):
        if (value := os.environ.get(name)) is not None:
            made[name] = value
    for number in range(int(env["GIT_CONFIG_COUNT"])):
        key = env[f"GIT_CONFIG_KEY_{number}"]
        if key == _HOOKS_PATH or key.startswith("hook."):
            # Removing a setting would renumber the others, so it is replaced by a harmless one.
            made[f"GIT_CONFIG_KEY_{number}"], made[f"GIT_CONFIG_VALUE_{number}"] = "gc.auto", "0"
    return made


def hook_settings(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the settings that disable these configured hooks, which newer versions of git support."""
    return [(f"hook.{name}.{part}", value) for name in names for part, value in (("enabled", "false"), ("event", ""))]


def filter_settings(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the settings that make these filter drivers pass content through unchanged."""
    made: list[tuple[str, str]] = []
    for name in names:
        made += [(f"filter.{name}.{part}", "") for part in ("clean", "smudge", "process")]
        made.append((f"filter.{name}.required", "false"))
    return made


K = TypeVar("K")
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A bounded cache; the oldest entry is evicted first. ``get`` may be called from any thread."""

    def __init__(self, most: int) -> None:
        """Keep at most ``most`` entries."""
        self._most = most
        self._answers: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        """Return the cached value; None if there is none."""
        return self._answers.get(key)

    def put(self, key: K, answer: V) -> None:
        """Store a value; call this from one thread only."""
        self._answers.pop(key, None)
        self._answers[key] = answer
        if len(self._answers) > self._most:
            del self._answers[next(iter(self._answers))]


#: User settings that are forwarded where the repository does not set them itself.
_FORWARDED_SETTINGS = frozenset(
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
_LOCATION_VARIABLES = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "SYSTEMROOT")
_MOST_BYTES = 1024 * 1024
_MOST_NAMES = 256
#: How many repositories are cached.
_MOST_REMEMBERED = 64
#: A longer configuration is parsed anew each time.
_LONGEST_REMEMBERED = 64 * 1024
#: Equal to no file content.
_UNSEEN = object()


class UserConfig(NamedTuple):
    """The user's settings for all repositories."""

    settings: Mapping[str, str]
    excludes: str
    safe: tuple[str, ...]
    filters: frozenset[str]


class RepositoryConfig(NamedTuple):
    """The settings of a repository's own files, and the names of the filters and hooks in them."""

    settings: Mapping[str, str]
    filters: frozenset[str]
    hooks: frozenset[str]


class _ConfigEntry(NamedTuple):
    origin: str
    key: str
    value: str


class _CachedGlobalConfig(NamedTuple):
    """The user's settings for a working tree, valid while the files they come from are unchanged."""

    #: What git considers when it locates the repository; a conditional include may depend on it.
    fingerprint: tuple[Any, ...]
    variables: Mapping[str, str]
    files: Mapping[str, object]
    entries: Sequence[_ConfigEntry]


class ConfigReader:
    """Reads configuration through git, and caches it while the files are unchanged."""

    def __init__(self, program: GitProgram) -> None:
        """Use ``program`` to read."""
        self._program = program
        self._own: BoundedCache[tuple[bytes, ...], RepositoryConfig] = BoundedCache(_MOST_REMEMBERED)
        self._global: BoundedCache[str, _CachedGlobalConfig] = BoundedCache(_MOST_REMEMBERED)
        self._system: list[_ConfigEntry] | None = None

    async def read_user(self, place: RepositoryLocation, seen: Mapping[str, bytes | None]) -> UserConfig:
        """Return the user and system settings for this working tree; ``seen`` comes from ``look``."""
        # The system file is the same for every repository, and is not expected to change while the server runs.
        if self._system is None:
            self._system = await self._listed(os.sep, "--system")
        listed = [*self._system, *(await self._read_global(place, seen))]
        settings = {each.key: each.value for each in listed if each.key in _FORWARDED_SETTINGS}
        excludes = [each.value for each in listed if each.key == "core.excludesfile" and each.value]
        safe = [each.value for each in listed if each.key == "safe.directory"]
        return UserConfig(
            settings, _excludes(excludes), _expanded(safe), _names("filter", (each.key for each in listed))
        )

    async def read_own(self, files: Sequence[tuple[str, bytes]], env: Mapping[str, str]) -> RepositoryConfig:
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
            if ran.status or ran.truncated:
                complaint = one_line(ran.stderr) or "it is too long"
                raise ToolError(f"The configuration {path} cannot be read: {complaint}")
            entries = _entries(ran.out)
            _check(entries)
            settings |= {each.key: each.value for each in entries}
        own = RepositoryConfig(settings, _names("filter", settings), _names("hook", settings))
        _check_count(own)
        if sum(len(each) for each in said) <= _LONGEST_REMEMBERED:
            self._own.put(said, own)
        return own

    def look(self, worktree: str) -> Mapping[str, bytes | None]:
        """Return the known user configuration files for this working tree with their contents."""
        known = self._global.get(worktree)
        tops = _global_files()
        return read_files(tops if known is None else {*tops, *known.files})

    async def _read_global(self, place: RepositoryLocation, seen: Mapping[str, bytes | None]) -> Sequence[_ConfigEntry]:
        if not any(seen.values()):
            return ()
        variables, worktree = _variables(), place.worktree
        known = self._global.get(worktree)
        if known is not None and known[:3] == (place.fingerprint, variables, seen):
            return known.entries
        entries = await self._listed(worktree, "--global")
        paths = _sources(worktree, entries)
        if paths is not None and place.fingerprint is not None:
            # A file that was not read before git read it may have changed since, so it counts as changed.
            files = {each: seen.get(each, _UNSEEN) for each in {*_global_files(), *paths}}
            self._global.put(worktree, _CachedGlobalConfig(place.fingerprint, variables, files, entries))
        return entries

    async def _listed(self, worktree: str, scope: str) -> list[_ConfigEntry]:
        # Reading configuration runs nothing, and these files belong to the user.
        env = {**_variables(), "LC_ALL": "C", "GIT_CEILING_DIRECTORIES": os.path.dirname(worktree)}
        words = ["config", scope, "--includes", "--list", "-z", "--show-origin"]
        ran = await self._program.run(words, cwd=worktree, env=env, most=_MOST_BYTES)
        return [] if ran.status or ran.truncated else _with_origins(ran.out)


def forwarded_settings(user: UserConfig, own: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the user settings to forward: those that the repository does not set itself."""
    made = [(key, value) for key, value in user.settings.items() if key not in own]
    return [*made, ("core.excludesfile", user.excludes), *(("safe.directory", each) for each in user.safe)]


def _check(entries: Sequence[_ConfigEntry]) -> None:
    if any(each.key.startswith(("include.", "includeif.")) for each in entries):
        raise ToolError(
            "The repository's own configuration includes other files, which this server does not follow. "
            "Remove include.path and includeIf from it, and put the settings into it instead."
        )
    if not all(each.value.isalnum() for each in entries if each.key == "extensions.refstorage"):
        raise ToolError(
            "extensions.refStorage of the repository names a location for its branches, which this server does not "
            "follow: it may only name a format."
        )


def _check_count(own: RepositoryConfig) -> None:
    if len(own.filters) + len(own.hooks) > _MOST_NAMES:
        raise ToolError(f"The repository's configuration has more than {_MOST_NAMES} filters and hooks; remove some.")


def _variables() -> dict[str, str]:
    # Paths are resolved in the server's folder: git runs in another one, where a repository could provide such a file.
    made = {
        each: said and os.path.abspath(said)
        for each in _LOCATION_VARIABLES
        if (said := os.environ.get(each)) is not None
    }
    if (said := os.environ.get("GIT_CONFIG_NOSYSTEM")) is not None:
        made["GIT_CONFIG_NOSYSTEM"] = said
    return made


def _global_files() -> tuple[str, ...]:
    said = os.environ.get("GIT_CONFIG_GLOBAL")
    if said is not None:
        return (said and os.path.abspath(said),)
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return (os.path.expanduser("~/.gitconfig"), os.path.join(folder, "git", "config"))


def _sources(worktree: str, entries: Sequence[_ConfigEntry]) -> list[str] | None:
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


def _entries(listed: bytes) -> list[_ConfigEntry]:
    return [_ConfigEntry("", key, value) for key, _, value in (each.partition("\n") for each in _text(listed))]


def _with_origins(listed: bytes) -> list[_ConfigEntry]:
    fields = _text(listed)
    pairs = zip(fields[::2], (each.partition("\n") for each in fields[1::2]), strict=False)
    return [_ConfigEntry(origin.removeprefix("file:"), key, value) for origin, (key, _, value) in pairs]


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
