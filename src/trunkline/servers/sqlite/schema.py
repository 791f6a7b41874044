"""The schema of a SQLite database as records: read by SELECT with bound names, so that a name is never SQL."""

from __future__ import annotations

from typing import Any

from trunkline.errors import ToolError
from trunkline.servers.sqlite.database import Database
from trunkline.servers.tables import MOST_COLUMNS, MOST_TABLES, Column, ForeignKey, Table

__all__ = ["read_table", "read_tables", "table_names"]

_NAMES = (
    "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
    "ORDER BY name LIMIT ?"
)
_COLUMNS = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?) LIMIT ?'
_PRIMARY = "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk"
_KEYS = 'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq LIMIT ?'


async def table_names(database: Database) -> dict[str, str]:
    """Give the tables and views, and which of the two each is."""
    return {str(name): str(kind) for name, kind in await database.select(_NAMES, [MOST_TABLES])}


async def read_tables(database: Database) -> list[Table]:
    """Give every table with its columns; one that cannot be read, such as a view of nothing, is given without."""
    tables: list[Table] = []
    for name, kind in (await table_names(database)).items():
        try:
            tables.append(await _described(database, name, kind))
        except ToolError:
            tables.append(Table(name, kind))
    return tables


async def read_table(database: Database, name: str) -> Table | None:
    """Give one table, if there is one of that name."""
    found = await database.select("SELECT name, type FROM sqlite_master WHERE lower(name) = lower(?)", [name], most=1)
    if not found or found[0][1] not in ("table", "view"):
        return None
    return await _described(database, str(found[0][0]), str(found[0][1]))


async def _described(database: Database, name: str, kind: str) -> Table:
    columns = await database.select(_COLUMNS, [name, MOST_COLUMNS])
    keys = await database.select(_KEYS, [name, MOST_COLUMNS])
    return Table(
        name,
        kind,
        tuple(
            Column(str(column), str(of), nullable=not (required or key), default=_text(default), primary_key=bool(key))
            for column, of, required, default, key in columns
        ),
        await _foreign_keys(database, keys),
    )


async def _foreign_keys(database: Database, rows: list[tuple[Any, ...]]) -> tuple[ForeignKey, ...]:
    keys: list[ForeignKey] = []
    for number in dict.fromkeys(row[0] for row in rows):
        mine = [row for row in rows if row[0] == number]
        table = str(mine[0][1])
        targets = [row[3] for row in mine]
        if None in targets:
            # Without named columns the other table's primary key is meant.
            parent = await database.select(_PRIMARY, [table])
            targets = [row[0] for row in parent]
        keys.append(ForeignKey(tuple(str(row[2]) for row in mine), table, tuple(str(each) for each in targets)))
    return tuple(keys)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
