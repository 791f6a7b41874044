"""A database's schema over MCP: a resource for the whole, one for each table, and a prompt with worked examples.

This module knows no database, only a ``SchemaReader``. The tables are read whenever resources are listed, so that new
ones appear at once and clients are notified of the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar
from urllib.parse import quote

from msgspec import Meta

from trunkline import PromptError, ResourceError, Server, ToolError
from trunkline.errors import ResourceNotFound
from trunkline.servers.tables import Table, describe, few_shot, inert, to_json

if TYPE_CHECKING:
    from trunkline.server import CallNext, ServerRequest

__all__ = ["Schema", "add_schema"]

T = TypeVar("T")

_JSON = "application/json"
_About = Annotated[str | None, Meta(description="What the questions will be about; chooses the tables that are shown")]


class Schema(Protocol):
    """Reads the tables of a database; each method may raise a ``ToolError``."""

    async def names(self) -> list[str]:
        """Return the names of the tables to list."""

    async def tables(self) -> list[Table]:
        """Return the tables with their columns."""

    async def content(self, table: str) -> Any:
        """Return the schema resource of one table as a JSON value; None if there is no such table."""


def add_schema(server: Server, schema: Schema, *, base: str, dialect: str, tool: str) -> None:
    """Add the resources ``<base>schema`` and ``<base><table>/schema``, and the prompt ``query-examples``."""

    @server.resource(f"{base}schema", name="Database schema", mime_type=_JSON)
    async def whole_schema() -> str:
        """Every table and view, with columns and foreign keys."""
        tables = await _told(schema.tables(), ResourceError)
        # In a thread: it may be megabytes.
        return await asyncio.to_thread(lambda: to_json({"tables": [describe(table) for table in tables]}))

    async def table_schema(table: str) -> str:
        """The columns of one table or view."""
        content = await _told(schema.content(table), ResourceError)
        if content is None:
            raise ResourceNotFound(f"No table is called {inert(table, 64)!r}; {base}schema has them all")
        return to_json(content)

    template = f"{base}{{table}}/schema"
    server.add_resource(template, table_schema, name="Table schema", mime_type=_JSON)

    @server.completion(template, "table")
    async def complete_table(value: str) -> list[str]:
        names = await _told(schema.names(), ResourceError)
        return [name for name in names if name.lower().startswith(value.lower())]

    async def query_examples(topic: _About = None) -> list[Any]:
        """Questions and the SQL that answers them, made from the tables of this database, for a model to learn from."""
        tables = await _told(schema.tables(), PromptError)
        return few_shot(tables, topic, dialect=dialect, tool=tool)

    server.add_prompt(query_examples, name="query-examples", title="Query examples")
    _keep_listed(server, schema, base, table_schema)


def _keep_listed(server: Server, schema: Schema, base: str, read: Callable[[str], Awaitable[str]]) -> None:
    listed: dict[str, str] = {}

    async def refresh(request: ServerRequest, call_next: CallNext) -> Any:
        if request.method == "resources/list":
            try:
                names = await schema.names()
            except ToolError:
                # If the database is unavailable, the last known tables are listed; reading one reports the error.
                names = list(listed.values())
            _update(server, listed, {f"{base}{quote(name, safe='')}/schema": name for name in names}, read)
        return await call_next(request)

    server.add_middleware(refresh)


def _update(server: Server, listed: dict[str, str], wanted: dict[str, str], read: Callable[[str], Any]) -> None:
    for uri in [uri for uri in listed if uri not in wanted]:
        server.remove_resource(uri)
        del listed[uri]
    for uri, name in wanted.items():
        if uri not in listed:
            server.add_resource(
                uri, _reading(read, name), name=f'"{inert(name, 128)}" database schema', mime_type=_JSON
            )
            listed[uri] = name


def _reading(read: Callable[[str], Awaitable[str]], name: str) -> Callable[[], Awaitable[str]]:
    async def table_schema() -> str:
        return await read(name)

    return table_schema


async def _told(asking: Awaitable[T], error: type[ResourceError | PromptError]) -> T:
    """Await a query; turn a ToolError into the error of a resource or prompt with the same message."""
    try:
        return await asking
    except ToolError as failed:
        raise error(str(failed)) from failed
