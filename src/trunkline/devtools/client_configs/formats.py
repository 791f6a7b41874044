"""One entry of an application's file, in the format of the file: JSON with comments, TOML or YAML.

Each format has an editor that changes this entry and keeps the rest of the text as it is; a text that an editor cannot
change safely is rejected. No I/O.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from trunkline.devtools.client_configs.documents import with_member
from trunkline.devtools.client_configs.json_edit import put_member, remove_member
from trunkline.errors import ConfigError
from trunkline.host.config.jsonc import InvalidJson, parse_jsonc, to_python

__all__ = ["format_of", "parse_document", "put_server", "remove_server", "render_server"]
T = TypeVar("T")


def format_of(path: str) -> str:
    """Return the format of a file by its name: json, toml or yaml."""
    return "toml" if path.endswith(".toml") else "yaml" if path.endswith((".yaml", ".yml")) else "json"


def parse_document(text: str, path: str, key_path: tuple[str, ...]) -> Any:
    """Parse the text of a file; of YAML, only the mapping at the key path.

    Raises:
        ConfigError: it cannot be parsed.
    """
    kind = format_of(path)
    if not text.strip():
        return {}
    if kind == "yaml":
        return {key_path[0]: _located(path, lambda: _yaml().parse_entries(text, key_path[0]))}
    if kind == "toml":
        return _located(path, lambda: _toml().parse_toml(text))
    try:
        return to_python(parse_jsonc(text))
    except InvalidJson as error:
        raise ConfigError(f"{path}:{error.line}:{error.column}: the file is not JSON: {error}") from error


def put_server(text: str, path: str, key_path: tuple[str, ...], name: str, entry: Mapping[str, Any]) -> str:
    """Return the text of a file with a server set, replacing one of that name.

    Raises:
        ConfigError: the text cannot be changed safely.
    """
    kind = format_of(path)
    if kind == "json":
        return _located(path, lambda: put_member(text, key_path, name, dict(entry)))
    if kind == "toml":
        return _located(path, lambda: str(_toml().put_table(text, key_path, name, entry)))
    return _located(path, lambda: str(_yaml().put_entry(text, key_path[0], name, entry)))


def remove_server(text: str, path: str, key_path: tuple[str, ...], name: str) -> str:
    """Return the text of a file without a server.

    Raises:
        ConfigError: the text cannot be changed safely.
    """
    kind = format_of(path)
    if kind == "json":
        return _located(path, lambda: remove_member(text, key_path, name))
    if kind == "toml":
        return _located(path, lambda: str(_toml().remove_table(text, key_path, name)))
    return _located(path, lambda: str(_yaml().remove_entry(text, key_path[0], name)))


def render_server(path: str, key_path: tuple[str, ...], name: str, entry: Mapping[str, Any]) -> str:
    """Return an entry as a document of its own, which shows where in the file it belongs."""
    kind = format_of(path)
    if kind == "toml":
        return str(_toml().render_table(key_path, name, entry))
    if kind == "yaml":
        return str(_yaml().render_entry(key_path[0], name, entry))
    return json.dumps(with_member({}, (*key_path, name), entry), indent=2, ensure_ascii=False) + "\n"


def _located(path: str, change: Callable[[], T]) -> T:
    """Name the file in the message of an error."""
    try:
        return change()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


# Most files are JSON, so the other editors are imported when they are needed.


def _toml() -> Any:
    from trunkline.devtools.client_configs import toml_edit

    return toml_edit


def _yaml() -> Any:
    from trunkline.devtools.client_configs import yaml_edit

    return yaml_edit
