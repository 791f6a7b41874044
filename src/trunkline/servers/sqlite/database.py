"""One SQLite file: each statement on a connection of its own, in a worker thread, under an authorizer and a deadline.

Reading connections are opened ``mode=ro``, so that not even a mistake in the authorizer could change the file. A
writing statement is one transaction: it is committed whole or rolled back whole. Whoever cancels interrupts SQLite,
which then rolls back. It knows nothing of the protocol but its errors.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from trunkline.errors import ConfigError, ToolError
from trunkline.servers.sqlite.access import Access, Kind
from trunkline.servers.tables import Fitted, fit, inert

__all__ = ["Bounds", "Database", "limit_memory"]

T = TypeVar("T")

_STEPS_BETWEEN_LOOKS = 1000
#: How long a statement waits for another writer, if its own time is not shorter.
_BUSY_SECONDS = 5.0
_LIMITS = (
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 100),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 500),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
    (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 262_144),
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 50),
    (sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 100),
    (sqlite3.SQLITE_LIMIT_VDBE_OP, 5_000_000),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)
_LONGEST_VALUE = 16 * 1024 * 1024
_MOST_MEMORY = 256 * 1024 * 1024


class Bounds(Struct, frozen=True, kw_only=True):
    """How much one statement may cost: rows and bytes of its answer, and seconds."""

    max_rows: int = 1000
    max_bytes: int = 1024 * 1024
    seconds: float = 10.0


class Database:
    """A database file."""

    def __init__(
        self, path: Path, *, bounds: Bounds, submit: Callable[[Callable[[], Any]], asyncio.Future[Any]]
    ) -> None:
        """Take the file, the bounds of each statement, and what runs a function in a thread."""
        self.path = path
        self.bounds = bounds
        self._submit = submit

    def prepare(self) -> None:
        """Make the file and its folder, if they are not there.

        Raises:
            ConfigError: they cannot be made.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch(mode=0o600)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigError(f"--db-path {self.path}: the database cannot be made there ({reason})") from error

    async def rows(self, sql: str, *, tool: str = "this") -> Fitted:
        """Run a reading statement and give what fits of its rows, each as the text of a Python mapping."""

        def work(cursor: sqlite3.Cursor) -> Fitted:
            cursor.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            return self.fitted(dict(zip(names, row, strict=True)) for row in cursor)

        return await self._run("read", work, f"Only SELECT queries are allowed for {tool}")

    def fitted(self, rows: Iterable[Mapping[str, Any]]) -> Fitted:
        """Give what fits of some rows, each as the text of a Python mapping, which spells out control characters."""
        return fit(rows, str, max_rows=self.bounds.max_rows, max_bytes=self.bounds.max_bytes)

    async def select(self, sql: str, parameters: Sequence[Any] = (), *, most: int = 10_000) -> list[tuple[Any, ...]]:
        """Run a reading statement of our own and give its rows as they are."""

        def work(cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
            return cursor.execute(sql, parameters).fetchmany(most)

        return await self._run("read", work, "Refused")

    async def change(self, sql: str, kind: Kind, refusal: str) -> int:
        """Run a writing statement as one transaction and give how many rows it touched; -1 where there is no count."""

        def work(cursor: sqlite3.Cursor) -> int:
            cursor.execute(sql)
            # A statement with RETURNING is not done before its rows are taken.
            for _ in cursor:
                pass
            if cursor.rowcount < 0 and sql.lstrip()[:4].upper() == "WITH":
                return int(cursor.execute("SELECT changes()").fetchone()[0])
            return cursor.rowcount

        return await self._run(kind, work, refusal)

    async def _run(self, kind: Kind, work: Callable[[sqlite3.Cursor], T], refusal: str) -> T:
        statement = _Statement(self.path, kind, self.bounds.seconds)
        running = self._submit(lambda: statement.run(work, refusal))
        try:
            return await running  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            statement.cancel()
            raise


class _Statement:
    """One statement on its way through a thread."""

    def __init__(self, path: Path, kind: Kind, seconds: float) -> None:
        self._path = path
        self._kind = kind
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._cancelled = False
        self._connection: sqlite3.Connection | None = None

    def cancel(self) -> None:
        """Have it stopped; any thread may."""
        self._cancelled = True
        connection = self._connection
        if connection is not None:
            # One that has just been closed has nothing left to stop.
            with suppress(sqlite3.ProgrammingError):
                connection.interrupt()

    def run(self, work: Callable[[sqlite3.Cursor], T], refusal: str) -> T:
        """Run it; in the thread."""
        access = Access(self._kind)
        try:
            with closing(self._open()) as connection:
                return self._within(connection, access, work)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ToolError(self._explained(error, access, refusal)) from error
        except (OverflowError, UnicodeError, MemoryError) as error:
            raise ToolError(f"Database error: {inert(str(error)) or 'out of memory'}") from error
        finally:
            self._connection = None

    def _within(self, connection: sqlite3.Connection, access: Access, work: Callable[[sqlite3.Cursor], T]) -> T:
        connection.set_progress_handler(self._must_stop, _STEPS_BETWEEN_LOOKS)
        writes = self._kind != "read"
        if writes:
            connection.execute("BEGIN IMMEDIATE")
        connection.set_authorizer(access)
        try:
            with closing(connection.cursor()) as cursor:
                done = work(cursor)
        except BaseException:
            _rollback(connection)
            raise
        connection.set_authorizer(None)
        if writes:
            if access.only_reads:
                _rollback(connection)
                raise ToolError("Error: this statement changes nothing; use read_query for it")
            if self._must_stop():
                _rollback(connection)
                raise sqlite3.OperationalError("interrupted")
            connection.execute("COMMIT")
        return done

    def _open(self) -> sqlite3.Connection:
        mode = "ro" if self._kind == "read" else "rw"
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode={mode}",
            uri=True,
            timeout=min(_BUSY_SECONDS, self._seconds),
            isolation_level=None,
            check_same_thread=False,
        )
        connection.text_factory = _text
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        # A view or trigger of a database that came from elsewhere calls only functions without side effects.
        connection.execute("PRAGMA trusted_schema = OFF")
        for limit, value in _LIMITS:
            connection.setlimit(limit, value)
        self._connection = connection
        return connection

    def _must_stop(self) -> bool:
        return self._cancelled or time.monotonic() > self._deadline

    def _explained(self, error: Exception, access: Access, refusal: str) -> str:
        text = inert(str(error))
        if access.refused is not None:
            return f"Error: {refusal} ({inert(access.refused, 100)} was refused)"
        if text == "interrupted":
            return f"Database error: stopped after {self._seconds:g} seconds; narrow the statement, or raise --timeout"
        if text == "unable to open database file":
            return f"Database error: there is no database to open at {self._path}; start the server with --db-path FILE"
        if text == "attempt to write a readonly database" or "readonly" in text:
            return f"Database error: {self._path} cannot be written; check its permissions"
        return f"Database error: {text}"


def _rollback(connection: sqlite3.Connection) -> None:
    connection.set_authorizer(None)
    # The handler would stop the rollback as it stopped the statement.
    connection.set_progress_handler(None, 0)
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _text(raw: bytes) -> str:
    """Read a text; bytes that are no text are shown, not refused: one bad value must not hide a table."""
    return raw.decode("utf-8", "backslashreplace")


def limit_memory(most: int = _MOST_MEMORY) -> None:
    """Bound the memory that SQLite may take, for all databases of this process; what needs more fails."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA hard_heap_limit = {int(most)}")
