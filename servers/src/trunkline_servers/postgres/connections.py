"""Connections to PostgreSQL: the URL without its password, the privileges of the role, and a small connection pool.

A connection counts the bytes that it receives, and is reset before it is used again.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from msgspec import Struct

from trunkline.errors import ConfigError, ToolError
from trunkline_servers.postgres.values import DECODERS, TUPLE_DECODERS
from trunkline_servers.untrusted import printable

__all__ = [
    "ADVICE",
    "DatabaseUrl",
    "MeteredConnection",
    "PostgresPool",
    "RolePrivileges",
    "load_asyncpg",
    "query_role",
]

_EXAMPLE = "postgresql://user@localhost/mydb"


class DatabaseUrl(Struct, frozen=True):
    """A ``postgresql://`` URL."""

    secret: str
    #: For display: without the password and the options, which may contain one too.
    shown: str
    #: Prefix of schema resource URIs, as in the official server: with the user and without the password.
    base: str

    @classmethod
    def read(cls, url: str) -> DatabaseUrl:
        """Parse a URL.

        Raises:
            ConfigError: it is invalid; the message does not repeat it, since it may contain a password.
        """
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            raise ConfigError(f"The database URL cannot be read; it looks like {_EXAMPLE}") from None
        if parts.scheme not in ("postgres", "postgresql"):
            raise ConfigError(f"The database URL does not begin with postgresql://; it looks like {_EXAMPLE}")
        if "@" in parts.path + parts.fragment or ("@" not in parts.netloc and "@" in parts.query):
            # Otherwise a part of the password would be taken for the host, and shown.
            raise ConfigError(
                "The database URL has an @ behind its host: write / ? # and @ in a password as %2F %3F %23 %40"
            )
        host = _host(parts)
        return cls(url, f"postgresql://{host}{printable(parts.path, 100)}", f"postgres://{host}/")

    def __repr__(self) -> str:
        """Show it without its password."""
        return f"DatabaseUrl({self.shown!r})"


def _host(parts: SplitResult) -> str:
    user, at, host = parts.netloc.rpartition("@")
    return printable(user.partition(":")[0] + at + host, 300)


#: Roles that can reach files and programs of the database host.
_POWERS = ("pg_execute_server_program", "pg_read_server_files", "pg_write_server_files")
_QUESTION = """
SELECT current_user AS name, session_user AS session,
       (SELECT bool_or(rolsuper) FROM pg_catalog.pg_roles WHERE rolname IN (current_user, session_user)) AS superuser,
       ARRAY(
           SELECT rolname::text FROM pg_catalog.pg_roles
           WHERE rolname = ANY($1::text[]) AND pg_catalog.pg_has_role(session_user, oid, 'MEMBER') ORDER BY 1
       ) AS powers,
       ARRAY(
           SELECT c.oid::regclass::text FROM pg_catalog.pg_class c
           JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
           WHERE c.relkind IN ('r', 'p', 'v', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
             AND n.nspname NOT LIKE 'pg\\_temp%' AND n.nspname NOT LIKE 'pg\\_toast%'
             AND pg_catalog.has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
           ORDER BY 1 LIMIT 3
       ) AS writable,
       (SELECT bool_or(pg_catalog.has_schema_privilege(oid, 'CREATE')) FROM pg_catalog.pg_namespace
        WHERE nspname NOT LIKE 'pg\\_%') AS creates
"""
ADVICE = (
    "Make a role that can only read, and connect as it: "
    "CREATE ROLE mcp_reader LOGIN PASSWORD '...' NOSUPERUSER NOCREATEDB NOCREATEROLE; "
    "GRANT USAGE ON SCHEMA public TO mcp_reader; "
    "GRANT SELECT ON ALL TABLES IN SCHEMA public TO mcp_reader; "
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO mcp_reader;"
)


class RolePrivileges(Struct, frozen=True):
    """The connected role and its privileges beyond reading."""

    name: str
    superuser: bool
    powers: tuple[str, ...]
    writable: tuple[str, ...]
    creates: bool

    @property
    def reaches_machine(self) -> str | None:
        """Why queries of this role could reach files or programs of the database host; None if they cannot."""
        if self.superuser:
            return "is a superuser"
        return f"is a member of {', '.join(self.powers)}" if self.powers else None

    @property
    def may_write(self) -> str | None:
        """What the role could change without the READ ONLY transaction; None if nothing."""
        if self.writable:
            return f"may write to tables ({', '.join(self.writable)})"
        return "may create tables" if self.creates else None


async def query_role(connection: Any) -> RolePrivileges:
    """Query the privileges of the role of a connection."""
    row = await connection.fetchrow(_QUESTION, list(_POWERS))
    return RolePrivileges(
        row["name"], bool(row["superuser"]), tuple(row["powers"]), tuple(row["writable"]), bool(row["creates"])
    )


log = logging.getLogger("trunkline_servers")

_MOST = 4
_CONNECT_SECONDS = 10.0
_RESET_SECONDS = 5.0
_NOT_IN_PARTS = re.compile(r'cannot decode type "(.+)"\."(.+)": text encoding of (?:composite|range) types')
# Types without a fixed form. The driver would decode the parts of a record as text although they are not, and fails on
# the others or decodes them to None.
_UNTYPED = ((2249, "record"), (2275, "cstring"), (2277, "anyarray"), (2278, "void"))
_TYPE = """
SELECT t.oid FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE n.nspname = $1 AND t.typname = $2
"""


def load_asyncpg() -> Any:
    """Return the asyncpg module.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module("asyncpg")
    except ImportError as error:
        raise ConfigError("The PostgreSQL server needs asyncpg: pip install 'trunkline[servers]'") from error


class _ByteMeter(asyncio.Protocol):
    """Protocol in front of the driver that counts received bytes; beyond the budget it aborts the connection."""

    def __init__(self, inner: Any, transport: Any) -> None:
        self._inner = inner
        self._transport = transport
        self._left: int | None = None
        self.exceeded = False

    def allow(self, budget: int | None) -> None:
        """Set the budget for received bytes; None means unlimited."""
        self._left = budget

    def data_received(self, data: bytes) -> None:
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                self.exceeded = True
                self._transport.abort()
                return
        self._inner.data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._inner.connection_lost(error)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()  # type: ignore[no-any-return]

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class MeteredConnection:
    """A connection with a byte meter."""

    __slots__ = ("connection", "meter")

    def __init__(self, connection: Any) -> None:
        """Install a meter on a connection."""
        self.connection = connection
        transport, inner = connection._transport, connection._protocol
        self.meter = _ByteMeter(inner, transport)
        transport.set_protocol(self.meter)

    async def decode_type_as_text(self, problem: str) -> bool:
        """Decode a type as PostgreSQL's text, if the driver reported that it cannot decode it; False otherwise.

        The driver decodes ranges and composites unless one of their parts is a type that comes as text.
        """
        found = _NOT_IN_PARTS.match(problem)
        oid = await self.connection.fetchval(_TYPE, found.group(1), found.group(2)) if found else None
        if found is None or oid is None:
            return False
        _decode_as_text(self.connection, oid, found.group(1), found.group(2))
        return True

    async def reset(self) -> bool:
        """Roll back and reset the connection, including locks; return False if it must not be reused."""
        if self.connection.is_closed():
            return False
        try:
            # In one message, to save round trips.
            await self.connection.execute(f"ROLLBACK;\n{self.connection.get_reset_query()}", timeout=_RESET_SECONDS)
        except Exception as error:  # noqa: BLE001  (whatever the error, the connection is not reused)
            log.debug("a connection could not be reset: %s", type(error).__name__)
            self.connection.terminate()
        except BaseException:
            self.connection.terminate()
            raise
        return not self.connection.is_closed()


def _decode_as_text(connection: Any, oid: int, schema: str, name: str) -> None:
    connection._protocol.get_settings().add_python_codec(oid, name, schema, [], "scalar", str, str, "text")


class PostgresPool:
    """The connection pool of one server, bound to one event loop."""

    def __init__(self, url: DatabaseUrl, *, allow_superuser: bool) -> None:
        """Start without connections."""
        self._asyncpg = load_asyncpg()
        self._url = url
        self._allow_superuser = allow_superuser
        self._free = asyncio.Semaphore(_MOST)
        self._idle: list[MeteredConnection] = []
        self._lent: set[MeteredConnection] = set()
        self._closed = False
        self._warned = False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[MeteredConnection]:
        """Provide a connection.

        Raises:
            ToolError: there is none; the message says why.
        """
        async with self._free:
            session = self._take() or await self._connected()
            self._lent.add(session)
            try:
                yield session
            finally:
                try:
                    if await session.reset() and not self._closed:
                        self._idle.append(session)
                finally:
                    self._lent.discard(session)
                    if self._closed:
                        session.connection.terminate()

    async def close(self) -> None:
        """Close idle connections, and terminate those in use: their calls were cancelled."""
        self._closed = True
        for session in self._lent:
            session.connection.terminate()
        while self._idle:
            session = self._idle.pop()
            with suppress(Exception):
                await session.connection.close(timeout=_RESET_SECONDS)

    def _take(self) -> MeteredConnection | None:
        while self._idle:
            session = self._idle.pop()
            if not session.connection.is_closed():
                return session
        return None

    async def _connected(self) -> MeteredConnection:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                return await self._connect()
        except TimeoutError as error:
            raise ToolError(self._unreachable(f"no answer within {_CONNECT_SECONDS:g} seconds")) from error
        except (OSError, ValueError, self._asyncpg.PostgresError, self._asyncpg.InterfaceError) as error:
            # The driver's error is not chained: its text may contain the password.
            raise ToolError(self._unreachable(str(error))) from None

    async def _connect(self) -> MeteredConnection:
        connection = await self._asyncpg.connect(
            self._url.secret,
            statement_cache_size=0,
            timeout=_CONNECT_SECONDS,
            server_settings={"application_name": "trunkline-server-postgres"},
        )
        try:
            await self._prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return MeteredConnection(connection)

    async def _prepare(self, connection: Any) -> None:
        self._check_role(await query_role(connection))
        for name, decoder in DECODERS.items():
            # Older databases lack some types.
            with suppress(ValueError):
                await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=decoder, format="text")
        for name, split in TUPLE_DECODERS.items():
            await connection.set_type_codec(name, schema="pg_catalog", encoder=str, decoder=split, format="tuple")
        for oid, name in _UNTYPED:
            _decode_as_text(connection, oid, "pg_catalog", name)

    def _check_role(self, role: RolePrivileges) -> None:
        name = printable(role.name, 64)
        if role.reaches_machine is not None and not self._allow_superuser:
            raise ToolError(
                f"Refused to run queries as the role {name!r}: it {role.reaches_machine}, and a read-only transaction "
                f"does not keep it from files and programs of the database's machine. {ADVICE} "
                "Or start the server with --allow-superuser, if that is what you want."
            )
        can = role.reaches_machine or role.may_write
        if can is not None and not self._warned:
            self._warned = True
            log.warning(
                "The role %r %s; only the READ ONLY transaction prevents that. %s", name, printable(can, 500), ADVICE
            )

    def _unreachable(self, reason: str) -> str:
        return (
            f"Cannot connect to {self._url.shown}: {self.redacted(reason)}. Check that the database runs there, and "
            "that the user, password and database name of the URL are right."
        )

    def redacted(self, text: str) -> str:
        """Return a text on one line with the password redacted."""
        parts = urlsplit(self._url.secret)
        secrets = {parts.password or "", *parse_qs(parts.query).get("password", [])}
        for secret in {*secrets, *map(unquote, secrets)} - {""}:
            text = text.replace(secret, "***")
        return printable(text, 500).rstrip(".")
