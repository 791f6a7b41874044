"""A shop in PostgreSQL with a role that may read it, and queries that tests send to it directly."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from servers.tests.postgres_cluster import Cluster
from trunkline import Client
from trunkline_servers.postgres import make_server

__all__ = ["as_role", "called", "fill", "fingerprint", "shop", "state", "until"]

_SETUP = """
CREATE TABLE customers (id serial PRIMARY KEY, name text NOT NULL, city text, since date DEFAULT '2020-01-02');
CREATE TABLE orders (
    id bigserial PRIMARY KEY, customer_id int NOT NULL REFERENCES customers (id), total numeric(10, 2),
    placed timestamptz DEFAULT '2024-01-05 10:00:00.123+01'
);
CREATE VIEW big_orders AS SELECT * FROM orders WHERE total > 5;
CREATE TABLE "it's ""odd"" here" (x int);
CREATE TABLE secrets (word text);
INSERT INTO customers (name, city) VALUES ('Ada', 'Oslo'), ('Ben', E'Paris\\x1b[31m\u202e');
INSERT INTO orders (customer_id, total) VALUES (1, 10.50), (1, 3), (2, 7);
INSERT INTO secrets VALUES ('hidden');
CREATE SCHEMA other;
CREATE TABLE other.customers (wrong int);
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TYPE pair AS (a int, b text);
CREATE FUNCTION grow() RETURNS int LANGUAGE plpgsql AS
    'BEGIN INSERT INTO customers (name) VALUES (''evil''); RETURN 1; END';
CREATE FUNCTION grow_as_owner() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS
    'BEGIN INSERT INTO customers (name) VALUES (''evil''); RETURN 1; END';
CREATE PROCEDURE shrink() LANGUAGE sql AS 'DELETE FROM orders';
CREATE EXTENSION dblink;
CREATE ROLE reader LOGIN;
CREATE ROLE writer LOGIN;
CREATE ROLE filer LOGIN IN ROLE pg_read_server_files;
GRANT SELECT ON customers, orders, big_orders, "it's ""odd"" here" TO reader, filer;
GRANT SELECT ON other.customers TO reader;
GRANT USAGE ON SCHEMA other TO reader;
GRANT ALL ON ALL TABLES IN SCHEMA public TO writer;
GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO writer;
"""
#: Everything that an attack could change: rows, sequences, tables, roles, rights, settings, locks, large objects.
_STATE = (
    "SELECT json_agg(c) FROM customers c",
    "SELECT json_agg(o) FROM orders o",
    "SELECT json_agg(s ORDER BY sequencename) FROM pg_sequences s",
    "SELECT json_agg(relname ORDER BY oid) FROM pg_class",
    "SELECT json_agg(r ORDER BY oid) FROM pg_roles r",
    "SELECT json_agg(s) FROM pg_db_role_setting s",
    "SELECT json_agg(pg_get_functiondef(oid) ORDER BY oid) FROM pg_proc WHERE proname IN ('grow', 'shrink')",
    "SELECT count(*) FROM pg_largeobject_metadata",
    "SELECT count(*) FROM pg_prepared_xacts",
    "SELECT count(*) FROM pg_replication_slots",
    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'",
)


@asynccontextmanager
async def as_role(cluster: Cluster, role: str) -> AsyncIterator[Any]:
    """Connect to the database as a role, without the server."""
    connection = await importlib.import_module("asyncpg").connect(cluster.url(role))
    try:
        yield connection
    finally:
        await connection.close()


async def fill(cluster: Cluster) -> None:
    """Make the shop."""
    async with as_role(cluster, "owner") as connection:
        await connection.execute(_SETUP)


async def fingerprint(cluster: Cluster) -> list[Any]:
    """Return the whole content, for comparison."""
    async with as_role(cluster, "owner") as connection:
        return await state(connection)


async def state(owner: Any) -> list[Any]:
    """The same, by a connection of the owner."""
    return list(await owner.fetchrow("SELECT " + ", ".join(f"({question})" for question in _STATE)))


@asynccontextmanager
async def shop(
    cluster: Cluster, *, role: str = "reader", revision: str = "auto", **options: Any
) -> AsyncIterator[Client]:
    """Serve the shop for a role and connect to the server."""
    async with Client(make_server(cluster.url(role), **options), revision=revision) as client:
        yield client


async def called(client: Client, sql: str) -> list[str]:
    """Call the tool and give the texts of its answer; an error is raised."""
    result = await client.call_tool("query", {"sql": sql})
    return [getattr(block, "text", "") for block in result.content]


async def until(connection: Any, question: str, expected: int) -> None:
    """Ask until the answer is right; the test's own bound ends it otherwise."""
    while await connection.fetchval(question) != expected:
        await connection.execute("SELECT pg_sleep(0.005)")
