"""Tickets in one SQLite file: search, create, and query with read-only SQL."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Status = Literal["open", "waiting", "closed"]
Priority = Literal["low", "normal", "high"]

SCHEMA = """\
CREATE TABLE tickets (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    title    TEXT NOT NULL,
    body     TEXT NOT NULL DEFAULT '',
    priority TEXT NOT NULL DEFAULT 'normal',
    status   TEXT NOT NULL DEFAULT 'open',
    customer TEXT NOT NULL DEFAULT ''
)"""

FIRST = (
    ("Cannot log in", "The password mail never comes.", "high", "open", "Fjord Foods"),
    ("Invoice shows the wrong year", "Number 1043 says last year.", "normal", "waiting", "Arctic Bikes"),
    ("Export is slow", "It takes ten minutes for 2,000 rows.", "normal", "open", "Fjord Foods"),
    ("Typo on the front page", "'Wellcome'", "low", "closed", "Birch & Sons"),
)

# What a query may do: read, call functions, and follow a recursive WITH.
READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
OUTSIDE = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}
# The limits of one answer, in bytes and columns.
MAX_BYTES = 1024 * 1024
MAX_COLUMNS = 100


@dataclass
class Ticket:
    """One ticket."""

    number: int
    title: str
    body: str
    priority: Priority
    status: Status
    customer: str


@dataclass
class Table:
    """The result of a query."""

    columns: list[str]
    rows: list[list[Any]]
    truncated: bool


class Store:
    """The tickets in a file; each call opens its own connection, so that any thread may call."""

    def __init__(self, path: str | Path) -> None:
        """Open the file; a new one gets some first tickets."""
        self.path = Path(path).resolve()
        with self._writing() as connection:
            if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tickets'").fetchone():
                connection.execute(SCHEMA)
                columns = "title, body, priority, status, customer"
                connection.executemany(f"INSERT INTO tickets ({columns}) VALUES (?, ?, ?, ?, ?)", FIRST)

    def search(self, text: str, status: Status | None, limit: int) -> list[Ticket]:
        """Return the tickets that contain every word, newest first."""
        # instr() has no wildcards: a "%" in the search text is a "%".
        where = ["instr(lower(title || ' ' || body || ' ' || customer), lower(?)) > 0"] * len(text.split())
        values: list[Any] = text.split()
        if status is not None:
            where.append("status = ?")
            values.append(status)
        sql = f"SELECT * FROM tickets WHERE {' AND '.join(where) or '1'} ORDER BY number DESC LIMIT ?"
        with self._reading() as connection:
            return [Ticket(*row) for row in connection.execute(sql, [*values, limit])]

    def get(self, number: int) -> Ticket | None:
        """Return the ticket with this number, or None."""
        if not 0 < number < 2**63:
            return None
        with self._reading() as connection:
            row = connection.execute("SELECT * FROM tickets WHERE number = ?", [number]).fetchone()
        return Ticket(*row) if row else None

    def create(self, title: str, body: str, priority: Priority, customer: str) -> Ticket:
        """Write a new ticket, whole or not at all."""
        sql = "INSERT INTO tickets (title, body, priority, customer) VALUES (?, ?, ?, ?) RETURNING *"
        with self._writing() as connection:
            return Ticket(*connection.execute(sql, [title, body, priority, customer]).fetchone())

    def query(self, sql: str, *, max_rows: int, seconds: float) -> Table:
        """Run a read-only query within limits.

        Raises:
            sqlite3.Error: the query is not read-only, takes too long, or is not SQL.
        """
        end = time.monotonic() + seconds
        with self._reading() as connection:
            connection.set_authorizer(_only_reading)
            # Called often, and with a limit on texts: one step may search a text for another.
            connection.set_progress_handler(lambda: time.monotonic() > end, 100)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
            connection.setlimit(sqlite3.SQLITE_LIMIT_COLUMN, MAX_COLUMNS)
            cursor = connection.execute(sql)
            if cursor.description is None:
                raise sqlite3.ProgrammingError("there is none")
            columns = [column[0] for column in cursor.description]
            rows: list[list[Any]] = []
            size = 0
            for row in cursor:
                shown = [_shown(value) for value in row]
                size += sum(len(value) if isinstance(value, str) else 8 for value in shown)
                if len(rows) == max_rows or size > MAX_BYTES:
                    return Table(columns, rows, truncated=True)
                rows.append(shown)
        return Table(columns, rows, truncated=False)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=5)) as connection, connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        # The file is opened for reading, so that even an error in this class could not change it.
        with closing(sqlite3.connect(f"{self.path.as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            yield connection


def _shown(value: Any) -> Any:
    """Return the value as JSON can represent it."""
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _only_reading(action: int, first: str | None, second: str | None, *_: object) -> int:
    # SQLite asks for each thing a statement would do before it does any of it.
    outside = action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in OUTSIDE
    return sqlite3.SQLITE_OK if action in READING and not outside else sqlite3.SQLITE_DENY
