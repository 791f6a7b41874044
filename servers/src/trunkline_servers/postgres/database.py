"""Which statements are sent at all: those whose first word returns rows.

This is not what keeps a database safe: the role does, then the READ ONLY transaction that is always rolled back, then
the extended protocol, which carries one statement. Rejecting other statements here gives a better message, and blocks
the few commands that outlive a transaction, such as PREPARE TRANSACTION.

One read-only statement at a time: in a READ ONLY transaction that is always rolled back, within limits.

The statement uses the extended protocol, which carries only one. Rows are fetched in small batches from a portal, so
that those that do not fit into the result are never sent; time is limited by the database and, in case a statement
changes that setting, also here.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from trunkline.errors import ToolError
from trunkline_servers.postgres.connections import ConnectionPool, DatabaseUrl, MeteredConnection, load_asyncpg
from trunkline_servers.postgres.values import RowWriter
from trunkline_servers.sql import FittedRows, fit_rows
from trunkline_servers.untrusted import escape_invisible

__all__ = ["Database", "StatementLimits", "check_statement"]

_QUERY_WORDS = frozenset({"EXPLAIN", "SELECT", "SHOW", "TABLE", "VALUES", "WITH"})
_LONGEST = 256 * 1024
_LINE_END = re.compile(r"[\r\n]")


def check_statement(sql: str) -> None:
    """Check that a statement begins as a query.

    Raises:
        ToolError: it does not; the message lists what may be sent.
    """
    if len(sql) > _LONGEST:
        raise ToolError(f"The query is longer than {_LONGEST} characters; shorten it")
    if "\0" in sql:
        raise ToolError("The query holds a NUL character, which PostgreSQL cannot read")
    word = _first_word(sql)
    if word not in _QUERY_WORDS:
        what = f"{escape_invisible(word)} is refused" if word else "The query is empty"
        raise ToolError(f"{what}: send one read-only query (SELECT, WITH, VALUES, TABLE, EXPLAIN or SHOW)")


def _first_word(sql: str) -> str:
    """Return the first word after blanks, comments (which nest) and opening parentheses."""
    place, depth = 0, 0
    while place < len(sql):
        pair = sql[place : place + 2]
        if pair == "/*":
            depth, place = depth + 1, place + 2
        elif depth and pair == "*/":
            depth, place = depth - 1, place + 2
        elif depth:
            place += 1
        elif pair == "--":
            end = _LINE_END.search(sql, place)
            place = end.start() if end is not None else len(sql)
        elif sql[place].isspace() or sql[place] == "(":
            place += 1
        else:
            break
    rest = sql[place : place + 64]
    length = next((at for at, each in enumerate(rest) if not (each.isalnum() or each == "_")), len(rest))
    return rest[:length].upper() or rest[:1]


_BATCH = 100
_GRACE_SECONDS = 2.0
_MOST_WHOLE_TYPES = 100
#: Bytes received may exceed the result by this factor: rows that were left out are still received completely.
_WIRE_FACTOR = 8
_LEAST_WIRE = 16 * 1024 * 1024
_UNREADABLE = "The answer has a type that cannot be read here: name the columns, and write column::text for that one"


class StatementLimits(Struct, frozen=True, kw_only=True):
    """The limits of one statement: rows and bytes of its result, and seconds."""

    max_rows: int = 1000
    max_bytes: int = 1024 * 1024
    seconds: float = 10.0

    @property
    def begin(self) -> str:
        """SQL that begins a read-only transaction with timeouts."""
        milliseconds = max(1, int(self.seconds * 1000))
        return (
            "BEGIN TRANSACTION READ ONLY; "
            f"SET LOCAL statement_timeout = {milliseconds}; SET LOCAL lock_timeout = {min(5000, milliseconds)}; "
            f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds + 10_000}; "
            "SET LOCAL datestyle = 'ISO'"
        )


class Database:
    """A database; usable inside ``opened``."""

    def __init__(self, url: DatabaseUrl, *, bounds: StatementLimits, allow_superuser: bool = False) -> None:
        """Initialize with the URL; does not connect yet."""
        self._asyncpg = load_asyncpg()
        self._url = url
        self._bounds = bounds
        self._allow_superuser = allow_superuser
        self._sessions: ConnectionPool | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Provide connections for the lifespan; a first one is made in the background, to warn early."""
        self._sessions = sessions = ConnectionPool(self._url, allow_superuser=self._allow_superuser)
        looking = asyncio.ensure_future(self._look(sessions))
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.wait([looking])
            await sessions.close()
            self._sessions = None

    async def query(self, sql: str) -> FittedRows:
        """Run one statement and return the rows that fit, each as indented JSON."""
        bounds = self._bounds
        async with self._transaction() as session:
            session.meter.allow(max(_LEAST_WIRE, _WIRE_FACTOR * bounds.max_bytes))
            rows = RowWriter()
            taken: list[str] = []
            size = 0
            statement = await self._prepared(session, sql)
            cursor = await statement.cursor()
            while len(taken) <= bounds.max_rows and size <= bounds.max_bytes:
                batch = await cursor.fetch(min(_BATCH, bounds.max_rows + 1 - len(taken)))
                if not batch:
                    break
                written = [rows.write(row) for row in batch]
                taken += written
                size += sum(map(len, written))
            return fit_rows(taken, str, max_rows=bounds.max_rows, max_bytes=bounds.max_bytes)

    async def _prepared(self, session: MeteredConnection, sql: str) -> Any:
        for _ in range(_MOST_WHOLE_TYPES):
            try:
                return await session.connection.prepare(sql)
            except self._asyncpg.UnsupportedClientFeatureError as error:
                if not await session.decode_type_as_text(str(error)):
                    raise
        return await session.connection.prepare(sql)

    async def select(self, sql: str, *parameters: Any) -> Sequence[Any]:
        """Run a query of the server itself and return its rows."""
        async with self._transaction() as session:
            rows: Sequence[Any] = await session.connection.fetch(sql, *parameters)
            return rows

    async def _look(self, sessions: ConnectionPool) -> None:
        from trunkline_servers.postgres.connections import log

        try:
            async with sessions.session():
                pass
        except ToolError as error:
            log.warning("%s", error)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[MeteredConnection]:
        if self._sessions is None:
            raise ToolError("The server is not running: it connects to the database when it is served")
        async with self._sessions.session() as session:
            try:
                async with asyncio.timeout(self._bounds.seconds + _GRACE_SECONDS):
                    await session.connection.execute(self._bounds.begin)
                    yield session
            except (TimeoutError, self._asyncpg.QueryCanceledError) as error:
                raise ToolError(self._too_slow(error)) from error
            except self._asyncpg.PostgresConnectionError as error:
                raise ToolError(self._lost(session)) from error
            except self._asyncpg.PostgresError as error:
                raise ToolError(self._explained(error)) from error
            except self._asyncpg.InternalClientError as error:
                raise ToolError(_UNREADABLE) from error
            except (self._asyncpg.InterfaceError, OSError) as error:
                raise ToolError(self._failed(session, error)) from error
            finally:
                session.meter.allow(None)

    def _too_slow(self, error: BaseException) -> str:
        text = str(error)
        if "statement timeout" in text or isinstance(error, TimeoutError):
            return f"Stopped after {self._bounds.seconds:g} seconds: narrow the query, or raise --timeout"
        return f"Stopped by the database: {self._redacted(text)}"

    def _lost(self, session: MeteredConnection) -> str:
        if session.meter.exceeded:
            return (
                "The rows are so long that reading them was given up. "
                "Select fewer columns, or a part of them: left(column, 1000)."
            )
        return f"The connection to {self._url.shown} was lost. Try again: the next call connects anew."

    def _failed(self, session: MeteredConnection, error: Exception) -> str:
        if session.connection.is_closed() or isinstance(error, OSError):
            return self._lost(session)
        if "expects" in str(error):
            return "The query has parameters ($1); write the values into it"
        return self._redacted(str(error))

    def _explained(self, error: Any) -> str:
        parts = [str(getattr(error, "message", None) or error)]
        parts += [f"{name}: {text}" for name in ("detail", "hint") if (text := getattr(error, name, None))]
        return self._redacted(". ".join(part.rstrip(".") for part in parts))

    def _redacted(self, text: str) -> str:
        return text if self._sessions is None else self._sessions.redacted(text)
