"""The SQLite server and the official one: tables are made, filled, asked and described, and insights are noted."""

from __future__ import annotations

from tests.interop.dropin.harness import Call, Get, Read, Script, ours, pypi

__all__ = ["SCRIPT"]

_TABLE = "CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT NOT NULL, stars REAL DEFAULT 1.5)"
_WITH = "WITH t(a) AS (VALUES ('w')) INSERT INTO notes (body) SELECT a FROM t"
_SCHEMA = "The schema can be read as resources, and a prompt shows queries made from it."
_WITH_REASON = "WITH is understood: before SELECT it may read, and before INSERT the rows are counted."
_TEXTS = "The memo and the demo prompt are written anew; the memo holds the same insights."
_ERRORS = "A failure is a result with isError, and says what was refused."

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
        Call("read_query", {"query": "  select count(*), x'00ff' AS raw, NULL AS nix FROM notes"}),
        Call("read_query", {"query": "SELECT * FROM notes WHERE 0"}),
        Call("write_query", {"query": "CREATE INDEX by_body ON notes (body)"}),
        Call("write_query", {"query": "DROP INDEX by_body"}),
        Call("append_insight", {"insight": "Two is the loneliest."}),
        Read("memo://insights", name="memo"),
        Get("mcp-demo", {"topic": "bicycles"}, name="demo"),
        Call("read_query", {"query": "SELECT * FROM nope"}, name="refused: unknown table"),
        Call("read_query", {"query": "DELETE FROM notes"}, name="refused: read that writes"),
        Call("write_query", {"query": "SELECT 1"}, name="refused: write that reads"),
        Call("create_table", {"query": "DROP TABLE notes"}, name="refused: create that drops"),
        Call("create_table", {"query": _TABLE}, name="refused: create twice"),
        Call("write_query", {"query": "DROP TABLE nope"}, name="refused: drop nothing"),
        Call("read_query", {"query": "WITH t AS (SELECT 1 AS a) SELECT a FROM t"}, name="with: read"),
        Call("write_query", {"query": _WITH}, name="with: write"),
        Call("read_query", {"query": "SELECT body FROM notes"}),
        Call("write_query", {"query": "PRAGMA user_version = 3"}, name="pragma"),
        Call("describe_table", {"table_name": "nope"}, name="describe nothing"),
        Call("describe_table", {"table_name": "notes) --"}, name="describe injected"),
        Call("read_query", {}, name="no argument"),
        Call("nothing", {}, name="unknown: tool"),
        Get("mcp-demo", {}, name="unknown: topic"),
        Read("memo://nothing", name="unknown: memo"),
    ),
    differences={
        "server:capabilities/*": "Log messages, completion, subscriptions and changes of the lists are announced.",
        "tools:*/annotations": "Hints say which tools only read and which destroy.",
        "prompts:query-examples": _SCHEMA,
        "resources:Database schema": _SCHEMA,
        "resourceTemplates:": _SCHEMA,
        "call *:isError": "isError is left out where it is false, which is its default.",
        "with: *:isError": "isError is left out where it is false, which is its default.",
        "memo:contents/0/text": _TEXTS,
        "demo:messages/0/content/text": _TEXTS,
        "refused: *:isError": _ERRORS,
        "refused: *:content/0/text": _ERRORS,
        "pragma:*": "ATTACH, PRAGMA and the like are refused: what a statement may do is decided by what it does.",
        "with: read:content/0/text": _WITH_REASON,
        "with: write:content/0/text": _WITH_REASON,
        "describe nothing:*": "A table that is not there is an error that names those that are.",
        "describe injected:*": "A table's name is data: the official server runs what follows it as SQL.",
        "no argument:content/0/text": "The words of an error are written anew.",
        "unknown: *": "What is not there is an error of the protocol, with its code.",
    },
)
