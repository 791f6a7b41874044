"""One SQLite file: each statement on a connection of its own, in a worker thread, under an authorizer and a deadline.

Reading connections are opened ``mode=ro``, so that not even a mistake in the authorizer could change the file. A
writing statement is one transaction: it is committed whole or rolled back whole. Whoever cancels interrupts SQLite,
which then rolls back. One function of SQLite cannot be interrupted: a statement that is in a long one when its time is
over is answered and left to its thread, and what it would change is rolled back. It knows nothing of the protocol but
its errors.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from trunkline.errors import ConfigError, ToolError
from trunkline.servers.sqlite.access import Access, Kind
from trunkline.servers.tables import Fitted, fit, inert

__all__ = ["Bounds", "Database", "limit_memory"]

T = TypeVar("T")

_STEPS_BETWEEN_LOOKS = 1000
#: How long an interrupted statement has to end.
_GRACE_SECONDS = 1.0
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
#: What a program that was killed while it wrote leaves behind must be undone, which a reading connection may not do.
_LEFT_IN_THE_MIDDLE = frozenset(
    {sqlite3.SQLITE_READONLY_ROLLBACK, sqlite3.SQLITE_READONLY_RECOVERY, sqlite3.SQLITE_READONLY_CANTINIT}
)
_RTREES = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%rtree%' LIMIT 100"
_FIRST_WORD = re.compile(r"(?>\s+|--[^\n]*+|/\*(?>.*?\*/))*+(\w+)", re.DOTALL)


class Bounds(Struct, frozen=True, kw_only=True):
    """How much one statement may cost: rows and bytes of its answer, and seconds."""

    max_rows: int = 1000
    max_bytes: int = 1024 * 1024
    seconds: float = 10.0


class Database:
    """A database file."""

    def __init__(
        self,
        path: Path,
        *,
        bounds: Bounds,
        submit: Callable[[Callable[[], Any]], asyncio.Future[Any]],
        read_only: bool = False,
    ) -> None:
        """Take the file, the bounds of each statement, what runs a function in a thread, and if nothing may change."""
        self.path = path
        self.bounds = bounds
        self._submit = submit
        self._read_only = read_only
        self._turn = threading.Lock()

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
        most = self.bounds.max_bytes

        def written(row: Mapping[str, Any]) -> str | None:
            # The text of bytes has up to four characters for each.
            return None if sum(len(each) for each in row.values() if isinstance(each, str | bytes)) > most else str(row)

        return fit(rows, written, max_rows=self.bounds.max_rows, max_bytes=most)

    async def select(self, sql: str, parameters: Sequence[Any] = (), *, most: int = 10_000) -> list[tuple[Any, ...]]:
        """Run a reading statement of our own and give its rows as they are."""

        def work(cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
            return cursor.execute(sql, parameters).fetchmany(most)

        return await self.look(work)

    async def look(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """Run reading statements of our own on one connection."""
        return await self._run("read", work, "Refused")

    async def change(self, sql: str, kind: Kind, refusal: str) -> int:
        """Run a writing statement as one transaction and give how many rows it touched; -1 where there is no count."""

        def work(cursor: sqlite3.Cursor) -> int:
            cursor.execute(sql)
            # A statement with RETURNING is not done before its rows are taken.
            for _ in cursor:
                pass
            if cursor.rowcount < 0 and word == "WITH":
                return int(cursor.execute("SELECT changes()").fetchone()[0])
            return cursor.rowcount

        word = _first_word(sql)
        # IF EXISTS and IF NOT EXISTS may leave nothing to do.
        return await self._run(kind, work, refusal, may_be_idle=word in ("CREATE", "DROP"))

    async def _run(
        self, kind: Kind, work: Callable[[sqlite3.Cursor], T], refusal: str, *, may_be_idle: bool = False
    ) -> T:
        statement = _Statement(self.path, kind, self.bounds, turn=None if kind == "read" else self._turn)
        statement.read_only, statement.may_be_idle = self._read_only, may_be_idle
        running = self._submit(lambda: statement.run(work, refusal))
        try:
            if not await _ended(running, self.bounds.seconds):
                # SQLite looks at this more often than it asks for the time.
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
    """One statement on its way through a thread."""

    def __init__(self, path: Path, kind: Kind, bounds: Bounds, *, turn: threading.Lock | None) -> None:
        self._path = path
        self._kind = kind
        self._bounds = bounds
        self._turn = turn
        self.read_only = False
        #: Whether it may find nothing to change.
        self.may_be_idle = False
        self._deadline = time.monotonic() + bounds.seconds
        self._lock = threading.Lock()
        self._cancelled = False
        self._committing = False
        self._connection: sqlite3.Connection | None = None

    @property
    def too_slow(self) -> str:
        """What to say if it took too long."""
        seconds = f"{self._bounds.seconds:g}"
        return f"Database error: stopped after {seconds} seconds; narrow the statement, or raise --timeout"

    def cancel(self) -> bool:
        """Have it stopped, so that it changes nothing; any thread may. False if its changes are being kept already."""
        with self._lock:
            if self._committing:
                return False
            self._cancelled = True
        self.interrupt()
        return True

    def interrupt(self) -> None:
        """Have SQLite stop at what it does now; any thread may."""
        connection = self._connection
        if connection is not None:
            # One that has just been closed has nothing left to stop.
            with suppress(sqlite3.ProgrammingError):
                connection.interrupt()

    def run(self, work: Callable[[sqlite3.Cursor], T], refusal: str) -> T:
        """Run it; in the thread."""
        access = Access(self._kind)
        try:
            try:
                with closing(self._open(self._kind)) as connection, self._in_turn():
                    return self._within(connection, access, work)
            except sqlite3.OperationalError as error:
                if self.read_only or self._kind != "read" or error.sqlite_errorcode not in _LEFT_IN_THE_MIDDLE:
                    raise
            # To open it for writing undoes what is half done, as any program that uses SQLite does.
            self._open("write").close()
            with closing(self._open(self._kind)) as connection:
                return self._within(connection, access, work)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ToolError(self._explained(error, access, refusal)) from error
        except (OverflowError, UnicodeError, MemoryError) as error:
            raise ToolError(f"Database error: {inert(str(error)) or 'out of memory'}") from error
        finally:
            self._connection = None

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        """Let the changes of this server wait for each other here: SQLite would only look again and again."""
        if self._turn is None:
            yield
            return
        if not self._turn.acquire(timeout=max(0.0, self._deadline - time.monotonic())):
            raise sqlite3.OperationalError("interrupted")
        try:
            yield
        finally:
            self._turn.release()

    def _within(self, connection: sqlite3.Connection, access: Access, work: Callable[[sqlite3.Cursor], T]) -> T:
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
            if access.only_reads and not self.may_be_idle:
                _rollback(connection)
                raise ToolError("Error: this statement changes nothing; use read_query for it")
            with self._lock:
                self._committing = not self._must_stop()
            if not self._committing:
                _rollback(connection)
                raise sqlite3.OperationalError("interrupted")
            # Not to be stopped in the middle: it waits for readers no longer than for other writers.
            connection.set_progress_handler(None, 0)
            connection.execute("COMMIT")
        return done

    def _open(self, kind: Kind) -> sqlite3.Connection:
        mode = "ro" if kind == "read" else "rw"
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode={mode}",
            uri=True,
            timeout=min(_BUSY_SECONDS, self._bounds.seconds),
            isolation_level=None,
            check_same_thread=False,
        )
        self._connection = connection
        try:
            self._bound(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _bound(self, connection: sqlite3.Connection) -> None:
        connection.text_factory = self._text
        connection.set_progress_handler(self._must_stop, _STEPS_BETWEEN_LOOKS)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        if (configure := getattr(connection, "setconfig", None)) is not None:
            # Nobody writes to the tables in which a full-text index keeps itself; from Python 3.12 on.
            configure(getattr(sqlite3, "SQLITE_DBCONFIG_DEFENSIVE"), True)  # noqa: B009
        # A view or trigger of a database that came from elsewhere calls only functions without side effects.
        connection.execute("PRAGMA trusted_schema = OFF")
        # The schema is read before the limits of statements hold: a view past them must not lock up the other tables.
        # An R-Tree prepares what it would write when it is first looked at, which nobody who reads is allowed to.
        for (name,) in connection.execute(_RTREES).fetchall():
            with suppress(sqlite3.Error):
                connection.execute("SELECT 1 FROM pragma_table_info(?)", [name]).fetchone()
        for limit, value in _LIMITS:
            connection.setlimit(limit, value)

    def _text(self, raw: bytes) -> str:
        """Read a text; bytes that are no text are shown, not refused: one bad value must not hide a table."""
        # No answer has more of it, nor shows it cut.
        return raw[: self._bounds.max_bytes + 1].decode("utf-8", "backslashreplace")

    def _must_stop(self) -> bool:
        return self._cancelled or time.monotonic() > self._deadline

    def _explained(self, error: Exception, access: Access, refusal: str) -> str:
        text = inert(str(error))
        if access.refused is not None:
            return f"Error: {refusal} ({inert(access.refused, 100)} was refused)"
        if text == "interrupted":
            return self.too_slow
        return f"Database error: {self._fix(text, getattr(error, 'sqlite_errorcode', 0))}"

    def _fix(self, text: str, code: int) -> str:
        if text == "unable to open database file":
            if self._path.exists():
                return f"{self._path} cannot be opened; check the permissions of the file and of its folder"
            return f"there is no database to open at {self._path}; start the server with --db-path FILE"
        if code in _LEFT_IN_THE_MIDDLE and self._kind == "read":
            return (
                f"a program was killed while it wrote to {self._path}; start the server once without --read-only, or "
                "open the file with any program that may write to it, to undo what is half done"
            )
        if "readonly" in text:
            return f"{self._path} cannot be written; check its permissions"
        if text.startswith("database is locked"):
            return f"{text}: another program is writing to it; try again"
        if text == "file is not a database":
            return f"{self._path} is no SQLite database; start the server with another --db-path FILE"
        return text


def _rollback(connection: sqlite3.Connection) -> None:
    connection.set_authorizer(None)
    # The handler would stop the rollback as it stopped the statement.
    connection.set_progress_handler(None, 0)
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _first_word(sql: str) -> str:
    found = _FIRST_WORD.match(sql)
    return found.group(1).upper() if found is not None else ""


def limit_memory(most: int = _MOST_MEMORY) -> None:
    """Bound the memory that SQLite may take, for all databases of this process; what needs more fails."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"PRAGMA hard_heap_limit = {int(most)}")
