# ruff: noqa: D103 (the name of a test is the claim it makes)
"""Tests of the ticket server: in memory in both eras, and as a program over stdio and HTTP."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.tickets.server import make_server
from trunkline import Client, RequestFailed

ERAS = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
PROGRAM = [sys.executable, "-m", "examples.tickets.server", "--db"]
ABOVE = str(Path(__file__).parents[2])


def ask(folder: Path, sql: str, **bounds: float) -> str:
    """Run a query and return the text of the answer or of the error."""

    async def main() -> str:
        async with Client(make_server(folder / "tickets.db", **bounds)) as client:  # type: ignore[arg-type]
            return (await client.call_tool("run_query", {"sql": sql}, raise_on_error=False)).text

    return asyncio.run(main())


@ERAS
def test_search_tells_each_ticket_as_it_is_found(tmp_path: Path, revision: str) -> None:
    told: list[str | None] = []

    async def main() -> list[int]:
        async with Client(make_server(tmp_path / "tickets.db"), revision=revision) as client:
            arguments = {"query": "fjord", "status": "open"}
            result = await client.call_tool(
                "search_tickets", arguments, on_progress=lambda done, total, text: told.append(text)
            )
            return [ticket["number"] for ticket in result.data]

    assert asyncio.run(main()) == [3, 1]
    assert told == ["#3 Export is slow", "#1 Cannot log in"]


@ERAS
def test_a_created_ticket_is_found_read_and_kept(tmp_path: Path, revision: str) -> None:
    async def main() -> tuple[int, str | None]:
        async with Client(make_server(tmp_path / "tickets.db"), revision=revision) as client:
            made = (await client.call_tool("create_ticket", {"title": "100% CPU", "priority": "high"})).data
        async with Client(make_server(tmp_path / "tickets.db"), revision=revision) as client:
            (found,) = (await client.call_tool("search_tickets", {"query": "100%"})).data
            assert found == made
            (contents,) = await client.read_resource(f"tickets://{made['number']}")
            return made["number"], contents.text

    number, text = asyncio.run(main())
    assert number == 5
    assert '"100% CPU"' in (text or "")


def test_a_wildcard_is_searched_for_as_it_is(tmp_path: Path) -> None:
    async def main() -> object:
        async with Client(make_server(tmp_path / "tickets.db")) as client:
            return (await client.call_tool("search_tickets", {"query": "%"})).data

    assert asyncio.run(main()) == []


def test_a_query_is_answered_with_columns_and_rows(tmp_path: Path) -> None:
    text = ask(tmp_path, "SELECT status, count(*) AS n FROM tickets GROUP BY status ORDER BY n DESC, status")
    assert text == '{"columns":["status","n"],"rows":[["open",2],["closed",1],["waiting",1]],"truncated":false}'


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM tickets",
        "UPDATE tickets SET status = 'closed'",
        "INSERT INTO tickets (title) VALUES ('x')",
        "DROP TABLE tickets",
        "SELECT 1; DROP TABLE tickets",
        "WITH gone AS (SELECT 1) DELETE FROM tickets",
        "PRAGMA writable_schema = 1",
        "ATTACH 'other.db' AS other",
        "SELECT load_extension('evil')",
        "VACUUM INTO 'copy.db'",
        "SELECT fts3_tokenizer('simple')",
        "SELECT file FROM pragma_database_list",
        "-- nothing",
    ],
)
def test_a_query_that_does_more_than_read_is_refused(tmp_path: Path, sql: str) -> None:
    assert "rows" not in ask(tmp_path, sql)
    assert '"rows":[[4]]' in ask(tmp_path, "SELECT count(*) FROM tickets")
    assert [path.name for path in tmp_path.iterdir()] == ["tickets.db"]


def test_a_query_without_end_is_stopped(tmp_path: Path) -> None:
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"
    assert "took longer than 0.1 seconds" in ask(tmp_path, endless, seconds=0.1)


def test_a_long_answer_is_cut_and_says_so(tmp_path: Path) -> None:
    assert ask(tmp_path, "SELECT number FROM tickets", max_rows=2).endswith('"rows":[[1],[2]],"truncated":true}')


def test_an_answer_is_bounded_in_bytes(tmp_path: Path) -> None:
    wide = ", ".join(["hex(zeroblob(20000))"] * 20)
    text = ask(tmp_path, f"SELECT {wide} FROM tickets AS a, tickets AS b")
    assert text.endswith('"truncated":true}')
    assert len(text) < 1_100_000


def test_what_json_has_no_number_for_is_text(tmp_path: Path) -> None:
    assert '"rows":[["inf"]]' in ask(tmp_path, "SELECT 9e999")


@pytest.mark.parametrize("number", ["77", "-1", "99999999999999999999"])
def test_a_ticket_that_is_not_there_is_said_to_be_none(tmp_path: Path, number: str) -> None:
    async def main() -> None:
        async with Client(make_server(tmp_path / "tickets.db")) as client:
            with pytest.raises(RequestFailed, match=f"There is no ticket {number}"):
                await client.read_resource(f"tickets://{number}")
            with pytest.raises(RequestFailed, match=f"There is no ticket {number}"):
                await client.get_prompt("triage", {"number": number})

    asyncio.run(main())


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database, but long enough to look like one" * 30)
    ended = subprocess.run(
        [*PROGRAM, str(tmp_path / "notes.txt")], capture_output=True, text=True, timeout=30, check=False, cwd=ABOVE
    )
    assert ended.returncode == 2
    assert "notes.txt cannot be used" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_prompt_has_the_ticket_in_it(tmp_path: Path) -> None:
    async def main() -> str:
        async with Client(make_server(tmp_path / "tickets.db")) as client:
            return str((await client.get_prompt("triage", {"number": "1"})).messages)

    assert "The password mail never comes." in asyncio.run(main())


def test_it_serves_over_stdio(tmp_path: Path) -> None:
    async def main() -> list[str]:
        async with Client([*PROGRAM, str(tmp_path / "tickets.db")], cwd=ABOVE) as client:
            return [tool.name for tool in await client.list_tools()]

    assert asyncio.run(main()) == ["search_tickets", "create_ticket", "run_query"]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Start the server on a free port, and stop it after the test."""
    program = [*PROGRAM, str(tmp_path / "tickets.db"), "--http", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=ABOVE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().removeprefix("serving ").strip()
        process.terminate()
        assert process.wait(20) == 0


def test_it_serves_over_http(url: str) -> None:
    async def main() -> str:
        async with Client(url) as client:
            return (await client.call_tool("create_ticket", {"title": "Over HTTP"})).text

    assert '"number":5' in asyncio.run(main())
