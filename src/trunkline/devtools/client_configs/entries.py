"""Entries of other applications' configuration files: masked before they are shown, and built from ours.

Masked are strings under names that indicate a secret, all headers, values of secret arguments, credentials and query
values in URLs, and whatever looks like a secret by itself. References to variables are not secrets. No I/O.

An entry for another application is a command with full paths, a URL, or one of our entries translated. Applications
substitute variables in different ways, and none knows our secrets, so an entry that refers to something the application
cannot substitute is rejected, with an alternative. Programs are looked up, but nothing is started.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from trunkline.devtools.client_configs.files import APPS
from trunkline.devtools.client_configs.json_edit import span_of, walk
from trunkline.errors import ConfigError
from trunkline.host.config.spelling import snake
from trunkline.host.state_files import folder_variables
from trunkline.protocol.secret_patterns import hide_secrets, names_secret

__all__ = [
    "command_entry",
    "gateway_entry",
    "masked_diff",
    "masked_text",
    "suggest_name",
    "translate_entry",
    "url_entry",
]

_FLAG = re.compile(r"-{0,2}([A-Za-z_][\w-]*)(=.*)?", re.S)
_SECRET_REFERENCE = re.compile(r"(\$\{[^}]*\})")
_QUERY = re.compile(r"(?<==)[^&#]+")
_USER = re.compile(r"(?<=://)[^\s/?#@]*@")
_MASK = "***"


def masked_text(text: str) -> str:
    """Return a JSON text with everything masked that could be a secret."""
    if not text.strip():
        return text
    pieces: list[str] = []
    at = 0
    before = ""
    for key_path, span in walk(span_of(text)):
        if not text.startswith('"', span.start) or not key_path:
            continue
        value: str = json.loads(text[span.start : span.end], strict=False)
        shown = _shown(key_path, value, before)
        before = value if isinstance(key_path[-1], int) else ""
        if shown != value:
            pieces += (text[at : span.start], json.dumps(shown))
            at = span.end
    return "".join([*pieces, text[at:]])


def masked_diff(before: str, after: str, name: str) -> str:
    """Return a unified diff of two texts, both masked."""
    lines = difflib.unified_diff(
        masked_text(before).splitlines(), masked_text(after).splitlines(), name, name, lineterm="", n=2
    )
    return "\n".join(lines)


def _shown(key_path: tuple[Any, ...], value: str, before: str) -> str:
    names = [part for part in key_path if isinstance(part, str)]
    if "headers" in names[:-1] or any(names_secret(name, setting=True) for name in names[-1:]):
        return _masked(value)
    if isinstance(key_path[-1], int):
        flag, own = _FLAG.fullmatch(before), _FLAG.fullmatch(value)
        if (
            flag is not None
            and before.startswith("-")
            and "=" not in before
            and names_secret(flag.group(1), setting=True)
        ):
            return _masked(value)
        if own is not None and own.group(2) and names_secret(own.group(1), setting=True):
            return f"{value.partition('=')[0]}={_MASK}"
    if "://" in value:
        address, mark, query = _USER.sub(f"{_MASK}@", value).partition("?")
        value = address + mark + _QUERY.sub(_MASK, query)
    parts = _SECRET_REFERENCE.split(value)
    return "".join(part if at % 2 else hide_secrets(part, _MASK) for at, part in enumerate(parts))


def _masked(value: str) -> str:
    """Mask a value, unless it consists only of references, with an optional scheme such as Bearer."""
    rest = _SECRET_REFERENCE.sub("", value).strip()
    return value if not rest or rest.lower() in ("bearer", "basic", "token") or "secret://" in value else _MASK


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


def translate_entry(app: str, name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
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


def suggest_name(words: Sequence[str], url: str | None = None) -> str:
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
