"""The schema of a SQLite database as records, read by SELECT with bound names, so that a name is never SQL."""

from __future__ import annotations

import sqlite3
from typing import Any

from trunkline.servers.sqlite.database import Database
from trunkline.servers.tables import MOST_COLUMNS, MOST_TABLES, Column, ForeignKey, Table

__all__ = ["read_table", "read_tables", "table_names"]

_NAMES = (
    "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' "
    "ORDER BY name LIMIT ?"
)
# A trigger may have the same name as a table.
_NAMED = "SELECT name, type FROM sqlite_master WHERE lower(name) = lower(?) AND type IN ('table', 'view')"
_COLUMNS = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?) LIMIT ?'
_PRIMARY = "SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk"
_KEYS = 'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id, seq LIMIT ?'


async def table_names(database: Database) -> dict[str, str]:
    """Return the tables and views with their type."""
    return await database.look(_names)


async def read_tables(database: Database) -> list[Table]:
    """Return every table with its columns; one that cannot be read, such as a broken view, has none."""

    def work(cursor: sqlite3.Cursor) -> list[Table]:
        return [_readable(cursor, name, kind) for name, kind in _names(cursor).items()]

    return await database.look(work)


async def read_table(database: Database, name: str) -> Table | None:
    """Return the table with a name; None if there is none."""

    def work(cursor: sqlite3.Cursor) -> Table | None:
        found = cursor.execute(_NAMED, [name]).fetchone()
        return None if found is None else _described(cursor, str(found[0]), str(found[1]))

    return await database.look(work)


def _names(cursor: sqlite3.Cursor) -> dict[str, str]:
    return {str(name): str(kind) for name, kind in cursor.execute(_NAMES, [MOST_TABLES]).fetchall()}


def _readable(cursor: sqlite3.Cursor, name: str, kind: str) -> Table:
    try:
        return _described(cursor, name, kind)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise
        return Table(name, kind)


def _described(cursor: sqlite3.Cursor, name: str, kind: str) -> Table:
    columns = cursor.execute(_COLUMNS, [name, MOST_COLUMNS]).fetchall()
    keys = cursor.execute(_KEYS, [name, MOST_COLUMNS]).fetchall()
    return Table(
        name,
        kind,
        tuple(
            Column(str(column), str(of), nullable=not (required or key), default=_text(default), primary_key=bool(key))
            for column, of, required, default, key in columns
        ),
        _foreign_keys(cursor, keys),
    )


def _foreign_keys(cursor: sqlite3.Cursor, rows: list[tuple[Any, ...]]) -> tuple[ForeignKey, ...]:
    keys: list[ForeignKey] = []
    for number in dict.fromkeys(row[0] for row in rows):
        mine = [row for row in rows if row[0] == number]
        table = str(mine[0][1])
        targets = [row[3] for row in mine]
        if None in targets:
            # Without columns it references the primary key of the other table.
            targets = [row[0] for row in cursor.execute(_PRIMARY, [table]).fetchall()]
        keys.append(ForeignKey(tuple(str(row[2]) for row in mine), table, tuple(str(each) for each in targets)))
    return tuple(keys)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
