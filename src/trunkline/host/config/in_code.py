"""Parses entries given in code, as the same objects that a file would contain.

There are no line numbers; problems name the member alone. Paths are relative to the current directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from trunkline.errors import ConfigError
from trunkline.host.config.assembling import assemble
from trunkline.host.config.documents import Document, document_of
from trunkline.host.config.loading import place
from trunkline.host.config.positions import Items, Leaf, Member, Members, Node
from trunkline.host.config.records import Configuration
from trunkline.host.entries import ServerEntry, Source

__all__ = ["configuration_from", "entries_from_mapping", "entry_from"]

_KEYS = ("mcpServers", "servers")


def entry_from(
    name: str, mapping: Mapping[str, Any], *, source: Source | None = None, environ: Mapping[str, str] | None = None
) -> ServerEntry:
    """Parse one entry; whatever is wrong with it is its ``problem``."""
    at = Source("given") if source is None else source
    document = Document(file=at.file, servers=(Member(name, _node(mapping), at.line or 0),))
    placed = place(document, scope=at.scope, environ=os.environ if environ is None else environ, ask=None)
    return assemble([placed]).entries[name]


def entries_from_mapping(
    mapping: Mapping[str, Any], *, environ: Mapping[str, str] | None = None
) -> Mapping[str, ServerEntry]:
    """Parse entries by name, with or without ``mcpServers`` around them.

    Raises:
        InvalidConfigFile: the document around them is invalid (a ``ConfigError``).
    """
    return configuration_from(mapping, environ=environ).entries


def configuration_from(mapping: Mapping[str, Any], *, environ: Mapping[str, str] | None = None) -> Configuration:
    """Parse entries by name into a configuration, with problems and provenance.

    Raises:
        InvalidConfigFile: the document around them is invalid (a ``ConfigError``).
    """
    whole = mapping if _is_whole(mapping) else {"mcpServers": mapping}
    document = document_of(_node(whole), file=None, scope="given")
    return assemble([place(document, scope="given", environ=os.environ if environ is None else environ, ask=None)])


def _is_whole(mapping: Mapping[str, Any]) -> bool:
    """Return True for a whole document, False for bare entries (one of which may be named ``servers``)."""
    inner = next((mapping[key] for key in _KEYS if key in mapping), None)
    return inner is not None and not (isinstance(inner, Mapping) and {"command", "url"} & set(inner))


def _node(value: Any) -> Node:
    """Convert a Python value to a JSON node.

    Raises:
        ConfigError: the value has no JSON form.
    """
    if value is None or isinstance(value, str | int | float):
        return Leaf(value)
    if isinstance(value, os.PathLike):
        return Leaf(os.fsdecode(value))
    if isinstance(value, Mapping):
        return Members({str(name): Member(str(name), _node(each)) for name, each in value.items()})
    if isinstance(value, Sequence | frozenset | set):
        return Items(tuple(_node(each) for each in value))
    raise ConfigError(f"a value of type {type(value).__name__} cannot be part of a configuration")
