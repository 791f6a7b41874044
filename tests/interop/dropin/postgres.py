"""The PostgreSQL server and the official one, each beside a fresh PostgreSQL: queries, values, errors, schemas."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from servers.tests import postgres_cluster
from tests.interop.dropin.harness import NPM, Call, Read, Script, npm, ours

__all__ = ["SCRIPT"]

#: Each side has a PostgreSQL of its own at this port, one after the other; outside the ports that systems give away.
_PORT = str(random.SystemRandom().randrange(20_000, 30_000))
_SQL = """
CREATE TABLE notes (id int PRIMARY KEY, body text NOT NULL, at timestamptz);
INSERT INTO notes VALUES (1, 'it''s one', '2024-01-05 10:00:00.5+01'), (2, E'zw\u00f6lf \u2603', NULL);
CREATE VIEW bodies AS SELECT body FROM notes;
CREATE SCHEMA other;
CREATE TABLE other.notes (elsewhere int);
CREATE ROLE reader LOGIN;
GRANT USAGE ON SCHEMA other TO reader;
GRANT SELECT ON notes, bodies, other.notes TO reader;
"""
_URL = f"postgresql://reader@127.0.0.1:{_PORT}/postgres"
_BASE = f"postgres://reader@127.0.0.1:{_PORT}/"
#: A word that names nothing makes the proof skip where there is no PostgreSQL.
_THERE = [] if postgres_cluster.programs() is not None else [str(NPM / "no-postgresql")]
_BESIDE = [sys.executable, str(Path(postgres_cluster.__file__)), _PORT, _SQL]

_SAME = (
    "1::int4 AS a, 9007199254740993::int8 AS b, 1.50::numeric AS c, 1.5::float8 AS d, 2::float8 AS e, true AS f, "
    "NULL AS g, '{\"a\": [1, null]}'::jsonb AS h, ARRAY[1, 2] AS i, 'x'::varchar AS j, '10.0.0.1'::inet AS k, "
    "'2024-01-05 10:00+01'::timestamptz AS l, '(1,2)'::point AS p, "
    "'<(1,2),3>'::circle AS q, '1 day 02:00'::interval AS m, 7::oid AS n, '12:00'::time AS o"
)
_OTHER = {
    "date": "'2024-01-05'::date",
    "timestamp": "'2024-01-05 10:00'::timestamp",
    "bytea": "'\\x6869'::bytea",
    "nan": "'NaN'::float8",
    "composite": "ROW(1, 'x')",
    "microseconds": "'2024-01-05 10:00:00.123456+00'::timestamptz",
}
_SCHEMA = "The schema of the whole database can be read as well, and a prompt shows queries made from it."
_ERRORS = "A failure is a result with isError, which the model sees, not an error of the protocol."
_DEFAULT = "isError is left out where it is false, which is its default."
_TIMES = (
    "A date or a time without a zone is given as it is stored; the official server shifts it by the machine's zone."
)
_STATEMENT = "One statement that gives rows, and nothing else, is run."

SCRIPT = Script(
    server="postgres",
    official=[*_BESIDE, *npm("postgres", _URL), *_THERE],
    ours=[*_BESIDE, *ours("postgres", _URL)],
    steps=(
        Call("query", {"sql": "SELECT * FROM notes ORDER BY id"}),
        Call("query", {"sql": "SELECT 1 AS a WHERE false"}),
        Call("query", {"sql": f"SELECT {_SAME}"}),
        Call("query", {"sql": "SHOW transaction_read_only"}),
        Call("query", {"sql": "EXPLAIN (COSTS off) SELECT body FROM notes"}),
        Call("query", {"sql": "SELECT 1 AS a, 2 AS a;"}),
        *(Call("query", {"sql": f"SELECT {value} AS a"}, name=f"value: {name}") for name, value in _OTHER.items()),
        Read(f"{_BASE}bodies/schema", name="schema of a view"),
        Read(f"{_BASE}notes/schema", name="schema of one of two"),
        Read(f"{_BASE}nope/schema", name="schema of nothing"),
        Call("query", {"sql": "SELECT * FROM nope"}, name="failed: unknown table"),
        Call("query", {"sql": "DELETE FROM notes"}, name="failed: delete"),
        Call("query", {"sql": "WITH t AS (DELETE FROM notes RETURNING *) SELECT * FROM t"}, name="failed: with delete"),
        Call("query", {"sql": "SELECT 1; SELECT 2"}, name="two statements"),
        Call("query", {"sql": "SET statement_timeout = 0"}, name="setting"),
        Call("query", {}, name="no argument"),
        Call("nothing", {}, name="unknown tool"),
        Call("query", {"sql": "SELECT count(*) FROM notes"}),
    ),
    environment={"TZ": "Europe/Oslo"},
    differences={
        "server:capabilities/*": "Log messages, completion, subscriptions and changes of the lists are announced.",
        "tools:query/inputSchema/required": "The query must be given, and the schema says so.",
        "no argument:*": "The query must be given, and the schema says so.",
        "tools:query/annotations": "Hints say that the tool only reads.",
        "prompts:": _SCHEMA,
        "resources:Database schema": _SCHEMA,
        "resourceTemplates:": _SCHEMA,
        "call *:isError": _DEFAULT,
        "value: *:isError": _DEFAULT,
        "value: date:content/0/text": _TIMES,
        "value: timestamp:content/0/text": _TIMES,
        "value: bytea:content/0/text": "Bytes are given in PostgreSQL's own short form, not as a list of numbers.",
        "value: nan:content/0/text": "NaN and the infinities are given as text, not as null.",
        "value: microseconds:content/0/text": "Microseconds are not cut off.",
        "schema of one of two:*": "Columns are those of the schema that is served, in their order, not of all schemas.",
        "schema of nothing:*": "A table that is not there is an error, not an empty list.",
        "failed: *": _ERRORS,
        "two statements:*": _STATEMENT,
        "setting:*": _STATEMENT,
        "unknown tool:*": "An unknown tool has the code that the protocol gives it.",
    },
)
