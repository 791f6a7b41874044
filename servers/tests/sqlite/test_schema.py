"""The SQLite server beside its tools: schema resources, the memo, and prompts made from the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from servers.tests.sqlite.shop import called, execute, rows, shop, text
from trunkline import Client, RequestFailed, ToolError
from trunkline.client.changes import Change
from trunkline.types import PromptMessage, ResourceTemplateReference, TextContent
from trunkline_servers.sql import Column, ForeignKey, Table, example_queries, quote_name
from trunkline_servers.sqlite import make_server

REVISIONS = ["2025-11-25", "2026-07-28"]
TEMPLATE = "sqlite://{table}/schema"


def said(message: PromptMessage) -> str:
    """Return the text of a message."""
    assert isinstance(message.content, TextContent)
    return message.content.text


# --- schema resources ------------------------------------------------------------------------------------------------


async def test_every_table_is_listed_as_a_resource(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        assert [each.uri for each in await client.list_resources()] == [
            "memo://insights",
            "sqlite://schema",
            "sqlite://customers/schema",
            "sqlite://order_items/schema",
            "sqlite://orders/schema",
            "sqlite://products/schema",
        ]


async def test_the_schema_of_a_table_has_its_columns_and_keys(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        schema = json.loads(await text(client, "sqlite://order_items/schema"))
        assert schema["columns"][0] == {
            "name": "order_id", "type": "INTEGER", "nullable": False, "default": None, "primary_key": True,
        }  # fmt: skip
        assert {"columns": ["order_id"], "references": {"table": "orders", "columns": ["id"]}} in schema["foreign_keys"]


async def test_a_broken_view_does_not_hide_the_other_tables(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        execute(tmp_path / "shop.db", "CREATE VIEW broken AS SELECT * FROM gone")
        tables = json.loads(await text(client, "sqlite://schema"))["tables"]
        found = {table["name"]: len(table["columns"]) for table in tables}
        assert (found["broken"], found["customers"]) == (0, 4)


async def test_a_table_created_meanwhile_is_listed_and_announced(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        await client.list_resources()
        async with client.listen(resources=True) as changes:
            execute(tmp_path / "shop.db", 'CREATE TABLE "a b/c" (x)', "DROP TABLE order_items")
            uris = [each.uri for each in await client.list_resources()]
            assert await anext(changes) == Change("resources")
        assert ("sqlite://a%20b%2Fc/schema" in uris, "sqlite://order_items/schema" in uris) == (True, False)
        assert json.loads(await text(client, "sqlite://a%20b%2Fc/schema"))["name"] == "a b/c"


async def test_a_table_that_does_not_exist_has_no_schema(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        with pytest.raises(RequestFailed, match="There is no table 'nope'; sqlite://schema lists all tables"):
            await client.read_resource("sqlite://nope/schema")


async def test_a_table_with_the_name_of_a_trigger_is_described(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        execute(
            tmp_path / "shop.db",
            "CREATE TRIGGER later AFTER INSERT ON orders BEGIN SELECT 1; END",
            "CREATE TABLE later (a TEXT)",
        )
        assert json.loads(await text(client, "sqlite://later/schema"))["columns"][0]["name"] == "a"


async def test_table_names_are_completed(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        ref = ResourceTemplateReference(uri=TEMPLATE)
        found = await client.complete(ref, {"name": "table", "value": "ORD"})
        assert found.values == ["order_items", "orders"]


async def test_a_schema_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    async with Client(make_server(tmp_path / "absent.db", read_only=True)) as client:
        assert [each.uri for each in await client.list_resources()] == ["memo://insights", "sqlite://schema"]
        with pytest.raises(RequestFailed, match="there is no database to open"):
            await client.read_resource("sqlite://schema")


async def test_the_list_of_tables_is_bounded(tmp_path: Path) -> None:
    execute(tmp_path / "many.db", *(f"CREATE TABLE t{number:04} (a)" for number in range(230)))
    async with Client(make_server(tmp_path / "many.db")) as client:
        assert len(await client.list_resources()) == 2 + 200


# --- the memo --------------------------------------------------------------------------------------------------------


async def test_an_insight_is_added_to_the_memo_and_announced(tmp_path: Path) -> None:
    async with shop(tmp_path, revision="2025-11-25") as client:
        assert await text(client, "memo://insights") == "The memo has no insights yet."
        async with client.listen(uris=["memo://insights"]) as changes:
            assert await called(client, "append_insight", insight="Oslo\nbuys") == ["Insight added to memo"]
            assert await anext(changes) == Change("resource", "memo://insights")
        assert await text(client, "memo://insights") == "Insights memo (1 insight)\n\n- Oslo buys"


async def test_an_insight_that_is_too_long_is_refused(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        with pytest.raises(ToolError, match="an insight has at most 10000 characters"):
            await called(client, "append_insight", insight="x" * 10_001)
        assert await text(client, "memo://insights") == "The memo has no insights yet."


# --- prompts ---------------------------------------------------------------------------------------------------------


async def asked(client: Client, **arguments: Any) -> list[tuple[str, str]]:
    """Return the messages of the prompt with examples."""
    prompt = await client.get_prompt("query-examples", arguments)
    return [(message.role, said(message)) for message in prompt.messages]


async def test_examples_are_questions_with_sql_that_runs(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        messages = await asked(client)
        queries = [words for role, words in messages if role == "assistant"]
        found = [len(rows(tmp_path / "shop.db", query)) > 0 for query in queries]
        assert found == [True] * 8
        assert any("JOIN customers AS parent ON child.customer_id = parent.id" in query for query in queries)


async def test_the_examples_begin_with_the_schema(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        (role, intro), *_ = await asked(client)
        assert role == "user"
        assert "orders(id INTEGER primary key, customer_id INTEGER -> customers.id," in intro


async def test_a_topic_chooses_the_tables(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        messages = await asked(client, topic="prices of our products")
        assert ("products(" in messages[0][1], "customers(" in messages[0][1]) == (True, False)
        assert "prices of our products" in messages[-1][1]


async def test_a_database_without_tables_has_no_examples(tmp_path: Path) -> None:
    async with Client(make_server(tmp_path / "empty.db")) as client:
        assert len(await asked(client)) == 1


@pytest.mark.parametrize(
    ("name", "quoted"),
    [("orders", "orders"), ("order", '"order"'), ("Big", '"Big"'), ('a"b', '"a""b"'), ("", '""')],
    ids=["plain", "reserved", "capital", "quote", "empty"],
)
def test_a_name_is_quoted_where_it_must_be(name: str, quoted: str) -> None:
    assert quote_name(name) == quoted


def test_a_key_of_two_columns_is_joined_by_both() -> None:
    parent = Table("days", columns=(Column("year", "int"), Column("day", "int")))
    key = ForeignKey(("y", "d"), "days", ("year", "day"))
    child = Table("events", columns=(Column("y", "int"), Column("d", "int")), foreign_keys=(key,))
    assert "ON child.y = parent.year AND child.d = parent.day" in example_queries([parent, child])[0][1]


async def test_the_demo_is_about_its_topic(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        prompt = await client.get_prompt("mcp-demo", {"topic": "bicycles"})
        assert (prompt.description, len(prompt.messages)) == ("Demo template for bicycles", 1)
        assert "a short story about: bicycles" in said(prompt.messages[0])
