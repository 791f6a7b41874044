"""Which operations of a document are offered, and the tool schemas of each.

Schemas are as exact as possible: complete for a document with few operations, and limited to the nearest definitions
for one with many, since a model reads the schema of every tool. A schema that our validator cannot use is rebuilt in a
simpler form.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct

from trunkline.errors import ConfigError
from trunkline.server import SchemaError, compile_schema
from trunkline_servers.openapi.credentials import Credentials
from trunkline_servers.openapi.document import Document, operation_base_url
from trunkline_servers.openapi.operations import (
    Operation,
    OperationEntry,
    input_schema,
    list_operations,
    output_schema,
    read_operation,
)
from trunkline_servers.openapi.schemas import SchemaTranslator

__all__ = ["OperationFilter", "OperationTool", "ToolBuilder", "select_operations"]

log = logging.getLogger("trunkline_servers")

#: Schema nodes of all tools together, and the least and most of one tool.
_ALL_NODES = 100_000
_FEWEST_NODES, _MOST_NODES = 100, 2000
#: Schema nodes that remain if a schema is unusable for another reason.
_NEAREST_NODES = 60
#: Most bytes of one schema: an enum is a single node, however long.
_MOST_BYTES = 128 * 1024


class OperationFilter(Struct, frozen=True):
    """A filter for operations; empty criteria accept everything."""

    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    tags: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()

    def accepts(self, listed: OperationEntry) -> bool:
        """Return True if an operation passes the filter."""
        if self.methods and listed.method not in self.methods:
            return False
        if self.tags and not self.tags & listed.tags:
            return False
        return (not self.include or _matches(listed, self.include)) and not _matches(listed, self.exclude)


def _matches(listed: OperationEntry, patterns: Sequence[str]) -> bool:
    names = (listed.name, listed.identifier, listed.path, f"{listed.method} {listed.path}")
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names if name)


def select_operations(document: Document, choice: OperationFilter, *, most: int) -> list[OperationEntry]:
    """Return the operations that pass the filter.

    Raises:
        ConfigError: there are none, or too many.
    """
    chosen = [listed for listed in list_operations(document) if choice.accepts(listed)]
    if not chosen:
        raise ConfigError(
            f"No operation of {document.name} is left: the filters leave all out, so change --include, --exclude, "
            "--tag, --method or --read-only"
        )
    if len(chosen) > most:
        raise ConfigError(
            f"{document.name} has {len(chosen)} operations to offer, more than {most}: choose with --include, "
            "--exclude, --tag, --method or --read-only, or raise --max-operations"
        )
    return chosen


class OperationTool(Struct, frozen=True):
    """An operation as a tool."""

    operation: Operation
    base: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None


class ToolBuilder:
    """Builds tools from the operations of one document."""

    def __init__(
        self,
        document: Document,
        credentials: Credentials,
        *,
        base: str,
        own_bases: Mapping[str, str] | None,
        output_schemas: bool,
        count: int,
    ) -> None:
        """Initialize with what all operations share.

        ``own_bases`` are the server variables for operations that name their own servers; None ignores those servers.
        """
        self._document = document
        self._credentials = credentials
        self._base = base
        self._own_bases = own_bases
        self._output_schemas = output_schemas
        self._most = min(_MOST_NODES, max(_FEWEST_NODES, _ALL_NODES // max(count, 1)))
        #: By direction (inputs or outputs) and whether patterns are kept.
        self._translations = {
            (inputs, patterns): SchemaTranslator(document, inputs=inputs, patterns=patterns)
            for inputs in (True, False)
            for patterns in (True, False)
        }

    def offer(self, listed: OperationEntry) -> OperationTool | None:
        """Build the tool of an operation; None, with a log line, if its server is of another origin.

        Raises:
            ConfigError: the document must not be used.
        """
        base = self._base_of(listed)
        if base is None:
            log.warning("%s is skipped: it names a server of another origin", listed.what)
            return None
        operation = read_operation(self._document, listed, self._credentials)
        given = input_schema(self._document, operation, self._translations[True, True], self._most)
        output = self._output(operation, patterns=True, most=self._most // 2)
        offer = OperationTool(operation, base, given, output)
        return offer if _is_short(given) and (output is None or _is_short(output)) else self.simplified(offer)

    def simplified(self, offer: OperationTool) -> OperationTool | None:
        """Rebuild a tool whose schemas are unusable in a simpler form; None, with a log line, if that fails.

        Raises:
            ConfigError: the document must not be used.
        """
        operation = offer.operation

        def given(*, patterns: bool, most: int) -> dict[str, Any] | None:
            return input_schema(self._document, operation, self._translations[True, patterns], most)

        def answered(*, patterns: bool, most: int) -> dict[str, Any] | None:
            return self._output(operation, patterns=patterns, most=most // 2)

        schema = self._tried(given)
        if schema is None:
            log.warning("%s is skipped: the schema of its arguments cannot be used", operation.listed.what)
            return None
        return OperationTool(operation, offer.base, schema, self._tried(answered))

    def _base_of(self, listed: OperationEntry) -> str | None:
        servers = listed.node.get("servers") or listed.item.get("servers")
        if not servers or self._own_bases is None:
            return self._base
        return operation_base_url(self._document, servers, self._base, variables=self._own_bases)

    def _output(self, operation: Operation, *, patterns: bool, most: int) -> dict[str, Any] | None:
        if not self._output_schemas:
            return None
        return output_schema(self._document, operation, self._translations[False, patterns], most)

    def _tried(self, make: Callable[..., dict[str, Any] | None]) -> dict[str, Any] | None:
        """Return the most exact schema that can be used; None if there is none."""
        for patterns, most in ((True, self._most), (False, self._most), (False, _NEAREST_NODES)):
            schema = make(patterns=patterns, most=most)
            if schema is None:
                return None
            try:
                compile_schema(schema)
            except SchemaError:
                continue
            return schema if _is_short(schema) else None
        return None


def _is_short(schema: dict[str, Any]) -> bool:
    return len(msgspec.json.encode(schema)) <= _MOST_BYTES
