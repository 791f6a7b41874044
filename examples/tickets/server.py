"""A server for one domain: the tickets of a help desk, over stdio or HTTP.

Start it with ``python -m examples.tickets.server``, over HTTP with ``python -m examples.tickets.server --http 8000``.
"""

from __future__ import annotations

import argparse
import sqlite3
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from examples.tickets.store import SCHEMA, Priority, Status, Store, Table, Ticket
from trunkline import Context, PromptError, Server, ToolError
from trunkline.errors import ResourceNotFound

MAX_ROWS = 100
SECONDS = 2.0


def make_server(path: str | Path, *, max_rows: int = MAX_ROWS, seconds: float = SECONDS) -> Server:
    """Create the server for the tickets in a file."""
    store = Store(path)
    server = Server("tickets", "Search before you create: the ticket may be there.", version="1.0.0")

    @server.tool(annotations={"readOnlyHint": True, "openWorldHint": False})
    async def search_tickets(
        ctx: Context,
        query: Annotated[str, Meta(description="Words that must all be in the ticket", max_length=200)] = "",
        status: Status | None = None,
        limit: Annotated[int, Meta(ge=1, le=100)] = 20,
    ) -> list[Ticket]:
        """Search tickets, newest first; reports each as progress."""
        found = store.search(query, status, limit)
        for count, ticket in enumerate(found, 1):
            await ctx.report_progress(count, len(found), f"#{ticket.number} {ticket.title}")
        return found

    @server.tool(annotations={"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False})
    def create_ticket(
        title: Annotated[str, Meta(min_length=3, max_length=120)],
        body: Annotated[str, Meta(max_length=10_000)] = "",
        priority: Priority = "normal",
        customer: Annotated[str, Meta(max_length=120)] = "",
    ) -> Ticket:
        """Open a new ticket."""
        ticket = store.create(title, body, priority, customer)
        server.changed(f"tickets://{ticket.number}")
        return ticket

    @server.tool(annotations={"readOnlyHint": True, "openWorldHint": False})
    def run_query(sql: Annotated[str, Meta(description="One SELECT over the table tickets", max_length=5000)]) -> Table:
        """Query the tickets with read-only SQL. The resource tickets://schema has the columns."""
        try:
            return store.query(sql, max_rows=max_rows, seconds=seconds)
        except sqlite3.OperationalError as error:
            if str(error) == "interrupted":
                raise ToolError(f"The query took longer than {seconds:g} seconds: ask for less.") from error
            raise ToolError(f"SQLite says: {error}") from error
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ToolError(f"Only a single SELECT is allowed here ({error}).") from error

    @server.resource("tickets://schema", mime_type="text/plain")
    def schema() -> str:
        """Return the schema of the table that run_query reads."""
        return SCHEMA

    @server.resource("tickets://{number}", mime_type="application/json")
    def ticket(number: int) -> Ticket:
        """Return one ticket."""
        found = store.get(number)
        if found is None:
            raise ResourceNotFound(f"There is no ticket {number}.")
        return found

    @server.prompt
    def triage(number: int) -> str:
        """Ask a model how urgent a ticket is and what to do first."""
        found = store.get(number)
        if found is None:
            raise PromptError(f"There is no ticket {number}.")
        return f"How urgent is ticket {number}, and what should be done first?\n\n{found.title}: {found.body}"

    return server


def main() -> None:
    """Serve the tickets of a file."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.tickets.server", description="Serve the tickets of a help desk."
    )
    parser.add_argument("--db", default="tickets.db", help="the file; created if it does not exist")
    parser.add_argument("--http", type=int, metavar="PORT", help="serve over HTTP instead of stdio")
    given = parser.parse_args()
    try:
        server = make_server(given.db)
    except sqlite3.Error as error:
        parser.error(
            f"--db {given.db} cannot be used ({error}): name an SQLite file, or a new file in an existing folder"
        )
    if given.http is None:
        server.run()
    else:
        server.run("http", port=given.http, started=lambda url: print(f"serving {url}/mcp", flush=True))


if __name__ == "__main__":
    main()
