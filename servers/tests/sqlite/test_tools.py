"""The tools of the SQLite server: results in the official server's form, and error messages."""

from __future__ import annotations

import ast
import asyncio
import os
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from servers.tests.commands import command_of
from servers.tests.sqlite.shop import called, dump, execute, rows, shop
from trunkline import Client, ConfigError, ToolError
from trunkline_servers.cli import run_command
from trunkline_servers.sqlite import make_server
from trunkline_servers.sqlite.database import create_sample

REVISIONS = ["2025-11-25", "2026-07-28"]
ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_rows_come_as_a_list_of_python_mappings(tmp_path: Path, revision: str) -> None:
    async with shop(tmp_path, revision=revision) as client:
        query = "SELECT id, name, price FROM products WHERE id < 3 ORDER BY id"
        assert await called(client, "read_query", query=query) == [
            "[{'id': 1, 'name': 'Espresso cups', 'price': 18.5}, {'id': 2, 'name': 'Bread knife', 'price': 24}]"
        ]


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        pytest.param("SELECT NULL AS a, x'00ff' AS b", "[{'a': None, 'b': b'\\x00\\xff'}]", id="null-and-blob"),
        pytest.param("SELECT 1 AS a WHERE 0", "[]", id="no-rows"),
        pytest.param("WITH t(x) AS (VALUES (7)) SELECT x FROM t", "[{'x': 7}]", id="with"),
        pytest.param("-- a comment\nSELECT 1 AS a", "[{'a': 1}]", id="comment-first"),
        pytest.param("SELECT name FROM pragma_table_info('orders') WHERE pk", "[{'name': 'id'}]", id="schema-function"),
        pytest.param("SELECT CAST(x'41ff42' AS TEXT) AS a", "[{'a': 'A\\\\xffB'}]", id="text-that-is-none"),
    ],
)
async def test_a_query_answers(tmp_path: Path, query: str, answer: str) -> None:
    async with shop(tmp_path) as client:
        assert await called(client, "read_query", query=query) == [answer]


async def test_tables_are_listed_as_the_official_server_lists_them(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        (listed,) = await called(client, "list_tables")
        assert ast.literal_eval(listed) == [
            {"name": name} for name in ("customers", "products", "orders", "order_items")
        ]


async def test_a_table_is_described_by_its_columns(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        (described,) = await called(client, "describe_table", table_name="customers")
        assert ast.literal_eval(described)[1] == {
            "cid": 1, "name": "name", "type": "TEXT", "notnull": 1, "dflt_value": None, "pk": 0,
        }  # fmt: skip


async def test_an_unknown_table_is_reported_with_the_existing_ones(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        with pytest.raises(ToolError, match="there is no table 'order'; there are customers, order_items, orders"):
            await called(client, "describe_table", table_name="order")


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_more_rows_than_the_bound_are_cut_and_said_to_be(tmp_path: Path) -> None:
    async with shop(tmp_path, max_rows=3) as client:
        answer, note = await called(client, "read_query", query=f"{ENDLESS} SELECT x FROM c")
        assert ast.literal_eval(answer) == [{"x": 1}, {"x": 2}, {"x": 3}]
        assert note.startswith("Truncated: only the first 3 rows are shown, there are more")


async def test_rows_past_the_bytes_are_cut_between_rows(tmp_path: Path) -> None:
    async with shop(tmp_path, max_bytes=1024) as client:
        query = f"{ENDLESS} SELECT hex(zeroblob(200)) AS a FROM c"
        answer, note = await called(client, "read_query", query=query)
        assert ast.literal_eval(answer) == [{"a": "00" * 200}, {"a": "00" * 200}]
        assert "at most 1024 bytes" in note


async def test_a_value_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        with pytest.raises(ToolError, match="Database error: string or blob too big"):
            await called(client, "read_query", query="SELECT hex(zeroblob(10000000))")


async def test_a_statement_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    async with shop(tmp_path, timeout=0.1) as client:
        with pytest.raises(ToolError, match=r"stopped after 0\.1 seconds; narrow the statement, or raise --timeout"):
            await called(client, "read_query", query=f"{ENDLESS} SELECT count(*) FROM c")


async def test_a_writing_statement_that_takes_too_long_leaves_nothing(tmp_path: Path) -> None:
    async with shop(tmp_path, timeout=0.1) as client:
        before = dump(tmp_path / "shop.db")
        with pytest.raises(ToolError, match="stopped after"):
            await called(client, "write_query", query=f"{ENDLESS} INSERT INTO customers SELECT x + 100, x, x, x FROM c")
        assert dump(tmp_path / "shop.db") == before


async def test_other_calls_are_answered_while_a_statement_runs(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        running = asyncio.ensure_future(called(client, "read_query", query=f"{ENDLESS} SELECT count(*) FROM c"))
        assert (await called(client, "read_query", query="SELECT 1 AS a"), running.done()) == (
            ["[{'a': 1}]"],
            False,
        )
        running.cancel()
        await asyncio.wait([running])


async def test_a_cancelled_call_interrupts_its_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    began = threading.Event()

    class Watched(sqlite3.Connection):
        def set_authorizer(self, authorizer_callback: object) -> None:
            began.set()
            super().set_authorizer(authorizer_callback)  # type: ignore[arg-type]

        def close(self) -> None:
            super().close()
            ended.set()

    connect = sqlite3.connect

    async with shop(tmp_path, timeout=60) as client:
        monkeypatch.setattr(
            "trunkline_servers.sqlite.database.sqlite3.connect", lambda *a, **k: connect(*a, factory=Watched, **k)
        )
        running = asyncio.ensure_future(called(client, "read_query", query=f"{ENDLESS} SELECT count(*) FROM c"))
        assert await asyncio.to_thread(began.wait, 5)
        running.cancel()
        assert await asyncio.to_thread(ended.wait, 5)


@pytest.mark.parametrize(
    ("made", "filled", "query"),
    [
        ("rtree(id, a, b)", "VALUES (1, 2, 3)", "SELECT id FROM v WHERE a < 5"),
        ("fts5(a)", "VALUES ('1')", "SELECT a + 0 AS id FROM v WHERE v MATCH '1'"),
        ("fts4(a)", "VALUES ('1')", "SELECT a + 0 AS id FROM v WHERE v MATCH '1'"),
    ],
    ids=["rtree", "fts5", "fts4"],
)
async def test_virtual_tables_of_the_database_can_be_read(tmp_path: Path, made: str, filled: str, query: str) -> None:
    async with shop(tmp_path) as client:
        execute(tmp_path / "shop.db", f"CREATE VIRTUAL TABLE v USING {made}", f"INSERT INTO v {filled}")
        assert await called(client, "read_query", query=query) == ["[{'id': 1}]"]


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "affected"),
    [
        pytest.param("UPDATE products SET price = 1 WHERE category = 'kitchen'", 2, id="update"),
        pytest.param("DELETE FROM order_items WHERE 0", 0, id="none"),
        pytest.param(
            "INSERT INTO products (name, category, price) VALUES ('a', 'b', 1) RETURNING id", 1, id="returning"
        ),
        pytest.param(
            "WITH t(x) AS (VALUES (1), (2)) INSERT INTO products (name, category, price) SELECT x, x, x FROM t",
            2,
            id="with",
        ),
        pytest.param("/* a */ -- b\n WITH t AS (SELECT 1) DELETE FROM order_items", 48, id="with-after-comments"),
        pytest.param("CREATE INDEX by_city ON customers (city)", -1, id="index"),
        pytest.param("ALTER TABLE customers ADD COLUMN mail TEXT", -1, id="alter"),
        pytest.param("DROP TABLE order_items", -1, id="drop"),
    ],
)
async def test_a_change_says_how_many_rows_it_touched_and_is_kept(tmp_path: Path, query: str, affected: int) -> None:
    async with shop(tmp_path) as client:
        before = dump(tmp_path / "shop.db")
        assert await called(client, "write_query", query=query) == [f"[{{'affected_rows': {affected}}}]"]
        assert (dump(tmp_path / "shop.db") == before) == (affected == 0)


@pytest.mark.parametrize(
    "query", ["DROP TABLE IF EXISTS absent", "CREATE INDEX IF NOT EXISTS by_city ON customers (city)"]
)
async def test_a_change_that_finds_nothing_to_do_is_no_error(tmp_path: Path, query: str) -> None:
    async with shop(tmp_path) as client:
        execute(tmp_path / "shop.db", "CREATE INDEX by_city ON customers (city)")
        before = dump(tmp_path / "shop.db")
        assert await called(client, "write_query", query=query) == ["[{'affected_rows': -1}]"]
        assert dump(tmp_path / "shop.db") == before


async def test_a_change_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        before = dump(tmp_path / "shop.db")
        query = "INSERT INTO customers (id, name, city, since) VALUES (50, 'a', 'b', 'c'), (1, 'd', 'e', 'f')"
        with pytest.raises(ToolError, match=r"Database error: UNIQUE constraint failed: customers\.id"):
            await called(client, "write_query", query=query)
        assert dump(tmp_path / "shop.db") == before


@pytest.mark.parametrize(
    "query", ["SELECT 1", "/* c */ SELECT 1", "WITH t AS (SELECT 1) SELECT * FROM t"], ids=["bare", "comment", "with"]
)
async def test_a_query_is_sent_to_the_reading_tool(tmp_path: Path, query: str) -> None:
    async with shop(tmp_path) as client:
        with pytest.raises(ToolError, match="use read_query"):
            await called(client, "write_query", query=query)


async def test_a_table_is_created(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        query = "create table notes (id INTEGER PRIMARY KEY, body TEXT UNIQUE, customer REFERENCES customers)"
        assert await called(client, "create_table", query=query) == ["Table created successfully"]
        assert rows(tmp_path / "shop.db", "SELECT count(*) FROM notes") == [(0,)]


@pytest.mark.parametrize(
    "query",
    ["DROP TABLE orders", "CREATE VIEW v AS SELECT 1", "CREATE", "", "CREATE TEMP TABLE t (a)"],
    ids=["drop", "view", "half", "empty", "temp"],
)
async def test_only_tables_are_created(tmp_path: Path, query: str) -> None:
    async with shop(tmp_path) as client:
        before = dump(tmp_path / "shop.db")
        with pytest.raises(ToolError, match="Error: Only CREATE TABLE statements are allowed"):
            await called(client, "create_table", query=query)
        assert dump(tmp_path / "shop.db") == before


async def test_many_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        change = "UPDATE products SET price = price + 1 WHERE id = 4"
        await asyncio.gather(*(called(client, "write_query", query=change) for _ in range(60)))
        assert rows(tmp_path / "shop.db", "SELECT price FROM products WHERE id = 4") == [(64.2,)]


async def test_a_database_locked_by_another_writer_is_waited_for_and_then_reported(tmp_path: Path) -> None:
    async with shop(tmp_path, timeout=0.1) as client:
        with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(ToolError, match="database is locked: another program is writing to it; try again"):
                await called(client, "write_query", query="DELETE FROM orders")


# --- read only, and what is missing ----------------------------------------------------------------------------------


async def test_read_only_offers_no_tool_that_writes(tmp_path: Path) -> None:
    async with shop(tmp_path, read_only=True) as client:
        names = {tool.name for tool in await client.list_tools()}
        assert names == {"append_insight", "describe_table", "list_tables", "read_query"}
        assert {prompt.name for prompt in await client.list_prompts()} == {"query-examples"}


async def test_annotations_state_what_tools_do_to_the_database(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        hints = {tool.name: tool.annotations for tool in await client.list_tools()}
        assert {name for name, hint in hints.items() if hint and hint.destructive_hint} == {"write_query"}
        reading = {"describe_table", "list_tables", "read_query"}
        assert {name for name, hint in hints.items() if hint and hint.read_only_hint} == reading


async def test_a_missing_database_is_made(tmp_path: Path) -> None:
    async with Client(make_server(tmp_path / "new" / "made.db")) as client:
        assert await called(client, "list_tables") == ["[]"]


async def test_a_missing_database_is_reported_and_not_created_in_read_only_mode(tmp_path: Path) -> None:
    async with Client(make_server(tmp_path / "absent.db", read_only=True)) as client:
        with pytest.raises(ToolError, match=r"there is no database to open at .*absent\.db; start the server with"):
            await called(client, "list_tables")
        assert os.listdir(tmp_path) == []


async def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_text("x" * 4096)
    async with Client(make_server(tmp_path / "no.db")) as client:
        with pytest.raises(ToolError, match=r"no\.db is not a SQLite database; start the server with another"):
            await called(client, "list_tables")


@pytest.mark.parametrize("path", [":memory:", "."], ids=["memory", "folder"])
def test_a_path_that_cannot_be_a_database_is_refused_at_the_start(path: str) -> None:
    with pytest.raises(ConfigError, match=r"--db-path .*: give a file"):
        make_server(path)


def test_a_pipe_is_refused_at_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"--db-path .*pipe: give a file"):
        make_server(tmp_path / "pipe")


def test_a_folder_that_cannot_be_made_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="the database cannot be made there"):
        make_server(tmp_path / "file" / "a.db")


def test_the_sample_leaves_a_database_with_tables_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    execute(path, "CREATE TABLE mine (a)")
    assert (create_sample(path), [row[0] for row in rows(path, "SELECT name FROM sqlite_master")]) == (False, ["mine"])


def test_the_sample_refuses_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "no.db").write_text("x" * 4096)
    with pytest.raises(ConfigError, match=r"--sample: .* cannot be filled"):
        create_sample(tmp_path / "no.db")


async def test_it_serves_the_sample_over_stdio_with_bounded_memory(tmp_path: Path) -> None:
    program = [
        sys.executable,
        "-m",
        "trunkline_servers.sqlite",
        "--db-path",
        str(tmp_path / "a" / "shop.db"),
        "--sample",
    ]
    async with Client(program) as client:
        columns = ", ".join(["zeroblob(16000000) || 'x'"] * 20)
        with pytest.raises(ToolError, match="out of memory"):
            await called(client, "read_query", query=f"SELECT {columns}")
        assert await called(client, "read_query", query="SELECT count(*) AS n FROM orders") == ["[{'n': 24}]"]


def test_a_wrong_option_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command_of("sqlite"), ["--max-rows", "few"])
    assert (ended.value.code, capsys.readouterr().err.count("\n")) == (1, 1)


async def test_a_table_is_created_from_a_query(tmp_path: Path) -> None:
    async with shop(tmp_path) as client:
        await called(client, "create_table", query="CREATE TABLE names AS SELECT name FROM customers")
        assert rows(tmp_path / "shop.db", "SELECT count(*) FROM names") == [(8,)]


async def test_as_many_rows_as_the_bound_are_whole(tmp_path: Path) -> None:
    async with shop(tmp_path, max_rows=5) as client:
        assert len(await called(client, "read_query", query="SELECT id FROM products")) == 1
