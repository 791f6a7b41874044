"""Builds the entry for another application: a command with full paths, a URL, or one of our entries translated.

Applications substitute variables in different ways, and none knows our secrets, so an entry that refers to something
the application cannot substitute is rejected, with an alternative. Programs are looked up, but nothing is started.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from trunkline.errors import ConfigError
from trunkline.host.apps.places import APPS
from trunkline.host.config.spelling import snake
from trunkline.host.folders import folder_variables

__all__ = ["command_entry", "gateway_entry", "name_for", "own_entry", "url_entry"]

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)")
_WORD = re.compile(r"[^A-Za-z0-9_-]+")
_REACHING = ("command", "args", "env", "env_file", "cwd", "url", "headers")
_GATEWAY = "install the gateway instead: trunkline install --gateway -c FILE"


def command_entry(
    app: str, command: Sequence[str], env: Mapping[str, str], *, cwd: str | None = None
) -> dict[str, Any]:
    """Return the entry of a server that the application starts, in a directory of its own.

    Raises:
        ConfigError: the program is not found.
    """
    program = shutil.which(command[0])
    if program is None:
        raise ConfigError(f"command not found: {command[0]}; install it, or give its full path")
    entry: dict[str, Any] = {"type": "stdio"} if app == "vscode" else {}
    entry |= {"command": os.path.abspath(program), "args": list(command[1:])}
    if env:
        entry["env"] = dict(env)
    if cwd is not None:
        entry["cwd"] = os.path.abspath(cwd)
    return entry


def gateway_entry(app: str, files: Sequence[str], env: Mapping[str, str], *, approval: str) -> dict[str, Any]:
    """Return the entry of our gateway for these files; its approval mode is explicit, for the user to see.

    Applications pass on few variables, so those that locate its state and configuration are included.
    """
    # -P: modules must not come from the directory in which the application starts it.
    words = [sys.executable, "-P", "-m", "trunkline", "serve", "--approval", approval]
    for file in files:
        words += ["-c", os.path.abspath(file)]
    return command_entry(app, words, {**folder_variables(), **env})


def url_entry(app: str, url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry of a server at a URL.

    Raises:
        ConfigError: the application does not support URLs.
    """
    if app == "claude-desktop":
        raise ConfigError(
            f"{APPS[app]} does not read URLs from its file; add the URL under Connectors in its settings, or add it "
            f"to your own configuration and {_GATEWAY} --into {app}"
        )
    entry: dict[str, Any] = {"type": "http", "url": url}
    return {**entry, "headers": dict(headers)} if headers else entry


def own_entry(app: str, name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Translate an entry of our own configuration for the application.

    Raises:
        ConfigError: it refers to something that the application cannot substitute.
    """
    entry = {key: value for key, value in raw.items() if snake(key) in _REACHING}
    if "url" in entry:
        made = url_entry(app, entry["url"], entry.get("headers") or {})
    else:
        made = {**({"type": "stdio"} if app == "vscode" else {}), **entry}
    translated: dict[str, Any] = _translated(made, app, name)
    return translated


def _translated(value: Any, app: str, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _translated(each, app, name) for key, each in value.items()}
    if isinstance(value, list):
        return [_translated(each, app, name) for each in value]
    if not isinstance(value, str):
        return value
    if value.startswith("secret://"):
        raise ConfigError(f"{name}: {APPS[app]} cannot read your stored secrets; {_GATEWAY} --into {app}")
    return _REFERENCE.sub(lambda found: _reference(found.group(1), app, name), value)


def _reference(inside: str, app: str, name: str) -> str:
    variable = _VARIABLE.fullmatch(inside)
    if variable is not None and app != "claude-desktop":
        return f"${{{variable.group(1)}}}" if app == "claude-code" else f"${{env:{variable.group(1)}}}"
    if app == "claude-code" and ":-" in inside and not inside.startswith(("input:", "secret:")):
        return f"${{{inside.removeprefix('env:')}}}"
    raise ConfigError(f"{name}: {APPS[app]} cannot substitute ${{{inside}}}; {_GATEWAY} --into {app}")


def name_for(words: Sequence[str], url: str | None = None) -> str:
    """Derive a name for a server from its command or URL."""
    if url is not None:
        host = urlsplit(url).hostname or "server"
        return _plain(host.removeprefix("www.").removeprefix("mcp."))
    python = [word for word in words if word.partition(":")[0].endswith(".py")]
    if python:
        stem = os.path.splitext(os.path.basename(python[-1].partition(".py")[0] + ".py"))[0]
        parent = os.path.basename(os.path.dirname(os.path.abspath(python[-1])))
        return _plain(parent if stem in ("server", "main", "__main__") and parent else stem)
    rest = [word for word in words[1:] if not word.startswith("-")]
    package = rest[0] if rest else os.path.basename(words[0])
    bare = package.rpartition("/")[2]
    return _plain(bare.partition("@")[0] if not bare.startswith("@") else bare)


def _plain(text: str) -> str:
    return _WORD.sub("-", text).strip("-")[:64] or "server"
