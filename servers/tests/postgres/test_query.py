"""The tool of the PostgreSQL server: rows in the official form, limits, and lost connections."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servers.tests.commands import started
from servers.tests.postgres.shop import as_role, called, shop, until
from servers.tests.postgres_cluster import Cluster
from tests.support import run_async
from trunkline import Client, ConfigError, ToolError
from trunkline_servers.postgres import make_server
from trunkline_servers.postgres.connections import DatabaseUrl, PostgresPool
from trunkline_servers.postgres.server import check_statement
from trunkline_servers.postgres.values import TUPLE_DECODERS, RowWriter
from trunkline_servers.sql import to_json

REVISIONS = ["2025-11-25", "2026-07-28"]


async def value(client: Client, expression: str) -> Any:
    """Return the value of an expression as JSON in the result."""
    (text,) = await called(client, f"SELECT {expression} AS a")
    return json.loads(text)[0]["a"]


# --- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", REVISIONS)
async def test_rows_come_as_indented_json(cluster: Cluster, revision: str) -> None:
    async with shop(cluster, revision=revision) as client:
        assert await called(client, "SELECT id, name FROM customers WHERE id = 1") == [
            '[\n  {\n    "id": 1,\n    "name": "Ada"\n  }\n]'
        ]


async def test_every_type_of_the_catalogs_can_be_shown(cluster: Cluster) -> None:
    catalogs = ["attribute", "class", "constraint", "index", "init_privs", "proc", "rewrite", "stats"]
    async with shop(cluster) as client:
        answers = [await called(client, f"SELECT * FROM pg_catalog.pg_{each} LIMIT 5") for each in catalogs]
    assert [answer for answer in answers if len(json.loads(answer[0])) > 5] == []


VALUES: list[tuple[str, Any]] = [
    ("pg_sleep(0)", ""),
    ("'a'::cstring", "a"),
    ("(SELECT histogram_bounds FROM pg_stats WHERE false)", None),
    ("array_agg(1)::text::cstring", "{1}"),
    ("12::int4", 12),
    ("9007199254740993::int8", "9007199254740993"),
    ("12345678901234567890.50::numeric", "12345678901234567890.50"),
    ("1.1::float4", 1.1),
    ("2::float8", 2),
    ("'NaN'::float8", "NaN"),
    ("true", True),
    ("NULL::text", None),
    ("""'{"a": [1, 2.5, null]}'::jsonb""", {"a": [1, 2.5, None]}),
    ("'2024-01-05'::date", "2024-01-05"),
    ("'2024-01-05 10:00'::timestamp", "2024-01-05T10:00:00"),
    ("'2024-01-05 10:00:00.5+01'::timestamptz", "2024-01-05T09:00:00.500Z"),
    ("'infinity'::timestamptz", "infinity"),
    ("array['infinity'::date, '-infinity']", ["infinity", "-infinity"]),
    ("'NaN'::numeric", "NaN"),
    ("array['NaN'::float4, '-Infinity']", ["NaN", "-Infinity"]),
    ("1e21::float8", 1e21),
    ("12.34::money", "$12.34"),
    ("tsrange('2024-01-05', NULL)", '["2024-01-05 00:00:00",)'),
    ("array['\\x00ff'::bytea]", ["\\x00ff"]),
    ("array[interval '1 day', interval '-1 mon']", [{"days": 1}, {"months": -1}]),
    ("""'{"a": 1e400, "b": 123456789012345678901, "c": 1.0}'::jsonb::json""",
     {"a": 10**400, "b": 123456789012345678901, "c": 1}),
    ("'{\"a\": 1e400}'::json", {"a": "1e400"}),
    ("('[' || repeat('9', 5000) || ']')::json", "[" + "9" * 5000 + "]"),
    ("array['(1,1),(0,0)'::box]", ["(1,1),(0,0)"]),
    ("array[row(1, 'x')::pair, NULL]", [{"a": 1, "b": "x"}, None]),
    ("'[0:1]={1,2}'::int[]", [1, 2]),
    ("'0044-03-15 BC'::date", "0044-03-15 BC"),
    ("'1 year 2 days 03:00:05.5'::interval", {"years": 1, "days": 2, "hours": 3, "seconds": 5, "milliseconds": 500}),
    ("'-00:00:01'::interval", {"seconds": -1}),
    ("'\\x6869'::bytea", "\\x6869"),
    ("'10.0.0.1'::inet", "10.0.0.1"),
    ("'ok'::mood", "ok"),
    ("row(1, 'x')::pair", {"a": 1, "b": "x"}),
    ("(SELECT c FROM customers c WHERE id = 1)", "(1,Ada,Oslo,2020-01-02)"),
    ("row(1::int8, 1.5, 'x')", '(1,1.5,x)'),
    ("array[row(1, 'x')]", ['(1,x)']),
    ("int4range(1, 5)", "[1,5)"),
    ("int4range(NULL, 5)", "(,5)"),
    ("int4range(1, 1)", "empty"),
    ("numrange(1.5, NULL)", "[1.5,)"),
    ("array[daterange('2024-01-05', '2024-01-07')]", ["[2024-01-05,2024-01-07)"]),
    ("nummultirange(numrange(1, 2))", "{[1,2)}"),
    ("'a'::\"char\"", "a"),
    ("(repeat('[', 600) || repeat(']', 600))::json", "[" * 600 + "]" * 600),
    ("array[1.5, NULL]::numeric[]", ["1.5", None]),
    ("array[[1, 2], [3, 4]]", [[1, 2], [3, 4]]),
    ("'(1,2.5)'::point", {"x": 1, "y": 2.5}),
    ("'<(1,2),3>'::circle", {"x": 1, "y": 2, "radius": 3}),
    ("'{2024-01-05}'::date[]", ["2024-01-05"]),
    ("'a8098c1a-f86e-11da-bd1a-00112444be1e'::uuid", "a8098c1a-f86e-11da-bd1a-00112444be1e"),
]  # fmt: skip


@pytest.fixture(scope="module")
def answers(cluster: Cluster) -> dict[str, Any]:
    """What each expression is in one answer's JSON."""

    async def main() -> dict[str, Any]:
        columns = ", ".join(f"{expression} AS a{place}" for place, (expression, _) in enumerate(VALUES))
        async with shop(cluster) as client:
            (text,) = await called(client, f"SELECT {columns}")
        row = json.loads(text)[0]
        return {expression: row[f"a{place}"] for place, (expression, _) in enumerate(VALUES)}

    return run_async(main())


@pytest.mark.parametrize(("expression", "expected"), VALUES, ids=[expression for expression, _ in VALUES])
def test_a_value_is_json(answers: dict[str, Any], expression: str, expected: Any) -> None:
    assert answers[expression] == expected


@pytest.mark.parametrize(
    "sql",
    [
        "EXPLAIN SELECT 1",
        "SHOW server_version",
        "VALUES (1)",
        "TABLE customers",
        "(SELECT 1)",
        "/* a /* b */ */ SELECT 1;",
    ],
)
async def test_statements_that_return_rows_are_sent(cluster: Cluster, sql: str) -> None:
    async with shop(cluster) as client:
        (text,) = await called(client, sql)
        assert json.loads(text)


async def test_control_characters_are_spelled_out(cluster: Cluster) -> None:
    async with shop(cluster) as client:
        (text,) = await called(client, "SELECT city FROM customers WHERE id = 2")
        assert r'"Paris\u001b[31m\u202e"' in text


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        pytest.param("SELECT * FROM nope", 'relation "nope" does not exist', id="table"),
        pytest.param("SELECT * FROM secrets", "permission denied for table secrets", id="permission"),
        pytest.param("SELECT $1::int", r"The query has parameters", id="parameter"),
        pytest.param("SELECT 1/0", "division by zero", id="data"),
        pytest.param("", "The query is empty", id="empty"),
        pytest.param("\x1bSELECT 1", r"^\\x1b is refused", id="cannot-be-seen"),
        pytest.param("SELECT '\0'", "NUL character", id="nul"),
        pytest.param("SELECT '" + "x" * 300_000 + "'", "longer than", id="length"),
    ],
)
async def test_a_query_that_fails_says_why(cluster: Cluster, sql: str, message: str) -> None:
    async with shop(cluster) as client:
        with pytest.raises(ToolError, match=message):
            await called(client, sql)
        assert await value(client, "1") == 1


def test_many_comments_are_passed_over() -> None:
    check_statement("--\n" * 87_000 + "SELECT 1")


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_more_rows_than_the_bound_are_cut_and_said_to_be(cluster: Cluster) -> None:
    async with shop(cluster, max_rows=150) as client:
        # In the list of columns, unlike in FROM, the rows are made one by one.
        text, note = await called(client, "SELECT generate_series(1, 100000000) AS g")
        assert [row["g"] for row in json.loads(text)] == list(range(1, 151))
        assert note.startswith("Truncated: only the first 150 rows are shown, there are more")


async def test_rows_past_the_bytes_are_cut_between_rows(cluster: Cluster) -> None:
    async with shop(cluster, max_bytes=1024) as client:
        text, note = await called(client, "SELECT repeat('x', 400) AS a FROM generate_series(1, 9)")
        assert (len(json.loads(text)), "at most 1024 bytes" in note) == (2, True)


async def test_reading_a_value_that_would_fill_the_memory_is_aborted(cluster: Cluster) -> None:
    async with shop(cluster) as client:
        with pytest.raises(ToolError, match="so long that reading them was given up"):
            await called(client, "SELECT repeat('x', 30000000)")
        assert await value(client, "1") == 1


@pytest.mark.parametrize(
    "sql",
    ["SELECT pg_sleep(60)", "SELECT set_config('statement_timeout', '0', false), pg_sleep(60)"],
    ids=["sleep", "after-lifting-the-bound"],
)
async def test_a_query_that_takes_too_long_is_stopped(cluster: Cluster, sql: str) -> None:
    async with shop(cluster, timeout=0.1) as client:
        with pytest.raises(ToolError, match=r"Stopped after 0\.1 seconds: narrow the query, or raise --timeout"):
            await called(client, sql)


async def test_the_database_itself_bounds_the_time(cluster: Cluster) -> None:
    names = "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "transaction_read_only"
    settings = ", ".join(f"current_setting('{name}')" for name in names)
    async with shop(cluster, timeout=3) as client:
        assert await value(client, f"array[{settings}]") == ["3s", "3s", "13s", "on"]


async def test_a_query_that_lifts_the_bound_for_its_later_rows_is_stopped(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline_servers.postgres.server._GRACE_SECONDS", 0.2)

    async with shop(cluster, timeout=0.1) as client:
        lifted = "set_config('statement_timeout', '0', false), pg_sleep(CASE WHEN g > 100 THEN 60 ELSE 0 END)"
        with pytest.raises(ToolError, match=r"Stopped after 0\.1 seconds"):
            await called(client, f"SELECT {lifted} FROM generate_series(1, 300) g")
        assert await value(client, "1") == 1


async def test_a_locked_table_is_not_waited_for_longer_than_that(cluster: Cluster) -> None:
    async with as_role(cluster, "owner") as other, shop(cluster, timeout=0.1) as client, other.transaction():
        await other.execute("LOCK TABLE orders")
        with pytest.raises(ToolError, match=r"lock timeout|Stopped after"):
            await called(client, "SELECT * FROM orders")


async def test_a_cancelled_call_is_cancelled_in_the_database(cluster: Cluster) -> None:
    running_query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '%pg_sleep(55)%'"
    seen = f"{running_query} AND pid <> pg_backend_pid()"
    async with as_role(cluster, "owner") as other, shop(cluster, timeout=60) as client:
        running = asyncio.ensure_future(called(client, "SELECT pg_sleep(55)"))
        await until(other, seen, 1)
        running.cancel()
        await until(other, seen, 0)


# --- connections -----------------------------------------------------------------------------------------------------


async def test_a_lost_connection_is_reported_and_replaced(cluster: Cluster) -> None:
    async with shop(cluster) as client:
        with pytest.raises(ToolError, match=r"was lost\. Try again: the next call connects anew"):
            await called(client, "SELECT pg_terminate_backend(pg_backend_pid())")
        assert await value(client, "1") == 1


async def test_a_connection_that_is_lent_when_the_server_ends_is_not_left_open(cluster: Cluster) -> None:
    sessions = PostgresPool(DatabaseUrl.read(cluster.url("reader")), allow_superuser=False)
    async with sessions.session() as kept:
        pass
    async with sessions.session() as lent, sessions.session() as other:
        await sessions.close()
    assert [each.connection.is_closed() for each in (kept, lent, other)] == [True, True, True]


async def test_calls_at_once_share_a_few_connections(cluster: Cluster) -> None:
    async with shop(cluster) as client:
        await asyncio.gather(*(called(client, "SELECT pg_sleep(0.01)") for _ in range(12)))
        mine = "FROM pg_stat_activity WHERE application_name = 'trunkline-server-postgres' AND usename = 'reader'"
        counted = await value(client, f"(SELECT count(*)::int {mine})")
        assert 1 <= counted <= 4


async def test_every_call_reports_an_unreachable_database_without_the_password() -> None:
    async with Client(make_server("postgresql://ann:hunter2@127.0.0.1:1/shop?password=hunter3")) as client:
        assert [each.uri for each in await client.list_resources()] == ["postgres://ann@127.0.0.1:1/schema"]
        with pytest.raises(ToolError, match=r"Cannot connect to postgresql://ann@127\.0\.0\.1:1/shop: ") as failed:
            await called(client, "SELECT 1")
        assert "hunter" not in str(failed.value)


@pytest.mark.parametrize("url", ["shop", "mysql://ann:hunter2@db/shop", "postgres://ann:hunter2@db:port/x"])
def test_an_invalid_url_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="postgresql://user@localhost/mydb") as refused:
        make_server(url)
    assert "hunter" not in str(refused.value)


@pytest.mark.parametrize("password", ["1/hunter", "1?hunter", "1#hunter"])
def test_a_password_that_would_be_taken_for_the_host_is_refused_with_the_fix(password: str) -> None:
    with pytest.raises(ConfigError, match=r"write / \? # and @ in a password as %2F %3F %23 %40") as refused:
        make_server(f"postgresql://ann:{password}@db/shop")
    assert "hunter" not in str(refused.value)


async def test_a_database_that_lacks_a_type_is_used_all_the_same(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trunkline_servers.postgres.connections.DECODERS", {"of_tomorrow": str, "int8": str})

    async with shop(cluster) as client:
        assert await value(client, "1::int8") == "1"


# --- the role --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "why"),
    [("owner", "is a superuser"), ("filer", "is a member of pg_read_server_files")],
    ids=["superuser", "files"],
)
async def test_a_role_that_reaches_the_machine_is_refused_with_the_fix(cluster: Cluster, role: str, why: str) -> None:
    async with shop(cluster, role=role) as client:
        with pytest.raises(ToolError, match=f"as the role '{role}': it {why}.*CREATE ROLE mcp_reader LOGIN"):
            await called(client, "SELECT 1")


async def test_a_superuser_may_be_allowed(cluster: Cluster) -> None:
    async with shop(cluster, role="owner", allow_superuser=True) as client:
        assert await value(client, "1") == 1


@pytest.mark.parametrize(("role", "warned"), [("writer", True), ("reader", False)])
async def test_only_a_role_that_may_write_causes_a_warning(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, role: str, warned: bool
) -> None:
    caplog.set_level(logging.WARNING, logger="trunkline_servers")
    async with shop(cluster, role=role) as client:
        assert await value(client, "1") == 1
    told = (f"The role '{role}' may write to tables" in caplog.text, "GRANT SELECT ON ALL" in caplog.text)
    assert (told, caplog.text == "") == ((warned, warned), not warned)


async def test_the_url_comes_from_the_arguments_or_the_environment(cluster: Cluster) -> None:
    url = cluster.url("reader")
    for server in (started("postgres", url).server, started("postgres", env={"DATABASE_URL": url}).server):
        async with Client(server) as client:
            assert await called(client, "SELECT 1 AS a") == ['[\n  {\n    "a": 1\n  }\n]']


def test_a_missing_url_is_an_error_that_says_where_to_give_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    with pytest.raises(click.UsageError, match=r"Missing argument '\[URL\]': give it, or set DATABASE_URL"):
        started("postgres")


def test_a_url_of_another_scheme_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError, match="does not begin with postgresql://") as refused:
        started("postgres", "mysql://ann:hunter2@db/x")
    assert "hunter2" not in str(refused.value)


_SIMPLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_VALUES = st.recursive(
    _SIMPLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=10
)


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.text(max_size=10), _VALUES, max_size=5), min_size=1, max_size=3))
def test_rows_are_written_as_the_encoder_writes_them(rows: list[dict[str, Any]]) -> None:
    writer = RowWriter()
    made = "[\n" + ",\n".join(map(writer.write, rows)) + "\n]"
    assert made == to_json(rows)
    assert json.loads(made) == rows


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(10**30, "1" + "0" * 30, id="long-number"),
        pytest.param("a\x1b\u202e\n", '"a\\u001b\\u202e\\n"', id="cannot-be-seen"),
        pytest.param([[], {}], "[\n      [],\n      {}\n    ]", id="empty"),
        pytest.param(b"x", '"x"', id="bytes"),
    ],
)
def test_a_value_is_written(value: Any, expected: str) -> None:
    assert RowWriter().write({"a": value}) == f'  {{\n    "a": {expected}\n  }}'


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((2**31 - 1, 2**31 - 1, 2**63 - 1), "infinity"),
        ((-(2**31), -(2**31), -(2**63)), "-infinity"),
        ((-13, 0, 0), {"years": -1, "months": -1}),
    ],
    ids=["infinity", "minus-infinity", "months"],
)
def test_an_interval_without_an_end_is_a_word(parts: tuple[int, int, int], expected: Any) -> None:
    assert TUPLE_DECODERS["interval"](parts) == expected


async def test_no_rows_are_an_empty_list(cluster: Cluster) -> None:
    async with shop(cluster) as client:
        assert await called(client, "SELECT 1 WHERE false") == ["[]"]


def test_a_row_without_columns_is_empty() -> None:
    assert RowWriter().write({}) == "  {}"
