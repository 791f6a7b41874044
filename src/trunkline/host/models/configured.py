"""Resolves the model of a user's configuration.

A model is chosen explicitly, by the ``model`` table of the user's own configuration, or by the environment. A table in
a project's file is ignored, since it would decide where the user's messages and keys are sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trunkline.errors import ConfigError
from trunkline.host.config.jsonc import to_python
from trunkline.host.config.model import Configuration
from trunkline.host.models.interface import Model
from trunkline.host.models.selection import choose_model, open_model

__all__ = ["configured_model", "model_table", "open_configured_model"]

_USER_SCOPES = ("given", "user", "managed")


def model_table(configuration: Configuration) -> Mapping[str, Any] | None:
    """Return the ``model`` table of the first of the user's own files that has one.

    Raises:
        ConfigError: it is not an object.
    """
    for each in configuration.documents:
        found = each.document.model
        if found is not None and each.scope in _USER_SCOPES:
            table = to_python(found.value)
            if not isinstance(table, dict):
                where = f"{each.document.file}, line {found.line}"
                raise ConfigError(f'{where}: "model" is not an object: write {{"name": "..."}}')
            return table
    return None


def configured_model(
    choice: str | None, configuration: Configuration, environ: Mapping[str, str] | None = None
) -> str | None:
    """Return the name of the model that would be opened; None if none is chosen.

    Raises:
        ConfigError: the choice is invalid.
    """
    return choose_model(choice, environ=environ, options=model_table(configuration))


def open_configured_model(
    choice: str | None, configuration: Configuration, environ: Mapping[str, str] | None = None
) -> Model | None:
    """Open the chosen model; return None if none is chosen. May block: the key may be in the vault.

    Raises:
        ConfigError: the model is unknown, or its package is not installed.
        ModelError: its API key is missing.
    """
    table = model_table(configuration)
    if choose_model(choice, environ=environ, options=table) is None:
        return None
    return open_model(choice, environ=environ, options=table, secrets=_secret)


def _secret(reference: str) -> str:
    """Resolve a secret reference; the vault is imported only when it is needed."""
    from trunkline.host.secrets.vault import Vault

    return Vault().read_blocking(reference)
