"""The sample database, and a client of a server for it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from trunkline import Client
from trunkline_servers.sqlite import make_server
from trunkline_servers.sqlite.database import create_sample

__all__ = ["called", "dump", "execute", "rows", "shop", "text"]


@asynccontextmanager
async def shop(folder: Path, *, revision: str = "auto", **options: Any) -> AsyncIterator[Client]:
    """Serve the sample database in a folder and connect to it."""
    path = folder / "shop.db"
    create_sample(path)
    async with Client(make_server(path, **options), revision=revision) as client:
        yield client


async def called(client: Client, tool: str, **arguments: Any) -> list[str]:
    """Call a tool and give the texts of its answer; an error is raised."""
    result = await client.call_tool(tool, arguments)
    return [getattr(block, "text", "") for block in result.content]


async def text(client: Client, uri: str) -> str:
    """Read a resource of one text."""
    (content,) = await client.read_resource(uri)
    assert content.text is not None
    return content.text


def execute(path: Path, *statements: str) -> None:
    """Change a database behind the server's back."""
    with closing(sqlite3.connect(path, timeout=120)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def rows(path: Path, sql: str) -> Sequence[tuple[Any, ...]]:
    """Ask a database behind the server's back."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def dump(path: Path) -> list[str]:
    """Return the whole content of a database."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())
