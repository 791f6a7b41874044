"""The PostgreSQL server beside its tool: schema resources, and a prompt with examples that run."""

from __future__ import annotations

import json

import pytest

from servers.tests.postgres.shop import as_role, shop
from servers.tests.postgres_cluster import Cluster
from trunkline.types import ResourceTemplateReference
from trunkline_servers.postgres.connections import DatabaseUrl

BASE = "postgres://reader@/"


async def test_every_table_that_the_role_may_read_is_listed(cluster: Cluster) -> None:
    async with shop(cluster) as client:
        assert [(each.uri, each.name) for each in await client.list_resources()] == [
            (f"{BASE}schema", "Database schema"),
            (f"{BASE}big_orders/schema", '"big_orders" database schema'),
            (f"{BASE}customers/schema", '"customers" database schema'),
            (f"{BASE}it%27s%20%22odd%22%20here/schema", '"it\'s "odd" here" database schema'),
            (f"{BASE}orders/schema", '"orders" database schema'),
        ]


async def test_a_table_is_described_as_by_the_official_server_and_matched_exactly(cluster: Cluster) -> None:
    async with shop(cluster) as client:
        (content,) = await client.read_resource(f"{BASE}customers/schema")
        assert json.loads(content.text or "") == [
            {"column_name": "id", "data_type": "integer"},
            {"column_name": "name", "data_type": "text"},
            {"column_name": "city", "data_type": "text"},
            {"column_name": "since", "data_type": "date"},
        ]


async def test_another_schema_can_be_shown(cluster: Cluster) -> None:
    async with shop(cluster, schema="other") as client:
        (content,) = await client.read_resource(f"{BASE}customers/schema")
        assert json.loads(content.text or "") == [{"column_name": "wrong", "data_type": "integer"}]


async def test_the_schema_of_the_database_has_keys_and_types(cluster: Cluster) -> None:
    async with shop(cluster) as client:
        (content,) = await client.read_resource(f"{BASE}schema")
        tables = {table["name"]: table for table in json.loads(content.text or "")["tables"]}
        assert tables["big_orders"]["type"] == "view"
        assert tables["orders"]["foreign_keys"] == [
            {"columns": ["customer_id"], "references": {"table": "customers", "columns": ["id"]}}
        ]
        assert tables["orders"]["columns"][2] == {
            "name": "total", "type": "numeric(10,2)", "nullable": True, "default": None, "primary_key": False,
        }  # fmt: skip


async def test_defaults_are_shown_also_for_generated_columns(cluster: Cluster) -> None:
    async with as_role(cluster, "owner") as owner:
        await owner.execute(
            "CREATE TABLE other.made (a int DEFAULT 1 + 1, b int GENERATED ALWAYS AS (a * 2) STORED, c int);"
            "GRANT SELECT ON other.made TO reader"
        )
        try:
            async with shop(cluster, schema="other") as client:
                (content,) = await client.read_resource(f"{BASE}schema")
        finally:
            await owner.execute("DROP TABLE other.made")
        (made,) = [each for each in json.loads(content.text or "")["tables"] if each["name"] == "made"]
        assert [column["default"] for column in made["columns"]] == ["(1 + 1)", "(a * 2)", None]


async def test_table_names_are_completed(cluster: Cluster) -> None:
    async with shop(cluster) as client:
        ref = ResourceTemplateReference(uri=f"{BASE}{{table}}/schema")
        assert (await client.complete(ref, {"name": "table", "value": "cu"})).values == ["customers"]


async def test_examples_are_questions_with_sql_that_runs(cluster: Cluster) -> None:
    async with shop(cluster) as client, as_role(cluster, "reader") as connection:
        prompt = await client.get_prompt("query-examples", {"topic": "orders of customers"})
        queries = [getattr(each.content, "text", "") for each in prompt.messages if each.role == "assistant"]
        assert [len(await connection.fetch(query)) > 0 for query in queries] == [True] * 8
        assert any("JOIN customers AS parent" in query for query in queries)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("postgresql://ann:pw@db.example.com:5433/shop?sslmode=require", "postgres://ann@db.example.com:5433/"),
        ("postgres://localhost/shop", "postgres://localhost/"),
        ("postgresql:///shop?host=/run", "postgres:///"),
    ],
    ids=["whole", "short", "socket"],
)
def test_the_uris_of_resources_have_no_password(url: str, base: str) -> None:
    assert DatabaseUrl.read(url).base == base
    assert "pw" not in repr(DatabaseUrl.read(url))
