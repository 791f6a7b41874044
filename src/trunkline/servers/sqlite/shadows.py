"""The tables in which a full-text or spatial index keeps itself: a statement of a caller does not write to them.

SQLite says so itself where it can be told to be defensive, which Python can from 3.12 on. Before, the authorizer has
to; but it is asked about the index's own writes too, which are compiled while a statement runs. So the statement is
compiled once without being run, as ``EXPLAIN``: whatever the authorizer is asked about then is the statement's own.
"""

from __future__ import annotations

import re
import sqlite3

from trunkline.servers.sqlite.access import Access

__all__ = ["guard_shadows"]

_SHADOWS = "SELECT name FROM pragma_table_list WHERE type = 'shadow'"
#: The first version of SQLite that tells which tables these are.
_TELLS = (3, 37)
_EXPLAINS = re.compile(r"\s*explain\b", re.IGNORECASE)


def guard_shadows(connection: sqlite3.Connection, access: Access, sql: str) -> None:
    """See that a statement does not touch the tables of an index, in a transaction in which the schema stays.

    Raises:
        sqlite3.Error: it does, as ``access`` says then, or it cannot be compiled.
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
