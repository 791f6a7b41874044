"""The MongoDB server's tools and resources: inspection and queries always, writes only if enabled."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta, Struct

from trunkline import Server, ToolError, __version__
from trunkline_servers.mongodb.documents import (
    CollectionSchema,
    check_document,
    check_pipeline,
    check_query,
    check_sort,
    check_update,
    infer_schema,
    matches_everything,
    parse_extended_json,
)
from trunkline_servers.mongodb.store import DEFAULT_URI, DocumentList, MongoLimits, MongoStore

__all__ = ["make_server"]

_INSTRUCTIONS = (
    "Databases of one MongoDB deployment. Filters, pipelines and documents are extended JSON: an ObjectId is "
    '{"$oid": "..."}, a date {"$date": "2001-02-03T04:05:06Z"}. Read collection_schema before you query.'
)
_READS = MappingProxyType({"readOnlyHint": True, "openWorldHint": False})
_INSERTS = MappingProxyType(
    {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}
)
_CHANGES = MappingProxyType(
    {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": False}
)
_JSON = "application/json"
_MOST_SKIPPED = 2**31 - 1

_Object = dict[str, Any]
_Filter = Annotated[_Object, Meta(description="A filter in extended JSON; everything if empty")]
_Limit = Annotated[int, Meta(ge=1, description="Most documents to return")]
_Many = Annotated[bool, Meta(description="All that match instead of one")]
_Everything = Annotated[bool, Meta(description="Must be true if the filter is empty and many is true")]


class DatabaseSummary(Struct, frozen=True):
    """A database."""

    name: str
    size_bytes: int | None = None
    empty: bool | None = None


class DatabaseList(Struct, frozen=True):
    """The allowed databases."""

    databases: list[DatabaseSummary]
    #: Whether there are more.
    cut: bool = False


class CollectionSummary(Struct, frozen=True):
    """A collection or view."""

    name: str
    type: str


class CollectionList(Struct, frozen=True):
    """Collections of a database."""

    database: str
    collections: list[CollectionSummary]
    #: Whether there are more.
    cut: bool = False


class Count(Struct, frozen=True):
    """How many documents match."""

    count: int


class Inserted(Struct, frozen=True):
    """The ids of the inserted documents."""

    inserted_ids: list[Any]


class Updated(Struct, frozen=True):
    """What an update changed."""

    matched: int
    modified: int
    upserted_id: Any = None


class Deleted(Struct, frozen=True):
    """How many documents were deleted."""

    deleted: int


def make_server(
    uri: str = DEFAULT_URI,
    *,
    write: bool = False,
    databases: Sequence[str] = (),
    read_preference: str | None = None,
    limits: MongoLimits | None = None,
) -> Server:
    """Make the server for one deployment; nothing is connected before the first call.

    Raises:
        ConfigError: the URI is not a MongoDB URI, or the driver is not installed.
    """
    store = MongoStore(uri, limits=limits or MongoLimits(), databases=databases, read_preference=read_preference)
    server = Server(
        "mongodb", _INSTRUCTIONS, version=__version__, title="MongoDB", lifespan=lambda _server: store.opened()
    )
    _add_looking(server, store)
    _add_querying(server, store)
    _add_resources(server, store)
    if write:
        _add_inserting(server, store)
        _add_changing(server, store)
    return server


def _add_looking(server: Server, store: MongoStore) -> None:
    """Add the tools that list databases, collections and schemas."""

    @server.tool(annotations=dict(_READS))
    async def list_databases() -> DatabaseList:
        """List the databases."""
        return await _databases(store)

    @server.tool(annotations=dict(_READS))
    async def list_collections(database: str) -> CollectionList:
        """List the collections and views of a database."""
        return await _collections(store, database)

    @server.tool(annotations=dict(_READS))
    async def collection_schema(
        database: str,
        collection: str,
        sample: Annotated[int, Meta(ge=1, le=store.limits.sample, description="How many documents to sample")] = 100,
    ) -> CollectionSchema:
        """Describe the members of a collection's documents, from a sample of them."""
        return infer_schema(database, collection, await store.sample(database, collection, size=sample))


def _add_querying(server: Server, store: MongoStore) -> None:
    """Add the tools that read documents."""

    @server.tool(annotations=dict(_READS))
    async def find(
        database: str,
        collection: str,
        filter: _Filter = {},  # noqa: B006
        projection: Annotated[_Object, Meta(description='Members to return, such as {"name": 1, "_id": 0}')] = {},  # noqa: B006
        sort: Annotated[_Object, Meta(description='Order, such as {"name": 1, "age": -1}')] = {},  # noqa: B006
        skip: Annotated[int, Meta(ge=0, le=_MOST_SKIPPED)] = 0,
        limit: _Limit = 20,
    ) -> DocumentList:
        """Find documents."""
        query, chosen, order = (_query(each) for each in (filter, projection, sort))
        check_sort(order)
        return await store.find(
            database, collection, query=query, projection=chosen, order=order, skip=skip, limit=limit
        )

    @server.tool(annotations=dict(_READS))
    async def aggregate(
        database: str,
        collection: str,
        pipeline: Annotated[list[_Object], Meta(description="Stages that read, in extended JSON")],
        limit: _Limit = 100,
    ) -> DocumentList:
        """Run an aggregation pipeline that only reads."""
        stages = parse_extended_json(pipeline)
        check_pipeline(stages)
        return await store.aggregate(database, collection, stages, limit=limit)

    @server.tool(annotations=dict(_READS))
    async def count(database: str, collection: str, filter: _Filter = {}) -> Count:  # noqa: B006
        """Count the documents that match a filter."""
        return Count(await store.count(database, collection, _query(filter)))


def _add_inserting(server: Server, store: MongoStore) -> None:
    """Add the tool that inserts."""

    @server.tool(annotations=dict(_INSERTS))
    async def insert(
        database: str,
        collection: str,
        documents: Annotated[list[_Object], Meta(min_length=1, description="Documents in extended JSON")],
    ) -> Inserted:
        """Insert documents, all or none."""
        stored = parse_extended_json(documents)
        for document in stored:
            check_document(document)
        return Inserted(await store.insert(database, collection, stored))


def _add_changing(server: Server, store: MongoStore) -> None:
    """Add the tools that update and delete documents."""

    @server.tool(annotations=dict(_CHANGES))
    async def update(
        database: str,
        collection: str,
        filter: _Filter,
        update: Annotated[_Object, Meta(description='Operators, such as {"$set": {"name": "x"}}')],
        many: _Many = False,
        upsert: Annotated[bool, Meta(description="Insert if nothing matches")] = False,
        everything: _Everything = False,
    ) -> Updated:
        """Change one document, or all that match."""
        query, change = _write_filter(filter, many=many, everything=everything), parse_extended_json(update)
        check_update(change)
        result = await store.update(database, collection, query=query, change=change, many=many, upsert=upsert)
        return Updated(**result)

    @server.tool(annotations=dict(_CHANGES))
    async def delete(
        database: str, collection: str, filter: _Filter, many: _Many = False, everything: _Everything = False
    ) -> Deleted:
        """Delete one document, or all that match."""
        query = _write_filter(filter, many=many, everything=everything)
        return Deleted(await store.delete(database, collection, query=query, many=many))


def _add_resources(server: Server, store: MongoStore) -> None:
    """Add the resources: databases, collections and inferred schemas."""

    @server.resource("mongodb://databases", name="databases", mime_type=_JSON)
    async def databases() -> DatabaseList:
        """List the databases."""
        return await _databases(store)

    @server.resource("mongodb://{database}/schema", name="database-schema", mime_type=_JSON)
    async def database_schema(database: str) -> CollectionList:
        """List the collections of a database."""
        return await _collections(store, database)

    @server.resource("mongodb://{database}/{collection}/schema", name="collection-schema", mime_type=_JSON)
    async def collection_schema(database: str, collection: str) -> CollectionSchema:
        """Describe the members of a collection's documents, from a sample of them."""
        return infer_schema(database, collection, await store.sample(database, collection, size=100))


# --- shared by tools and resources -----------------------------------------------------------------------------------


async def _databases(store: MongoStore) -> DatabaseList:
    rows, most = await store.databases(), store.limits.names
    named = [DatabaseSummary(row["name"], row.get("sizeOnDisk"), row.get("empty")) for row in rows[:most]]
    return DatabaseList(named, cut=len(rows) > most)


async def _collections(store: MongoStore, database: str) -> CollectionList:
    rows, most = await store.collections(database), store.limits.names
    named = [CollectionSummary(row["name"], row.get("type", "collection")) for row in rows[:most]]
    return CollectionList(database, named, cut=len(rows) > most)


def _query(value: _Object) -> _Object:
    """Parse and check a filter, projection or sort."""
    read: _Object = parse_extended_json(value)
    check_query(read)
    return read


def _write_filter(value: _Object, *, many: bool, everything: bool) -> _Object:
    """Parse the filter of a write; matching everything must be confirmed by ``everything``."""
    query = _query(value)
    if many and matches_everything(query) and not everything:
        raise ToolError("The filter is empty, which means every document: set everything=true to confirm.")
    return query
