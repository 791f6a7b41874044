"""Whether a Redis that was reached again still has every write that it acknowledged, by what it says of its history.

A process counts its own writes, so it notices if one of those is gone. That says nothing about the writes of a process
that has ended since: a nonce that it had stored may be unknown now, and would be accepted a second time. So a Redis
that is another one than before must prove that it has lost nothing; if it cannot, a new generation begins. It proves it

- by its ``run_id``: it is the same process, and its connection was lost, no more. If it was a replica in between, the
  next rule is asked.
- by its replication ids: it continues the history of the one before (``master_replid`` or ``master_replid2``), from an
  offset that is not behind the last one which this process has seen. That is a failover to a replica that had
  everything, or a restart which kept its replication id. Offsets are read once a second, so a write that another
  process did within this second, and did not outlive, is not covered.
- by its configuration: it wrote each command to its append-only file before it acknowledged it (``appendonly yes``,
  ``appendfsync always``), before and after the restart. Asked only without Sentinel, where the address is one Redis.

A restart with anything less begins a new generation, even if its file is intact: a snapshot, or a file that is synced
once a second, has no sign of what came after it, and a Redis that was stopped in order looks like one that crashed. The
price is that clients open their sessions again; the other error would be that something single-use is used twice. A
process that starts after such a restart decides by what the one before it has stored here, without an offset, which
would be as old as the rest: for it a failover is never proven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from redis.exceptions import ReadOnlyError, RedisError

__all__ = ["History", "read_history", "stored_history"]

_NO_ID = "0" * 40


class History(NamedTuple):
    """What a Redis says of its history."""

    run: str
    replication: str
    #: Writes are on disk before they are acknowledged.
    durable: bool
    #: -1 if it is not known.
    offset: int = -1
    #: The history that it continues, if it was a replica once, and up to where.
    previous: str = _NO_ID
    previous_end: int = -1

    def continues(self, before: History) -> bool:
        """Return whether nothing that was acknowledged in the history before it can be missing."""
        if self.run == before.run and (self.replication == before.replication or self.previous == _NO_ID):
            # A Redis without replicas takes another replication id after an hour.
            return True
        if before.offset >= 0:
            if self.replication == before.replication and self.offset >= before.offset:
                return True
            # The end is the first byte that is not of that history.
            if self.previous == before.replication and self.previous_end > before.offset:
                return True
        return self.run != before.run and self.previous == _NO_ID and self.durable and before.durable

    def at(self, replication: bytes) -> History:
        """Return the history as of another reply to ``INFO replication`` of the same connection.

        Raises:
            ReadOnlyError: it is a replica.
        """
        fields = _fields(replication)
        if fields.get("role") != "master":
            raise ReadOnlyError("this Redis is a replica")
        return self._replace(
            replication=fields.get("master_replid", ""),
            offset=int(fields.get("master_repl_offset", -1)),
            previous=fields.get("master_replid2", _NO_ID),
            previous_end=int(fields.get("second_repl_offset", -1)),
        )


def read_history(server: bytes, replication: bytes, settings: object, *, one_address: bool) -> History:
    """Return the history by ``INFO server``, ``INFO replication`` and ``CONFIG GET append*``, which may be refused.

    Raises:
        RedisError: it does not say what it is, or that it is a replica.
    """
    run = _fields(server).get("run_id", "")
    if not run:
        raise RedisError("INFO server has no run_id: is this Redis or Valkey?")
    values: Mapping[bytes, bytes] = {}
    if isinstance(settings, list):
        values = dict(zip(settings[::2], settings[1::2], strict=False))
    durable = one_address and (values.get(b"appendonly"), values.get(b"appendfsync")) == (b"yes", b"always")
    return History(run, "", durable).at(replication)


def stored_history(fields: Sequence[bytes | None]) -> History | None:
    """Return the history that a process has stored: its run, replication id and whether it was durable."""
    run, replication, durable = fields
    if run is None or replication is None:
        return None
    return History(run.decode(), replication.decode(), durable == b"1")


def _fields(info: bytes) -> dict[str, str]:
    """Parse a reply to ``INFO``."""
    lines = (line.partition(":") for line in info.decode().splitlines())
    return {name: value for name, colon, value in lines if colon}
