"""A small graph, and clients of a memory file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from trunkline import Client
from trunkline_servers.memory import make_server

__all__ = ["ACME", "ANN", "BOB", "KNOWS", "WORKS", "call", "command", "fill"]

ANN = {"name": "Ann", "entityType": "person", "observations": ["likes rivers"]}
BOB = {"name": "Bob", "entityType": "person", "observations": ["owns a boat"]}
ACME = {"name": "Acme", "entityType": "company", "observations": ["hired Ann"]}
KNOWS = {"from": "Ann", "to": "Bob", "relationType": "knows"}
WORKS = {"from": "Ann", "to": "Acme", "relationType": "works at"}


async def call(path: Path, tool: str, **arguments: Any) -> Any:
    """Call a tool of a server for a file and give its structured answer."""
    async with Client(make_server(path)) as client:
        return (await client.call_tool(tool, arguments)).data


async def fill(path: Path) -> None:
    """Make the small graph."""
    await call(path, "create_entities", entities=[ANN, BOB, ACME])
    await call(path, "create_relations", relations=[KNOWS, WORKS])


def command(path: Path) -> list[str]:
    """Return the command of a server for a file."""
    return [sys.executable, "-m", "trunkline_servers.memory", "--file", str(path)]
