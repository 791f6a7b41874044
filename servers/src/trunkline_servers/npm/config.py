"""Which registry a package comes from, and with which token.

Npm's settings from the environment, the project's .npmrc and the user's .npmrc, read as data. A project is not
trusted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError, ToolError
from trunkline.net import is_loopback
from trunkline_servers.api_client import read_token, redacted_url
from trunkline_servers.npm.project import read_file
from trunkline_servers.untrusted import one_line

__all__ = [
    "DEFAULT_REGISTRY",
    "ConfigLayers",
    "NpmConfig",
    "RegistryEndpoint",
    "expand_variables",
    "has_variable",
    "parse_npmrc",
]

_VARIABLE = re.compile(r"(?<!\\)(?P<escapes>\\*)\$\{(?P<name>[^${}?]+)(?P<optional>\??)\}")
_LINES = re.compile(r"[\r\n]+")


def parse_npmrc(text: str) -> dict[str, str]:
    """Parse settings by name, the last one wins; sections and lists are skipped."""
    found: dict[str, str] = {}
    for raw in _LINES.split(text.removeprefix("\ufeff")):
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            break  # For npm everything after this belongs to the section.
        name, equals, value = line.partition("=")
        if equals and not line.startswith((";", "#")) and not name.rstrip().endswith("[]"):
            found[_plain(name)] = _plain(value)
    return found


def expand_variables(text: str, environ: Mapping[str, str]) -> str:
    """Expand variables: an unset one stays as written, or becomes empty if its name ends with a question mark."""

    def fill(found: re.Match[str]) -> str:
        escapes = found["escapes"]
        if len(escapes) % 2:
            return found[0][(len(escapes) + 1) // 2 :]
        kept = "" if found["optional"] else f"${{{found['name']}}}"
        return escapes[: len(escapes) // 2] + environ.get(found["name"], kept)

    return _VARIABLE.sub(fill, text)


def has_variable(text: str) -> bool:
    """Return True if a text contains a variable."""
    return _VARIABLE.search(text) is not None


def _plain(text: str) -> str:
    """Remove quotes, escapes and a trailing comment."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return _unquoted(text)
    kept: list[str] = []
    escaped = False
    for each in text:
        if escaped:
            kept.append(each if each in "\\;#" else f"\\{each}")
            escaped = False
        elif each in ";#":
            break
        elif each == "\\":
            escaped = True
        else:
            kept.append(each)
    return "".join([*kept, "\\" if escaped else ""]).strip()


def _unquoted(text: str) -> str:
    inner = text[1:-1] if text[0] == "'" else text
    try:
        value = msgspec.json.decode(inner)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return inner
    return value if isinstance(value, str) else inner


#: The default registry of npm.
DEFAULT_REGISTRY = "https://registry.npmjs.org"

_PREFIX = "npm_config_"
_TOKEN = ":_authtoken"
_FILE_BYTES = 256 * 1024


class RegistryEndpoint(Struct, frozen=True):
    """A registry, its token, and whether a project named it."""

    url: str
    token: str | None = None
    from_project: bool = False


class NpmConfig:
    """The registry settings of the environment, projects and the user."""

    def __init__(self, environ: Mapping[str, str], *, registry: str | None = None, token: str | None = None) -> None:
        """Initialize with the environment; ``registry`` overrides all others, ``token`` is for the user's registry."""
        self._environ = environ
        self._registry = registry
        self._token = token

    def read(self, folder: Path | None = None) -> ConfigLayers:
        """Read the current settings, for the project in a folder if there is one.

        Raises:
            ToolError: a file cannot be read.
        """
        if self._registry is not None:
            return ConfigLayers({"registry": self._registry}, {}, {}, folder=None, token=self._token)
        environment = _from_environment(self._environ)
        file = self._users_file(environment.get("userconfig"))
        # The user's own file is not a project file.
        project = {} if folder is None or folder / ".npmrc" == file else _project_registries(folder)
        return ConfigLayers(environment, project, self._of_user(file), folder=folder, token=self._token)

    def _users_file(self, named: str | None) -> Path | None:
        """Return the path of the user's settings, with its folder resolved."""
        home = self._environ.get("HOME") or self._environ.get("USERPROFILE")
        if named and home and named.startswith("~/"):
            named = f"{home}/{named[2:]}"
        file = Path(named) if named else Path(home) / ".npmrc" if home else None
        return None if file is None else Path(os.path.realpath(file.parent)) / file.name

    def _of_user(self, file: Path | None) -> dict[str, str]:
        if file is None or str(file) == os.devnull:
            return {}
        # The user's own file may be a link, as it often is.
        lines = _read_npmrc(Path(os.path.realpath(file)))
        return {
            _name(expand_variables(name, self._environ)): expand_variables(value, self._environ)
            for name, value in lines.items()
        }


class ConfigLayers:
    """The settings of one call by origin, and the registry that follows from them."""

    def __init__(
        self,
        environment: Mapping[str, str],
        project: Mapping[str, str],
        user: Mapping[str, str],
        *,
        folder: Path | None,
        token: str | None,
    ) -> None:
        """Initialize with the settings; the environment overrides the project, and the project overrides the user."""
        self._layers = (
            (environment, "the environment", False),
            (project, f"the .npmrc of {folder}", True),
            (user, "the user's .npmrc", False),
        )
        self._trusted = (environment, user)
        self._token = token

    def place(self, package: str | None = None) -> RegistryEndpoint:
        """Return the registry of a package, or the default one for requests without a package, such as a search.

        Raises:
            ToolError: the configured registry cannot be used.
        """
        scope = package.partition("/")[0] if package is not None and package.startswith("@") else None
        for name in (f"{scope}:registry", "registry") if scope else ("registry",):
            for layer, where, from_project in self._layers:
                if layer.get(name):
                    url = _checked(layer[name], f"{where} ({name})", from_project=from_project)
                    return RegistryEndpoint(url, self._token_for(url), from_project)
        return RegistryEndpoint(DEFAULT_REGISTRY, self._token_for(DEFAULT_REGISTRY))

    def _token_for(self, url: str) -> str | None:
        """Return the token that the user set for this host, or for a parent path of the registry."""
        own = next((layer["registry"] for layer in self._trusted if layer.get("registry")), DEFAULT_REGISTRY)
        if self._token is not None and own.rstrip("/") == url.rstrip("/"):
            return self._token
        for key in _keys(url):
            for layer in self._trusted:
                if found := layer.get(key + _TOKEN):
                    # An unset variable means no token.
                    return None if has_variable(found) else _read(found, f"{key}/:_authToken")
        return None


def _project_registries(folder: Path) -> dict[str, str]:
    """Return the registry settings of a project, and nothing else."""
    return {name: value for name, value in _read_npmrc(folder / ".npmrc").items() if _is_registry(name)}


def _read_npmrc(path: Path) -> dict[str, str]:
    content = read_file(path.parent, path.name, _FILE_BYTES)
    return {} if content is None else parse_npmrc(content.decode(errors="replace"))


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings in the environment; npm ignores the case of their names."""
    found: dict[str, str] = {}
    for name, value in environ.items():
        if name[: len(_PREFIX)].lower() == _PREFIX and value:
            rest = name[len(_PREFIX) :]
            key = rest if rest.startswith("//") else rest[:1].lower() + rest[1:].lower().replace("_", "-")
            found[_name(key)] = expand_variables(value, environ)
    return found


def _name(name: str) -> str:
    """Normalize the name of a setting for lookup: lower-case host, no trailing slash."""
    if not name.startswith("//"):
        return name
    place, _, setting = name.rpartition(":")
    host, slash, path = place[2:].partition("/")
    return f"//{host.lower()}{slash}{path}".rstrip("/") + f":{setting.lower()}"


def _is_registry(name: str) -> bool:
    return name == "registry" or (name.startswith("@") and name.endswith(":registry"))


def _keys(url: str) -> Iterator[str]:
    """Yield the keys that a token may be set for: the registry, its parent paths, its host."""
    parts = urlsplit(url)
    # The default port is omitted.
    port = None if parts.port == {"https": 443, "http": 80}.get(parts.scheme) else parts.port
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname
    key = f"//{host}{'' if port is None else f':{port}'}{parts.path}".rstrip("/")
    while key.count("/") > 1:
        yield key
        key = key.rpartition("/")[0].rstrip("/")


def _checked(url: str, where: str, *, from_project: bool) -> str:
    """Return the URL of a registry if it is usable.

    Raises:
        ToolError: it is invalid, or a project may not choose it.
    """
    shown = one_line(redacted_url(url), 200)
    if has_variable(url):
        why = "variables are not expanded for a project" if from_project else "a variable in it is not set"
        raise ToolError(f"The registry {shown!r} of {where} is not used: {why}. {_fix()}")
    try:
        parts = urlsplit(url)
        secure = parts.scheme == "https" or not from_project or is_loopback(parts.hostname, below=False)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    odd = not url.isprintable() or any(each in url for each in " \\@?#")
    if not usable or odd or _climbs(parts.path):
        raise ToolError(f"The registry {shown!r} of {where} is not a URL such as https://npm.example.com. {_fix()}")
    if not secure:
        raise ToolError(f"The registry {shown!r} of {where} is not used: it must start with https://. {_fix()}")
    return url


def _climbs(path: str) -> bool:
    """Return True if a path contains ``..`` after unquoting once or twice, or without path parameters."""
    names = re.split(r"[/\\]", unquote(unquote(path)))
    return any(each.partition(";")[0] in (".", "..") for each in names)


def _fix() -> str:
    return "Change it, or start this server with --registry"


def _read(token: str, what: str) -> str | None:
    try:
        return read_token(token, what)
    except ConfigError as error:
        raise ToolError(str(error)) from None
