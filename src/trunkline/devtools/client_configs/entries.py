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
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from trunkline.devtools.client_configs.files import APPS
from trunkline.devtools.client_configs.formats import format_of
from trunkline.devtools.client_configs.json_edit import span_of, walk
from trunkline.errors import ConfigError
from trunkline.host.config.spelling import snake
from trunkline.host.state_files import folder_variables
from trunkline.protocol.secret_patterns import hide_secrets, names_secret, secret_path_segments

if TYPE_CHECKING:
    from trunkline.host.config.entry_reader import EntryContext

__all__ = [
    "command_entry",
    "file_name",
    "gateway_entry",
    "masked_diff",
    "masked_entry",
    "masked_text",
    "portable_entry",
    "suggest_name",
    "translate_entry",
    "url_entry",
]

_FLAG = re.compile(r"-{0,2}([A-Za-z_][\w-]*)(=.*)?", re.S)
_SECRET_REFERENCE = re.compile(r"(\$\{[^}]*\})")
_QUERY = re.compile(r"(?<==)[^&#]+")
_USER = re.compile(r"(?<=://)[^\s/?#@]*@")
_MASK = "***"


def masked_text(text: str, path: str = "") -> str:
    """Return the text of a file with everything masked that could be a secret."""
    if not text.strip():
        return text
    if format_of(path) != "json":
        return _masked_lines(text)
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


#: A line of TOML or YAML with a value: everything before the value, the name, and the value.
_LINE_VALUE = re.compile(r"""(\s*(?:- )?["']?([A-Za-z0-9_.-]+)["']?\s*[=:]\s+)(\S.*)""")
_SECTION = re.compile(r"""\s*\[.*?([A-Za-z0-9_-]+)["']?\]\s*|\s*([A-Za-z0-9_-]+)\s*:\s*""")
#: Sections whose values are masked, whatever their names.
_SECRET_SECTIONS = frozenset({"env", "envs", "headers", "http_headers"})


def _masked_lines(text: str) -> str:
    """Mask values in TOML or YAML, line by line."""
    lines = []
    inside: int | None = None
    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip(" "))
        section = _SECTION.fullmatch(line)
        if section is not None:
            name = section.group(1) or section.group(2)
            if inside is None or section.group(1) is not None or depth <= inside:
                inside = depth if name in _SECRET_SECTIONS else None
        elif inside and depth <= inside and line.strip():
            inside = None
        value = _LINE_VALUE.fullmatch(line.rstrip("\r"))
        if value is not None and not line.lstrip().startswith("#"):
            secret = inside is not None or value.group(2) in _SECRET_SECTIONS
            if secret or names_secret(value.group(2), setting=True):
                line = value.group(1) + (value.group(3) if value.group(3) in ("{}", "[]") else f'"{_MASK}"')
        lines.append(_shown_line(line))
    return "\n".join(lines)


def _shown_line(line: str) -> str:
    if "://" in line:
        line = re.sub(r"(?<=[?&])([^=\s\"'&]+=)[^&\s\"'#]+", rf"\1{_MASK}", _USER.sub(f"{_MASK}@", line))
    return hide_secrets(line, _MASK)


def masked_diff(before: str, after: str, name: str) -> str:
    """Return a unified diff of two texts, both masked."""
    lines = difflib.unified_diff(
        masked_text(before, name).splitlines(), masked_text(after, name).splitlines(), name, name, lineterm="", n=2
    )
    return "\n".join(lines)


def masked_entry(entry: Any) -> Any:
    """Return an entry with everything masked that could be a secret; its shape stays the same."""
    return json.loads(masked_text(json.dumps({"entry": entry})))["entry"]


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
        for segment in secret_path_segments(value):
            address = address.replace(segment, _MASK)
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


#: The member that holds a URL, and what else says so; elsewhere it is ``url``, and ``type`` is ``http``.
_URL_MEMBERS: Mapping[str, tuple[str, Mapping[str, str]]] = MappingProxyType(
    {"gemini-cli": ("httpUrl", {}), "codex": ("url", {}), "windsurf": ("serverUrl", {}), "zed": ("url", {})}
)
#: How each application writes a variable of the environment; the others substitute none.
_VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "claude-code": "${%s}",
        "cursor": "${env:%s}",
        "vscode": "${env:%s}",
        "gemini-cli": "${%s}",
        "windsurf": "${env:%s}",
    }
)
#: Applications that start a server only in a directory of their own.
_NO_DIRECTORY = frozenset({"goose", "windsurf", "zed"})
#: Variables that Goose refuses to set for a server, in any case.
_REFUSED_BY_GOOSE = frozenset({"PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "NODE_OPTIONS"})
#: Seconds; Goose wants a number, and this is its own default.
_GOOSE_TIMEOUT = 300


def command_entry(
    app: str, command: Sequence[str], env: Mapping[str, str], *, name: str = "server", cwd: str | None = None
) -> dict[str, Any]:
    """Return the entry of a server that the application starts, in a directory of its own.

    Raises:
        ConfigError: the program is not found, or the application cannot start it like this.
    """
    return _stdio_entry(
        app,
        name,
        {
            "command": _find_program(command[0]),
            "args": list(command[1:]),
            **({"env": dict(env)} if env else {}),
            **({} if cwd is None else {"cwd": os.path.abspath(cwd)}),
        },
    )


def _stdio_entry(app: str, name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a server with a command, in the application's own terms."""
    if app in _NO_DIRECTORY and "cwd" in entry:
        raise ConfigError(f"{name}: {APPS[app]} cannot start a server in another directory; {_GATEWAY} --into {app}")
    if app == "vscode":
        return {"type": "stdio", **entry}
    if app == "zed":
        # Zed needs the list, even an empty one.
        return {"command": entry["command"], "args": entry.get("args", []), "env": entry.get("env", {})}
    if app != "goose":
        return dict(entry)
    env = entry.get("env") or {}
    refused = next((key for key in env if key.upper() in _REFUSED_BY_GOOSE), None)
    if refused is not None:
        raise ConfigError(f"{name}: Goose does not let an entry set {refused}; unset it, or {_GATEWAY} --into {app}")
    return {
        "enabled": True,
        "type": "stdio",
        "name": name,
        "description": "",
        "cmd": entry["command"],
        "args": list(entry.get("args") or ()),
        "envs": dict(env),
        "timeout": _GOOSE_TIMEOUT,
    }


def gateway_entry(
    app: str,
    files: Sequence[str],
    env: Mapping[str, str],
    *,
    approval: str,
    search: str | None = None,
    name: str = "trunkline",
) -> dict[str, Any]:
    """Return the entry of our gateway for these files; its approval mode is explicit, for the user to see.

    Applications pass on few variables, so those that locate its state and configuration are included.
    """
    # -P: modules must not come from the directory in which the application starts it.
    words = [sys.executable, "-P", "-m", "trunkline", "serve", "--approval", approval]
    words += [] if search is None else ["--search", search]
    for file in files:
        words += ["-c", os.path.abspath(file)]
    return command_entry(app, words, {**folder_variables(), **env}, name=name)


def url_entry(app: str, url: str, headers: Mapping[str, str], *, name: str = "server") -> dict[str, Any]:
    """Return the entry of a server at a URL.

    Raises:
        ConfigError: the application does not support URLs.
    """
    if app == "claude-desktop":
        raise ConfigError(
            f"{APPS[app]} does not read URLs from its file; add the URL under Connectors in its settings, or add it "
            f"to your own configuration and {_GATEWAY} --into {app}"
        )
    if app == "goose":
        return {
            "enabled": True,
            "type": "streamable_http",
            "name": name,
            "description": "",
            "uri": url,
            "headers": dict(headers),
            "timeout": _GOOSE_TIMEOUT,
        }
    key, kind = _URL_MEMBERS.get(app, ("url", {"type": "http"}))
    members = {"http_headers" if app == "codex" else "headers": dict(headers)} if headers else {}
    return {**kind, key: url, **members}


def translate_entry(app: str, name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Translate an entry of our own configuration for the application.

    Raises:
        ConfigError: it has a sandbox, or refers to something that the application cannot substitute.
    """
    if raw.get("sandbox") not in (None, False):
        raise ConfigError(f"{name}: {APPS[app]} cannot start a server in a sandbox; {_GATEWAY} --into {app}")
    entry = {key: value for key, value in raw.items() if snake(key) in _REACHING}
    if "url" in entry:
        made = url_entry(app, entry["url"], entry.get("headers") or {}, name=name)
    else:
        made = _stdio_entry(app, name, entry)
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
    if variable is not None and app in _VARIABLES:
        return _VARIABLES[app] % variable.group(1)
    if app == "claude-code" and ":-" in inside and not inside.startswith(("input:", "secret:")):
        return f"${{{inside.removeprefix('env:')}}}"
    raise ConfigError(f"{name}: {APPS[app]} cannot substitute ${{{inside}}}; {_GATEWAY} --into {app}")


def file_name(spec: str) -> str:
    """Return the name of a Python file, given as ``FILE`` or ``FILE:OBJECT``, as the name of its server."""
    return _plain(os.path.basename(spec).partition(":")[0].removesuffix(".py"))


def portable_entry(
    app: str, name: str, raw: Mapping[str, Any], context: EntryContext
) -> tuple[dict[str, Any], list[str]]:
    """Translate an entry of a configuration file with full paths; also return what the user should know about it.

    Raises:
        ConfigError: its program is not found, or the application cannot start it like this.
    """
    entry = _with_full_paths(raw, context)
    known = (*_REACHING, "type")
    unknown = [key for key, value in raw.items() if snake(key) not in known and value not in (None, False)]
    notes = [f"{APPS[app]} does not know {', '.join(unknown)}, so the entry is without that"] if unknown else []
    folder = entry.get("cwd") or os.getcwd()
    words = [word for word in entry.get("args") or () if isinstance(word, str) and word and not os.path.isabs(word)]
    bare = [word for word in words if os.path.exists(os.path.join(folder, word))]
    notes += [f"{word} is kept as it is; if it is a path, write ./{word}" for word in bare]
    return translate_entry(app, name, entry), notes


def _with_full_paths(raw: Mapping[str, Any], context: EntryContext) -> dict[str, Any]:
    """Return an entry with full paths: applications start a server in a folder of their own.

    An argument that has the form of a path and exists in the working directory of the server is a path. Variables for
    folders of the configuration are replaced, since applications do not have them.
    """
    folders = {f"${{{name}}}": path for name, path in context.sources.folders.items()}
    entry = {key: _replaced(value, folders) for key, value in raw.items()}
    for key, value in entry.items():
        if snake(key) in ("cwd", "env_file") and isinstance(value, str) and "${" not in value:
            entry[key] = context.path(value)
    command, args, env = entry.get("command"), entry.get("args"), entry.get("env")
    cwd = entry.get("cwd") or os.getcwd()
    if isinstance(command, str) and "${" not in f"{command}{cwd}":
        program = os.path.join(cwd, command) if os.path.dirname(command) else command
        entry["command"] = _find_program(program, path=env.get("PATH") if isinstance(env, dict) else None)
        if isinstance(args, list):
            entry["args"] = [_full_path(word, cwd) if isinstance(word, str) else word for word in args]
    return entry


def _replaced(value: Any, texts: Mapping[str, str]) -> Any:
    """Replace texts in every string of a JSON value."""
    if isinstance(value, str):
        for text, replacement in texts.items():
            value = value.replace(text, replacement)
        return value
    if isinstance(value, dict):
        return {key: _replaced(member, texts) for key, member in value.items()}
    return [_replaced(item, texts) for item in value] if isinstance(value, list) else value


def _full_path(word: str, folder: str) -> str:
    """Return an argument (PATH, FILE:OBJECT or --option=PATH) with a full path, if its path exists in a folder."""
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    for path, rest in ((value, ""), (value.rpartition(":")[0], ":" + value.rpartition(":")[2])):
        # A bare word such as "run" is rather a command than a folder of that name.
        if ("." in path or "/" in path) and os.path.exists(os.path.join(folder, path)):
            return f"{option}{equals}{os.path.normpath(os.path.join(folder, path))}{rest}"
    return word


def _find_program(name: str, *, path: str | None = None) -> str:
    """Return the full path of a program.

    Raises:
        ConfigError: it is not found.
    """
    program = shutil.which(name, path=path)
    if program is None:
        raise ConfigError(f"command not found: {name}; install it, or give its full path")
    return os.path.abspath(program)


def suggest_name(words: Sequence[str], url: str | None = None) -> str:
    """Derive a name for a server from its command or URL."""
    if url is not None:
        host = urlsplit(url).hostname or "server"
        return _plain(host.removeprefix("www.").removeprefix("mcp."))
    python = [word for word in words if word.partition(":")[0].endswith(".py")]
    if python:
        name = file_name(python[-1])
        parent = os.path.basename(os.path.dirname(os.path.abspath(python[-1])))
        return _plain(parent) if name in ("server", "main", "__main__") and parent else name
    rest = [word for word in words[1:] if not word.startswith("-")]
    package = rest[0] if rest else os.path.basename(words[0])
    bare = package.rpartition("/")[2]
    return _plain(bare.partition("@")[0] if not bare.startswith("@") else bare)


def _plain(text: str) -> str:
    return _WORD.sub("-", text).strip("-")[:64] or "server"
