"""A loopback double of MongoDB: the wire protocol (OP_MSG, and OP_QUERY for the greeting) and a handful of commands.

It keeps documents in lists and understands equality, ``$in`` and ``$gte`` in filters, and of pipelines ``$match``,
``$sample``, ``$limit`` and the ``$group`` that counts. It is no MongoDB: what it proves is what the server under test
sends, and what it makes of the answers.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Any

import bson

__all__ = ["Deployment", "deployment_double"]

_OP_REPLY, _OP_QUERY, _OP_MSG = 1, 2004, 2013
_HEAD = struct.Struct("<iiii")
_GREETING = {"isWritablePrimary": True, "ismaster": True, "helloOk": True, "maxWireVersion": 21, "minWireVersion": 0}
_SIZES = {"maxBsonObjectSize": 16 * 1024 * 1024, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 1000}

Document = dict[str, Any]


class Deployment:
    """The data of the double, what it was told, and how it is to fail."""

    def __init__(self) -> None:
        """Begin with one database."""
        self.uri = ""
        self.data: dict[str, dict[str, list[Document]]] = {"shop": {"items": [], "orders": []}, "admin": {"system": []}}
        self.commands: list[Document] = []
        self.failure: Document | None = None
        self.hang = False

    def named(self, name: str) -> list[Document]:
        """Return the commands of one name that were sent."""
        return [each for each in self.commands if name in each]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer on one connection until it ends."""
        try:
            while True:
                length, request, _, opcode = _HEAD.unpack(await reader.readexactly(_HEAD.size))
                body = await reader.readexactly(length - _HEAD.size)
                command = _message(body) if opcode == _OP_MSG else _old_query(body)
                answer = bson.encode(await self._answer(command))
                kind, start = (
                    (_OP_MSG, b"\0" * 5) if opcode == _OP_MSG else (_OP_REPLY, struct.pack("<iqii", 8, 0, 0, 1))
                )
                writer.write(_HEAD.pack(_HEAD.size + len(start) + len(answer), 0, request, kind) + start + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, command: Document) -> Document:
        name = next(iter(command))
        if name.lower() in ("hello", "ismaster"):
            return {**_GREETING, **_SIZES, "ok": 1.0}
        self.commands.append(command)
        if name in ("endSessions", "killCursors", "ping"):
            return {"ok": 1.0}
        if self.hang:
            await asyncio.sleep(3600)
        if self.failure is not None:
            return self.failure
        acts = {
            "listDatabases": self._list_databases,
            "listCollections": self._list_collections,
            "find": self._find,
            "aggregate": self._aggregate,
            "insert": self._insert,
            "update": self._update,
            "delete": self._delete,
        }
        act = acts.get(name)
        return act(command) if act else {"ok": 0.0, "code": 59, "errmsg": f"no such command: {name}"}

    # --- commands -----------------------------------------------------------------------------------------------------

    def _rows(self, command: Document) -> list[Document]:
        return self.data.setdefault(command["$db"], {}).setdefault(command[next(iter(command))], [])

    def _list_databases(self, command: Document) -> Document:
        return {"databases": [{"name": name, "sizeOnDisk": 8, "empty": False} for name in self.data], "ok": 1.0}

    def _list_collections(self, command: Document) -> Document:
        rows = [{"name": name, "type": "collection"} for name in self.data.get(command["$db"], {})]
        return _cursor(command, rows)

    def _find(self, command: Document) -> Document:
        rows = [row for row in self._rows(command) if _matches(row, command.get("filter", {}))]
        for name, direction in reversed(list(command.get("sort", {}).items())):
            rows.sort(key=itemgetter(name), reverse=direction < 0)
        skip = command.get("skip", 0)
        return _cursor(command, rows[skip : skip + command.get("limit", 1000)])

    def _aggregate(self, command: Document) -> Document:
        rows = list(self._rows(command))
        for stage in command["pipeline"]:
            ((name, body),) = stage.items()
            if name == "$match":
                rows = [row for row in rows if _matches(row, body)]
            elif name in ("$sample", "$limit"):
                rows = rows[: body["size"] if name == "$sample" else body]
            elif name == "$group":
                rows = [{"_id": 1, "n": len(rows)}] if rows else []
        return _cursor(command, rows)

    def _insert(self, command: Document) -> Document:
        rows = self._rows(command)
        for place, document in enumerate(command["documents"]):
            if any(row["_id"] == document["_id"] for row in rows):
                failure = {"index": place, "code": 11000, "errmsg": "E11000 duplicate key"}
                return {"n": place, "writeErrors": [failure], "ok": 1.0}
            rows.append(document)
        return {"n": len(command["documents"]), "ok": 1.0}

    def _update(self, command: Document) -> Document:
        (change,) = command["updates"]
        found = [row for row in self._rows(command) if _matches(row, change["q"])]
        chosen = found if change.get("multi") else found[:1]
        for row in chosen:
            row.update(change["u"].get("$set", {}))
        return {"n": len(chosen), "nModified": len(chosen), "ok": 1.0}

    def _delete(self, command: Document) -> Document:
        (removal,) = command["deletes"]
        rows = self._rows(command)
        found = [row for row in rows if _matches(row, removal["q"])]
        chosen = found[: removal["limit"] or len(found)]
        rows[:] = [row for row in rows if row not in chosen]
        return {"n": len(chosen), "ok": 1.0}


def _matches(row: Document, query: Document) -> bool:
    return all(_holds(row.get(name), wanted) for name, wanted in query.items())


def _holds(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and "$in" in wanted:
        return value in wanted["$in"]
    if isinstance(wanted, dict) and "$gte" in wanted:
        return bool(value >= wanted["$gte"])
    return bool(value == wanted)


def _cursor(command: Document, rows: Iterable[Document]) -> Document:
    space = f"{command['$db']}.{command[next(iter(command))]}"
    return {"cursor": {"id": bson.Int64(0), "ns": space, "firstBatch": list(rows)}, "ok": 1.0}


def _message(body: bytes) -> Document:
    """Read an OP_MSG: flags, then sections of one document, or of a named sequence of them."""
    command: Document = {}
    place = 4
    while place < len(body):
        kind, place = body[place], place + 1
        (size,) = struct.unpack_from("<i", body, place)
        if kind == 0:
            command |= bson.decode(body[place : place + size])
        else:
            end = body.index(b"\0", place + 4)
            documents = bson.decode_all(body[end + 1 : place + size])
            command[body[place + 4 : end].decode()] = documents
        place += size
    return command


def _old_query(body: bytes) -> Document:
    end = body.index(b"\0", 4)
    return bson.decode(body[end + 1 + 8 :])


@asynccontextmanager
async def deployment_double() -> AsyncIterator[Deployment]:
    """Serve the double on a free port for the duration of the block."""
    double = Deployment()
    server = await asyncio.start_server(double.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    double.uri = f"mongodb://{host}:{port}/?directConnection=true"
    try:
        yield double
    finally:
        server.close()
