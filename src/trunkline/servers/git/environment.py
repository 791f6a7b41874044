"""The environment that git runs with, so that no program named by a repository is ever run.

Git always reads the repository's own configuration, but settings from the environment come later and win. So every
setting that names a program is overridden here: hooks, monitors, filters, editors, pagers, signers, transports. Git
does not read the user's configuration at all; the few settings that are data are forwarded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

__all__ = ["environment", "filter_settings", "hook_settings", "with_hooks"]

#: A path where nothing exists, for files and folders alike.
_NOWHERE = os.devnull
_HOOKS = "core.hookspath"

#: Set on every run. Programs are disabled, output has git's default format, nothing is fetched. The index is read
#: sequentially: its offset table and its untracked cache could lead to other names than those that were checked.
_FIXED: Mapping[str, str] = MappingProxyType(
    {
        _HOOKS: _NOWHERE,
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
_VARIABLES: Mapping[str, str] = MappingProxyType(
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


def _numbered(settings: Iterable[tuple[str, str]], first: int) -> dict[str, str]:
    """Return settings as numbered ``GIT_CONFIG_*`` variables, starting at ``first``."""
    made: dict[str, str] = {}
    for number, (key, value) in enumerate(settings, first):
        made[f"GIT_CONFIG_KEY_{number}"] = key
        made[f"GIT_CONFIG_VALUE_{number}"] = value
    return made


_FIXED_VARIABLES: Mapping[str, str] = MappingProxyType(_numbered(_FIXED.items(), 0))
#: Passed on from the server's environment: data about the user, the clock and the system.
_PASSED = (
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


def environment(worktree: str, settings: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """Return the environment for git in a working tree, with ``settings`` in addition to the forced ones."""
    made = {name: value for name in _PASSED if (value := os.environ.get(name)) is not None}
    made |= _VARIABLES
    made |= _FIXED_VARIABLES
    made["GIT_WORK_TREE"] = worktree
    made["GIT_CEILING_DIRECTORIES"] = os.path.dirname(worktree)
    made["GIT_CONFIG_COUNT"] = str(len(_FIXED) + len(settings))
    return made | _numbered(settings, len(_FIXED))


def with_hooks(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a command that may run the repository's hooks, which need programs."""
    made = dict(env)
    del made["GIT_EXEC_PATH"]
    for name in ("PATH", "HOME", "USER", "LOGNAME", "SHELL"):
        if (value := os.environ.get(name)) is not None:
            made[name] = value
    for number in range(int(env["GIT_CONFIG_COUNT"])):
        key = env[f"GIT_CONFIG_KEY_{number}"]
        if key == _HOOKS or key.startswith("hook."):
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
