"""The verbs of an SQLite store on its tables (`sqlite_schema.py`), inside one transaction.

The caller begins and ends the transaction. No statement looks at more rows than it returns or changes, besides those
that have expired: of these, each transaction removes a bounded number. Times are wall time, since several processes
share the file and it outlives them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from trunkline.store.interface import (
    Commit,
    Delete,
    Delivery,
    Enqueue,
    Entry,
    Finish,
    FullIndex,
    Index,
    Put,
    Step,
    entry_position,
)

__all__ = ["Message", "Messages", "Tables"]

#: An entry id is a time in milliseconds and a number; both are in one integer, which has 43 bits for the time.
_NUMBER_BITS = 20
_MOST_MILLISECONDS = 1 << 43  # The year 2248.
#: Expired rows are looked for once in so many seconds. A transaction removes so many of each table, besides twice its
#: own operations; if more are left, the next one goes on.
_SWEEP_SECONDS = 1.0
_EXPIRED_AT_ONCE = 32  # About a millisecond.
#: Members that are removed at once from an index that seems full.
_MEMBERS_AT_ONCE = 256
#: Messages are kept for so many seconds, and so many bytes: a listener that is further behind has missed some.
_MESSAGE_SECONDS, _MESSAGE_BYTES = 60.0, 64 * 1024 * 1024


class Message(NamedTuple):
    """A message on a channel."""

    id: int
    channel: str
    data: bytes


class Messages(NamedTuple):
    """The messages to a listener since it read the last time."""

    messages: list[Message]
    #: All messages until this one were read.
    last: int
    #: Whether some were removed before they were read.
    missed: bool


class Tables:
    """The verbs on one connection."""

    def __init__(self, connection: sqlite3.Connection, prefix: str) -> None:
        """Use a connection; all names get a prefix, so that servers of different names do not see each other."""
        self._execute = connection.execute
        self._many = connection.executemany
        self._prefix = prefix
        #: Wall time of the transaction.
        self.now = 0.0
        #: The listeners that have new messages after this transaction.
        self.wakeups: set[int] = set()
        self._state: tuple[int, int, int] | None = None
        self._state_changed = False
        self._published = 0
        #: When expired rows are removed again.
        self._sweep_at = 0.0

    def begin(self, now: float) -> None:
        """Start anew, for a transaction that has begun."""
        self.now = now
        self.wakeups = set()
        self._state = None
        self._state_changed = False
        self._published = 0

    def finish(self, operations: int) -> None:
        """Do what is done once in a transaction; called before its end."""
        if self._published:
            self._trim_messages(_EXPIRED_AT_ONCE + 2 * self._published)
        if self.now >= self._sweep_at:
            has_more = self._remove_expired(_EXPIRED_AT_ONCE + 2 * operations)
            self._sweep_at = self.now if has_more else self.now + _SWEEP_SECONDS
        if self._state_changed:
            self._execute("UPDATE state SET last_entry = ?, last_message = ?, message_bytes = ?", self._state or ())

    def generation(self) -> str:
        """Return the generation of the file."""
        return str(self._execute("SELECT generation FROM state").fetchone()[0])

    # --- values ------------------------------------------------------------------------------------------------------

    def get(self, key: str) -> bytes | None:
        """Return a value."""
        row = self._execute(
            "SELECT value FROM value WHERE key = ? AND expires > ?", (self._prefix + key, self.now)
        ).fetchone()
        return None if row is None else row[0]

    def commit(self, steps: Sequence[Step]) -> Commit:
        """Check all conditions, then do all steps."""
        for step in steps:
            if isinstance(step, Put):
                if (step.old is not None or step.only_if_absent) and self.get(step.key) != step.old:
                    return Commit(False)
            elif isinstance(step, Index):
                full = self._full_index(step)
                if full is not None:
                    return Commit(False, full)
        for step in steps:
            self._do(step)
        return Commit(True)

    def _do(self, step: Step) -> None:
        if isinstance(step, Put):
            self._execute(
                "INSERT INTO value VALUES (NULL, ?1, ?2, ?3, ?3) "
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires = excluded.expires",
                (self._prefix + step.key, step.value, self.now + step.ttl),
            )
        elif isinstance(step, Delete):
            self._delete(self._prefix + step.key)
        elif isinstance(step, Index):
            for name in step.into:
                self._add_member(name, step)
            for name in step.out_of:
                self._remove_member(name, step.member)
        elif isinstance(step, Enqueue):
            self._enqueue(step)
        elif isinstance(step, Finish):
            self._execute(
                "DELETE FROM queue_entry WHERE queue = ? AND id = ? AND holder = ? AND since IS NOT NULL",
                (self._prefix + step.queue, step.id, step.holder),
            )
        else:
            self.publish(step.channel, step.data)

    def _delete(self, key: str) -> None:
        self._execute("DELETE FROM value WHERE key = ?", (key,))
        self._execute("UPDATE log SET name = NULL, expires = 0, sweep_at = 0 WHERE name = ?", (key,))
        self._execute("DELETE FROM rate WHERE key = ?", (key,))

    # --- logs --------------------------------------------------------------------------------------------------------

    def append(
        self, log: str, data: bytes, *, ttl: float, max_entries: int, max_bytes: int, announce: str | None
    ) -> tuple[str, tuple[int, ...]]:
        """Add an entry; return its id, and the listeners that it is announced to."""
        name, expires = self._prefix + log, self.now + ttl
        row = self._execute(
            "SELECT id, entries, bytes FROM log WHERE name = ? AND expires > ?", (name, self.now)
        ).fetchone()
        if row is None:
            self._execute("UPDATE log SET name = NULL, sweep_at = 0 WHERE name = ?", (name,))
            number = self._execute("INSERT INTO log VALUES (NULL, ?1, 0, 0, ?2, ?2)", (name, expires)).lastrowid
            entries, size = 0, 0
        else:
            number, entries, size = row
        position = self._next_position()
        self._execute("INSERT INTO log_entry VALUES (?, ?, ?)", (position, number, data))
        entries, size = entries + 1, size + len(data)
        while entries > 1 and (entries > max_entries or size > max_bytes):
            oldest, length = self._execute(
                "SELECT position, length(data) FROM log_entry WHERE log = ? ORDER BY position LIMIT 1", (number,)
            ).fetchone()
            self._execute("DELETE FROM log_entry WHERE position = ?", (oldest,))
            entries, size = entries - 1, size - length
        self._execute(
            "UPDATE log SET entries = ?, bytes = ?, expires = ? WHERE id = ?", (entries, size, expires, number)
        )
        id = _entry_id(position)
        listeners = () if announce is None else self.publish(announce, b"%s %s" % (id.encode(), data))
        return id, listeners

    def read(self, log: str, *, after: str, limit: int, inclusive: bool) -> list[Entry] | None:
        """Return the entries after an id; one more is read, which must be that entry."""
        first = _parse_entry_id(after) if after else 0
        if first is None:
            return None
        rows = self._execute(
            "SELECT log_entry.position, log_entry.data FROM log JOIN log_entry ON log_entry.log = log.id "
            "WHERE log.name = ? AND log.expires > ? AND log_entry.position >= ? ORDER BY log_entry.position LIMIT ?",
            (self._prefix + log, self.now, first, limit + 1 if after else limit),
        ).fetchall()
        if after and (not rows or rows[0][0] != first):
            return None
        entries = [Entry(_entry_id(position), data) for position, data in rows]
        if not after:
            return entries
        return entries[:limit] if inclusive else entries[1:]

    def _next_position(self) -> int:
        last_entry, last_message, message_bytes = self._counters()
        position = max(int(self.now * 1000) << _NUMBER_BITS, last_entry + 1)
        self._set_counters(position, last_message, message_bytes)
        return position

    def _counters(self) -> tuple[int, int, int]:
        """Return the position of the last entry, the id of the last message, and the bytes of all messages."""
        if self._state is None:
            self._state = self._execute("SELECT last_entry, last_message, message_bytes FROM state").fetchone()
        assert self._state is not None
        return self._state

    def _set_counters(self, last_entry: int, last_message: int, message_bytes: int) -> None:
        self._state = (last_entry, last_message, message_bytes)
        self._state_changed = True

    # --- channels ----------------------------------------------------------------------------------------------------

    def publish(self, channel: str, data: bytes) -> tuple[int, ...]:
        """Send a message; return the listeners that it is for."""
        name = self._prefix + channel
        rows = self._execute(
            "SELECT listener.id FROM subscription JOIN listener ON listener.id = subscription.listener "
            "WHERE subscription.channel = ? AND listener.until > ?",
            (name, self.now),
        ).fetchall()
        if not rows:
            return ()
        last_entry, last_message, message_bytes = self._counters()
        self._execute("INSERT INTO message VALUES (?, ?, ?, ?)", (last_message + 1, name, data, self.now))
        self._set_counters(last_entry, last_message + 1, message_bytes + len(data))
        self._published += 1
        listeners = tuple(id for (id,) in rows)
        self.wakeups.update(listeners)
        return listeners

    def subscribe(self, socket: str, channels: Sequence[str], until: float) -> tuple[int, int]:
        """Subscribe a listener, which is registered if it is new; return its id and that of the last message."""
        last = self._counters()[1]
        cursor = self._execute(
            "INSERT INTO listener (socket, trimmed, until) VALUES (?, 0, ?) ON CONFLICT (socket) DO NOTHING",
            (socket, until),
        )
        if cursor.rowcount:
            # Those that are gone are noticed by waking all of them up.
            self._execute("DELETE FROM subscription WHERE listener NOT IN (SELECT id FROM listener)")
            self.wakeups.update(id for (id,) in self._execute("SELECT id FROM listener"))
        (listener,) = self._execute("SELECT id FROM listener WHERE socket = ?", (socket,)).fetchone()
        self._many(
            "INSERT INTO subscription VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            [(self._prefix + channel, listener, last) for channel in channels],
        )
        return listener, last

    def unsubscribe(self, listener: int, channels: Sequence[str]) -> None:
        """End subscriptions of a listener."""
        self._many(
            "DELETE FROM subscription WHERE channel = ? AND listener = ?",
            [(self._prefix + channel, listener) for channel in channels],
        )

    def renew_listener(self, listener: int, until: float) -> None:
        """Set when a listener is forgotten."""
        self._execute("UPDATE listener SET until = ? WHERE id = ?", (until, listener))

    def remove_listeners(self, listeners: Sequence[int]) -> None:
        """Remove listeners with their subscriptions."""
        for listener in listeners:
            self._execute("DELETE FROM subscription WHERE listener = ?", (listener,))
            self._execute("DELETE FROM listener WHERE id = ?", (listener,))

    def socket_of(self, listener: int) -> str | None:
        """Return the name of the socket of a listener."""
        row = self._execute("SELECT socket FROM listener WHERE id = ?", (listener,)).fetchone()
        return None if row is None else row[0]

    def messages(self, listener: int, after: int, limit: int) -> Messages | None:
        """Return the messages to a listener, in their order; None if it is not registered.

        Several statements: the caller has begun a transaction, or they may see different messages.
        """
        row = self._execute(
            "SELECT listener.trimmed, state.last_message FROM listener, state WHERE listener.id = ?", (listener,)
        ).fetchone()
        if row is None:
            return None
        trimmed, last = row
        if last == after:
            return Messages([], last, False)
        rows = self._execute(
            "SELECT message.id, message.channel, message.data FROM message CROSS JOIN subscription "
            "ON subscription.channel = message.channel AND subscription.listener = ? "
            "AND subscription.since < message.id WHERE message.id > ? ORDER BY message.id LIMIT ?",
            (listener, after, limit),
        ).fetchall()
        skip = len(self._prefix)
        messages = [Message(id, channel[skip:], data) for id, channel, data in rows]
        return Messages(messages, messages[-1].id if len(messages) == limit else last, trimmed > after)

    def _trim_messages(self, limit: int) -> None:
        """Remove the oldest messages; those who have not read them learn that they missed some."""
        last_entry, last_message, message_bytes = self._counters()
        rows = self._execute("SELECT id, channel, length(data), sent FROM message ORDER BY id LIMIT ?", (limit,))
        removed: list[tuple[int, str]] = []
        for id, channel, size, sent in rows.fetchall():
            if sent > self.now - _MESSAGE_SECONDS and message_bytes <= _MESSAGE_BYTES:
                break
            message_bytes -= size
            removed.append((id, channel))
        if removed:
            self._execute("DELETE FROM message WHERE id <= ?", (removed[-1][0],))
            self._many(
                "UPDATE listener SET trimmed = ?1 "
                "WHERE id IN (SELECT listener FROM subscription WHERE channel = ?2 AND since < ?1)",
                removed,
            )
            self._set_counters(last_entry, last_message, message_bytes)

    # --- limits ------------------------------------------------------------------------------------------------------

    def admit(self, key: str, *, rate: float, burst: int, cost: int) -> float:
        """Count events."""
        name, now, interval = self._prefix + key, self.now, 1.0 / rate
        row = self._execute("SELECT expires FROM rate WHERE key = ?", (name,)).fetchone()
        # GCRA: the theoretical arrival time of the next event may run ahead of the clock by the burst.
        arrival: float = now if row is None else max(row[0], now)
        wait = arrival + cost * interval - burst * interval - now
        # A microsecond is no reason to wait: a wall time in a float is not more exact than that.
        if wait > 1e-6:
            return wait
        self._execute(
            "INSERT INTO rate VALUES (NULL, ?1, ?2, ?2) ON CONFLICT (key) DO UPDATE SET expires = excluded.expires",
            (name, arrival + cost * interval),
        )
        return 0.0

    # --- queues ------------------------------------------------------------------------------------------------------

    def _enqueue(self, step: Enqueue) -> None:
        since, attempt = (self.now, 1) if step.holder else (None, 0)
        self._execute(
            "INSERT INTO queue_entry (queue, id, data, holder, since, attempt) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (queue, id) DO UPDATE SET data = excluded.data, holder = excluded.holder, "
            "since = excluded.since, attempt = excluded.attempt",
            (self._prefix + step.queue, step.id, step.data, step.holder, since, attempt),
        )
        self.publish(step.queue, step.id.encode())

    def take(self, queue: str, holder: str, *, lease: float, limit: int) -> list[Delivery]:
        """Lease entries: first those whose lease ran out, then new ones."""
        name = self._prefix + queue
        rows = self._execute(
            "SELECT arrival, id, data, attempt FROM queue_entry WHERE queue = ? AND since <= ? ORDER BY since LIMIT ?",
            (name, self.now - lease, limit),
        ).fetchall()
        if len(rows) < limit:
            rows += self._execute(
                "SELECT arrival, id, data, attempt FROM queue_entry WHERE queue = ? AND since IS NULL "
                "ORDER BY arrival LIMIT ?",
                (name, limit - len(rows)),
            ).fetchall()
        self._many(
            "UPDATE queue_entry SET holder = ?, since = ?, attempt = attempt + 1 WHERE arrival = ?",
            [(holder, self.now, arrival) for arrival, *_ in rows],
        )
        return [Delivery(id, data, attempt + 1) for _, id, data, attempt in rows]

    def renew(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """Renew leases."""
        return [id for id in ids if self._set_lease(queue, holder, id, holder, self.now)]

    def release(self, queue: str, holder: str, ids: Sequence[str]) -> list[str]:
        """End leases."""
        # As one that ran out before any time.
        return [id for id in ids if self._set_lease(queue, holder, id, "", -inf)]

    def _set_lease(self, queue: str, holder: str, id: str, new_holder: str, since: float) -> bool:
        cursor = self._execute(
            "UPDATE queue_entry SET holder = ?, since = ? WHERE queue = ? AND id = ? AND holder = ? "
            "AND since IS NOT NULL",
            (new_holder, since, self._prefix + queue, id, holder),
        )
        return cursor.rowcount > 0

    # --- indexes -----------------------------------------------------------------------------------------------------

    def members(self, index: str, *, after: str, limit: int) -> list[str]:
        """Return members."""
        rows = self._execute(
            "SELECT index_member.member FROM index_total JOIN index_member ON index_member.index_id = index_total.id "
            "WHERE index_total.name = ? AND index_member.member > ? AND index_member.expires > ? "
            "ORDER BY index_member.member LIMIT ?",
            (self._prefix + index, after, self.now, limit),
        )
        return [member for (member,) in rows]

    def _full_index(self, step: Index) -> FullIndex | None:
        for name, limits in step.into.items():
            row = self._execute("SELECT id FROM index_total WHERE name = ?", (self._prefix + name,)).fetchone()
            index_id = -1 if row is None else row[0]
            full = self._exceeded_limit(index_id, step, limits.members, limits.weight)
            while full and self._remove_expired_members(index_id, _MEMBERS_AT_ONCE):
                full = self._exceeded_limit(index_id, step, limits.members, limits.weight)
            if full:
                return FullIndex(name, full)
        return None

    def _exceeded_limit(self, index_id: int, step: Index, most_members: int, most_weight: int) -> str:
        """Return the limit of an index that has no room for a member; empty if it has room."""
        if not most_members and not most_weight:
            return ""
        row = self._execute("SELECT members, weight FROM index_total WHERE id = ?", (index_id,)).fetchone()
        members, total = (0, 0) if row is None else row
        member = self._member(index_id, step.member)
        # The place of a member that has expired is counted, and is used again.
        is_member = member is not None and member[1] > self.now
        members -= member is not None and not is_member
        if not is_member and most_members and members >= most_members:
            return "members"
        before = 0 if member is None else member[0]
        grows = not is_member or step.weight > before
        return "weight" if grows and most_weight and total - before + step.weight > most_weight else ""

    def _member(self, index_id: int, member: str) -> tuple[int, float] | None:
        """Return the weight of a member, and when it expires or did."""
        row: tuple[int, float] | None = self._execute(
            "SELECT weight, expires FROM index_member WHERE index_id = ? AND member = ?", (index_id, member)
        ).fetchone()
        return row

    def _add_member(self, index: str, step: Index) -> None:
        name, expires = self._prefix + index, self.now + step.ttl
        row = self._execute("SELECT id, sweep_at FROM index_total WHERE name = ?", (name,)).fetchone()
        if row is None:
            cursor = self._execute("INSERT INTO index_total VALUES (NULL, ?, 0, 0, ?)", (name, expires))
            index_id, sweep_at = cursor.lastrowid or 0, expires
        else:
            index_id, sweep_at = row
        before = self._member(index_id, step.member)
        # Unlike those of other tables, members that expire earlier than before are looked at in time: they are counted.
        earlier = ", sweep_at = excluded.sweep_at" if before is not None and expires < before[1] else ""
        self._execute(
            "INSERT INTO index_member VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (index_id, member) "
            f"DO UPDATE SET weight = excluded.weight, expires = excluded.expires{earlier}",
            (index_id, step.member, step.weight, expires),
        )
        added, grown = int(before is None), step.weight - (0 if before is None else before[0])
        if added or grown:
            self._change_total(index_id, added, grown)
        if expires < sweep_at:
            self._execute("UPDATE index_total SET sweep_at = ? WHERE id = ?", (expires, index_id))

    def _remove_member(self, index: str, member: str) -> None:
        row = self._execute("SELECT id FROM index_total WHERE name = ?", (self._prefix + index,)).fetchone()
        before = None if row is None else self._member(row[0], member)
        if before is not None:
            self._execute("DELETE FROM index_member WHERE index_id = ? AND member = ?", (row[0], member))
            self._change_total(row[0], -1, -before[0])

    def _change_total(self, index_id: int, members: int, weight: int) -> None:
        self._execute(
            "UPDATE index_total SET members = members + ?, weight = weight + ? WHERE id = ?",
            (members, weight, index_id),
        )

    # --- what has expired --------------------------------------------------------------------------------------------

    def _remove_expired_members(self, index_id: int, limit: int) -> int:
        """Look at members of an index that may have expired; return how many were looked at."""
        rows = self._execute(
            "SELECT member, weight, expires FROM index_member WHERE index_id = ? AND sweep_at <= ? "
            "ORDER BY sweep_at LIMIT ?",
            (index_id, self.now, limit),
        ).fetchall()
        expired = [(member, weight) for member, weight, expires in rows if expires <= self.now]
        self._many(
            "UPDATE index_member SET sweep_at = expires WHERE index_id = ? AND member = ?",
            [(index_id, member) for member, _, expires in rows if expires > self.now],
        )
        if expired:
            self._many(
                "DELETE FROM index_member WHERE index_id = ? AND member = ?",
                [(index_id, member) for member, _ in expired],
            )
            self._change_total(index_id, -len(expired), -sum(weight for _, weight in expired))
        return len(rows)

    def _remove_expired(self, limit: int) -> bool:
        """Look at so many rows of each table that may have expired; return whether there may be more."""
        counts = [
            self._remove_expired_rows("value", limit),
            self._remove_expired_rows("rate", limit),
            self._remove_expired_logs(limit),
        ]
        rows = self._execute("SELECT id FROM index_total WHERE sweep_at <= ? LIMIT ?", (self.now, limit)).fetchall()
        counts.append(len(rows))
        for (index_id,) in rows:
            count = self._remove_expired_members(index_id, limit)
            (sweep_at,) = self._execute(
                "SELECT min(sweep_at) FROM index_member WHERE index_id = ?", (index_id,)
            ).fetchone()
            if sweep_at is None:
                self._execute("DELETE FROM index_total WHERE id = ?", (index_id,))
            else:
                self._execute("UPDATE index_total SET sweep_at = ? WHERE id = ?", (sweep_at, index_id))
            counts.append(count)
            if count >= limit:
                break
        return max(counts) >= limit

    def _remove_expired_rows(self, table: str, limit: int) -> int:
        rows = self._execute(
            f"SELECT id, expires FROM {table} WHERE sweep_at <= ? ORDER BY sweep_at LIMIT ?", (self.now, limit)
        ).fetchall()
        self._many(f"DELETE FROM {table} WHERE id = ?", [(id,) for id, expires in rows if expires <= self.now])
        self._many(
            f"UPDATE {table} SET sweep_at = expires WHERE id = ?", [(id,) for id, expires in rows if expires > self.now]
        )
        return len(rows)

    def _remove_expired_logs(self, limit: int) -> int:
        """Remove entries of expired logs, and the logs that have none left; return how many rows were looked at."""
        rows = self._execute("SELECT id, expires FROM log WHERE sweep_at <= ? LIMIT ?", (self.now, limit)).fetchall()
        count = 0
        for log, expires in rows:
            count += 1
            if expires > self.now:
                self._execute("UPDATE log SET sweep_at = expires WHERE id = ?", (log,))
                continue
            count += self._execute(
                "DELETE FROM log_entry WHERE position IN "
                "(SELECT position FROM log_entry WHERE log = ? ORDER BY position LIMIT ?)",
                (log, limit),
            ).rowcount
            if count > limit:
                break
            self._execute("DELETE FROM log WHERE id = ?", (log,))
        return count


def _entry_id(position: int) -> str:
    return f"{position >> _NUMBER_BITS}-{position & ((1 << _NUMBER_BITS) - 1)}"


def _parse_entry_id(id: str) -> int | None:
    """Return the position of an entry; None if no entry of a file can have this id."""
    position = entry_position(id)
    if position is None or position[0] >= _MOST_MILLISECONDS or position[1] >= 1 << _NUMBER_BITS:
        return None
    # As texts, ids are compared exactly: "01-0" is none.
    number = position[0] << _NUMBER_BITS | position[1]
    return number if _entry_id(number) == id else None
