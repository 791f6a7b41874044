"""The memory server and the official one: a graph is made, searched, changed and taken apart."""

from __future__ import annotations

from pathlib import Path

from tests.interop.dropin.harness import Call, Notify, Read, Script, npm, ours

__all__ = ["SCRIPT"]

_ANN = {"name": "Ann", "entityType": "person", "observations": ["likes rivers", "speaks Finnish"]}
_BOB = {"name": "Bob", "entityType": "person", "observations": []}
_ACME = {"name": "Acme", "entityType": "company", "observations": ["makes anvils", "hired Ann in March"]}
_KNOWS = {"from": "Ann", "to": "Bob", "relationType": "knows"}
_WORKS = {"from": "Ann", "to": "Acme", "relationType": "works at"}
_OLD = '{"type":"entity","name":"Zoë","entityType":"cat","observations":["sleeps"],"since":2019}\n'


def _prepare(folder: Path) -> None:
    (folder / "graph.jsonl").write_text(_OLD, "utf-8")


_SEARCH = "A query of several words also finds what has words that begin with each of them."

SCRIPT = Script(
    server="memory",
    official=npm("memory"),
    ours=ours("memory"),
    prepare=_prepare,
    environment={"MEMORY_FILE_PATH": "{folder}/graph.jsonl"},
    steps=(
        Call("read_graph"),
        Read("memory://knowledge-graph"),
        Call("create_entities", {"entities": [_ANN, _BOB, _ACME]}),
        Call("create_entities", {"entities": [_ANN, {**_BOB, "name": "Bobby"}]}),
        Call("create_entities", {"entities": []}),
        Call("create_entities", {"entities": [{"name": "Half"}]}),
        Call("create_entities", {}),
        Call("create_relations", {"relations": [_KNOWS, _WORKS]}),
        Call("create_relations", {"relations": [_KNOWS]}),
        Call("create_relations", {"relations": [{"from": "Nobody", "to": "Nowhere", "relationType": "is"}]}),
        Call("add_observations", {"observations": [{"entityName": "Bob", "contents": ["owns a boat"]}]}),
        Call("add_observations", {"observations": [{"entityName": "Bob", "contents": ["owns a boat", "sings"]}]}),
        Call("add_observations", {"observations": [{"entityName": "Carl", "contents": ["x"]}]}),
        Call("read_graph"),
        Call("search_nodes", {"query": "boat"}),
        Call("search_nodes", {"query": "ANN"}),
        Call("search_nodes", {"query": "compan"}),
        Call("search_nodes", {"query": ""}),
        Call("search_nodes", {"query": "nothing like it"}),
        Call("search_nodes", {"query": "anvils march"}, name="search for two words"),
        Call("open_nodes", {"names": ["Bob", "Ann", "Carl"]}),
        Call("open_nodes", {"names": []}),
        Notify("resources/subscribe", {"uri": "memory://knowledge-graph"}),
        Call("delete_observations", {"deletions": [{"entityName": "Ann", "observations": ["likes rivers", "no"]}]}),
        Call("delete_relations", {"relations": [_KNOWS, {**_KNOWS, "to": "Carl"}]}),
        Call("delete_entities", {"entityNames": ["Acme", "Carl"]}),
        Notify("resources/unsubscribe", {"uri": "memory://knowledge-graph"}),
        Call("read_graph"),
        Read("memory://knowledge-graph"),
        Call("no_such_tool"),
    ),
    differences={
        "server:capabilities/logging": "Lines that cannot be read are reported as log messages, to clients that ask.",
        "tools:*/items/additionalProperties": "An output schema says what there is, and forbids nothing.",
        "call create_entities#[45]:content/0/text": "The words of an error are written anew.",
        "call add_observations#3:content/0/text": "The words of an error are written anew.",
        "search for two words:*": _SEARCH,
        "call no_such_tool:*": "A tool that does not exist is a protocol error, as the specification says.",
    },
)
