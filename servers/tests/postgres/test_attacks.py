"""Attacks on the PostgreSQL server, each as the role that tests run as: none changes anything or reaches the machine.

What is sent goes three ways: through the tool, which refuses what is no query; below the tool's look at the first word,
where the transaction and the role are what is left; and as the role alone, outside the server, for what the role must
not be able to do by itself.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from servers.tests.postgres.shop import as_role, called, fingerprint, shop, state
from servers.tests.postgres_cluster import Cluster
from tests.support import run_async
from trunkline import ToolError
from trunkline_servers.postgres.connections import DatabaseUrl
from trunkline_servers.postgres.server import PostgresDatabase
from trunkline_servers.sql import StatementLimits

#: What must end with an error, also when it is sent below the tool's look at the first word.
FAILING = [
    pytest.param("SELECT 1; DROP TABLE orders", id="two-statements"),
    pytest.param("COMMIT; DROP TABLE orders", id="commit-first"),
    pytest.param("ROLLBACK; DELETE FROM orders; BEGIN", id="rollback-first"),
    pytest.param("SELECT 1 -- ;\n; DROP TABLE orders", id="comment-and-statement"),
    pytest.param("INSERT INTO customers (name) VALUES ('x')", id="insert"),
    pytest.param("/* SELECT */ DELETE FROM orders", id="comment-delete"),
    pytest.param("WITH x AS (DELETE FROM orders RETURNING *) SELECT * FROM x", id="cte-delete"),
    pytest.param("EXPLAIN ANALYZE DELETE FROM orders", id="explain-analyze"),
    pytest.param("EXPLAIN ANALYZE SELECT * INTO stolen FROM orders", id="explain-analyze-into"),
    pytest.param("SELECT * INTO stolen FROM orders", id="select-into"),
    pytest.param("SELECT * FROM orders FOR UPDATE", id="for-update"),
    pytest.param("CREATE TABLE t (a int)", id="create"),
    pytest.param("SELECT grow()", id="volatile-function"),
    pytest.param("SELECT grow_as_owner()", id="security-definer"),
    pytest.param("SELECT * FROM grow()", id="function-in-from"),
    pytest.param(
        "SELECT set_config('transaction_read_only', 'off', false), grow_as_owner()", id="read-write-by-function"
    ),
    pytest.param("SELECT nextval('customers_id_seq')", id="nextval"),
    pytest.param("SELECT setval('customers_id_seq', 1000)", id="setval"),
    pytest.param("CALL shrink()", id="call"),
    pytest.param("DO $$ BEGIN DELETE FROM orders; END $$", id="do-dollar-quotes"),
    pytest.param("COPY orders TO PROGRAM 'touch {file}'", id="copy-to-program"),
    pytest.param("COPY orders TO '{file}'", id="copy-to-file"),
    pytest.param("COPY (SELECT 1) TO PROGRAM 'touch {file}'", id="copy-query-to-program"),
    pytest.param("COPY orders FROM PROGRAM 'id'", id="copy-from-program"),
    pytest.param("SELECT pg_read_file('/etc/passwd')", id="pg-read-file"),
    pytest.param("SELECT * FROM pg_read_file('/etc/passwd')", id="pg-read-file-in-from"),
    pytest.param("SELECT pg_read_binary_file('/etc/passwd')", id="pg-read-binary-file"),
    pytest.param("SELECT * FROM pg_ls_dir('/')", id="pg-ls-dir"),
    pytest.param("SELECT pg_stat_file('/etc/passwd')", id="pg-stat-file"),
    pytest.param("SELECT lo_import('/etc/passwd')", id="lo-import"),
    pytest.param("SELECT lo_export(1, '{file}')", id="lo-export"),
    pytest.param("SELECT * FROM dblink('host={folder} user=owner', 'DROP TABLE orders') AS t(a text)", id="dblink"),
    pytest.param("SELECT dblink_connect('host={folder} user=owner dbname=postgres')", id="dblink-connect"),
    pytest.param("SET ROLE owner", id="set-role"),
    pytest.param("SET SESSION AUTHORIZATION owner", id="set-session-authorization"),
    pytest.param("SELECT set_config('role', 'owner', false)", id="set-role-by-function"),
    pytest.param("SELECT set_config('session_authorization', 'owner', false)", id="set-authorization-by-function"),
    pytest.param("ALTER ROLE reader SUPERUSER", id="alter-role"),
    pytest.param("ALTER SYSTEM SET log_min_messages = 'debug5'", id="alter-system"),
    pytest.param("SELECT pg_reload_conf()", id="reload"),
    pytest.param("SELECT pg_create_physical_replication_slot('s')", id="replication-slot"),
    pytest.param("SELECT * FROM secrets", id="other-table"),
    pytest.param("SELECT rolpassword FROM pg_authid", id="passwords"),
    pytest.param("LOAD 'dblink'; DROP TABLE orders", id="load"),
    pytest.param("CREATE FUNCTION f() RETURNS int LANGUAGE c AS '/lib/libc.so.6', 'system'", id="c-function"),
]
#: What PostgreSQL lets a role do, but of which nothing may be left.
VANISHING = [
    pytest.param("SELECT pg_advisory_lock(1)", id="advisory-lock"),
    pytest.param("SELECT lo_create(77)", id="large-object"),
    pytest.param("SELECT lo_from_bytea(78, 'x')", id="large-object-with-bytes"),
    pytest.param("EXPLAIN ANALYZE SELECT * INTO TEMP stolen FROM orders", id="explain-analyze-into-temporary"),
    pytest.param("SELECT pg_export_snapshot()", id="exported-snapshot"),
    pytest.param("SELECT set_config('default_transaction_read_only', 'off', false)", id="read-write-from-now-on"),
    pytest.param("SELECT pg_notify('c', 'x')", id="notify"),
    pytest.param("SELECT set_config('search_path', 'other', false)", id="search-path"),
    pytest.param("SELECT set_config('statement_timeout', '0', false)", id="statement-timeout"),
]
#: Commands that are no queries; some outlive a transaction, and only the look at the first word keeps those away.
COMMANDS = [
    "COMMIT", "ROLLBACK", "LISTEN c", "NOTIFY c", "UNLISTEN *", "SET statement_timeout = 0", "RESET ALL",
    "DISCARD ALL", "PREPARE TRANSACTION 'p'", "DEALLOCATE ALL", "LOCK TABLE orders", "VACUUM", "CHECKPOINT",
    "BEGIN READ WRITE", "SET TRANSACTION READ WRITE", "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "EXECUTE p",
    "--\nDROP TABLE orders", "/* /* */ SELECT */ DROP TABLE orders", ";SELECT 1", "\ufeffSELECT 1",
]  # fmt: skip


class Outcome(NamedTuple):
    """How an attack ended: the error, if it was one, and whether anything has changed."""

    error: str | None
    changed: bool


Send = Callable[[str], Awaitable[object]]


async def tried(cluster: Cluster, send: Send, attacks: Sequence[str], file: Path) -> dict[str, Outcome]:
    """Send attacks one after another, and look after each what it has done."""
    outcomes: dict[str, Outcome] = {}
    async with as_role(cluster, "owner") as owner:
        before = await state(owner)
        for sql in attacks:
            try:
                await send(sql.replace("{folder}", str(cluster.folder)).replace("{file}", str(file)))
                error = None
            except ToolError as failed:
                error = str(failed)
            outcomes[sql] = Outcome(error, await state(owner) != before or made(file))
    return outcomes


def made(file: Path) -> bool:
    """Return whether an attack has created its file."""
    return file.exists()


def sqls(rows: Sequence[Any]) -> list[str]:
    """Return the statements of parametrized rows."""
    return [row.values[0] if hasattr(row, "values") else row for row in rows]


@pytest.fixture(scope="module")
def at_the_tool(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """How attacks end that are sent to the tool, by a role that may read."""

    async def main() -> dict[str, Outcome]:
        async with shop(cluster) as client:
            file = tmp_path_factory.mktemp("tool") / "f"
            return await tried(cluster, lambda sql: called(client, sql), sqls([*FAILING, *COMMANDS]), file)

    return run_async(main())


def below(cluster: Cluster, role: str, attacks: Sequence[str], file: Path) -> dict[str, Outcome]:
    """How attacks end that are sent below the tool's look at the first word."""

    async def main() -> dict[str, Outcome]:
        database = PostgresDatabase(DatabaseUrl.read(cluster.url(role)), bounds=StatementLimits(seconds=5))
        async with database.opened():
            return await tried(cluster, database.query, attacks, file)

    return run_async(main())


@pytest.fixture(scope="module")
def as_reader(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """How attacks end by the role and the transaction alone."""
    return below(cluster, "reader", sqls(FAILING), tmp_path_factory.mktemp("reader") / "f")


@pytest.fixture(scope="module")
def as_writer(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """How attacks end by the transaction alone."""
    return below(cluster, "writer", sqls([*FAILING, *VANISHING]), tmp_path_factory.mktemp("writer") / "f")


@pytest.mark.parametrize("sql", FAILING)
def test_an_attack_is_refused_by_the_tool(at_the_tool: dict[str, Outcome], sql: str) -> None:
    assert (at_the_tool[sql].error is not None, at_the_tool[sql].changed) == (True, False)


@pytest.mark.parametrize("sql", COMMANDS)
def test_a_command_that_is_no_query_is_refused(at_the_tool: dict[str, Outcome], sql: str) -> None:
    assert ("send one read-only query" in str(at_the_tool[sql].error), at_the_tool[sql].changed) == (True, False)


@pytest.mark.parametrize("sql", FAILING)
def test_an_attack_fails_by_the_role_and_the_transaction(as_reader: dict[str, Outcome], sql: str) -> None:
    assert (as_reader[sql].error is not None, as_reader[sql].changed) == (True, False)


@pytest.mark.parametrize("sql", [*FAILING, *VANISHING])
def test_an_attack_changes_nothing_though_the_role_may_write(as_writer: dict[str, Outcome], sql: str) -> None:
    assert not as_writer[sql].changed


@pytest.mark.parametrize("sql", VANISHING)
async def test_session_state_of_a_query_is_reset(cluster: Cluster, sql: str) -> None:
    settings = "SELECT current_setting('search_path') AS a, current_setting('statement_timeout') AS b"
    async with shop(cluster) as client:
        before = await called(client, settings), await fingerprint(cluster)
        await called(client, sql)
        assert (await called(client, settings), await fingerprint(cluster)) == before


async def test_a_custom_notification_is_not_sent(cluster: Cluster) -> None:
    heard: list[Any] = []
    async with as_role(cluster, "owner") as other, shop(cluster) as client:
        await other.add_listener("c", lambda *said: heard.append(said[-1]))
        await called(client, "SELECT pg_notify('c', 'from the server')")
        await other.execute("NOTIFY c, 'from the test'")
        await other.remove_listener("c", print)
    assert heard == ["from the test"]


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT pg_read_file('/etc/passwd')",
        "DELETE FROM orders",
        "CREATE TABLE t (a int)",
        "SET ROLE owner",
        "SELECT nextval('customers_id_seq')",
    ],
)
async def test_the_role_alone_is_a_boundary(cluster: Cluster, sql: str) -> None:
    denied = importlib.import_module("asyncpg").InsufficientPrivilegeError
    async with as_role(cluster, "reader") as connection:
        with pytest.raises(denied):
            await connection.execute(sql)


async def test_names_of_tables_are_data_in_resources_and_prompts(cluster: Cluster) -> None:
    before = await fingerprint(cluster)
    async with shop(cluster) as client:
        uris = [
            "postgres://reader@/x%27%3B%20DROP%20TABLE%20orders%3B%20--/schema",
            "postgres://reader@/%22%20OR%20true/schema",
        ]
        found = await asyncio.gather(*(client.read_resource(uri) for uri in uris), return_exceptions=True)
        assert ["There is no table" in str(error) for error in found] == [True, True]
        odd = await client.read_resource("postgres://reader@/it%27s%20%22odd%22%20here/schema")
        assert '"column_name": "x"' in str(odd[0].text)
    assert await fingerprint(cluster) == before
