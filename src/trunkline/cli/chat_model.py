"""Chooses the model of a chat: by option, by the ``model`` table of the user's own configuration, or by environment.

A table in a project's file is ignored: it would decide where the user's messages and keys are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from trunkline.cli.exits import Exit, Failure
from trunkline.errors import ConfigError
from trunkline.host.config.files import read_text
from trunkline.host.config.positions import Members, NotJson, plain, read_json
from trunkline.host.config.records import Configuration
from trunkline.host.models.choosing import choose_model, open_model
from trunkline.host.models.interface import Model, ModelError, ModelFault

__all__ = ["MODEL_EXITS", "NO_MODEL", "model_of", "model_table"]

#: The exit code for each kind of model failure.
MODEL_EXITS: Mapping[ModelFault, Exit] = MappingProxyType(
    {
        "no key": Exit.AUTH,
        "refused key": Exit.AUTH,
        "down": Exit.UNREACHABLE,
        "cut off": Exit.UNREACHABLE,
        "rate limited": Exit.UNREACHABLE,
        "too long": Exit.FAILED,
        "refused": Exit.FAILED,
    }
)
#: The notice if no model is chosen.
NO_MODEL = (
    "no model chosen: set --model PROVIDER:MODEL or TRUNKLINE_MODEL, for example ollama:qwen3, or set "
    "ANTHROPIC_API_KEY or OPENAI_API_KEY"
)
_MINE = ("given", "user", "managed")


def model_table(configuration: Configuration) -> Mapping[str, Any] | None:
    """Return the ``model`` table of the first of the user's own files that has one.

    Raises:
        ConfigError: it is not an object.
    """
    for file in configuration.files:
        if file.scope not in _MINE or file.problem is not None:
            continue
        try:
            root = read_json(read_text(file.path, plain_only=file.scope != "given"))
        except (ConfigError, NotJson):
            # Already reported when the configuration was loaded.
            continue
        found = root.members.get("model") if isinstance(root, Members) else None
        if found is not None:
            table = plain(found.value)
            if not isinstance(table, dict):
                raise ConfigError(f'{file.path}, line {found.line}: "model" is not an object: write {{"name": "..."}}')
            return table
    return None


def _secret(reference: str) -> str:
    """Resolve a secret reference; the vault is imported only when it is needed."""
    from trunkline.host.secrecy.vault import Vault

    return Vault().read_now(reference)


def model_of(choice: str | None, configuration: Configuration) -> Model | None:
    """Open the chosen model; return None if none is chosen.

    Raises:
        ConfigError: the model is unknown, or its package is not installed.
        CommandError: its API key is missing.
    """
    table = model_table(configuration)
    if choose_model(choice, options=table) is None:
        return None
    try:
        return open_model(choice, options=table, secrets=_secret)
    except ModelError as error:
        raise Failure(str(error), MODEL_EXITS[error.fault]) from error
