"""Chooses the model of a chat: by flag, by the ``model`` table of a configuration that is the user's, by environment.

A table in a file that came with a project is not read: it would say where the user's words and keys go.
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

#: How a command ends by what failed at its model.
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
#: What to do where none is chosen.
NO_MODEL = (
    "no model is chosen: name one by --model provider:model or in TRUNKLINE_MODEL, such as ollama:qwen3, or set "
    "ANTHROPIC_API_KEY or OPENAI_API_KEY"
)
_MINE = ("given", "user", "managed")


def model_table(configuration: Configuration) -> Mapping[str, Any] | None:
    """Give the ``model`` table of the first file of the user's own that has one.

    Raises:
        ConfigError: it is no table.
    """
    for file in configuration.files:
        if file.scope not in _MINE or file.problem is not None:
            continue
        try:
            root = read_json(read_text(file.path, plain_only=file.scope != "given"))
        except (ConfigError, NotJson):
            # Told already, when the configuration was read.
            continue
        found = root.members.get("model") if isinstance(root, Members) else None
        if found is not None:
            table = plain(found.value)
            if not isinstance(table, dict):
                raise ConfigError(f'{file.path}, line {found.line}: "model" is no object: write {{"name": "..."}}')
            return table
    return None


def _secret(reference: str) -> str:
    """Look up what a reference stands for; what keeps secrets is loaded when there is one to look up."""
    from trunkline.host.secrecy.vault import Vault

    return Vault().read_now(reference)


def model_of(choice: str | None, configuration: Configuration) -> Model | None:
    """Open the model that was chosen; None if nobody chose one.

    Raises:
        ConfigError: it is not known, or what it needs is not installed.
        Failure: there is no key for it.
    """
    table = model_table(configuration)
    if choose_model(choice, options=table) is None:
        return None
    try:
        return open_model(choice, options=table, secrets=_secret)
    except ModelError as error:
        raise Failure(str(error), MODEL_EXITS[error.fault]) from error
