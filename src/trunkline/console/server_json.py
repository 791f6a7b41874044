"""Parses ``server.json`` of the official registry into ``mcpServers`` entries with placeholders to fill in.

A ``server.json`` describes how a server is published: as packages (npm, PyPI, container images, NuGet) with arguments
and variables, and as remote URLs with headers. Each becomes a choice: an entry in which ``{name}`` stands for a value
that the user enters, and the list of these values. The file is untrusted. Its commands are built from a table of
package runners, never from a program that the file names, and its texts must not refer to the user's variables or
secrets (``${...}``, ``secret://``), which would be sent to the server. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.host.config.spelling import snake

__all__ = ["RegistryChoice", "RegistryInput", "RegistryServer", "fill_in", "parse_server_json"]

_MOST_WAYS = 20  # Packages and remotes of one server; real ones have up to five.
_MOST_INPUTS = 100  # Inputs of one choice; real ones have up to twenty.
_LONGEST = 4096  # Characters of one text: longer than any path, URL or description.
_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_REFERENCE = re.compile(r"\$\{|secret://")
_PLAIN_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
#: The runners of each kind of package; the first is the default.
_RUNNERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "npm": ("npx", "bunx", "pnpx"),
        "pypi": ("uvx", "pipx"),
        "oci": ("docker", "podman", "nerdctl"),
        "nuget": ("dnx",),
    }
)
_OLD_NAMES: Mapping[str, str] = MappingProxyType({"docker": "oci"})
_DOCKER_HUB = ("", "docker.io", "index.docker.io", "hub.docker.com")


class RegistryInput(Struct, frozen=True, kw_only=True):
    """A value that the user enters."""

    #: The name of the placeholder.
    name: str
    description: str = ""
    required: bool = False
    secret: bool = False
    default: str | None = None
    #: The values to choose from; empty for any.
    choices: tuple[str, ...] = ()


class RegistryChoice(Struct, frozen=True, kw_only=True):
    """One way to run the server or connect to it."""

    label: str
    #: An ``mcpServers`` entry with placeholders.
    entry: dict[str, Any]
    inputs: tuple[RegistryInput, ...] = ()


class RegistryServer(Struct, frozen=True, kw_only=True):
    """A server as the registry describes it."""

    #: A name for the configuration, and the name in the registry.
    name: str
    id: str
    description: str
    choices: tuple[RegistryChoice, ...]
    #: The packages and remotes that cannot be used, with reasons.
    notes: tuple[str, ...] = ()


class _Unusable(Exception):
    """A package or remote cannot be used; the message has the reason."""


def parse_server_json(text: str | bytes) -> RegistryServer:
    """Parse a ``server.json``, or the response of a registry that holds one.

    Raises:
        ConfigError: it is not such a document, or no package or remote in it can be used.
    """
    document = _document(text)
    id = _text(document.get("name"), "the name")
    if not id:
        raise ConfigError("the document has no name: is it a server.json?")
    choices: list[RegistryChoice] = []
    notes: list[str] = []
    ways = [(_package, each) for each in _objects(document, "packages")]
    ways += [(_remote, each) for each in _objects(document, "remotes")]
    for build, raw in ways[:_MOST_WAYS]:
        try:
            choices.append(build(raw))
        except _Unusable as reason:
            notes.append(str(reason))
    if not choices:
        why = "; ".join(notes) or "it names neither a package nor a remote URL"
        raise ConfigError(f"{id} cannot be added: {why}")
    return RegistryServer(
        name=_PLAIN_NAME.sub("-", id.rpartition("/")[2]).strip("-.")[:64] or "server",
        id=id,
        description=_text(document.get("description"), "the description") or "",
        choices=tuple(choices),
        notes=tuple(notes),
    )


def fill_in(entry: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """Return an entry with its placeholders replaced; an argument with an empty value is left out, with its flag."""
    filled: dict[str, Any] = {}
    for name, member in entry.items():
        if isinstance(member, dict):
            pairs = {key: _filled(value, values) for key, value in member.items()}
            member = {key: value for key, value in pairs.items() if value is not None}
            if not member:
                continue
        elif isinstance(member, list):
            member = [*_filled_words(member, values)]
        elif isinstance(member, str):
            member = _filled(member, values) or ""
        filled[name] = member
    return filled


def _filled_words(words: Sequence[Any], values: Mapping[str, str]) -> Iterator[Any]:
    for at, word in enumerate(words):
        value = _filled(word, values)
        following = words[at + 1] if at + 1 < len(words) else None
        is_flag = isinstance(word, str) and word.startswith("-") and "=" not in word
        if value is None or (is_flag and _is_placeholder(following) and _filled(following, values) is None):
            continue
        yield value


def _is_placeholder(word: Any) -> bool:
    return isinstance(word, str) and _PLACEHOLDER.search(word) is not None


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    """Return a text with its placeholders replaced; None if a value is empty."""
    if not isinstance(value, str):
        return value
    if any(name in values and not values[name] for name in _PLACEHOLDER.findall(value)):
        return None
    return _PLACEHOLDER.sub(lambda found: values.get(found.group(1), found.group()), value)


# --- the document ----------------------------------------------------------------------------------------------------


def _document(text: str | bytes) -> Mapping[str, Any]:
    try:
        found = _snaked(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ConfigError(f"the document is not JSON: {error}") from error
    servers = found.get("servers") if isinstance(found, dict) else None
    if isinstance(servers, list):
        if len(servers) != 1:
            raise ConfigError(f"the document has {len(servers)} servers; enter the address of one of them")
        found = servers[0]
    if isinstance(found, dict) and isinstance(found.get("server"), dict):
        found = found["server"]
    if not isinstance(found, dict):
        raise ConfigError("the document is not an object: is it a server.json?")
    return found


def _snaked(value: Any) -> Any:
    """Return a document with snake_case members: registries have used ``registryType`` and ``registry_type``."""
    if isinstance(value, dict):
        # The keys of these objects are names of variables, not members of the format.
        return {
            snake(name): dict(each) if snake(name) == "variables" and isinstance(each, dict) else _snaked(each)
            for name, each in value.items()
        }
    return [_snaked(each) for each in value] if isinstance(value, list) else value


def _objects(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = document.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _text(value: Any, what: str) -> str | None:
    """Return a string of the document.

    Raises:
        ConfigError: it is not a string, or too long.
    """
    if value is None:
        return None
    if isinstance(value, bool | int | float):
        value = str(value).lower() if isinstance(value, bool) else str(value)
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise ConfigError(f"{what} is not a string of at most {_LONGEST} characters")
    return value


def _literal(value: Any, what: str) -> str | None:
    """Return a string that becomes part of an entry; it must not refer to variables or secrets of the user."""
    text = _text(value, what)
    if text is not None and _REFERENCE.search(text):
        raise _Unusable(f"{what} refers to one of your variables or secrets ({text[:60]})")
    return text


# --- inputs ----------------------------------------------------------------------------------------------------------


class _Placeholders:
    """The placeholders of one entry."""

    def __init__(self) -> None:
        self.inputs: dict[str, RegistryInput] = {}

    def value(self, raw: Mapping[str, Any], name: str) -> str:
        """Return a value of the entry: fixed, with variables, or one placeholder."""
        fixed = _literal(raw.get("value"), name)
        variables = raw.get("variables")
        if fixed is None:
            return self._placeholder(name, raw)
        declared = variables if isinstance(variables, dict) else {}
        for placeholder in _PLACEHOLDER.findall(fixed):
            if isinstance(declared.get(placeholder), dict):
                self._placeholder(placeholder, _snaked(declared[placeholder]))
        return fixed

    def text(self, text: str, variables: Any) -> str:
        """Return a text with variables, such as a URL."""
        return self.value({"value": text, "variables": variables}, "the URL")

    def _placeholder(self, name: str, raw: Mapping[str, Any]) -> str:
        name = _PLACEHOLDER.sub(r"\1", name).strip("{}")
        if len(self.inputs) >= _MOST_INPUTS:
            raise _Unusable(f"it has more than {_MOST_INPUTS} values to fill in")
        choices = raw.get("choices")
        self.inputs[name] = RegistryInput(
            name=name,
            description=_text(raw.get("description"), name) or "",
            required=raw.get("is_required") is True,
            secret=raw.get("is_secret") is True,
            default=_literal(raw.get("default"), name),
            choices=tuple(_literal(each, name) or "" for each in choices) if isinstance(choices, list) else (),
        )
        return f"{{{name}}}"


# --- packages --------------------------------------------------------------------------------------------------------


def _package(raw: Mapping[str, Any]) -> RegistryChoice:
    said = _text(raw.get("registry_type") or raw.get("registry_name"), "registryType") or ""
    kind = _OLD_NAMES.get(said, said)
    name = _literal(raw.get("identifier") or raw.get("name"), "identifier") or ""
    if kind not in _RUNNERS:
        raise _Unusable(f"{name or 'a package'} is of the type {said or 'unknown'}, which is not supported")
    if not name or name.startswith("-"):
        raise _Unusable("a package has no valid identifier")
    transport = raw.get("transport")
    carried = transport.get("type", "stdio") if isinstance(transport, dict) else "stdio"
    if carried != "stdio":
        raise _Unusable(f"{name} runs as a service ({carried}), not over stdio")
    hint = raw.get("runtime_hint")
    runner = hint if hint in _RUNNERS[kind] else _RUNNERS[kind][0]
    placeholders = _Placeholders()
    env = {
        key: placeholders.value(each, key)
        for each in _objects(raw, "environment_variables")
        if (key := _literal(each.get("name"), "the name of a variable"))
    }
    before = [*_words(raw, "runtime_arguments", placeholders)]
    after = [*_words(raw, "package_arguments", placeholders)]
    version = _literal(raw.get("version"), "version")
    base = _text(raw.get("registry_base_url"), "registryBaseUrl") or ""
    args = _ARGUMENTS[kind](runner, _Package(name, version, base, before, after, tuple(env)))
    entry: dict[str, Any] = {"command": runner, "args": args, **({"env": env} if env else {})}
    return RegistryChoice(label=f"{name} ({runner})", entry=entry, inputs=tuple(placeholders.inputs.values()))


class _Package(Struct, frozen=True):
    """A package, with its own arguments and those of its runner."""

    name: str
    version: str | None
    base: str
    before: list[str]
    after: list[str]
    env: tuple[str, ...]

    def versioned(self, sign: str) -> str:
        """Return the package name with its version."""
        return self.name if self.version in (None, "", "latest") else f"{self.name}{sign}{self.version}"


def _npm(runner: str, package: _Package) -> list[str]:
    # Without it, npx asks whether to install the package, and reads the answer from the protocol's pipe.
    silent = ["-y"] if runner == "npx" and not {"-y", "--yes"} & set(package.before) else []
    return [*silent, *package.before, package.versioned("@"), *package.after]


def _pypi(runner: str, package: _Package) -> list[str]:
    if runner == "pipx":
        return ["run", *package.before, package.versioned("=="), *package.after]
    return [*package.before, package.versioned("@"), *package.after]


def _oci(runner: str, package: _Package) -> list[str]:
    host = package.base.partition("://")[2].strip("/") or package.base.strip("/")
    image = package.versioned(":")
    last = package.name.rpartition("/")[2]
    if ":" in last or "@" in last:
        image = package.name
    if host not in _DOCKER_HUB and not image.startswith(f"{host}/"):
        image = f"{host}/{image}"
    named = [word for name in package.env for word in ("-e", name)]
    return ["run", "-i", "--rm", *package.before, *named, image, *package.after]


def _nuget(runner: str, package: _Package) -> list[str]:
    own = ["--", *package.after] if package.after else []
    return [package.versioned("@"), "--yes", *package.before, *own]


_ARGUMENTS = MappingProxyType({"npm": _npm, "pypi": _pypi, "oci": _oci, "nuget": _nuget})


def _words(raw: Mapping[str, Any], name: str, placeholders: _Placeholders) -> Iterator[str]:
    """Yield the command-line words of a list of arguments."""
    for each in _objects(raw, name):
        flag = _literal(each.get("name"), "the name of an argument") if each.get("type") == "named" else None
        if flag is not None:
            yield flag
        hint = _text(each.get("value_hint"), "valueHint") or (flag or "").lstrip("-") or "argument"
        if flag is not None and not ({"value", "value_hint", "default", "choices", "is_required"} & set(each)):
            # A flag without a value, such as --verbose.
            continue
        yield placeholders.value(each, hint)


def _remote(raw: Mapping[str, Any]) -> RegistryChoice:
    kind = _text(raw.get("type") or raw.get("transport_type"), "the type of a remote") or "streamable-http"
    url = _literal(raw.get("url"), "the URL")
    if not url or not url.lower().startswith(("https://", "http://")):
        raise _Unusable("a remote has no http URL")
    placeholders = _Placeholders()
    address = placeholders.text(url, raw.get("variables"))
    entry: dict[str, Any] = {"type": "sse" if kind == "sse" else "http", "url": address}
    headers = {
        key: placeholders.value(each, key)
        for each in _objects(raw, "headers")
        if (key := _literal(each.get("name"), "the name of a header"))
    }
    if headers:
        entry["headers"] = headers
    return RegistryChoice(label=f"{url} ({kind})", entry=entry, inputs=tuple(placeholders.inputs.values()))
