"""Loads scripts for the scripted model from TOML or JSON files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trunkline.errors import ConfigError
from trunkline.host.models.interface import Traits
from trunkline.host.models.known import traits_of
from trunkline.host.models.scripted import ScriptedModel

__all__ = ["read_script"]

_MOST_BYTES = 4 * 1024 * 1024
_MEMBERS = ("turn", "piece", "traits")


def read_script(path: str | Path, *, traits: Mapping[str, Any] | None = None) -> ScriptedModel:
    """Load a script: a list of ``turn`` tables, and optionally ``piece`` and ``traits``.

    Raises:
        ConfigError: the file cannot be read, or is not a script.
    """
    file = Path(path)
    document = _document(file)
    unknown = sorted(set(document) - set(_MEMBERS))
    if unknown:
        raise ConfigError(f"{file} has the unknown key {unknown[0]!r}; a script may have: {', '.join(_MEMBERS)}")
    turns, piece = document.get("turn", []), document.get("piece", 12)
    if not isinstance(turns, list) or not turns:
        raise ConfigError(f'{file} has no turns: write each as a [[turn]] table with says = "..."')
    if not isinstance(piece, int) or piece < 1:
        raise ConfigError(f"{file}: piece must be a number of characters, at least 1")
    shown: Traits = traits_of("scripted:script", {**document.get("traits", {}), **(traits or {})})
    return ScriptedModel(turns, name=f"scripted:{file.name}", traits=shown, piece=piece)


def _document(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"The script {file} cannot be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise ConfigError(f"The script {file} is larger than {_MOST_BYTES} bytes")
    try:
        if file.suffix == ".json":
            document = msgspec.json.decode(data)
        else:
            import tomllib

            document = tomllib.loads(data.decode())
    except ValueError as error:
        raise ConfigError(f"The script {file} is invalid: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"The script {file} is not a table")
    return document
