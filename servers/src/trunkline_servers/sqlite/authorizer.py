"""What a statement may do.

The authorizer callbacks that SQLite calls while it compiles one, and the check that no statement writes to the shadow
tables of an index.
"""

from __future__ import annotations

import re
import sqlite3
from types import MappingProxyType

__all__ = ["StatementAuthorizer", "StatementKind", "check_shadow_tables"]

StatementKind = str

#: Functions that reach outside the database, in some builds of SQLite.
_UNSAFE_FUNCTIONS = frozenset({"edit", "fts3_tokenizer", "load_extension", "readfile", "writefile", "zipfile"})
#: Pragmas that only read the schema; SELECT uses them as pragma_table_info(...), full-text search the first one.
_READ_PRAGMAS = frozenset(
    {
        "data_version",
        "foreign_key_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "table_info",
        "table_list",
        "table_xinfo",
    }
)
#: Internal tables that change with the schema; others, such as sqlite_dbpage, are the file itself.
_OWN = frozenset({"sqlite_master", "sqlite_schema", "sqlite_sequence", "sqlite_temp_master"})

_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_CHANGING = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_CREATING = frozenset({sqlite3.SQLITE_CREATE_TABLE, sqlite3.SQLITE_CREATE_INDEX, sqlite3.SQLITE_REINDEX})
_DEFINING = frozenset(
    {
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_CREATE_TRIGGER,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_TRIGGER,
        sqlite3.SQLITE_DROP_VIEW,
    }
)
_ALLOWED = MappingProxyType(
    {
        "read": _READING,
        # CREATE TABLE AS SELECT also inserts rows.
        "create": _READING | {sqlite3.SQLITE_INSERT} | _CREATING,
        "write": _READING | _CHANGING | _CREATING | _DEFINING,
    }
)
_ALTERING = _ALLOWED["write"] - _READING
_MAKING = _CREATING | _DEFINING
_NAMES = MappingProxyType(
    {
        getattr(sqlite3, name): name.removeprefix("SQLITE_").replace("_", " ")
        for name in dir(sqlite3)
        if name.startswith(
            ("SQLITE_CREATE", "SQLITE_DROP", "SQLITE_ALTER", "SQLITE_ANALYZE", "SQLITE_ATTACH", "SQLITE_DETACH")
        )
        or name in ("SQLITE_DELETE", "SQLITE_INSERT", "SQLITE_UPDATE", "SQLITE_PRAGMA", "SQLITE_REINDEX")
        or name in ("SQLITE_SAVEPOINT", "SQLITE_TRANSACTION")
    }
)


class StatementAuthorizer:
    """The authorizer of one statement; ``refused`` names the first denied action."""

    __slots__ = ("_allowed", "_shadows", "kind", "only_reads", "refused")

    def __init__(self, kind: StatementKind, *, shadows: frozenset[str] = frozenset()) -> None:
        """Allow ``read``, ``create`` (of tables) or ``write``, but no changes of the ``shadows`` tables."""
        self.kind = kind
        self._allowed = _ALLOWED[kind]
        self._shadows = shadows
        self.refused: str | None = None
        #: Whether all actions so far only read.
        self.only_reads = True

    def __call__(
        self, action: int, first: str | None, second: str | None, database: str | None, inside: str | None
    ) -> int:
        """Return SQLITE_OK or SQLITE_DENY for an action; called by SQLite."""
        # Temporary objects vanish with the connection, whatever the result says.
        is_lost = database == "temp" and action in _MAKING
        if not is_lost and self._allows(action, first or "", second or ""):
            self.only_reads = self.only_reads and action not in _ALTERING
            return sqlite3.SQLITE_OK
        self.refused = self.refused or _action_name(action, first, second) + (" in temp" if is_lost else "")
        return sqlite3.SQLITE_DENY

    def _allows(self, action: int, first: str, second: str) -> bool:
        if action == sqlite3.SQLITE_FUNCTION:
            return second.lower() not in _UNSAFE_FUNCTIONS
        if action == sqlite3.SQLITE_PRAGMA:
            return first.lower() in _READ_PRAGMAS
        if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
            # Reported when a virtual table is opened, even for reading; SQLite itself rejects an explicit update.
            return True
        if action not in self._allowed:
            return False
        if self._shadows and action in _ALTERING:
            # The second name is a column for an update, and the table for an index, trigger or rename.
            names = {first.lower()} if action in _CHANGING else {first.lower(), second.lower()}
            if names & self._shadows:
                return False
        return action not in _CHANGING or not first.lower().startswith("sqlite_") or first.lower() in _OWN


def _action_name(action: int, first: str | None, second: str | None) -> str:
    if action == sqlite3.SQLITE_FUNCTION:
        return f"the function {second}()"
    name = _NAMES.get(action, f"action {action}")
    return f"{name} {first}" if first and action == sqlite3.SQLITE_PRAGMA else name


_SHADOWS = "SELECT name FROM pragma_table_list WHERE type = 'shadow'"
#: The first version of SQLite that lists shadow tables.
_LISTS_SHADOWS_SINCE = (3, 37)
_EXPLAINS = re.compile(r"\s*explain\b", re.IGNORECASE)


def check_shadow_tables(connection: sqlite3.Connection, access: StatementAuthorizer, sql: str) -> None:
    """Check that a statement does not write to shadow tables; call it inside the transaction.

    Raises:
        sqlite3.Error: it does, which ``access`` then reports, or it cannot be compiled.
    """
    if hasattr(connection, "setconfig") or sqlite3.sqlite_version_info < _LISTS_SHADOWS_SINCE or _EXPLAINS.match(sql):
        return
    shadows = frozenset(str(name).lower() for (name,) in connection.execute(_SHADOWS))
    if not shadows:
        return
    strict = StatementAuthorizer(access.kind, shadows=shadows)
    connection.set_authorizer(strict)
    try:
        connection.execute(f"EXPLAIN {sql}").close()
    finally:
        connection.set_authorizer(None)
        access.refused = strict.refused
