"""The shadow tables of full-text and spatial indexes: a caller's statement must not write to them.

SQLite enforces this itself in defensive mode, which Python can set from 3.12 on. Before, the authorizer has to; but it
is also called for the index's own writes, which are compiled while a statement runs. So the statement is first
compiled without running, as ``EXPLAIN``: whatever the authorizer is called for then belongs to the statement itself.
"""

from __future__ import annotations

import re
import sqlite3

from trunkline.servers.sqlite.access import Access

__all__ = ["guard_shadows"]

_SHADOWS = "SELECT name FROM pragma_table_list WHERE type = 'shadow'"
#: The first version of SQLite that lists shadow tables.
_TELLS = (3, 37)
_EXPLAINS = re.compile(r"\s*explain\b", re.IGNORECASE)


def guard_shadows(connection: sqlite3.Connection, access: Access, sql: str) -> None:
    """Check that a statement does not write to shadow tables; call it inside the transaction.

    Raises:
        sqlite3.Error: it does, which ``access`` then reports, or it cannot be compiled.
    """
    if hasattr(connection, "setconfig") or sqlite3.sqlite_version_info < _TELLS or _EXPLAINS.match(sql):
        return
    shadows = frozenset(str(name).lower() for (name,) in connection.execute(_SHADOWS))
    if not shadows:
        return
    strict = Access(access.kind, shadows=shadows)
    connection.set_authorizer(strict)
    try:
        connection.execute(f"EXPLAIN {sql}").close()
    finally:
        connection.set_authorizer(None)
        access.refused = strict.refused
