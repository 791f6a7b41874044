"""The official TypeScript server ``memory`` over stdio, as server of our client: a small graph, kept in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.interop.peers import npm_server
from tests.support import run_async
from trunkline import Client

ANN = {"name": "Ann", "entityType": "person", "observations": ["likes rivers"]}
BOB = {"name": "Bob", "entityType": "person", "observations": ["likes hills"]}
KNOWS = {"from": "Ann", "to": "Bob", "relationType": "knows"}


def client_of(folder: Path) -> Client:
    return Client(npm_server("memory"), env={"MEMORY_FILE_PATH": str(folder / "graph.jsonl")})


async def remember(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("create_entities", {"entities": [ANN, BOB]})
    await client.call_tool("create_relations", {"relations": [KNOWS]})


def test_what_was_created_is_found(tmp_path: Path) -> None:
    async def main() -> tuple[Any, Any, Any]:
        async with client_of(tmp_path) as client:
            await remember(client)
            return (
                (await client.call_tool("search_nodes", {"query": "rivers"})).data,
                (await client.call_tool("open_nodes", {"names": ["Bob"]})).data,
                (await client.call_tool("read_graph")).data,
            )

    found, opened, graph = run_async(main())
    assert found["entities"] == [ANN]
    assert opened["entities"] == [BOB]
    assert (len(graph["entities"]), graph["relations"]) == (2, [KNOWS])


def test_the_graph_outlives_its_server(tmp_path: Path) -> None:
    async def main() -> Any:
        async with client_of(tmp_path) as client:
            await remember(client)
            more = {"entityName": "Ann", "contents": ["owns a boat"]}
            await client.call_tool("add_observations", {"observations": [more]})
        async with client_of(tmp_path) as client:
            return (await client.call_tool("search_nodes", {"query": "boat"})).data["entities"][0]["observations"]

    assert run_async(main()) == ["likes rivers", "owns a boat"]


def test_what_was_deleted_is_gone(tmp_path: Path) -> None:
    async def main() -> tuple[str, Any]:
        async with client_of(tmp_path) as client:
            await remember(client)
            said = (await client.call_tool("delete_entities", {"entityNames": ["Bob"]})).text
            return said, (await client.call_tool("read_graph")).data

    assert run_async(main()) == ("Entities deleted successfully", {"entities": [ANN], "relations": []})
