"""The WAL mode of SQLite files that several processes open at the same moment."""

from __future__ import annotations

import sqlite3
import time

__all__ = ["enter_wal_mode"]

_PAUSE = 0.01  # Another process enters the mode in milliseconds.
_PRIMARY = 0xFF  # The bits of the error code without its details.


def enter_wal_mode(connection: sqlite3.Connection, *, seconds: float) -> None:
    """Put a file into WAL mode, in which it stays; wait for other connections for at most ``seconds``.

    Processes that are started together enter the mode of a new file at the same moment. The timeout of the connection
    does not cover that: SQLite locks the file for reading first, and a connection with this lock does not wait for one
    that is about to write, since that one may wait for it.

    Raises:
        sqlite3.Error: the file cannot be used, or is locked for longer.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & _PRIMARY != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
        else:
            return
        time.sleep(_PAUSE)
