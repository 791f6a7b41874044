"""One SQLite file: each statement alone on a connection, in a worker thread, under an authorizer and a deadline.

A reading statement uses a pooled connection if there is one; if it fails there, it is retried on a new one, whose error
counts. A writing statement is one transaction, committed or rolled back completely. Cancellation interrupts SQLite,
which then rolls back. A single SQLite function cannot be interrupted: a statement that is inside a long one at its
deadline is answered and left to its thread, and its changes are rolled back. This module knows nothing of the protocol
but its errors.

``create_sample`` fills an empty database with a small shop, always the same.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from trunkline.errors import ConfigError, ToolError
from trunkline_servers.sql import FittedRows, StatementLimits, fit_rows
from trunkline_servers.sqlite.connections import (
    OpenConnection,
    SqlitePool,
    StatementAuthorizer,
    StatementKind,
    check_shadow_tables,
)
from trunkline_servers.untrusted import printable

__all__ = ["SqliteDatabase", "create_sample", "limit_memory"]

T = TypeVar("T")

_STEPS_BETWEEN_LOOKS = 1000
#: Seconds that an interrupted statement has to end.
_GRACE_SECONDS = 1.0
_MOST_MEMORY = 256 * 1024 * 1024
#: Codes after a writer was killed: recovery is needed, which a reading connection cannot do.
_INTERRUPTED_WRITE = frozenset(
    {sqlite3.SQLITE_READONLY_ROLLBACK, sqlite3.SQLITE_READONLY_RECOVERY, sqlite3.SQLITE_READONLY_CANTINIT}
)
_FIRST_WORD = re.compile(r"(?>\s+|--[^\n]*+|/\*(?>.*?\*/))*+(\w+)", re.DOTALL)


class SqliteDatabase:
    """A database file."""

    def __init__(
        self,
        path: Path,
        *,
        bounds: StatementLimits,
        submit: Callable[[Callable[[], Any]], asyncio.Future[Any]],
        read_only: bool = False,
    ) -> None:
        """Initialize with the file, the statement limits and ``submit``, which runs a function in a thread."""
        self.path = path
        self.bounds = bounds
        self._submit = submit
        self._connections = SqlitePool(path, bounds)
        self._read_only = read_only
        self._turn = threading.Lock()

    def prepare(self) -> None:
        """Create the file and its folder if they do not exist.

        Raises:
            ConfigError: they cannot be created.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # An existing file is left alone, including its times.
            if not self.path.exists():
                self.path.touch(mode=0o600)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigError(f"--db-path {self.path}: the database cannot be made there ({reason})") from error

    async def rows(self, sql: str, *, tool: str = "this") -> FittedRows:
        """Run a reading statement and return the rows that fit, each as the text of a Python mapping."""

        def work(cursor: sqlite3.Cursor) -> FittedRows:
            cursor.execute(sql)
            names = [column[0] for column in cursor.description or ()]
            return self.fitted(cursor, names)

        return await self._run("read", work, f"Only SELECT queries are allowed for {tool}")

    def fitted(self, rows: Iterable[Sequence[Any]], names: Sequence[str]) -> FittedRows:
        """Return the rows that fit, each as the text of a Python mapping, which escapes control characters."""
        most = self.bounds.max_bytes
        return fit_rows(rows, _row_text(names, most), max_rows=self.bounds.max_rows, max_bytes=most)

    async def select(self, sql: str, parameters: Sequence[Any] = (), *, most: int = 10_000) -> list[tuple[Any, ...]]:
        """Run a reading statement of the server itself and return its rows."""

        def work(cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
            return cursor.execute(sql, parameters).fetchmany(most)

        return await self.look(work)

    async def look(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """Run reading statements of the server itself on one connection."""
        return await self._run("read", work, "Refused")

    async def change(self, sql: str, kind: StatementKind, refusal: str) -> int:
        """Run a writing statement as one transaction and return the affected rows; -1 if there is no count."""

        def work(cursor: sqlite3.Cursor) -> int:
            cursor.execute(sql)
            # A statement with RETURNING is complete only after its rows are read.
            for _ in cursor:
                pass
            if cursor.rowcount < 0 and word == "WITH":
                return int(cursor.execute("SELECT changes()").fetchone()[0])
            return cursor.rowcount

        word = _first_word(sql)
        # IF EXISTS and IF NOT EXISTS may leave nothing to do.
        return await self._run(kind, work, refusal, may_be_idle=word in ("CREATE", "DROP"), sql=sql)

    async def _run(
        self,
        kind: StatementKind,
        work: Callable[[sqlite3.Cursor], T],
        refusal: str,
        *,
        may_be_idle: bool = False,
        sql: str = "",
    ) -> T:
        statement = _Statement(self._connections, kind, self.bounds, turn=None if kind == "read" else self._turn)
        statement.read_only, statement.may_be_idle, statement.sql = self._read_only, may_be_idle, sql
        running = self._submit(lambda: statement.run(work, refusal))
        try:
            if not await _ended(running, self.bounds.seconds):
                # SQLite checks for interrupts more often than it calls the progress handler.
                statement.interrupt()
                if not await _ended(running, _GRACE_SECONDS) and statement.cancel():
                    running.cancel()
                    raise ToolError(statement.too_slow)
            return await running  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            running.cancel()
            statement.cancel()
            raise


async def _ended(running: asyncio.Future[Any], seconds: float) -> bool:
    return bool((await asyncio.wait([running], timeout=seconds))[0])


class _Statement:
    """One statement, run in a thread."""

    def __init__(
        self, connections: SqlitePool, kind: StatementKind, bounds: StatementLimits, *, turn: threading.Lock | None
    ) -> None:
        self._connections = connections
        self._path = connections.path
        self._kind = kind
        self._bounds = bounds
        self._turn = turn
        self.read_only = False
        #: Whether it may have nothing to change.
        self.may_be_idle = False
        #: The text of a writing statement.
        self.sql = ""
        self._deadline = time.monotonic() + bounds.seconds
        self._lock = threading.Lock()
        self._cancelled = False
        self._committing = False
        self._connection: sqlite3.Connection | None = None

    @property
    def too_slow(self) -> str:
        """The message for a timeout."""
        seconds = f"{self._bounds.seconds:g}"
        return f"Database error: stopped after {seconds} seconds; narrow the statement, or raise --timeout"

    def cancel(self) -> bool:
        """Stop it before it changes anything; callable from any thread. Returns False if it is already committing."""
        with self._lock:
            if self._committing:
                return False
            self._cancelled = True
        self.interrupt()
        return True

    def interrupt(self) -> None:
        """Interrupt SQLite; callable from any thread."""
        # Under the lock: a released connection may be used by another statement at once.
        with self._lock:
            if self._connection is not None:
                # A connection that was just closed has nothing to interrupt.
                with suppress(sqlite3.ProgrammingError):
                    self._connection.interrupt()

    def run(self, work: Callable[[sqlite3.Cursor], T], refusal: str) -> T:
        """Run the statement; called in the thread."""
        access = StatementAuthorizer(self._kind)
        try:
            if self._kind == "read" and (used := self._connections.acquire()) is not None:
                try:
                    return self._on(used, access, work)
                except (sqlite3.Error, sqlite3.Warning):
                    # A pooled connection may be outdated, so retry on a new one; but not after a timeout.
                    if self._must_stop():
                        raise
                access = StatementAuthorizer(self._kind)
            try:
                return self._on(self._open(self._kind), access, work)
            except sqlite3.OperationalError as error:
                if self.read_only or self._kind != "read" or error.sqlite_errorcode not in _INTERRUPTED_WRITE:
                    raise
            # Opening it for writing performs the recovery, as in any program that uses SQLite.
            self._open("write").connection.close()
            return self._on(self._open(self._kind), access, work)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ToolError(self._explained(error, access, refusal)) from error
        except (OverflowError, UnicodeError, MemoryError) as error:
            raise ToolError(f"Database error: {printable(str(error), 500) or 'out of memory'}") from error
        finally:
            self._hold(None)

    def _open(self, kind: StatementKind) -> OpenConnection:
        return self._connections.open(kind, hold=self._hold)

    def _hold(self, connection: sqlite3.Connection | None) -> None:
        """Tie a connection to the cancellation of this statement; None releases it."""
        if connection is not None:
            connection.set_progress_handler(self._must_stop, _STEPS_BETWEEN_LOOKS)
        with self._lock:
            self._connection = connection

    def _on(self, opened: OpenConnection, access: StatementAuthorizer, work: Callable[[sqlite3.Cursor], T]) -> T:
        """Run the statement on a connection, which returns to the pool only on success."""
        connection = opened.connection
        try:
            self._hold(connection)
            if self._turn is None:
                done = self._within(connection, access, work)
            else:
                with self._in_turn(self._turn):
                    done = self._within(connection, access, work)
        except BaseException:
            connection.close()
            raise
        self._hold(None)
        connection.set_progress_handler(None, 0)
        self._connections.release(opened)
        return done

    @contextmanager
    def _in_turn(self, turn: threading.Lock) -> Iterator[None]:
        """Serialize the writers of this server here: SQLite itself would only poll."""
        if not turn.acquire(timeout=max(0.0, self._deadline - time.monotonic())):
            raise sqlite3.OperationalError("interrupted")
        try:
            yield
        finally:
            turn.release()

    def _within(
        self, connection: sqlite3.Connection, access: StatementAuthorizer, work: Callable[[sqlite3.Cursor], T]
    ) -> T:
        writes = self._kind != "read"
        if writes:
            connection.execute("BEGIN IMMEDIATE")
            check_shadow_tables(connection, access, self.sql)
        connection.set_authorizer(access)
        try:
            with closing(connection.cursor()) as cursor:
                done = work(cursor)
        except BaseException:
            _rollback(connection)
            raise
        connection.set_authorizer(None)
        if writes:
            if access.only_reads and not self.may_be_idle:
                _rollback(connection)
                raise ToolError("Error: this statement changes nothing; use read_query for it")
            with self._lock:
                self._committing = not self._must_stop()
            if not self._committing:
                _rollback(connection)
                raise sqlite3.OperationalError("interrupted")
            # A commit must not be interrupted; it waits for readers no longer than for other writers.
            connection.set_progress_handler(None, 0)
            connection.execute("COMMIT")
        return done

    def _must_stop(self) -> bool:
        return self._cancelled or time.monotonic() > self._deadline

    def _explained(self, error: Exception, access: StatementAuthorizer, refusal: str) -> str:
        text = printable(str(error), 500)
        if access.refused is not None:
            return f"Error: {refusal} ({printable(access.refused, 100)} was refused)"
        if text == "interrupted":
            return self.too_slow
        return f"Database error: {self._fix(text, getattr(error, 'sqlite_errorcode', 0))}"

    def _fix(self, text: str, code: int) -> str:
        if text == "unable to open database file":
            if self._path.exists():
                return f"{self._path} cannot be opened; check the permissions of the file and of its folder"
            return f"there is no database to open at {self._path}; start the server with --db-path FILE"
        if code in _INTERRUPTED_WRITE and self._kind == "read":
            return (
                f"a program was killed while it wrote to {self._path}; start the server once without --read-only, or "
                "open the file with any program that may write to it, to roll back the unfinished write"
            )
        if "readonly" in text:
            return f"{self._path} cannot be written; check its permissions"
        if text.startswith("database is locked"):
            return f"{text}: another program is writing to it; try again"
        if text == "file is not a database":
            return f"{self._path} is not a SQLite database; start the server with another --db-path FILE"
        return text


def _rollback(connection: sqlite3.Connection) -> None:
    connection.set_authorizer(None)
    # The handler would interrupt the rollback as well.
    connection.set_progress_handler(None, 0)
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _row_text(names: Sequence[str], most: int) -> Callable[[Sequence[Any]], str | None]:
    """Return a function that formats a row as a Python mapping; it returns None for a row that is too long."""
    # Of columns with the same name a mapping keeps the last.
    form = (
        None if len(set(names)) < len(names) else ", ".join([repr(name).replace("%", "%%") + ": %r" for name in names])
    )
    sized = (str, bytes)

    def written(row: Sequence[Any]) -> str | None:
        # The text of a bytes value has up to four characters per byte.
        if sum([len(each) for each in row if isinstance(each, sized)]) > most:
            return None
        return str(dict(zip(names, row, strict=True))) if form is None else f"{{{form % tuple(row)}}}"

    return written


def _first_word(sql: str) -> str:
    found = _FIRST_WORD.match(sql)
    return found.group(1).upper() if found is not None else ""


def limit_memory(most: int = _MOST_MEMORY) -> None:
    """Limit the memory of SQLite for all databases of this process; statements that need more fail."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA hard_heap_limit = {int(most)}")


# --- the sample shop -------------------------------------------------------------------------------------------------

_TABLES = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL, since DATE NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, category TEXT NOT NULL, price NUMERIC NOT NULL);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    ordered_on DATE NOT NULL,
    status TEXT NOT NULL
);
CREATE TABLE order_items (
    order_id INTEGER NOT NULL REFERENCES orders (id),
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity INTEGER NOT NULL,
    PRIMARY KEY (order_id, product_id)
);
"""
_PEOPLE = ("Ada", "Ben", "Chen", "Dana", "Emil", "Fatima", "Goran", "Hana")
_CITIES = ("Oslo", "Paris", "Seville")
_GOODS = (
    ("Espresso cups", "kitchen", 18.5),
    ("Bread knife", "kitchen", 24.0),
    ("Desk lamp", "office", 39.9),
    ("Notebook", "office", 4.2),
    ("Rain jacket", "outdoor", 89.0),
)
_STATES = ("paid", "shipped", "open")
_ORDERS = 24


def create_sample(path: Path) -> bool:
    """Fill a database without tables; return False if it has some, and leave it unchanged.

    Raises:
        ConfigError: the file is not a database, or cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                connection.execute("ROLLBACK")
                return False
            _fill(connection)
            connection.execute("COMMIT")
            return True
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"--sample: {path} cannot be filled ({error}); give another --db-path") from error


def _fill(connection: sqlite3.Connection) -> None:
    for statement in _TABLES.strip().split(";"):
        connection.execute(statement)
    people = [(name, _CITIES[n % 3], f"201{n}-0{n + 1}-15") for n, name in enumerate(_PEOPLE)]
    connection.executemany("INSERT INTO customers (name, city, since) VALUES (?, ?, ?)", people)
    connection.executemany("INSERT INTO products (name, category, price) VALUES (?, ?, ?)", _GOODS)
    orders = [(1 + n * 5 % len(_PEOPLE), f"2023-{1 + n // 2:02}-{1 + n:02}", _STATES[n % 3]) for n in range(_ORDERS)]
    connection.executemany("INSERT INTO orders (customer_id, ordered_on, status) VALUES (?, ?, ?)", orders)
    items = {(1 + n % _ORDERS, 1 + n * 7 % len(_GOODS)): 1 + n % 3 for n in range(2 * _ORDERS)}
    rows = [(order, product, quantity) for (order, product), quantity in items.items()]
    connection.executemany("INSERT INTO order_items (order_id, product_id, quantity) VALUES (?, ?, ?)", rows)
