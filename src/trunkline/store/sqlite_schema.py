"""The tables of an SQLite store.

A change of them is a new ``SCHEMA_VERSION``: a file of another version is refused, and never changed.
"""

from __future__ import annotations

__all__ = ["APPLICATION_ID", "SCHEMA", "SCHEMA_VERSION"]

#: In the header of the file: "TRLN".
APPLICATION_ID = 0x54524C4E
SCHEMA_VERSION = 1  # Counted up with each change of the tables below.
SCHEMA = (
    # Counters of the whole file; one row.
    """CREATE TABLE state (
        generation TEXT NOT NULL, last_entry INTEGER NOT NULL, last_message INTEGER NOT NULL,
        message_bytes INTEGER NOT NULL)""",
    # Values may be large: a table with rowids keeps the tree of the keys small. Here as in other tables ``sweep_at`` is
    # when a row is looked at that may have expired. To renew a row does not change it, and so no other page.
    """CREATE TABLE value (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, value BLOB NOT NULL, expires REAL NOT NULL,
        sweep_at REAL NOT NULL)""",
    "CREATE INDEX value_sweep ON value (sweep_at)",
    # A log without a name was deleted or has expired: its entries are removed little by little.
    """CREATE TABLE log (
        id INTEGER PRIMARY KEY, name TEXT UNIQUE, entries INTEGER NOT NULL, bytes INTEGER NOT NULL,
        expires REAL NOT NULL, sweep_at REAL NOT NULL)""",
    "CREATE INDEX log_sweep ON log (sweep_at)",
    "CREATE TABLE log_entry (position INTEGER PRIMARY KEY, log INTEGER NOT NULL, data BLOB NOT NULL)",
    "CREATE INDEX log_entry_order ON log_entry (log, position)",
    # ``since`` is null for an entry that was never leased, 0 for one that was released.
    """CREATE TABLE queue_entry (
        arrival INTEGER PRIMARY KEY, queue TEXT NOT NULL, id TEXT NOT NULL, data BLOB NOT NULL,
        holder TEXT NOT NULL, since REAL, attempt INTEGER NOT NULL, UNIQUE (queue, id))""",
    "CREATE INDEX queue_entry_order ON queue_entry (queue, since)",
    # Running totals.
    """CREATE TABLE index_total (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, members INTEGER NOT NULL, weight INTEGER NOT NULL,
        sweep_at REAL NOT NULL)""",
    "CREATE INDEX index_total_sweep ON index_total (sweep_at)",
    """CREATE TABLE index_member (
        index_id INTEGER NOT NULL, member TEXT NOT NULL, weight INTEGER NOT NULL, expires REAL NOT NULL,
        sweep_at REAL NOT NULL, PRIMARY KEY (index_id, member)) WITHOUT ROWID""",
    "CREATE INDEX index_member_sweep ON index_member (index_id, sweep_at)",
    # ``expires`` is the theoretical arrival time of the next event.
    """CREATE TABLE rate (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, expires REAL NOT NULL, sweep_at REAL NOT NULL)""",
    "CREATE INDEX rate_sweep ON rate (sweep_at)",
    # An event loop with subscriptions, and the name of its socket. ``trimmed``: the last message to it that was
    # removed. ``until``: when it is forgotten unless it is renewed.
    """CREATE TABLE listener (
        id INTEGER PRIMARY KEY AUTOINCREMENT, socket TEXT NOT NULL UNIQUE, trimmed INTEGER NOT NULL,
        until REAL NOT NULL)""",
    # ``since``: the last message before the subscription.
    """CREATE TABLE subscription (
        channel TEXT NOT NULL, listener INTEGER NOT NULL, since INTEGER NOT NULL,
        PRIMARY KEY (channel, listener)) WITHOUT ROWID""",
    "CREATE INDEX subscription_listener ON subscription (listener)",
    "CREATE TABLE message (id INTEGER PRIMARY KEY, channel TEXT NOT NULL, data BLOB NOT NULL, sent REAL NOT NULL)",
)
