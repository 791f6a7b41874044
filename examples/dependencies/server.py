"""Dependencies and a lifespan: parameters that are created for each call, and that clients never see."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

from trunkline import Context, Depends, Server


@asynccontextmanager
async def lifespan(server: Server) -> AsyncIterator[sqlite3.Connection]:
    """Open the database before the first request and close it after the last connection."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.execute("create table notes (text)")
    try:
        yield database
    finally:
        database.close()


def cursor(ctx: Context) -> Iterator[sqlite3.Cursor]:
    """Provide a cursor for one call; the code after the yield runs when the call is over."""
    database: sqlite3.Connection = ctx.lifespan_context
    with database:
        made = database.cursor()
        yield made
        made.close()


server = Server("notes", lifespan=lifespan)
Cursor = Annotated[sqlite3.Cursor, Depends(cursor)]


@server.tool
async def add_note(text: str, rows: Cursor) -> int:
    """Add a note and return the number of notes."""
    rows.execute("insert into notes values (?)", [text])
    (count,) = rows.execute("select count(*) from notes").fetchone()
    return int(count)


@server.tool
async def list_notes(rows: Cursor) -> list[str]:
    """List the notes."""
    return [text for (text,) in rows.execute("select text from notes")]


if __name__ == "__main__":
    server.run()
