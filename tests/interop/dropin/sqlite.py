"""The SQLite server and the official one: tables are made, filled, asked and described, and insights are noted."""

from __future__ import annotations

from tests.interop.dropin.harness import Call, Get, Read, Script, ours, pypi

__all__ = ["SCRIPT"]

_TABLE = "CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT NOT NULL, stars REAL DEFAULT 1.5)"

SCRIPT = Script(
    server="sqlite",
    official=pypi("mcp-server-sqlite", "--db-path", "{folder}/new/a.db", archived=True),
    ours=ours("sqlite", "--db-path", "{folder}/new/a.db"),
    steps=(
        Call("list_tables"),
        Call("create_table", {"query": _TABLE}),
        Call("list_tables"),
        Call("describe_table", {"table_name": "notes"}),
        Call("write_query", {"query": "INSERT INTO notes (body) VALUES ('one'), ('it''s two'), ('zwölf ☃')"}),
        Call("write_query", {"query": "UPDATE notes SET stars = NULL WHERE id = 2"}),
        Call("write_query", {"query": "DELETE FROM notes WHERE id = 99"}),
        Call("read_query", {"query": "SELECT * FROM notes ORDER BY id"}),
        Call("read_query", {"query": "  select count(*), x'00ff' AS raw, NULL AS nothing FROM notes"}),
        Call("read_query", {"query": "SELECT * FROM notes WHERE 0"}),
        Call("write_query", {"query": "CREATE INDEX by_body ON notes (body)"}),
        Call("write_query", {"query": "DROP INDEX by_body"}),
        Call("append_insight", {"insight": "Two is the loneliest."}),
        Read("memo://insights", name="memo"),
        Get("mcp-demo", {"topic": "bicycles"}, name="demo"),
        Get("mcp-demo", {}, name="demo without topic"),
        Read("memo://nothing", name="unknown memo"),
        Call("read_query", {"query": "SELECT * FROM nope"}, name="unknown table"),
        Call("read_query", {"query": "DELETE FROM notes"}, name="read that writes"),
        Call("read_query", {"query": "WITH t AS (SELECT 1 AS a) SELECT a FROM t"}, name="read with"),
        Call("write_query", {"query": "SELECT 1"}, name="write that reads"),
        Call("write_query", {"query": "WITH t(a) AS (VALUES ('w')) INSERT INTO notes (body) SELECT a FROM t"}, name="write with"),
        Call("write_query", {"query": "PRAGMA user_version = 3"}, name="write that sets"),
        Call("create_table", {"query": "DROP TABLE notes"}, name="create that drops"),
        Call("create_table", {"query": _TABLE}, name="create twice"),
        Call("describe_table", {"table_name": "nope"}, name="describe unknown"),
        Call("describe_table", {"table_name": "notes) --"}, name="describe injected"),
        Call("read_query", {}, name="read nothing"),
        Call("nothing", {}, name="unknown tool"),
        Call("read_query", {"query": "SELECT count(*) AS n FROM notes"}, name="count at the end"),
    ),
)
