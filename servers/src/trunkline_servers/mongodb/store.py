"""One MongoDB deployment: a lazy client, and the operations of the tools, each limited in rows, bytes and time.

This module knows nothing of tools. Its input was checked by ``documents``; driver errors become messages that name the
hosts of the deployment and never its password.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, unquote_plus

from msgspec import Struct

from trunkline.errors import ConfigError, ToolError
from trunkline_servers.mongodb.documents import collection_name, database_name, to_extended_json
from trunkline_servers.untrusted import one_line

if TYPE_CHECKING:
    from pymongo import AsyncMongoClient

__all__ = [
    "DEFAULT_URI",
    "READ_PREFERENCES",
    "DocumentList",
    "MongoLimits",
    "MongoStore",
    "connect_failure_reason",
    "redacted_hosts",
]

DEFAULT_URI = "mongodb://localhost:27017"
READ_PREFERENCES = ("primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest")

_OWN = frozenset({"admin", "config", "local"})
_UNAUTHORIZED = frozenset({13, 18, 8000})
_EXPIRED = 50
_MESSAGE_CHARS = 300
#: The driver's text after and before the reason of each host, and its wrapping of system errors.
_TIMEOUTS = re.compile(r" \(configured timeouts:[^)]*\),?")
_HOST = re.compile(r"(?:\S+:\d+|^/\S+): ")
_FAILED = re.compile(r"\[Errno (\d+)\] Connect call failed \([^)]*\)")
_NUMBER = re.compile(r"\[Errno -?\d+\] ")
_UNKNOWN = "; it may be partly done: check before you try again"


class MongoLimits(Struct, frozen=True, kw_only=True):
    """The limits of one server; sizes in bytes, times in seconds."""

    #: Most documents in one result, and in one insert.
    rows: int = 200
    #: Most bytes of all documents in one result, as JSON.
    answer_bytes: int = 1024 * 1024
    #: Time limit of one call, in the database and on the network.
    seconds: float = 15.0
    #: Longest wait for a reachable server.
    connect_seconds: float = 5.0
    #: How long calls fail at once after the deployment was unreachable.
    rest_seconds: float = 1.0
    #: Most documents that a schema is inferred from.
    sample: int = 1000
    #: Bytes of those documents.
    sample_bytes: int = 8 * 1024 * 1024
    #: Most databases or collections in a list.
    names: int = 1000


class DocumentList(Struct, frozen=True):
    """Documents as extended JSON, and why there may be more."""

    documents: list[dict[str, Any]]
    cut: str | None = None


def redacted_hosts(uri: str) -> str:
    """Return the hosts of a URI without user, password and options."""
    hosts = uri.partition("://")[2].rpartition("@")[2].partition("/")[0].partition("?")[0]
    return unquote(hosts) or "the given address"


def connect_failure_reason(said: str) -> str:
    """Return why there is no connection, without the driver's wrapping; once if it is the same for all hosts."""
    parts = _TIMEOUTS.split(said.partition(", Timeout:")[0])
    if len(parts) == 1:
        return parts[0].replace("No servers found yet", "no answer in time")
    plain = (_HOST.sub("", part.strip(), count=1) for part in parts)
    words = (_FAILED.sub(lambda found: os.strerror(int(found[1])), each) for each in plain)
    return ", ".join(dict.fromkeys(_NUMBER.sub("", each) for each in words if each))


class MongoStore:
    """One deployment."""

    def __init__(
        self, uri: str, *, limits: MongoLimits, databases: Sequence[str] = (), read_preference: str | None = None
    ) -> None:
        """Check the URI without connecting; ``databases`` are the only ones allowed, if given.

        Raises:
            ConfigError: the URI or a setting is invalid, or the driver is not installed.
        """
        if not uri.startswith(("mongodb://", "mongodb+srv://")):
            raise ConfigError("The address of MongoDB must begin with mongodb:// or mongodb+srv://")
        self.shown = redacted_hosts(uri)
        self.limits = limits
        self._uri = uri
        self._databases = frozenset(_usable(each) for each in databases)
        self._preference = read_preference
        self._client: AsyncMongoClient[dict[str, Any]] | None = None
        #: Until when calls fail at once, and with which message.
        self._away: tuple[float, str] = (0.0, "")
        self._check()

    def _check(self) -> None:
        try:
            from pymongo.errors import PyMongoError
            from pymongo.uri_parser import parse_uri
        except ModuleNotFoundError as error:
            raise ConfigError("the MongoDB driver is missing: pip install 'trunkline[servers]'") from error
        if self._uri.startswith("mongodb+srv://"):
            return  # validated by the resolver on first use
        try:
            parse_uri(self._uri, warn=False)
        except OSError as error:
            reason = f"{error.strerror}: {error.filename}"
            raise ConfigError(f"The address of MongoDB ({self.shown}) cannot be used: {reason}") from error
        except (PyMongoError, ValueError) as error:
            # The driver's message may contain the URI with its password.
            fix = "look at its hosts, ports and options; write special characters of a password as %40 and the like"
            raise ConfigError(f"The address of MongoDB ({self.shown}) cannot be used: {fix}") from error

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[MongoStore]:
        """Provide the client for the lifespan; connects with the first operation.

        Raises:
            ConfigError: a file named in the URI cannot be used.
        """
        client = self._client = self._make_client()
        try:
            yield self
        finally:
            self._client = None
            await client.close()

    def _make_client(self) -> AsyncMongoClient[dict[str, Any]]:
        from pymongo import AsyncMongoClient
        from pymongo.errors import PyMongoError

        options: dict[str, Any] = {"readPreference": self._preference} if self._preference else {}
        try:
            return AsyncMongoClient(
                self._uri,
                connect=False,
                tz_aware=True,
                datetime_conversion="DATETIME_AUTO",
                unicode_decode_error_handler="replace",
                serverSelectionTimeoutMS=int(self.limits.connect_seconds * 1000),
                connectTimeoutMS=int(self.limits.connect_seconds * 1000),
                maxPoolSize=16,
                appname="trunkline",
                **options,
            )
        except (PyMongoError, OSError, ValueError, TypeError) as error:
            said = self._line(str(error))
            raise ConfigError(f"The address of MongoDB ({self.shown}) cannot be used: {said}") from error

    # --- looking ------------------------------------------------------------------------------------------------------

    async def databases(self) -> list[dict[str, Any]]:
        """Return the allowed databases."""
        async with self._working() as client:
            cursor = await client.list_databases(authorizedDatabases=True)
            rows = [row async for row in cursor]
        return [row for row in rows if self._may_use(row["name"])]

    async def collections(self, database: str) -> list[dict[str, Any]]:
        """List the collections and views of a database."""
        self._allow(database)
        async with self._working() as client:
            cursor = await client[database].list_collections(filter={}, authorizedCollections=True, nameOnly=True)
            rows = [dict(row) async for row in cursor]
        return sorted((row for row in rows if not row["name"].startswith("system.")), key=lambda row: str(row["name"]))

    async def sample(self, database: str, collection: str, *, size: int) -> list[dict[str, Any]]:
        """Return a random sample of documents."""
        pipeline = [{"$sample": {"size": min(size, self.limits.sample)}}]
        async with self._collection(database, collection) as target:
            cursor = await target.aggregate(pipeline, allowDiskUse=False, batchSize=100)
            async with cursor:
                return await self._some(cursor)

    async def _some(self, cursor: Any) -> list[dict[str, Any]]:
        """Read documents up to the size limit of a sample."""
        from bson import encode

        found: list[dict[str, Any]] = []
        room = self.limits.sample_bytes
        async for row in cursor:
            room -= len(encode(row))
            if room < 0 and found:
                break
            found.append(row)
        return found

    async def find(
        self, database: str, collection: str, *, query: Any, projection: Any, order: Any, skip: int, limit: int
    ) -> DocumentList:
        """Find documents."""
        rows = min(limit, self.limits.rows)
        async with self._collection(database, collection) as target:
            cursor = target.find(query, projection or None, skip=skip, limit=rows + 1, allow_disk_use=False)
            if order:
                cursor = cursor.sort(list(order.items()))
            async with cursor:
                return await self._read(cursor.batch_size(min(rows + 1, 100)), rows)

    async def aggregate(self, database: str, collection: str, pipeline: Sequence[Any], *, limit: int) -> DocumentList:
        """Run a pipeline that only reads."""
        rows = min(limit, self.limits.rows)
        bounded = [*pipeline, {"$limit": rows + 1}]
        async with self._collection(database, collection) as target:
            cursor = await target.aggregate(bounded, allowDiskUse=False, batchSize=100)
            async with cursor:
                return await self._read(cursor, rows)

    async def count(self, database: str, collection: str, query: Any) -> int:
        """Count documents."""
        async with self._collection(database, collection) as target:
            return int(await target.count_documents(query))

    async def _read(self, cursor: Any, rows: int) -> DocumentList:
        """Read documents to the end or to a limit."""
        import msgspec

        found: list[dict[str, Any]] = []
        room = self.limits.answer_bytes
        async for row in cursor:
            if len(found) == rows:
                return DocumentList(
                    found, cut=f"more than {rows} documents: narrow the filter, or skip what you have seen"
                )
            shown = to_extended_json(row)
            room -= len(msgspec.json.encode(shown))
            if room < 0:
                return DocumentList(
                    found, cut=f"more than {self.limits.answer_bytes} bytes: choose members by a projection"
                )
            found.append(shown)
        return DocumentList(found)

    # --- writing ------------------------------------------------------------------------------------------------------

    async def insert(self, database: str, collection: str, documents: Sequence[dict[str, Any]]) -> list[Any]:
        """Insert documents, all or none: if one fails, those inserted before it are deleted."""
        from bson import ObjectId
        from pymongo.errors import BulkWriteError

        if not 0 < len(documents) <= self.limits.rows:
            raise ToolError(f"Give from 1 to {self.limits.rows} documents")
        with_ids = [{"_id": ObjectId(), **document} for document in documents]
        identities = [document["_id"] for document in with_ids]
        async with self._collection(database, collection, writes=True) as target:
            try:
                await target.insert_many(with_ids, ordered=True)
            except BulkWriteError as error:
                done = identities[: int(error.details.get("nInserted", 0))]
                if done:
                    await target.delete_many({"_id": {"$in": done}})
                raise ToolError(f"Nothing was inserted: {_first_failure(error.details)}") from error
        return [to_extended_json(identity) for identity in identities]

    async def update(
        self, database: str, collection: str, *, query: Any, change: Any, many: bool, upsert: bool
    ) -> dict[str, Any]:
        """Change one document or all that match."""
        async with self._collection(database, collection, writes=True) as target:
            act = target.update_many if many else target.update_one
            result = await act(query, change, upsert=upsert)
        upserted = None if result.upserted_id is None else to_extended_json(result.upserted_id)
        return {"matched": result.matched_count, "modified": result.modified_count, "upserted_id": upserted}

    async def delete(self, database: str, collection: str, *, query: Any, many: bool) -> int:
        """Delete one document or all that match."""
        async with self._collection(database, collection, writes=True) as target:
            result = await (target.delete_many if many else target.delete_one)(query)
        return int(result.deleted_count)

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _may_use(self, database: str) -> bool:
        return database in self._databases if self._databases else database not in _OWN

    def _allow(self, database: str) -> None:
        if not self._may_use(database_name(database)):
            raise ToolError(f"The database {database} is not allowed; start the server with --database {database}")

    @asynccontextmanager
    async def _collection(self, database: str, collection: str, *, writes: bool = False) -> AsyncIterator[Any]:
        self._allow(database)
        name = collection_name(collection)
        async with self._working(writes=writes) as client:
            yield client[database][name]

    @asynccontextmanager
    async def _working(self, *, writes: bool = False) -> AsyncIterator[AsyncMongoClient[dict[str, Any]]]:
        """Provide the client under a timeout that is also sent to the database, and translate driver errors."""
        import pymongo
        from pymongo import errors

        assert self._client is not None, "the store is not open"
        began = False
        try:
            if not self._client.nodes:
                self._rest()
                # Server selection lasts as long as the current timeout, so it gets its own.
                with pymongo.timeout(self.limits.connect_seconds):
                    await self._client.admin.command("ping")
            with pymongo.timeout(self.limits.seconds):
                began = writes
                yield self._client
        except errors.OperationFailure as error:
            raise ToolError(self._failure_message(error, writes=writes)) from error
        except (errors.ServerSelectionTimeoutError, errors.AutoReconnect, errors.ConfigurationError) as error:
            fix = "Start it, or start this server with its address"
            said = (
                f"MongoDB at {self.shown} cannot be reached ({self._line(connect_failure_reason(str(error)))}). {fix}"
            )
            self._away = (time.monotonic() + self.limits.rest_seconds, said)
            raise ToolError(said + (_UNKNOWN if began else "")) from error
        except errors.PyMongoError as error:
            late = f"The database took longer than {self.limits.seconds:g} s; ask for less"
            said = late if error.timeout else f"MongoDB failed: {self._line(str(error))}"
            raise ToolError(said + (_UNKNOWN if began else "")) from error

    def _rest(self) -> None:
        """Raise the last connection error again shortly after a failed attempt."""
        until, said = self._away
        if time.monotonic() < until:
            raise ToolError(said)

    def _failure_message(self, error: Any, *, writes: bool) -> str:
        said = self._line(str((error.details or {}).get("errmsg") or error))
        if error.code == _EXPIRED:
            late = (
                f"The database took longer than {self.limits.seconds:g} s; reduce the limit, or filter on an indexed "
                "field"
            )
            return late + (_UNKNOWN if writes else "")
        if error.code in _UNAUTHORIZED:
            return f"MongoDB at {self.shown} denied this for the user in the connection URL: {said}"
        return f"MongoDB refused: {said}"

    def _line(self, text: str) -> str:
        """Return a driver message on one line with the password redacted."""
        user = self._uri.partition("://")[2].rpartition("@")[0]
        password = user.partition(":")[2]
        plain = text
        for secret in (password, unquote_plus(password)):
            plain = plain.replace(secret, "...") if secret else plain
        return one_line(plain.partition(", Timeout:")[0], _MESSAGE_CHARS)


def _usable(database: str) -> str:
    try:
        return database_name(database)
    except ToolError as error:
        raise ConfigError(f"--database {database[:100]!r}: this cannot be the name of a database") from error


def _first_failure(details: Mapping[str, Any] | None) -> str:
    """Return which document failed and why; otherwise it is a write concern error, such as a missing majority."""
    told = details or {}
    failures = told.get("writeErrors") or told.get("writeConcernErrors") or [{}]
    reason = one_line(str(failures[0].get("errmsg", "no reason given")), _MESSAGE_CHARS)
    return f"document {int(failures[0].get('index', 0)) + 1} failed ({reason})" if told.get("writeErrors") else reason
